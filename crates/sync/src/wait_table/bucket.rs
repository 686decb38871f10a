//! One bucket: a word that is lock and summary in one, and the queue that it guards.
//!
//! The word's layout stands in [`super::word`].
//!
//! | bits | meaning | changed by |
//! |---|---|---|
//! | LOCKED | somebody holds the bucket lock | anybody, 0 → 1; the holder, 1 → 0 |
//! | SLEEPERS | a thread may sleep on the word for the lock | who is about to sleep; the holder's unlock clears it |
//! | level | which hashes the bucket covers | the holder |
//! | signature | which classes of hashes may wait here | the holder, at unlock |
//!
//! Invariants:
//!
//! - **B1** The queue is read and changed only by the holder of LOCKED.
//! - **B2** While LOCKED is clear, the bit of every hash that waits is in the signature, and no bit
//!   of a tree that is empty. So it is zero if and only if the queue is empty; and a class that has
//!   left while others of its tree wait costs a waker the lock, never a waiter its wake.
//! - **B3** While LOCKED is set, only the holder changes level and signature. So unlocking is one
//!   swap: what others may have changed meanwhile is SLEEPERS alone, and the swap returns it.
//! - **B4** A node in the queue is alive: its owner leaves `wait` only after it has unlinked the
//!   node under the lock, or was told by the waker that claimed it.
//! - **B5** A node that is claimed (unlinked by a waker) belongs to that waker until it notifies
//!   the node's owner.
//!
//! # The lock
//!
//! A lock is asked for on behalf of a hash, and is had only while the bucket covers that hash:
//! it is taken by a compare-and-swap from a word that says so. A word that changes its level makes
//! the swap fail, and who wanted the lock looks for the hash elsewhere.
//!
//! Critical sections are short (a push, or a walk along the queue), so the lock spins for a bounded
//! number of looks and then sleeps on the word: a holder that was descheduled costs a waiter a
//! sleep, not its time slice.
//!
//! ```text
//!  locker                                   holder
//!  ------                                   ------
//!  sees LOCKED; sets SLEEPERS by CAS
//!  (the CAS fails if LOCKED was cleared)
//!  futex_wait(word == value it wrote)       old = swap(bits without LOCKED, SLEEPERS)
//!                                           old has SLEEPERS: futex_wake(word, 1)
//! ```
//!
//! Either the swap comes before the CAS, which then fails; or after it, and sees SLEEPERS; the
//! kernel then finds the sleeper in its queue, or the sleeper's comparison fails.
//!
//! - **B6** (the baton) The wake of an unlock is for all who sleep: whoever has slept takes this
//!   lock with SLEEPERS set, since it cannot know that it was the last, or, if the bucket covers
//!   its hash no more, wakes all the others before it goes elsewhere.
#![expect(unsafe_code, reason = "an intrusive queue of nodes on their threads' stacks")]

use unherd_sys::Futex;
use unherd_sys::primitives::{Ordering, UnsafeCell, spin_loop};

use super::Token;
use super::queue::Queue;
use super::waiter::Waiter;
use super::word::{
    LEVEL, LOCKED, SIGNATURE, SLEEPERS, class_bit, covers, index_at, level_of, present,
};

/// Looks at a held lock before sleeping, each after twice the pause of the one before: so the
/// holder's cache line is left alone for most of the time, which is that of a critical section of a
/// few dozen nodes. Under loom none: a look only loads the word once more.
const LOOKS: u32 = if cfg!(loom) {
    0
} else if cfg!(shuttle) {
    1
} else {
    7
};

/// A queue of waiters with its lock, alone on its cache line.
#[repr(C, align(64))]
pub(super) struct Bucket<K> {
    /// Relaxed loads of it only look: the check for emptiness brings its own fence, and the lock
    /// orders by its read-modify-writes.
    word: Futex,
    queue: UnsafeCell<Queue<K>>,
}

// SAFETY: the queue is guarded by LOCKED (B1), and nodes of other threads are reached only through
// it; keys are compared by whichever thread holds the lock, hence `K: Sync`.
unsafe impl<K: Sync> Sync for Bucket<K> {}
// SAFETY: a bucket owns nothing; its nodes belong to threads that borrow the table.
unsafe impl<K: Sync> Send for Bucket<K> {}

/// Which bucket to lock, for whom, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    pub(super) index: usize,
    pub(super) hash: u64,
    /// Whether the table's signatures tell nobody apart.
    pub(super) coarse: bool,
    /// Whether the lock is not wanted where nobody waits for the hash: for a waker that has fenced.
    pub(super) unless_quiet: bool,
}

/// Why a bucket was not locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotLocked {
    /// It does not cover the hash, or no longer.
    Moved,
    /// Nobody waits for the hash, and nobody is about to.
    Quiet,
}

impl<K> Bucket<K> {
    /// A present bucket.
    pub(super) fn new(level: u32) -> Self {
        Self { word: Futex::new(present(level)), queue: UnsafeCell::new(Queue::new()) }
    }

    /// An absent bucket: zeros.
    pub(super) fn absent() -> Self {
        Self { word: Futex::new(0), queue: UnsafeCell::new(Queue::new()) }
    }

    /// What the kernel does to memory that is given back.
    #[cfg(any(loom, shuttle))]
    pub(super) fn become_zeros(&self) {
        assert_eq!(self.word(), 0, "G3");
        self.word.word().store(0, Ordering::Relaxed);
    }

    /// The word as it is, or was: it orders nothing.
    #[inline]
    pub(super) fn word(&self) -> u32 {
        self.word.word().load(Ordering::Relaxed)
    }

    /// Locks the bucket, whose word was just `seen` to be unlocked and to cover the caller's hash,
    /// unless the word has changed meanwhile.
    #[inline]
    pub(super) fn try_lock(&self, seen: u32, coarse: bool) -> Option<BucketGuard<'_, K>> {
        let locked = seen | LOCKED;
        // ORDER[LOCK]: Acquire; pairs with the Releases of unlocking, in the guard's drop, and of a
        // new bucket, in `divide_into`. Takes over the queue.
        let order = Ordering::Acquire;
        let taken = self.word.word().compare_exchange(seen, locked, order, Ordering::Relaxed);
        taken.is_ok().then(|| self.guard(coarse, seen, false))
    }

    /// Locks the bucket, whose word was just `seen`, as long as it covers the goal's hash.
    pub(super) fn lock(&self, goal: &Goal, mut seen: u32) -> Result<BucketGuard<'_, K>, NotLocked> {
        let word = self.word.word();
        let (mut looks, mut slept, mut contended) = (0, false, false);
        loop {
            if !covers(goal.index, seen, goal.hash) {
                if slept {
                    // B6.
                    self.word.wake(u32::MAX);
                }
                return Err(NotLocked::Moved);
            }
            if seen & LOCKED == 0 {
                // Not after a sleep: B6.
                let may_leave = goal.unless_quiet && !slept;
                if may_leave && seen & class_bit(goal.hash) == 0 {
                    return Err(NotLocked::Quiet);
                }
                let locked = seen | LOCKED | if slept { SLEEPERS } else { 0 };
                // ORDER[LOCK]: Acquire; pairs as in `try_lock`.
                match word.compare_exchange(seen, locked, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Ok(self.guard(goal.coarse, seen, contended)),
                    Err(now) => seen = now,
                }
                continue;
            }
            contended = true;
            if looks < LOOKS {
                (0..1 << looks).for_each(|_| spin_loop());
                looks += 1;
                seen = self.word();
            } else if seen & SLEEPERS == 0 {
                let sleepers = seen | SLEEPERS;
                let order = Ordering::Relaxed;
                seen = match word.compare_exchange(seen, sleepers, order, order) {
                    Ok(_) => sleepers,
                    Err(now) => now,
                };
            } else {
                self.word.wait(seen);
                slept = true;
                seen = self.word();
            }
        }
    }

    fn guard(&self, coarse: bool, seen: u32, contended: bool) -> BucketGuard<'_, K> {
        let (level, signature) = (seen & LEVEL, seen & SIGNATURE);
        BucketGuard { bucket: self, level, signature, coarse, contended }
    }
}

/// The bucket lock, held. Unlocks on drop, also while a panic unwinds.
pub(super) struct BucketGuard<'a, K> {
    bucket: &'a Bucket<K>,
    /// The level field of the word that the unlock will write.
    level: u32,
    /// The signature that it will write, but for the trees that are empty by then.
    signature: u32,
    coarse: bool,
    /// Whether the lock was held by another meanwhile.
    pub(super) contended: bool,
}

impl<K> BucketGuard<'_, K> {
    /// Whether the bucket, whose place is `index`, covers `hash`.
    pub(super) fn covers(&self, index: usize, hash: u64) -> bool {
        covers(index, self.level, hash)
    }

    /// The queue, which the guard's lock is for.
    pub(super) fn queue(&mut self) -> &mut Queue<K> {
        // SAFETY: B1.
        self.bucket.queue.with_mut(|queue| unsafe { &mut *queue })
    }

    /// Puts `node` behind all others of its key, which `is_key` knows. If that panics, nothing was
    /// changed.
    ///
    /// # Safety
    /// The node is in no queue, does not move, and stays alive as B4 says.
    pub(super) unsafe fn push(&mut self, node: &Waiter<K>, is_key: impl FnMut(&K) -> bool) {
        // SAFETY: its owner's, or it is in no queue and the lock of its home is held.
        let hash = unsafe { node.hash() };
        // SAFETY: B1.
        let first = unsafe { self.queue().open_list(hash, is_key) };
        // SAFETY: B1 for the links; B4 for the node at the tail.
        unsafe { self.queue().push(first, node) };
        self.announce(hash);
    }

    /// Has the signature say that somebody waits for `hash`.
    pub(super) fn announce(&mut self, hash: u64) {
        self.signature |= if self.coarse { SIGNATURE } else { class_bit(hash) };
    }

    /// Takes `node` out, if it is still in the queue, for its owner that is about to leave.
    pub(super) fn remove(&mut self, node: &Waiter<K>) -> Removed {
        // SAFETY: the lock of its home is held.
        let (queued, shared) = unsafe { node.look(|links| (links.queued, links.shared)) };
        if !queued {
            return Removed::Claimed;
        }
        // SAFETY: B1; it is in this queue, the one of its home.
        let first = unsafe { self.queue().first_of(node) };
        // SAFETY: B1.
        let (closed, end) = unsafe { first.look(|links| (links.closed, links.end)) };
        // SAFETY: B1; as above.
        unsafe { self.queue().unlink(node) };
        if !closed {
            return Removed::Waiting;
        }
        // SAFETY: Q4: the list is closed.
        let closer = unsafe { end.closer };
        // SAFETY: Q4: the closer leaves only after it has seen its list empty under this lock.
        let closer = unsafe { &*closer };
        if !node.try_claim() {
            return Removed::Waiting;
        }
        // SAFETY: B1, for both: the list was the closer's.
        unsafe { closer.count(shared) };
        // SAFETY: B1.
        unsafe { node.tell(closer) };
        // SAFETY: it is out of the queue, and nobody has claimed it.
        Removed::Chosen(unsafe { node.token() })
    }

    /// Divides the bucket: moves all hashes that `child` covers at the next level there, and leaves
    /// both at that level, unlocked.
    ///
    /// # Safety
    /// The caller is the resizer; `child` is the absent bucket that is made out of this one, and
    /// its memory is there.
    pub(super) unsafe fn divide_into(mut self, child: &Bucket<K>) {
        let level = level_of(self.level).map_or(0, |level| level + 1);
        let goes = |hash| index_at(level, hash) != index_at(level - 1, hash);
        // SAFETY: B1.
        let queue = self.bucket.queue.with_mut(|queue| unsafe { &mut *queue }.take());
        // SAFETY: B1.
        let divided = unsafe { queue.divide(goes) };
        // SAFETY: B1.
        self.bucket.queue.with_mut(|queue| unsafe { *queue = divided.stay.queue });
        // SAFETY: G1 and G2: nobody else locks an absent bucket.
        child.queue.with_mut(|queue| unsafe { *queue = divided.go.queue });
        let signature = |classes| if self.coarse && classes != 0 { SIGNATURE } else { classes };
        let word = present(level) | signature(divided.go.classes);
        (self.level, self.signature) = (present(level), signature(divided.stay.classes));
        // ORDER[LOCK]: Release; pairs with the Acquires in `lock`. Publishes the child's queue, as
        // an unlock does (loom: `grow_wait_wake_moved`).
        child.word.word().store(word, Ordering::Release);
        // Then the parent: whoever comes from it finds the child.
        drop(self);
    }

    /// Unites the bucket with its child: moves all waiters of `child` here, and leaves this one at
    /// the level before, unlocked, and `child` absent.
    ///
    /// # Safety
    /// The caller is the resizer; `child` was made out of this bucket, and both have one level.
    pub(super) unsafe fn unite_with(mut self, child: BucketGuard<'_, K>) {
        let level = level_of(self.level).map_or(0, |level| level - 1);
        // SAFETY: B1, for the child.
        let theirs = child.bucket.queue.with_mut(|queue| unsafe { &mut *queue }.take());
        self.bucket.queue.with_mut(|queue| {
            // SAFETY: B1.
            let queue = unsafe { &mut *queue };
            // SAFETY: B1; no hash has two homes (H1).
            unsafe { queue.absorb(theirs) };
        });
        (self.level, self.signature) = (present(level), self.signature | child.signature);
        // First this one: whoever comes from the child finds a home.
        drop(self);
        let word = &child.bucket.word;
        std::mem::forget(child);
        // Relaxed: nobody takes anything over from an absent word, and the next to use the child's
        // queue is a resizer, which the mutex orders.
        let before = word.word().swap(0, Ordering::Relaxed);
        if before & SLEEPERS != 0 {
            word.wake(u32::MAX);
        }
    }

    /// What the signature has to be for B2.
    fn signature_now(&self) -> u32 {
        if self.signature == 0 {
            return 0;
        }
        // SAFETY: B1.
        let queue = self.bucket.queue.with(|queue| unsafe { &*queue });
        let signature = self.signature & queue.classes();
        if self.coarse && signature != 0 { SIGNATURE } else { signature }
    }

    /// The roots of the queue's trees, null for those that are empty.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn roots(&self) -> impl Iterator<Item = *const Waiter<K>> + use<K> {
        // SAFETY: B1.
        self.bucket.queue.with(|queue| unsafe { &*queue }).roots().into_iter()
    }
}

impl<K> Drop for BucketGuard<'_, K> {
    fn drop(&mut self) {
        let signature = self.signature_now();
        let free = self.level | signature;
        // ORDER[LOCK]: Release; pairs with the Acquires in `lock`. Publishes the queue.
        let before = self.bucket.word.word().swap(free, Ordering::Release);
        if before & SLEEPERS != 0 {
            self.bucket.word.wake(1);
        }
    }
}

/// What an owner that no longer wants to wait finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    /// It was waiting: nobody has woken it.
    Waiting,
    /// A wake had chosen it, and did not come to notify it yet.
    Chosen(Token),
    /// A wake has claimed it, and will notify it (B5). It is not removed.
    Claimed,
}
