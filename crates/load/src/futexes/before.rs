//! A futex table by the rules that the kernel's had before report 002.
//!
//! There are 256 buckets, side by side in memory. A wait and a wake lock the bucket of their word,
//! also if nobody waits there; and a wake sends its wakeups before it unlocks. Each patch of the
//! report is a switch:
//!
//! - *larger-table*: 256 buckets for each CPU, each in cache lines of its own.
//! - *empty-check*: a waiter counts itself before it locks; a wake that finds a bucket with a count
//!   of zero returns without a lock.
//! - *wake-list*: whom to wake is noted under the lock, and the wakeups are sent after it.
//!
//! ```text
//!  waiter                                   waker
//!  ------                                   -----
//!  count itself; fence (A)                  store to the word    (the caller)
//!  lock; the word has changed: return       fence (B)
//!  queue; unlock; sleep                     the count is zero: return; lock
//! ```
//!
//! Excluded: that the waiter sleeps and the waker returns; the kernel's comment has the same race.

use std::collections::VecDeque;
use std::mem;

use unherd::{Deadline, Timestamp};
use unherd_sys::primitives::{
    Arc, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, available_parallelism, fence,
};
use unherd_sys::{Futex, FutexWait};

use super::Table;
use crate::random::mix;

const BUCKETS: usize = 256;
/// Buckets of the larger table are as many of the array apart: two lines, which processors fetch
/// together.
const STRIDE: usize = 128usize.div_ceil(mem::size_of::<Bucket>());

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patches {
    larger_table: bool,
    empty_check: bool,
    wake_list: bool,
}

impl Patches {
    /// Those of the implementation `before` and `name`.
    pub(super) fn of_impl(name: &str) -> Option<Self> {
        let mut patches = Self::default();
        match name {
            "" => {}
            "-larger-table" => patches.larger_table = true,
            "-empty-check" => patches.empty_check = true,
            "-wake-list" => patches.wake_list = true,
            "-all" => patches = Self { larger_table: true, empty_check: true, wake_list: true },
            _ => return None,
        }
        Some(patches)
    }
}

/// One that waits. Its state is 1 as soon as it is woken.
struct Waiter {
    woken: Futex,
    /// The address of its word; changed under the lock of its bucket.
    word: AtomicUsize,
}

#[derive(Default)]
struct Bucket {
    /// How many wait, or are about to; counted for the empty check alone.
    waiters: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
}

pub(super) struct Before {
    buckets: Box<[Bucket]>,
    stride: usize,
    patches: Patches,
    /// Relaxed: they are read when all threads have ended.
    contended_ns: [AtomicU64; 2],
}

const WAITS: usize = 0;
const WAKES: usize = 1;

fn address(word: &Futex) -> usize {
    std::ptr::from_ref(word).addr()
}

impl Before {
    pub(super) fn new(patches: Patches) -> Self {
        let cpus = available_parallelism().map_or(1, usize::from);
        let (buckets, stride) = match patches.larger_table {
            true => ((BUCKETS * cpus).next_power_of_two(), STRIDE),
            false => (BUCKETS, 1),
        };
        let buckets = (0..buckets * stride).map(|_| Bucket::default()).collect();
        Self { buckets, stride, patches, contended_ns: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    fn index(&self, word: usize) -> usize {
        let buckets = self.buckets.len() / self.stride;
        (mix(word as u64) as usize & (buckets - 1)) * self.stride
    }

    fn count(&self, index: usize, more: isize) {
        if self.patches.empty_check {
            self.buckets[index].waiters.fetch_add(more as usize, Ordering::Relaxed);
        }
    }

    /// Locks bucket `index`, and notes how long another has held it.
    fn lock(&self, index: usize, caller: usize) -> MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        let queue = &self.buckets[index].queue;
        queue.try_lock().unwrap_or_else(|| {
            let begin = Timestamp::now();
            let guard = queue.lock();
            let ns = Timestamp::now().as_ns() - begin.as_ns();
            self.contended_ns[caller].fetch_add(ns, Ordering::Relaxed);
            guard
        })
    }

    /// Takes the waiter out, if it is queued still.
    fn take_out(&self, waiter: &Arc<Waiter>) -> bool {
        loop {
            let word = waiter.word.load(Ordering::Relaxed);
            let index = self.index(word);
            let mut queue = self.lock(index, WAITS);
            if waiter.word.load(Ordering::Relaxed) != word {
                continue; // It was moved.
            }
            let place = queue.iter().position(|other| Arc::ptr_eq(other, waiter));
            if let Some(place) = place {
                queue.remove(place);
                self.count(index, -1);
            }
            return place.is_some();
        }
    }
}

fn send(waiter: &Waiter) {
    // ORDER[BEFORE-WOKEN]: Release; pairs with the Acquire in `wait`.
    waiter.woken.word().store(1, Ordering::Release);
    waiter.woken.wake(1);
}

impl Table for Before {
    fn wait(&self, word: &Futex, expected: u32, deadline: Deadline) -> FutexWait {
        let index = self.index(address(word));
        self.count(index, 1);
        // ORDER[BEFORE-EMPTY]: SeqCst fence (A); pairs with (B) in `wake`.
        fence(Ordering::SeqCst);
        let mut queue = self.lock(index, WAITS);
        if word.word().load(Ordering::Relaxed) != expected {
            self.count(index, -1);
            return FutexWait::Mismatch;
        }
        let word = AtomicUsize::new(address(word));
        let waiter = Arc::new(Waiter { woken: Futex::new(0), word });
        queue.push_back(Arc::clone(&waiter));
        drop(queue);
        // ORDER[BEFORE-WOKEN]: Acquire; pairs with the Release in `send`.
        while waiter.woken.word().load(Ordering::Acquire) == 0 {
            let outcome = waiter.woken.wait_until(0, deadline);
            if outcome == FutexWait::TimedOut && self.take_out(&waiter) {
                return FutexWait::TimedOut;
            }
        }
        FutexWait::Woken
    }

    fn wake(&self, word: &Futex, n: u32) -> usize {
        let (word, index) = (address(word), self.index(address(word)));
        if self.patches.empty_check {
            // ORDER[BEFORE-EMPTY]: SeqCst fence (B); pairs with (A) in `wait`.
            fence(Ordering::SeqCst);
            if self.buckets[index].waiters.load(Ordering::Relaxed) == 0 {
                return 0;
            }
        }
        let mut queue = self.lock(index, WAKES);
        let (mut woken, mut list) = (0, Vec::new());
        queue.retain(|waiter| {
            let stays = woken == n as usize || waiter.word.load(Ordering::Relaxed) != word;
            if !stays {
                woken += 1;
                match self.patches.wake_list {
                    true => list.push(Arc::clone(waiter)),
                    false => send(waiter),
                }
            }
            stays
        });
        self.count(index, -(woken as isize));
        drop(queue);
        list.iter().for_each(|waiter| send(waiter));
        woken
    }

    fn requeue(&self, from: &Futex, to: &Futex, n: u32) {
        let [from, to] = [from, to].map(address);
        let (home, target) = (self.index(from), self.index(to));
        let mut locks = [home, target];
        locks.sort_unstable();
        let mut first = self.lock(locks[0], WAKES);
        let mut second = (home != target).then(|| self.lock(locks[1], WAKES));
        let mut moved = VecDeque::new();
        let queue = if home == locks[0] { Some(&mut first) } else { second.as_mut() };
        let (mut left, mut stay) = (n, VecDeque::new());
        for waiter in queue.map(|queue| mem::take(&mut **queue)).unwrap_or_default() {
            if left > 0 && waiter.word.load(Ordering::Relaxed) == from {
                left -= 1;
                waiter.word.store(to, Ordering::Relaxed);
                moved.push_back(waiter);
            } else {
                stay.push_back(waiter);
            }
        }
        self.count(home, -(moved.len() as isize));
        self.count(target, moved.len() as isize);
        // Behind those that stay, where both are one bucket.
        for (index, list) in [(home, stay), (target, moved)] {
            let queue = if index == locks[0] { Some(&mut first) } else { second.as_mut() };
            if let Some(queue) = queue {
                queue.extend(list);
            }
        }
    }

    fn contended_ns(&self) -> Option<[u64; 2]> {
        Some(self.contended_ns.each_ref().map(|ns| ns.load(Ordering::Relaxed)))
    }
}
