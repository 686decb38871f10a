//! Counts that cost their thread a load and a store: each thread has a *slot*, with a row for each
//! cache of the process, and nobody else writes there.
//!
//! A thread finds its slot by a thread-local, and its row by the number of the cache. Slots live
//! for ever: one whose thread has ended is taken over by the next, which counts on. The number of a
//! cache that is gone is given to another, which remembers what the rows held then. Who has no slot
//! (thread-locals are gone, or it is one of a child of fork(2)) or no number (there are too many
//! caches) counts elsewhere.
//!
//! All counts are Relaxed. The lock of the slots is held while they change hands, and while they
//! are summed; the number of a cache is given back by the last that has it.

use std::cell::Cell;

use unherd_sys::ForkMark;
use unherd_sys::primitives::{AtomicU64, Mutex, Ordering};

use crate::stats::Count;

/// What threads count for themselves is among the first of all counts. (Hits are counted elsewhere
/// again, and have a place here for nothing.)
pub(crate) const TICKS: usize = Count::PeekRetries as usize + 1;
const _: () = assert!((Count::Peeks as usize) < TICKS && (Count::CopiesOut as usize) < TICKS);

/// Caches that have rows, at a time.
const CACHES: usize = 64;

#[derive(Debug)]
#[repr(align(128))]
struct Slot([[AtomicU64; TICKS]; CACHES]);

#[derive(Debug)]
struct Slots {
    all: Vec<&'static Slot>,
    /// Those whose threads have ended.
    free: Vec<&'static Slot>,
    /// Which numbers caches have.
    numbers: u64,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { all: Vec::new(), free: Vec::new(), numbers: 0 });

impl Slots {
    fn sum(&self, number: usize) -> [u64; TICKS] {
        let mut sums = [0u64; TICKS];
        for slot in &self.all {
            for (sum, count) in sums.iter_mut().zip(&slot.0[number]) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

thread_local! {
    /// This thread's slot, from its first count to its end. It has no destructor, so it is there
    /// at any time of the thread's life.
    static MINE: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// Gives the slot back when the thread ends.
    static TAKEN: TakenSlot = const { TakenSlot(Cell::new(None)) };
}

struct TakenSlot(Cell<Option<&'static Slot>>);

impl Drop for TakenSlot {
    fn drop(&mut self) {
        MINE.set(None);
        if let Some(slot) = self.0.get() {
            SLOTS.lock().free.push(slot);
        }
    }
}

/// One cache's rows.
#[derive(Debug)]
pub(super) struct Rows {
    /// [`CACHES`] and up: none.
    number: usize,
    /// What the rows held before.
    before: [u64; TICKS],
}

impl Rows {
    pub(super) fn new() -> Self {
        // What outlives the model is not for shuttle, which runs it again and again.
        if cfg!(shuttle) {
            return Self { number: CACHES, before: [0; TICKS] };
        }
        let mut slots = SLOTS.lock();
        let number = slots.numbers.trailing_ones() as usize;
        if number >= CACHES {
            return Self { number, before: [0; TICKS] };
        }
        slots.numbers |= 1 << number;
        Self { number, before: slots.sum(number) }
    }

    /// Counts one more; false if the caller must count it elsewhere. `fork` is of the cache.
    #[inline]
    pub(super) fn tick(&self, count: Count, fork: &ForkMark) -> bool {
        match MINE.get() {
            Some(slot) if self.number < CACHES => {
                let cell = &slot.0[self.number][count as usize];
                // Nobody else writes it, so this needs no read-modify-write.
                cell.store(cell.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                true
            }
            _ => self.tick_slow(count, fork),
        }
    }

    #[cold]
    fn tick_slow(&self, count: Count, fork: &ForkMark) -> bool {
        // A thread of the parent may have had the lock of the slots at the fork.
        if fork.is_forked() {
            return false;
        }
        // Before a slot is taken it must be certain that it will be given back.
        let taken = TAKEN.try_with(|taken| {
            if self.number < CACHES && taken.0.get().is_none() {
                let slot = take();
                taken.0.set(Some(slot));
                MINE.set(Some(slot));
            }
        });
        taken.is_ok() && self.number < CACHES && self.tick(count, fork)
    }

    pub(super) fn read(&self) -> [u64; TICKS] {
        if self.number >= CACHES {
            return [0; TICKS];
        }
        let now = SLOTS.lock().sum(self.number);
        std::array::from_fn(|at| now[at].wrapping_sub(self.before[at]))
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if self.number < CACHES {
            SLOTS.lock().numbers &= !(1 << self.number);
        }
    }
}

fn take() -> &'static Slot {
    let mut slots = SLOTS.lock();
    slots.free.pop().unwrap_or_else(|| {
        let rows = || std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        let slot: &'static Slot = Box::leak(Box::new(Slot(rows())));
        slots.all.push(slot);
        slot
    })
}

#[cfg(test)]
mod tests {
    use unherd_sys::primitives::thread;

    use super::*;

    #[test]
    fn counts_of_ended_threads_stay_and_each_cache_has_its_own() {
        let (first, second) = (Rows::new(), Rows::new());
        let fork = ForkMark::new().unwrap();
        for _ in 0..3 {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            assert!(first.tick(Count::Peeks, &fork));
                            assert!(second.tick(Count::CopiesOut, &fork));
                        }
                    });
                }
            });
        }
        assert_eq!((first.read(), second.read()), ([0, 1200, 0, 0], [0, 0, 1200, 0]));
        let number = first.number;
        drop(first);
        let mut next = Vec::new();
        // Other tests take numbers as well.
        while next.last().is_none_or(|rows: &Rows| rows.number != number && next.len() < CACHES) {
            next.push(Rows::new());
        }
        for rows in &next {
            assert_eq!(rows.read(), [0; TICKS], "what the one before has counted is not its own");
        }
        drop(next);
        caches_beyond_the_last_number_count_elsewhere();
    }

    /// Another thread of the parent may change the slots while it forks.
    #[test]
    #[cfg_attr(miri, ignore = "fork")]
    #[expect(unsafe_code, reason = "fork")]
    fn in_a_child_the_first_count_of_a_thread_waits_for_no_lock() {
        let (rows, fork) = (Rows::new(), ForkMark::new().unwrap());
        let slots = SLOTS.lock();
        // SAFETY: the child counts, which is what is tested, and ends by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: a signal that is not handled ends the child.
            unsafe { libc::alarm(10) };
            let is_counted = rows.tick(Count::Peeks, &fork);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(is_counted)) };
        }
        drop(slots);
        let mut status = 0;
        // SAFETY: waits for the child started above.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0, "it hangs, or has counted in a row of the parent's");
    }

    /// Not a test of its own: it would take the other's numbers.
    fn caches_beyond_the_last_number_count_elsewhere() {
        let many: Vec<Rows> = (0..=CACHES).map(|_| Rows::new()).collect();
        let fork = ForkMark::new().unwrap();
        let counted = many.iter().filter(|rows| rows.tick(Count::Peeks, &fork)).count();
        assert!(counted < many.len());
        for rows in &many {
            let own = u64::from(rows.number < CACHES);
            assert_eq!(rows.read(), [0, own, 0, 0]);
        }
    }
}
