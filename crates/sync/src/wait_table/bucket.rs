//! One bucket: a word that is lock and summary in one, and the queue that it guards.
//!
//! The word's layout stands in `bucket_word.rs`.
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
//!   node under the lock, or was notified by the waker that did.
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
//! - **B5** (the baton) An unlock wakes one sleeper and clears SLEEPERS for all. So a thread that
//!   has slept takes this lock with SLEEPERS set: it cannot know that it was the last.
#![expect(unsafe_code, reason = "an intrusive queue of nodes on their threads' stacks")]

use std::cell::Cell;

use unherd_sys::Futex;
use unherd_sys::primitives::{Ordering, UnsafeCell, spin_loop};

use super::bucket_word::{LOCKED, ROOTS, SIGNATURE, SLEEPERS, class_bit};
use super::node::{Node, NodeRef};

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

/// What the lock guards. [`super::queue`] has what is done with it.
#[repr(C)]
struct Queue<K> {
    /// The next to be given.
    ticket: u64,
    roots: [*const Node<K>; ROOTS],
}

// SAFETY: the queue is guarded by LOCKED (B1), and nodes of other threads are reached only through
// it; keys are compared by whichever thread holds the lock, hence `K: Sync`, and a requeue leaves
// one in another thread's node, hence `K: Send`.
unsafe impl<K: Send + Sync> Sync for Bucket<K> {}
// SAFETY: a bucket owns nothing; its nodes belong to threads that borrow the table.
unsafe impl<K: Sync> Send for Bucket<K> {}

impl<K> Bucket<K> {
    /// An empty bucket: zeros.
    #[cfg(any(loom, shuttle))]
    pub(super) fn new() -> Self {
        let queue = Queue { ticket: 0, roots: [std::ptr::null(); ROOTS] };
        Self { word: Futex::new(0), queue: UnsafeCell::new(queue) }
    }

    /// The word as it is, or was: it orders nothing.
    #[inline]
    pub(super) fn word(&self) -> u32 {
        self.word.word().load(Ordering::Relaxed)
    }

    /// Locks the bucket.
    #[inline]
    pub(super) fn lock(&self) -> BucketGuard<'_, K> {
        // loom's search for races forgets that another thread looked at the word, if this one looks
        // as well before it changes it. So there it does not look, but tries.
        let seen = if cfg!(loom) { 0 } else { self.word() } & !LOCKED;
        // ORDER[LOCK]: Acquire; pairs with the Release of unlocking, in the guard's drop. Takes
        // over the queue.
        let order = Ordering::Acquire;
        let taken =
            self.word.word().compare_exchange(seen, seen | LOCKED, order, Ordering::Relaxed);
        let slow = |_| self.lock_slow(None).unwrap_or_else(|| unreachable!("it never gives up"));
        taken.map_or_else(slow, |seen| self.guard(seen, false))
    }

    /// Locks the bucket, unless nobody of the class of `hash` waits there, or is about to.
    pub(super) fn lock_unless_empty(&self, hash: u64) -> Option<BucketGuard<'_, K>> {
        self.lock_slow(Some(class_bit(hash)))
    }

    /// Locks the bucket; unless nobody of a class waits there, if one is given.
    #[cold]
    fn lock_slow(&self, class: Option<u32>) -> Option<BucketGuard<'_, K>> {
        let word = self.word.word();
        let (mut seen, mut looks, mut slept, mut contended) = (self.word(), 0, false, false);
        loop {
            if seen & LOCKED == 0 {
                // Not after a sleep: B5.
                if !slept && class.is_some_and(|class| seen & class == 0) {
                    return None;
                }
                let locked = seen | LOCKED | if slept { SLEEPERS } else { 0 };
                // ORDER[LOCK]: Acquire; pairs as in `lock`.
                match word.compare_exchange(seen, locked, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(self.guard(seen, contended)),
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

    fn guard(&self, seen: u32, contended: bool) -> BucketGuard<'_, K> {
        let signature = Cell::new(seen & SIGNATURE);
        BucketGuard { bucket: self, signature, contended }
    }
}

/// The bucket lock, held. Unlocks on drop, also while a panic unwinds.
pub(super) struct BucketGuard<'a, K> {
    bucket: &'a Bucket<K>,
    /// The signature that the unlock will write, except for the trees that are empty by then.
    signature: Cell<u32>,
    /// Whether the lock was held by another meanwhile.
    pub(super) contended: bool,
}

impl<K> BucketGuard<'_, K> {
    /// Puts a fresh node into the queue: [`BucketGuard::push_node`].
    ///
    /// # Safety
    /// Its hash is one of this bucket's; it does not move, and stays alive as B4 says.
    pub(super) unsafe fn push(&self, node: &Node<K>, is_key: impl FnMut(&K) -> bool) {
        // SAFETY: it is fresh, and the lock is held.
        self.push_node(unsafe { NodeRef::new(node) }, is_key);
    }

    /// The node at a root.
    #[inline]
    pub(super) fn root(&self, root: usize) -> Option<NodeRef<'_, K>> {
        // SAFETY: B1.
        let link = self.bucket.queue.with(|queue| unsafe { &*queue }.roots[root]);
        // SAFETY: N1; the lock is held as long as this guard.
        unsafe { NodeRef::at(link) }
    }

    pub(super) fn set_root(&self, root: usize, node: Option<NodeRef<'_, K>>) {
        let link = node.map_or(std::ptr::null(), NodeRef::link);
        // SAFETY: B1.
        self.bucket.queue.with_mut(|queue| unsafe { &mut *queue }.roots[root] = link);
    }

    /// The ticket of the next to come.
    pub(super) fn ticket(&self) -> u64 {
        // SAFETY: B1.
        self.bucket.queue.with(|queue| unsafe { &*queue }.ticket)
    }

    /// A ticket for one that comes now.
    pub(super) fn take_ticket(&self) -> u64 {
        let ticket = self.ticket();
        // SAFETY: B1.
        self.bucket.queue.with_mut(|queue| unsafe { &mut *queue }.ticket = ticket + 1);
        ticket
    }

    /// Has the signature say that somebody waits for `hash`.
    pub(super) fn announce(&self, hash: u64) {
        self.signature.set(self.signature.get() | class_bit(hash));
    }
}

impl<K> Drop for BucketGuard<'_, K> {
    fn drop(&mut self) {
        // B2. Most unlocks find it zero, and the trees need no look.
        let signature = self.signature.get();
        let free = if signature == 0 { 0 } else { signature & self.classes() };
        // ORDER[LOCK]: Release; pairs with the Acquires in `lock`. Publishes the queue.
        let before = self.bucket.word.word().swap(free, Ordering::Release);
        if before & SLEEPERS != 0 {
            self.bucket.word.wake(1);
        }
    }
}
