//! One bucket: a word that is lock and summary in one, and the queue that it guards.
//!
//! ```text
//!  31            8 7       3      2         1        0
//! +---------------+---------+---------+----------+--------+
//! |   signature   |  level  | WAITERS | SLEEPERS | LOCKED |
//! +---------------+---------+---------+----------+--------+
//! ```
//!
//! | bits | meaning | changed by |
//! |---|---|---|
//! | LOCKED | somebody holds the bucket lock | anybody, 0 → 1; the holder, 1 → 0 |
//! | SLEEPERS | a thread may sleep on the word for the lock | who is about to sleep; the holder's unlock clears it |
//! | WAITERS | the queue is not empty | the holder, at unlock |
//! | level | which size of the table the bucket belongs to; 0 while tables have one size | the holder |
//! | signature | a summary of the keys that wait here; 0 while nothing reads it | the holder |
//!
//! Invariants:
//!
//! - **B1** The queue is read and changed only by the holder of LOCKED.
//! - **B2** While LOCKED is clear, WAITERS tells whether the queue is empty.
//! - **B3** While LOCKED is set, only the holder changes WAITERS, level and signature. So unlocking
//!   is one swap: what others may have changed meanwhile is SLEEPERS alone, and the swap returns
//!   it.
//! - **B4** A node in the queue is alive: its owner leaves `wait` only after it has unlinked the
//!   node under the lock, or was told by the waker that claimed it.
//! - **B5** A node that is claimed (unlinked by a waker) belongs to that waker until it unparks the
//!   node's owner.
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
//! kernel then finds the sleeper in its queue, or the sleeper's comparison fails. A thread that has
//! slept takes the lock with SLEEPERS set, since it cannot know that it was the last.
#![expect(unsafe_code, reason = "an intrusive queue of nodes on their threads' stacks")]

use std::ptr;

use unherd_sys::Futex;
use unherd_sys::primitives::{Ordering, UnsafeCell, spin_loop};

use super::Token;
use super::queue::Queue;
use super::waiter::Waiter;

const LOCKED: u32 = 1 << 0;
const SLEEPERS: u32 = 1 << 1;
const WAITERS: u32 = 1 << 2;
/// Level and signature: kept as they are by lock and unlock.
const KEPT: u32 = !(LOCKED | SLEEPERS | WAITERS);

/// Looks at a held lock before sleeping, each after twice the pause of the one before: so the
/// holder's cache line is left alone for most of the time, which is that of a critical section of a
/// few dozen nodes. The checkers need one to see the way out of the spin.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 7 };

/// Weakened by `cargo x mutants`, one at a time, which expects a loom check to fail.
const LOCK_FIRST: Ordering =
    if cfg!(mutant = "LOCK-first") { Ordering::Relaxed } else { Ordering::Acquire };
const LOCK_SPUN: Ordering =
    if cfg!(mutant = "LOCK-spun") { Ordering::Relaxed } else { Ordering::Acquire };
const LOCK_SLEPT: Ordering =
    if cfg!(mutant = "LOCK-slept") { Ordering::Relaxed } else { Ordering::Acquire };
const LOCK_RELEASE: Ordering =
    if cfg!(mutant = "LOCK-release") { Ordering::Relaxed } else { Ordering::Release };

/// A queue of waiters with its lock, alone on its cache line.
#[repr(align(64))]
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
    pub(super) fn new() -> Self {
        Self { word: Futex::new(0), queue: UnsafeCell::new(Queue::new()) }
    }

    /// Whether a waker that has fenced may leave: nobody waits here, and nobody is about to.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.word.word().load(Ordering::Relaxed) & (LOCKED | WAITERS) == 0
    }

    /// Locks the bucket; the guard says whether somebody else held it.
    #[inline]
    pub(super) fn lock(&self) -> BucketGuard<'_, K> {
        // ORDER[LOCK]: Acquire; pairs with the Release in `unlock`. Takes over the queue.
        let before = self.word.word().fetch_or(LOCKED, LOCK_FIRST);
        if before & LOCKED == 0 {
            BucketGuard { bucket: self, kept: before & KEPT, contended: false }
        } else {
            self.lock_slow()
        }
    }

    #[cold]
    fn lock_slow(&self) -> BucketGuard<'_, K> {
        let word = self.word.word();
        for look in 0..LOOKS {
            (0..1 << look).for_each(|_| spin_loop());
            if word.load(Ordering::Relaxed) & LOCKED != 0 {
                continue;
            }
            // ORDER[LOCK]: Acquire; pairs with the Release in `unlock`.
            let before = word.fetch_or(LOCKED, LOCK_SPUN);
            if before & LOCKED == 0 {
                return BucketGuard { bucket: self, kept: before & KEPT, contended: true };
            }
        }
        loop {
            // Others may sleep as well, so SLEEPERS goes in with the lock.
            // ORDER[LOCK]: Acquire; pairs with the Release in `unlock`.
            let before = word.fetch_or(LOCKED | SLEEPERS, LOCK_SLEPT);
            if before & LOCKED == 0 {
                return BucketGuard { bucket: self, kept: before & KEPT, contended: true };
            }
            self.word.wait(before | SLEEPERS);
        }
    }

    fn unlock(&self, kept: u32) {
        // SAFETY: B1; the caller is the guard, which holds the lock until the swap below.
        let empty = self.queue.with(|queue| unsafe { &*queue }).is_empty();
        let bits = kept | if empty { 0 } else { WAITERS };
        // ORDER[LOCK]: Release; pairs with the Acquires in `lock`. Publishes the queue.
        let before = self.word.word().swap(bits, LOCK_RELEASE);
        if before & SLEEPERS != 0 {
            self.word.wake(1);
        }
    }
}

/// The bucket lock, held. Unlocks on drop, also while a panic unwinds.
pub(super) struct BucketGuard<'a, K> {
    bucket: &'a Bucket<K>,
    kept: u32,
    /// Whether the lock was held by another at the first try.
    pub(super) contended: bool,
}

impl<K> BucketGuard<'_, K> {
    /// Puts `node` behind all others of its hash.
    ///
    /// # Safety
    /// The node is in no queue, does not move, and stays alive as B4 says.
    pub(super) unsafe fn push(&mut self, node: &Waiter<K>) {
        self.bucket.queue.with_mut(|queue| {
            // SAFETY: B1.
            let queue = unsafe { &mut *queue };
            // SAFETY: B1 for the links; B4 for the node at the tail.
            unsafe { queue.push(node) };
        });
    }

    /// Takes `node` out if it is in the queue, and says whether it was.
    pub(super) fn remove(&mut self, node: &Waiter<K>) -> bool {
        self.bucket.queue.with_mut(|queue| {
            // SAFETY: B1.
            let queue = unsafe { &mut *queue };
            // SAFETY: B1 for the links.
            let queued = unsafe { node.links() }.queued;
            if queued {
                // SAFETY: it is in this queue: a node is only ever pushed to its key's bucket.
                unsafe { queue.unlink(node) };
            }
            queued
        })
    }

    /// Moves `node` from the queue to the end of `claimed`, with `token` for its owner: it is the
    /// caller's then (B5).
    ///
    /// # Safety
    /// The node is in this bucket's queue.
    pub(super) unsafe fn claim(
        &mut self,
        node: &Waiter<K>,
        token: Token,
        claimed: &mut Claimed<K>,
    ) {
        self.bucket.queue.with_mut(|queue| {
            // SAFETY: B1.
            let queue = unsafe { &mut *queue };
            // SAFETY: B1, and it is in the queue by the contract.
            unsafe { queue.unlink(node) };
        });
        // It is zero already, on a line that the waker need not take over for it.
        if token != Token(0) {
            // SAFETY: B5.
            unsafe { node.set_token(token) };
        }
        // SAFETY: unlinked just now, under the lock.
        unsafe { claimed.push(node) };
    }

    /// The longest waiting node with `hash`; the others follow by [`Waiter::next`]. Null if none.
    pub(super) fn first_of(&self, hash: u64) -> *const Waiter<K> {
        // SAFETY: B1.
        let queue = self.bucket.queue.with(|queue| unsafe { &*queue });
        // SAFETY: B1 and B4.
        unsafe { queue.first_of(hash) }
    }

    /// The roots of the queue's trees, null for those that are empty.
    pub(super) fn roots(&self) -> impl Iterator<Item = *const Waiter<K>> + use<K> {
        // SAFETY: B1.
        self.bucket.queue.with(|queue| unsafe { &*queue }).roots().into_iter()
    }
}

impl<K> Drop for BucketGuard<'_, K> {
    fn drop(&mut self) {
        self.bucket.unlock(self.kept);
    }
}

/// Nodes that a waker has claimed, in the order in which they waited, linked by their `next`.
///
/// The links are written under the bucket lock and only read after it: an owner that times out
/// meanwhile may look at its own under the lock. Dropping the list wakes what is left in it, so a
/// panic in a key's `Eq` strands nobody.
pub(super) struct Claimed<K> {
    first: *const Waiter<K>,
    last: *const Waiter<K>,
    len: usize,
}

impl<K> Claimed<K> {
    pub(super) fn new() -> Self {
        Self { first: ptr::null(), last: ptr::null(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// # Safety
    /// The caller has just unlinked `node`, and still holds the bucket lock.
    unsafe fn push(&mut self, node: &Waiter<K>) {
        // SAFETY: B5; the lock is held.
        unsafe { node.change(|links| links.next = ptr::null()) };
        // SAFETY: null, or a node of this list, which is alive (B5).
        match unsafe { self.last.as_ref() } {
            // SAFETY: B5; the lock is held.
            Some(last) => unsafe { last.change(|links| links.next = node) },
            None => self.first = node,
        }
        self.last = node;
        self.len += 1;
    }
}

impl<K> Drop for Claimed<K> {
    /// Wakes them all. Called after the bucket is unlocked: one step a node, no lock, no memory.
    fn drop(&mut self) {
        while let Some(node) = ptr::NonNull::new(self.first.cast_mut()) {
            // SAFETY: a node of this list is alive until it is notified (B5).
            let this = unsafe { node.as_ref() };
            // SAFETY: B5; nobody writes the links any more.
            self.first = unsafe { this.next() };
            // SAFETY: B5; its `next` was taken, and it is not touched again.
            unsafe { Waiter::notify(node) };
        }
    }
}
