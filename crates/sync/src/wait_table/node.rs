//! A waiter's node, on its thread's stack or in its task's future, and who sleeps there.
//!
//! | place | who may touch it, and its sleeper's cells |
//! |---|---|
//! | fresh | its owner |
//! | queued | the holder of the lock of its hash's bucket (B1) |
//! | notified | its owner |
//!
//! A [`NodeRef`] is a node that the holder of a bucket lock may touch. It borrows the guard, so it
//! ends with the lock, and it leads only to nodes of the same queue: reading and changing nodes
//! needs no further proof. Cells are read and written by value, so no reference into one lives on.
//!
//! - **N1** The links of a queued node, and the roots of its bucket, point to nodes that are queued
//!   in that bucket, which are alive (B4). Both lists and trees are changed under the lock alone.
#![expect(unsafe_code, reason = "an intrusive list node")]

use std::any::Any as Panic;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::task::Waker;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU64, Ordering, UnsafeCell};

use super::any::Claim;
use super::queue::WAYS;
use super::{Tag, Token, Wait};
use crate::parker::Parker;

/// What a search through a bucket reads, of nodes that it passes by, is the first cache line.
#[repr(C, align(64))]
pub(super) struct Node<K> {
    /// Changed by a requeue, which holds the locks of the old bucket and of the new one. Relaxed:
    /// to a thread that holds neither it is a hint; see [`Node::hash_hint`].
    hash: AtomicU64,
    links: UnsafeCell<Links<K>>,
    /// On which a thread sleeps, and by which a task learns that it was woken.
    parker: Parker,
    /// A copy, so that a waker reads no third line.
    key: UnsafeCell<K>,
    /// The owner's tag while it waits, the waker's token once it is woken.
    mark: UnsafeCell<u64>,
    /// Null for a thread that waits for this node alone.
    sleeper: *const Sleeper,
}

/// Who sleeps, if it is not a thread that waits for one node. Its cells are guarded as the node is,
/// by which it was reached.
pub(super) enum Sleeper {
    Task(UnsafeCell<Option<Waker>>),
    /// In a wait for any of several keys.
    Any(Claim),
}

impl Sleeper {
    pub(super) fn task(waker: Option<Waker>) -> Self {
        Self::Task(UnsafeCell::new(waker))
    }

    /// What the nodes of a wait for any of several keys share.
    pub(super) fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Any(claim) => Some(claim),
            Self::Task(_) => None,
        }
    }
}

/// Where a node stands.
#[repr(C)]
pub(super) struct Links<K> {
    /// In the tree, for the first of a list.
    children: [*const Node<K>; WAYS],
    /// The list is a ring.
    next: *const Node<K>,
    prev: *const Node<K>,
    pub(super) queued: bool,
    /// Whether it is the first of its list, which hangs in the tree.
    pub(super) first: bool,
    /// Whether it waits to be woken with others, rather than alone. Never changes.
    pub(super) shared: bool,
    /// Whether it has a [`Sleeper`]: here, so that a search need not look for it on the next cache
    /// line. Never changes in the queue.
    has_sleeper: bool,
    /// Written by the waker with the token.
    heir: Heir,
    /// When it came: greater than those of all who came to the bucket before.
    pub(super) ticket: u64,
}

impl<K> Clone for Links<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Links<K> {}

impl<K> Node<K> {
    pub(super) fn new(key: K, hash: u64, how: Wait) -> Self {
        let links = Links {
            children: [ptr::null(); WAYS],
            next: ptr::null(),
            prev: ptr::null(),
            queued: false,
            first: false,
            shared: how.shared,
            has_sleeper: false,
            heir: Heir::Nobody,
            ticket: 0,
        };
        Self {
            hash: AtomicU64::new(hash),
            links: UnsafeCell::new(links),
            parker: Parker::new(),
            key: UnsafeCell::new(key),
            mark: UnsafeCell::new(how.tag.0),
            sleeper: ptr::null(),
        }
    }

    /// Says who sleeps, before the node is queued.
    ///
    /// # Safety
    /// `sleeper` stays where it is for as long as the node is used.
    pub(super) unsafe fn set_sleeper(&mut self, sleeper: NonNull<Sleeper>) {
        self.sleeper = sleeper.as_ptr();
        // SAFETY: the node is fresh.
        self.links.with_mut(|links| unsafe { &mut *links }.has_sleeper = true);
    }

    fn sleeper(&self) -> Option<&Sleeper> {
        // SAFETY: null, or as alive as the node.
        unsafe { self.sleeper.as_ref() }
    }

    /// Sleeps until the waker is done with the node, or the deadline: true for the former.
    pub(super) fn park(&self, deadline: Deadline) -> bool {
        self.parker.park(deadline)
    }

    /// Whether the waker is done with the node.
    pub(super) fn is_notified(&self) -> bool {
        self.parker.is_notified()
    }

    /// The waker's token.
    ///
    /// # Safety
    /// The owner calls it, after it was woken.
    pub(super) unsafe fn token(&self) -> Token {
        // SAFETY: the node is its owner's again.
        Token(self.mark.with(|mark| unsafe { *mark }))
    }

    /// Whether it waits to be woken with others, and who gets the wake that it was woken by if it
    /// has no use for that.
    ///
    /// # Safety
    /// The node is its owner's, who calls it.
    pub(super) unsafe fn shared_and_heir(&self) -> (bool, Heir) {
        // SAFETY: the contract.
        let links = self.links.with(|links| unsafe { *links });
        (links.shared, links.heir)
    }

    /// The key.
    ///
    /// # Safety
    /// The node is its owner's, who calls it.
    pub(super) unsafe fn key(&self) -> K
    where
        K: Copy,
    {
        // SAFETY: the contract.
        self.key.with(|key| unsafe { *key })
    }

    /// The hash of its key, now or once. Who holds the lock of its bucket and reads it again knows
    /// which: while it is that hash, nobody else changes it.
    #[inline]
    pub(super) fn hash_hint(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// Claims this waiter for a wake, and says whether it may have it: not if it waits for other
    /// keys as well, and another wake has it by one of them, or it has given up. Called under the
    /// lock of its bucket, or by its owner; perhaps again.
    pub(super) fn try_claim(&self) -> bool {
        let claim = self.sleeper().and_then(Sleeper::claim);
        claim.is_none_or(|claim| claim.try_take(ptr::from_ref(self).addr()))
    }
}

/// A node that is in the queue of a locked bucket, or that the holder of the lock has just taken
/// out or is about to put in.
pub(super) struct NodeRef<'g, K>(&'g Node<K>);

impl<K> Clone for NodeRef<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for NodeRef<'_, K> {}

impl<'g, K> NodeRef<'g, K> {
    /// # Safety
    /// The lock of the bucket of the node's hash is held for `'g`; or the node is fresh, and its
    /// owner calls it.
    #[inline]
    pub(super) unsafe fn new(node: &'g Node<K>) -> Self {
        Self(node)
    }

    /// The node at `link`, if there is one.
    ///
    /// # Safety
    /// The link is one of a bucket whose lock is held for `'g` (N1).
    #[inline]
    pub(super) unsafe fn at(link: *const Node<K>) -> Option<Self> {
        // SAFETY: N1: null or alive.
        unsafe { link.as_ref() }.map(Self)
    }

    /// The pointer to it: for links, and to compare.
    pub(super) fn link(self) -> *const Node<K> {
        self.0
    }

    #[inline]
    pub(super) fn links(self) -> Links<K> {
        // SAFETY: the lock is held (B1).
        self.0.links.with(|links| unsafe { *links })
    }

    /// Changes the links.
    #[inline]
    pub(super) fn change(self, change: impl FnOnce(&mut Links<K>)) {
        let mut links = self.links();
        change(&mut links);
        // SAFETY: the lock is held (B1).
        self.0.links.with_mut(|cell| unsafe { *cell = links });
    }

    /// The next of its ring; the first, if it is the last.
    #[inline]
    pub(super) fn next(self) -> Self {
        // SAFETY: N1.
        unsafe { Self::at(self.links().next) }.unwrap_or(self)
    }

    /// The one before it; the last, if it is the first.
    pub(super) fn prev(self) -> Self {
        // SAFETY: N1.
        unsafe { Self::at(self.links().prev) }.unwrap_or(self)
    }

    #[inline]
    pub(super) fn child(self, way: usize) -> Option<Self> {
        // SAFETY: N1.
        unsafe { Self::at(self.links().children[way]) }
    }

    pub(super) fn set_child(self, way: usize, child: Option<Self>) {
        self.change(|links| links.children[way] = child.map_or(ptr::null(), Self::link));
    }

    /// Puts `next` behind it in its ring.
    pub(super) fn join(self, next: Self) {
        self.change(|links| links.next = next.link());
        next.change(|links| links.prev = self.link());
    }

    /// Makes it the first of a list: with the children of `before`, as they are now, or as a leaf.
    pub(super) fn begin(self, before: Option<Self>) {
        let children = before.map_or([ptr::null(); WAYS], |before| before.links().children);
        self.change(|links| (links.first, links.children) = (true, children));
    }

    /// The hash of its key.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        // Checked by loom for changes that nothing orders.
        #[cfg(loom)]
        // SAFETY: the lock is held (B1).
        return unsafe { self.0.hash.unsync_load() };
        #[cfg(not(loom))]
        self.0.hash.load(Ordering::Relaxed)
    }

    /// Whether `is_key` knows its key. If that panics, nothing was changed.
    pub(super) fn has_key(self, is_key: impl FnOnce(&K) -> bool) -> bool {
        // SAFETY: the lock is held (B1), and only `rekey` changes it.
        self.0.key.with(|key| is_key(unsafe { &*key }))
    }

    /// Gives it another key. It is in no queue, and the locks of both buckets are held.
    pub(super) fn rekey(self, key: K, hash: u64) {
        // SAFETY: both locks are held (B1).
        self.0.key.with_mut(|cell| unsafe { *cell = key });
        self.0.hash.store(hash, Ordering::Relaxed);
    }

    /// The owner's mark, until a token is set.
    pub(super) fn tag(self) -> Tag {
        // SAFETY: the lock is held (B1).
        Tag(self.0.mark.with(|mark| unsafe { *mark }))
    }

    /// Leaves `token` for the owner.
    pub(super) fn set_token(self, token: Token) {
        // SAFETY: the lock is held (B1).
        self.0.mark.with_mut(|mark| unsafe { *mark = token.0 });
    }

    /// Hands a node that was taken out of its queue, and claimed, back to its owner; gives what is
    /// still to be done to wake it.
    ///
    /// # Safety
    /// Nobody touches the node afterwards: its owner may be gone.
    pub(super) unsafe fn hand_back(self, message: Message) -> Wakeup {
        if let Some(token) = message.token {
            self.set_token(token);
        }
        self.change(|links| links.heir = message.heir);
        let (mut parker, mut waker) = (NonNull::from(&self.0.parker), None);
        match self.0.sleeper() {
            None => {}
            // SAFETY: the lock is held (B1).
            Some(Sleeper::Task(cell)) => waker = cell.with_mut(|cell| unsafe { &mut *cell }.take()),
            Some(Sleeper::Any(claim)) => parker = NonNull::from(&claim.parker),
        }
        // SAFETY: alive until now; this is the one notification, and the last access.
        unsafe { Parker::notify(parker) };
        waker.map_or(Wakeup::Thread(parker), Wakeup::Task)
    }

    /// As [`Node::try_claim`]; reads the second cache line only if somebody else may claim it.
    pub(super) fn try_claim(self) -> bool {
        !self.links().has_sleeper || self.0.try_claim()
    }

    /// Whether [`NodeRef::try_claim`] would say no.
    pub(super) fn is_lost(self) -> bool {
        let claim = || self.0.sleeper().and_then(Sleeper::claim);
        self.links().has_sleeper && claim().is_some_and(|claim| !claim.is_open())
    }

    /// Puts `waker` in the place of the task's. It is only moved: wakers may run anybody's code.
    pub(super) fn replace_waker(self, waker: Waker) -> Option<Waker> {
        match self.0.sleeper() {
            // SAFETY: the lock is held (B1).
            Some(Sleeper::Task(cell)) => cell.with_mut(|cell| unsafe { &mut *cell }.replace(waker)),
            _ => None,
        }
    }
}

/// What a wake leaves to those that it chooses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// `None` if they have got it already.
    pub(super) token: Option<Token>,
    pub(super) heir: Heir,
}

/// Whom a wake goes on to if the one that it has chosen has no use for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heir {
    /// The wake was for all.
    Nobody,
    /// The wake was for all shared waiters, and for some exclusive ones: from one of these to the
    /// next.
    Exclusive,
    /// The wake made no difference between the two.
    Anybody,
}

/// What is still to be done to wake the owner of a node that was handed back.
pub(super) enum Wakeup {
    /// A thread that may sleep on this parker, of which only the address is left.
    Thread(NonNull<Parker>),
    Task(Waker),
}

impl Wakeup {
    /// Wakes it, if it is a thread.
    pub(super) fn send_to_thread(&self) {
        if let Self::Thread(parker) = *self {
            // SAFETY: it was notified.
            unsafe { Parker::wake(parker) };
        }
    }

    /// Wakes it, if it is a task. If its waker panics, that is the error.
    pub(super) fn send_to_task(self) -> Result<(), Box<dyn Panic + Send>> {
        match self {
            Self::Thread(_) => Ok(()),
            Self::Task(waker) => catch_unwind(AssertUnwindSafe(|| waker.wake())),
        }
    }
}
