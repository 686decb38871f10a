//! One bucket: a word that is lock and summary in one, and the queue that it guards.
//!
//! The word's layout stands in [`super::word`].
//!
//! | bits | meaning | changed by |
//! |---|---|---|
//! | LOCKED | somebody holds the bucket lock | anybody, 0 → 1; the holder, 1 → 0 |
//! | SLEEPERS | a thread may sleep on the word for the lock | who is about to sleep; the holder's unlock clears it |
//! | signature | which classes of hashes may wait here | the holder, at unlock |
//!
//! Invariants:
//!
//! - **B1** The queue is read and changed only by the holder of LOCKED.
//! - **B2** While LOCKED is clear, the bit of every hash that waits is in the signature, and no bit
//!   of a tree that is empty. So it is zero if and only if the queue is empty; and a class that has
//!   left while others of its tree wait costs a waker the lock, never a waiter its wake.
//! - **B3** While LOCKED is set, only the holder changes the signature. So unlocking is one
//!   swap: what others may have changed meanwhile is SLEEPERS alone, and the swap returns it.
//! - **B4** A node in the queue is alive: its owner leaves `wait` only after it has unlinked the
//!   node under the lock, or was told by the waker that claimed it.
//! - **B5** A node that is claimed (unlinked by a waker) belongs to that waker until it notifies
//!   the node's owner.
//!
//! # The lock
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
//! - **B6** (the baton) An unlock wakes one sleeper and clears SLEEPERS for all. So a thread that
//!   has slept takes this lock with SLEEPERS set: it cannot know that it was the last.
#![expect(unsafe_code, reason = "an intrusive queue of nodes on their threads' stacks")]

use unherd_sys::Futex;
use unherd_sys::primitives::{Ordering, UnsafeCell, spin_loop};

use super::Token;
use super::bucket_word::{LOCKED, SIGNATURE, SLEEPERS, class_bit};
use super::queue::Queue;
use super::waiter::Waiter;

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

impl<K> Bucket<K> {
    /// An empty bucket: zeros.
    #[cfg(any(loom, shuttle))]
    pub(super) fn new() -> Self {
        Self { word: Futex::new(0), queue: UnsafeCell::new(Queue::new()) }
    }

    /// The word as it is, or was: it orders nothing.
    #[inline]
    pub(super) fn word(&self) -> u32 {
        self.word.word().load(Ordering::Relaxed)
    }

    /// Locks the bucket.
    #[inline]
    pub(super) fn lock(&self, coarse: bool) -> BucketGuard<'_, K> {
        // loom's search for races forgets that another thread looked at the word, if this one looks
        // as well before it changes it. So there it does not look, but tries.
        let seen = if cfg!(loom) { 0 } else { self.word() };
        if seen & LOCKED == 0 {
            let locked = seen | LOCKED;
            // ORDER[LOCK]: Acquire; pairs with the Release of unlocking, in the guard's drop. Takes
            // over the queue.
            let order = Ordering::Acquire;
            let taken = self.word.word().compare_exchange(seen, locked, order, Ordering::Relaxed);
            if taken.is_ok() {
                return self.guard(coarse, seen, false);
            }
        }
        // Nobody leaves: every class is asked for.
        match self.lock_slow(SIGNATURE, false, coarse) {
            Some(guard) => guard,
            None => unreachable!("a lock that is not given up"),
        }
    }

    /// Locks the bucket, unless nobody of the class of `hash` waits there, or is about to.
    pub(super) fn lock_unless_empty(&self, hash: u64, coarse: bool) -> Option<BucketGuard<'_, K>> {
        self.lock_slow(class_bit(hash), true, coarse)
    }

    /// Locks the bucket; if `may_leave`, unless none of `classes` waits there.
    #[cold]
    fn lock_slow(&self, classes: u32, may_leave: bool, coarse: bool) -> Option<BucketGuard<'_, K>> {
        let word = self.word.word();
        let (mut seen, mut looks, mut slept, mut contended) = (self.word(), 0, false, false);
        loop {
            if seen & LOCKED == 0 {
                // Not after a sleep: B6.
                if may_leave && !slept && seen & classes == 0 {
                    return None;
                }
                let locked = seen | LOCKED | if slept { SLEEPERS } else { 0 };
                // ORDER[LOCK]: Acquire; pairs as in `lock`.
                match word.compare_exchange(seen, locked, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(self.guard(coarse, seen, contended)),
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
        BucketGuard { bucket: self, signature: seen & SIGNATURE, coarse, contended }
    }
}

/// The bucket lock, held. Unlocks on drop, also while a panic unwinds.
pub(super) struct BucketGuard<'a, K> {
    bucket: &'a Bucket<K>,
    /// The signature that the unlock will write, except for the trees that are empty by then.
    signature: u32,
    coarse: bool,
    /// Whether the lock was held by another meanwhile.
    pub(super) contended: bool,
}

impl<K> BucketGuard<'_, K> {
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
        let free = self.signature_now();
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
