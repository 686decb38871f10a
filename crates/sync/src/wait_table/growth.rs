//! Tables that grow and shrink while they are used: linear hashing (Litwin, 1980) in one array that
//! never moves.
//!
//! Bucket `i` has its place for life, so there is no old table to protect from its readers. The
//! *resizer*, whoever holds its mutex, divides or unites one bucket at a time; its state is a level
//! and a number `s` of buckets that were divided already:
//!
//! ```text
//!  0 ........ s ............ 2^level ....... 2^level + s ............. 2^ceiling
//!  | level+1  |    level     |    level+1    |          absent                 |
//! ```
//!
//! (In a table with parts, [`super::placement`], that is the picture of one part. They take their
//! turns: those that had theirs have `level` + 1 throughout, and the others `level`.)
//!
//! Growing divides bucket `s` into `s` and `s + 2^level`; shrinking unites the last such pair. So
//! both directions have the same states, and turning round midway is nothing special.
//!
//! | | resizer, growing | resizer, shrinking |
//! |---|---|---|
//! | 1 | locks parent `i`; child `j` is absent | locks `i`, then `j` |
//! | 2 | moves the lists of `j` out of `i` | moves all lists of `j` into `i` |
//! | 3 | publishes `j` (Release): unlocked, level + 1 | unlocks `i` at level − 1 |
//! | 4 | unlocks `i` at level + 1 | makes `j` absent; wakes all who sleep for its lock |
//!
//! In both the bucket that a hash moves to is there before the one that it leaves lets go of it:
//! who comes too late finds a home, if a locked one, and can sleep for it.
//!
//! Invariants, beside those of [`super::bucket`] and [`super::home`]:
//!
//! - **G1** No read-modify-write succeeds on an absent word but the resizer's: the lock and
//!   SLEEPERS are taken by compare-and-swap from a word that covers something.
//! - **G2** Levels change under the bucket locks and the resizer's mutex. So the resizer knows
//!   them.
//! - **G3** Memory is given back only where all buckets are absent, under the resizer's mutex. By
//!   G1 no bit of anybody's is there: absent buckets are zeros, and zeros they stay.
//!
//! # Nothing to wake, while buckets move
//!
//! The proof of the empty check must hold for a waker that looks at *any* bucket which covers its
//! hash in the word that it saw. Let the homes of the hash be b₀, b₁, … in their order in time,
//! which the resizer's bucket locks make one of happens-before, and let the waiter lock bₘ before
//! its fence (A), with (A) before the waker's fence (B); otherwise `validate` sees the condition.
//!
//! ```text
//!  resizer                     waiter                      waker
//!  lock b(k)
//!  move, publish b(k+1)
//!                              lock b(m), m > k
//!                              fence (A); validate: no
//!                                                          fence (B)
//!                                                          look at b(k)
//!                              push; unlock
//! ```
//!
//! - k < m: the resizer's lock of b(k) happens before the waiter's lock of b(m), so before (A): the
//!   waker sees b(k) LOCKED, or a later word, which does not cover the hash.
//! - k = m: it sees the waiter's LOCKED or a later word; if that is unlocked and without the bit,
//!   the waiter has left.
//! - k > m: that word was written by a resizer that moved the waiter along, or later.
//!
//! An absent word is never quiet: it sends the waker on.
#![expect(unsafe_code, reason = "buckets are made and unmade")]

#[cfg(not(any(loom, shuttle)))]
use unherd_sys::primitives::thread;
use unherd_sys::primitives::{AtomicU32, AtomicUsize, Mutex, Ordering};

use super::bucket::BucketGuard;
use super::home::Buckets;
use super::placement::Layout;
use super::storage::Refused;
use super::word::hash_of_index;

/// What a thread moves, at most, on its way to sleep: a page of buckets.
const STEPS_ARRIVING: usize = 64;
/// What it moves when it has been woken, and is in a hurry: as many as let a table whose waiters
/// leave, and nobody comes, keep up.
const STEPS_LEAVING: usize = BUCKETS_MAX;

/// Buckets for each waiter below which the table grows; it doubles until there are as many.
const BUCKETS_MIN: usize = 4;
/// Buckets for each waiter beyond which it shrinks. Far from the other, so that it does not do both
/// in turn.
const BUCKETS_MAX: usize = 32;

/// Buckets whose memory is given back at a time: each time interrupts other processors, and more
/// would take the thread that does it too long.
const GIVE_BACK: usize = 4096;

/// The most stripes that count waiters.
const STRIPES_MAX: usize = 64;

/// Live waiters, counted by those whose nodes' addresses fall here: the same stripe when they come
/// and when they go, and no thread-local.
#[repr(align(64))]
struct Stripe(AtomicUsize);

/// The state of a table that changes its size. What is atomic here is Relaxed: it decides when work
/// is done, and nothing depends on that. Who counts or aims at the same time as another may leave a
/// target that is out of date; the next to come or go corrects it.
pub(super) struct Growth {
    floor: u32,
    /// The level that the table may grow to: lower than it was built for after memory was refused,
    /// until half as many waiters are left as would make it grow.
    ceiling: AtomicU32,
    ceiling_built: u32,
    /// The level that is wanted.
    target: AtomicU32,
    /// The level that was reached; [`UNSETTLED`] on the way.
    settled: AtomicU32,
    resizer: Mutex<Resizer>,
    stripes: Box<[Stripe]>,
}

const UNSETTLED: u32 = u32::MAX;

/// Whether the resizer sleeps for the lock of a bucket. Who comes or goes does not: it has its own
/// affairs, and the holder of the lock none with it. The next one moves the bucket.
#[derive(Debug, Clone, Copy)]
enum Patience {
    None,
    Sleeps,
}

/// The first `divided` buckets, as [`Layout::index`] counts them, and their children have `level` +
/// 1; the others have `level`.
struct Resizer {
    level: u32,
    divided: usize,
}

impl Resizer {
    fn buckets(&self) -> usize {
        (1 << self.level) + self.divided
    }

    /// The level, the bucket that is the next to be divided, and how far from it its child is.
    fn pair(&self, layout: Layout) -> (u32, usize, usize) {
        let distance = 1 << layout.level_in_part(self.level);
        (self.level, layout.index(self.level, self.divided), distance)
    }
}

/// As many stripes as processors, rounded up.
fn stripes() -> usize {
    #[cfg(any(loom, shuttle))]
    return 1;
    #[cfg(not(any(loom, shuttle)))]
    thread::available_parallelism()
        .map_or(1, |processors| processors.get().min(STRIPES_MAX).next_power_of_two())
}

/// The floor of a table that was told none: so large that a waiter alone in its stripe does not
/// make it look at the others'.
pub(super) fn default_floor() -> usize {
    (BUCKETS_MIN * stripes()).max(64)
}

impl Growth {
    pub(super) fn new(floor: u32, ceiling: u32) -> Self {
        Self {
            floor,
            ceiling: AtomicU32::new(ceiling),
            ceiling_built: ceiling,
            target: AtomicU32::new(floor),
            settled: AtomicU32::new(floor),
            resizer: Mutex::new(Resizer { level: floor, divided: 0 }),
            stripes: (0..stripes()).map(|_| Stripe(AtomicUsize::new(0))).collect(),
        }
    }

    /// Bytes of the stripes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.stripes)
    }

    fn stripe(&self, node: usize) -> &AtomicUsize {
        // Nodes lie on cache lines, and stacks at equal distances: the product mixes both.
        let mixed = (node as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let highest = mixed >> (64 - STRIPES_MAX.ilog2());
        &self.stripes[highest as usize & (self.stripes.len() - 1)].0
    }

    /// Waiters.
    pub(super) fn live(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }

    /// Chooses a level for the waiters that there are, if the one stripe with `seen` says that it
    /// may be another than the table has, and can have.
    fn aim_if(&self, seen: usize) {
        let (guess, target) = (seen * self.stripes.len(), self.target.load(Ordering::Relaxed));
        let (buckets, ceiling) = (1 << target, self.ceiling_for(guess));
        let many = guess * BUCKETS_MIN > buckets && target < ceiling;
        let few = guess * BUCKETS_MAX < buckets && target > self.floor;
        if many || few {
            self.aim();
        }
    }

    /// The ceiling, after a refusal of memory is forgotten if there are so few waiters.
    fn ceiling_for(&self, live: usize) -> u32 {
        let ceiling = self.ceiling.load(Ordering::Relaxed);
        if ceiling < self.ceiling_built && 2 * live * BUCKETS_MIN <= 1 << ceiling {
            self.ceiling.store(self.ceiling_built, Ordering::Relaxed);
            return self.ceiling_built;
        }
        ceiling
    }

    fn aim(&self) {
        let (live, buckets) = (self.live(), 1 << self.target.load(Ordering::Relaxed));
        let level = if live * BUCKETS_MIN > buckets {
            (live * BUCKETS_MIN).next_power_of_two().ilog2()
        } else if live * BUCKETS_MAX < buckets {
            (live * BUCKETS_MAX).checked_ilog2().unwrap_or(0)
        } else {
            return;
        };
        let ceiling = self.ceiling_for(live);
        self.target.store(level.min(ceiling).max(self.floor), Ordering::Relaxed);
    }

    /// After memory was refused: back to a whole level, which a ceiling can name. The steps that
    /// follow unite what was divided of the next, and give its memory back.
    fn keep_to(&self, level: u32) {
        self.ceiling.store(level, Ordering::Relaxed);
        self.target.store(level, Ordering::Relaxed);
    }

    #[inline]
    fn is_settled(&self) -> bool {
        self.target.load(Ordering::Relaxed) == self.settled.load(Ordering::Relaxed)
    }
}

impl<K> Buckets<K> {
    /// A waiter with its node at `node` has queued: counts it, and moves some buckets if the table
    /// is to have another size. Never waits for the resizer, and never panics.
    #[inline]
    pub(super) fn arrive(&self, node: usize) {
        if let Some(growth) = self.counting() {
            growth.aim_if(growth.stripe(node).fetch_add(1, Ordering::Relaxed) + 1);
            self.move_some(growth, STEPS_ARRIVING);
        }
    }

    /// It waits no more.
    #[inline]
    pub(super) fn leave(&self, node: usize) {
        if let Some(growth) = self.counting() {
            growth.aim_if(growth.stripe(node).fetch_sub(1, Ordering::Relaxed) - 1);
            self.move_some(growth, STEPS_LEAVING);
        }
    }

    /// The growth of a table that counts its waiters. Under loom none does: the scenes say when it
    /// is to grow.
    #[inline]
    fn counting(&self) -> Option<&Growth> {
        if cfg!(loom) { None } else { self.rest().growth.as_ref() }
    }

    #[inline]
    fn move_some(&self, growth: &Growth, steps: usize) {
        if !growth.is_settled() {
            self.move_some_slow(growth, steps);
        }
    }

    #[cold]
    fn move_some_slow(&self, growth: &Growth, steps: usize) {
        let Some(mut resizer) = growth.resizer.try_lock() else { return };
        for _ in 0..steps {
            if !self.step(growth, &mut resizer, Patience::None) {
                break;
            }
        }
    }

    /// Finishes what is pending, for as many waiters as there are now.
    pub(super) fn settle(&self) {
        let Some(growth) = self.counting() else { return };
        let mut resizer = growth.resizer.lock();
        growth.aim();
        while self.step(growth, &mut resizer, Patience::Sleeps) {}
    }

    /// Brings the table to `level`, whoever waits.
    #[cfg(all(test, loom))]
    pub(super) fn drive_to(&self, level: u32) {
        let growth = self.rest().growth.as_ref().expect("a table that grows");
        let mut resizer = growth.resizer.lock();
        growth.target.store(level, Ordering::Relaxed);
        while self.step(growth, &mut resizer, Patience::Sleeps) {}
    }

    /// Divides or unites one bucket, if the table has another size than it should have, and nobody
    /// holds a lock for which there is no patience: says whether.
    fn step(&self, growth: &Growth, resizer: &mut Resizer, patience: Patience) -> bool {
        let target = growth.target.load(Ordering::Relaxed);
        let (wanted, buckets) = (1 << target, resizer.buckets());
        if wanted == buckets {
            growth.settled.store(target, Ordering::Relaxed);
            return false;
        }
        growth.settled.store(UNSETTLED, Ordering::Relaxed);
        if wanted < buckets {
            return self.step_down(resizer, patience).is_some();
        }
        match self.step_up(resizer, patience) {
            Ok(done) => done.is_some(),
            Err(Refused) => {
                self.rest().refused.fetch_add(1, Ordering::Relaxed);
                growth.keep_to(resizer.level);
                true
            }
        }
    }

    /// The lock of a bucket whose level is the resizer's affair.
    fn lock_to_move(&self, index: usize, patience: Patience) -> Option<BucketGuard<'_, K>> {
        match patience {
            Patience::Sleeps => Some(self.lock(hash_of_index(index))),
            Patience::None => self.try_lock_at(index),
        }
    }

    /// Divides one bucket. If memory is refused, or somebody holds the lock, nothing has changed.
    fn step_up(&self, resizer: &mut Resizer, patience: Patience) -> Result<Option<()>, Refused> {
        let storage = &self.rest().storage;
        let layout = storage.layout();
        let (level, parent, distance) = resizer.pair(layout);
        let child = parent + distance;
        if layout.is_first(parent) {
            storage.commit(child, child + distance)?;
        }
        let run = STEPS_ARRIVING.min(distance);
        if parent.is_multiple_of(run) {
            storage.populate(child, child + run)?;
        }
        let Some(guard) = self.lock_to_move(parent, patience) else { return Ok(None) };
        // SAFETY: the resizer's mutex is held; the child is absent, and was committed.
        unsafe { guard.divide_into(self.at(child)) };
        resizer.divided += 1;
        if resizer.divided == 1 << level {
            *resizer = Resizer { level: level + 1, divided: 0 };
            self.reshape(level + 1);
        }
        Ok(Some(()))
    }

    /// Unites one pair. If somebody holds one of the locks, nothing has changed.
    fn step_down(&self, resizer: &mut Resizer, patience: Patience) -> Option<()> {
        let layout = self.rest().storage.layout();
        let next = match *resizer {
            Resizer { level, divided: 0 } => {
                Resizer { level: level - 1, divided: (1 << (level - 1)) - 1 }
            }
            Resizer { level, divided } => Resizer { level, divided: divided - 1 },
        };
        let (level, parent, distance) = next.pair(layout);
        let child = parent + distance;
        // In the order of their places, as all who lock two.
        let guard = self.lock_to_move(parent, patience)?;
        let guard_of_child = self.lock_to_move(child, patience)?;
        if resizer.divided == 0 {
            // Before the first pair is united: so that quick looks find the one that stays.
            self.reshape(level);
        }
        // SAFETY: the resizer's mutex is held; by its state they are parent and child.
        unsafe { guard.unite_with(guard_of_child) };
        *resizer = next;
        let run = GIVE_BACK.min(distance);
        if parent.is_multiple_of(run) {
            self.rest().storage.give_back(child, child + run);
        }
        Some(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
