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
//! - **G1** No read-modify-write succeeds on an absent word but the resizer's: the lock and SLEEPERS
//!   are taken by compare-and-swap from a word that covers something.
//! - **G2** Levels change under the bucket locks and the resizer's mutex. So the resizer knows them.
//! - **G3** Memory is given back only where all buckets are absent, under the resizer's mutex. By G1
//!   no bit of anybody's is there: absent buckets are zeros, and zeros they stay.
//!
//! # Nothing to wake, while buckets move
//!
//! The proof of the empty check must hold for a waker that looks at *any* bucket which covers its
//! hash in the word that it saw. Let the homes of the hash be b₀, b₁, … in their order in time, which
//! the resizer's bucket locks make one of happens-before, and let the waiter lock bₘ before its fence
//! (A), with (A) before the waker's fence (B); otherwise `validate` sees the condition.
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

use unherd_sys::primitives::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering,
};

use super::home::Buckets;
use super::storage::Refused;
use super::word::{Shape, hash_of_index};

/// What a thread moves, at most, on its way to sleep: a page of buckets.
const STEPS_ARRIVING: usize = 64;
/// What it moves when it has been woken, and is in a hurry.
const STEPS_LEAVING: usize = 16;

/// Buckets for each waiter below which the table grows; it doubles until there are as many.
const BUCKETS_MIN: usize = 4;
/// Buckets for each waiter beyond which it shrinks. Far from the other, so that it does not do both
/// in turn.
const BUCKETS_MAX: usize = 32;

/// Live waiters, counted by those whose nodes' addresses fall here: the same stripe when they come
/// and when they go, and no thread-local.
#[repr(align(64))]
struct Stripe(AtomicUsize);

/// The state of a table that changes its size.
pub(super) struct Growth {
    floor: u32,
    /// The level that the table may grow to: lower than it was built for, after memory was refused,
    /// until it has shrunk. Relaxed, as all below: nothing depends on them but when work is done.
    ceiling: AtomicU32,
    ceiling_built: u32,
    /// The level that is wanted.
    target: AtomicU32,
    /// The level that was reached; [`UNSETTLED`] on the way.
    settled: AtomicU32,
    refused: AtomicU64,
    resizer: Mutex<Resizer>,
    stripes: Box<[Stripe]>,
    /// Off where a test drives the size.
    counts: AtomicBool,
}

const UNSETTLED: u32 = u32::MAX;

/// The buckets below `divided`, and their children, have `level` + 1; the others have `level`.
struct Resizer {
    level: u32,
    divided: usize,
}

impl Resizer {
    fn buckets(&self) -> usize {
        (1 << self.level) + self.divided
    }
}

/// As many stripes as processors, rounded up.
pub(super) fn stripes() -> usize {
    if cfg!(any(loom, shuttle)) {
        return 1;
    }
    let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get());
    processors.clamp(1, 64).next_power_of_two()
}

impl Growth {
    pub(super) fn new(floor: u32, ceiling: u32) -> Self {
        let stripes = stripes();
        Self {
            floor,
            ceiling: AtomicU32::new(ceiling),
            ceiling_built: ceiling,
            target: AtomicU32::new(floor),
            settled: AtomicU32::new(floor),
            refused: AtomicU64::new(0),
            resizer: Mutex::new(Resizer { level: floor, divided: 0 }),
            stripes: (0..stripes).map(|_| Stripe(AtomicUsize::new(0))).collect(),
            counts: AtomicBool::new(true),
        }
    }

    /// Bytes of the stripes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.stripes)
    }

    fn stripe(&self, node: usize) -> &AtomicUsize {
        // Nodes lie on cache lines, and stacks at equal distances: the product mixes both.
        let mixed = (node as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.stripes[(mixed >> 58) as usize & (self.stripes.len() - 1)].0
    }

    fn live(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }

    /// Chooses a level for the waiters that there are, if the one stripe with `seen` says that it
    /// may be another than the table has.
    fn aim_if(&self, seen: usize) {
        let (guess, buckets) = (seen * self.stripes.len(), self.buckets_wanted());
        let few = buckets > 1 << self.floor && guess * BUCKETS_MAX < buckets;
        if guess * BUCKETS_MIN > buckets || few {
            self.aim();
        }
    }

    fn buckets_wanted(&self) -> usize {
        1 << self.target.load(Ordering::Relaxed)
    }

    fn aim(&self) {
        let (live, buckets) = (self.live(), self.buckets_wanted());
        let level = if live * BUCKETS_MIN > buckets {
            (live * BUCKETS_MIN).next_power_of_two().ilog2()
        } else if live * BUCKETS_MAX < buckets {
            (live * BUCKETS_MAX).checked_ilog2().unwrap_or(0)
        } else {
            return;
        };
        let ceiling = self.ceiling.load(Ordering::Relaxed);
        self.target.store(level.min(ceiling).max(self.floor), Ordering::Relaxed);
    }

    #[inline]
    fn is_settled(&self) -> bool {
        self.target.load(Ordering::Relaxed) == self.settled.load(Ordering::Relaxed)
    }
}

impl<K> Buckets<K> {
    /// A waiter with its node at `node` has queued: counts it, and moves some buckets if the table
    /// is to have another size. Never waits for the resizer.
    #[inline]
    pub(super) fn arrive(&self, node: usize) {
        if let Some(growth) = &self.rest().growth
            && growth.counts.load(Ordering::Relaxed)
        {
            growth.aim_if(growth.stripe(node).fetch_add(1, Ordering::Relaxed) + 1);
            self.move_some(growth, STEPS_ARRIVING);
        }
    }

    /// It waits no more.
    #[inline]
    pub(super) fn leave(&self, node: usize) {
        if let Some(growth) = &self.rest().growth
            && growth.counts.load(Ordering::Relaxed)
        {
            growth.aim_if(growth.stripe(node).fetch_sub(1, Ordering::Relaxed) - 1);
            self.move_some(growth, STEPS_LEAVING);
        }
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
            if !self.step(growth, &mut resizer) {
                break;
            }
        }
    }

    /// Finishes what is pending, for as many waiters as there are now.
    pub(super) fn settle(&self) {
        let Some(growth) = &self.rest().growth else { return };
        let mut resizer = growth.resizer.lock();
        if growth.counts.load(Ordering::Relaxed) {
            growth.aim();
        }
        while self.step(growth, &mut resizer) {}
    }

    /// Brings the table to `level`, whoever waits, and keeps it there: for tests.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(super) fn drive_to(&self, level: u32) {
        let growth = self.rest().growth.as_ref().expect("a table that grows");
        growth.counts.store(false, Ordering::Relaxed);
        growth.target.store(level, Ordering::Relaxed);
        self.settle();
    }

    /// How often memory was refused.
    pub(super) fn refused(&self) -> u64 {
        self.rest().growth.as_ref().map_or(0, |growth| growth.refused.load(Ordering::Relaxed))
    }

    /// How many waiters are counted.
    pub(super) fn live(&self) -> Option<usize> {
        self.rest().growth.as_ref().map(Growth::live)
    }

    /// Divides or unites one bucket, if the table has another size than it should have: says
    /// whether.
    fn step(&self, growth: &Growth, resizer: &mut MutexGuard<'_, Resizer>) -> bool {
        let target = growth.target.load(Ordering::Relaxed);
        let (wanted, buckets) = (1 << target, resizer.buckets());
        if wanted == buckets {
            growth.settled.store(target, Ordering::Relaxed);
            return false;
        }
        growth.settled.store(UNSETTLED, Ordering::Relaxed);
        if wanted < buckets {
            self.step_down(growth, resizer);
        } else if self.step_up(resizer).is_err() {
            growth.refused.fetch_add(1, Ordering::Relaxed);
            growth.ceiling.store(resizer.level, Ordering::Relaxed);
            growth.target.store(resizer.level, Ordering::Relaxed);
        }
        true
    }

    /// Divides one bucket.
    fn step_up(&self, resizer: &mut Resizer) -> Result<(), Refused> {
        let (level, parent) = (resizer.level, resizer.divided);
        let storage = &self.rest().storage;
        let child = parent + (1 << level);
        if parent == 0 {
            storage.commit(1 << level, 2 << level)?;
        }
        if parent.is_multiple_of(STEPS_ARRIVING) {
            storage.populate(child, (child + STEPS_ARRIVING).min(2 << level))?;
        }
        let guard = self.lock(hash_of_index(parent));
        // SAFETY: the resizer's mutex is held; the child is absent, and was committed.
        unsafe { guard.divide_into(self.at(child)) };
        resizer.divided += 1;
        if resizer.divided == 1 << level {
            (resizer.level, resizer.divided) = (level + 1, 0);
            self.shape.store(Shape::of(level + 1));
        }
        Ok(())
    }

    /// Unites one pair.
    fn step_down(&self, growth: &Growth, resizer: &mut Resizer) {
        if resizer.divided == 0 {
            (resizer.level, resizer.divided) = (resizer.level - 1, 1 << (resizer.level - 1));
            // Before the first pair is united: so that quick looks find the one that stays.
            self.shape.store(Shape::of(resizer.level));
        }
        resizer.divided -= 1;
        let (level, parent) = (resizer.level, resizer.divided);
        // In the order of their places, as all who lock two.
        let guard = self.lock(hash_of_index(parent));
        let child = self.lock(hash_of_index(parent + (1 << level)));
        // SAFETY: the resizer's mutex is held; by its state they are parent and child.
        unsafe { guard.unite_with(child) };
        if parent == 0 {
            self.rest().storage.give_back(1 << level, 2 << level);
            growth.ceiling.store(growth.ceiling_built, Ordering::Relaxed);
        }
    }
}
