//! A waiting thread's node, on that thread's stack.
//!
//! | place | who may touch the links |
//! |---|---|
//! | fresh | its owner |
//! | queued | the holder of the bucket lock (B1) |
//! | claimed | the waker that unlinked it, until it unparks the owner (B5) |
//! | notified | its owner |
#![expect(unsafe_code, reason = "an intrusive list node")]

use std::ptr::{self, NonNull};

use unherd_sys::Deadline;
use unherd_sys::primitives::UnsafeCell;

use super::{Tag, Token};
use crate::parker::Parker;

pub(super) struct Waiter<K> {
    /// Alive for as long as the node: the owner borrowed it for the call.
    key: *const K,
    hash: u64,
    tag: Tag,
    links: UnsafeCell<Links<K>>,
    /// Written by the waker that claimed the node (B5), read by the owner after NOTIFIED.
    token: UnsafeCell<Token>,
    parker: Parker,
}

struct Links<K> {
    prev: *const Waiter<K>,
    next: *const Waiter<K>,
    queued: bool,
}

impl<K> Waiter<K> {
    pub(super) fn new(key: &K, hash: u64, tag: Tag) -> Self {
        Self {
            key,
            hash,
            tag,
            links: UnsafeCell::new(Links { prev: ptr::null(), next: ptr::null(), queued: false }),
            token: UnsafeCell::new(Token(0)),
            parker: Parker::new(),
        }
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Whether it waits for `key`. Runs `Eq`, which may panic; nothing is changed then.
    pub(super) fn waits_for(&self, key: &K, hash: u64) -> bool
    where
        K: Eq,
    {
        // SAFETY: the owner is inside `wait`, which borrows the key, for as long as the node is
        // queued (B4), and the caller found it in the queue.
        self.hash == hash && unsafe { &*self.key } == key
    }

    /// Sleeps until the waker is done with the node, or the deadline: true for the former.
    pub(super) fn park(&self, deadline: Deadline) -> bool {
        self.parker.park(deadline)
    }

    /// The waker's token.
    ///
    /// # Safety
    /// The owner calls it, after [`Waiter::park`] said true.
    pub(super) unsafe fn token(&self) -> Token {
        // SAFETY: NOTIFIED was seen; the node is its owner's again.
        self.token.with(|token| unsafe { *token })
    }

    /// Leaves `token` for the owner.
    ///
    /// # Safety
    /// The caller claimed the node (B5) and has not notified it yet.
    pub(super) unsafe fn set_token(&self, token: Token) {
        // SAFETY: B5.
        self.token.with_mut(|cell| unsafe { *cell = token });
    }

    /// Hands the node back to its owner, and wakes it.
    ///
    /// # Safety
    /// The caller claimed the node (B5), has taken from it what it needs, and does not touch it
    /// again.
    pub(super) unsafe fn notify(node: NonNull<Self>) {
        // SAFETY: B5; the owner does not leave before it is unparked.
        let parker = NonNull::from(unsafe { &node.as_ref().parker });
        // SAFETY: B5; this is the one unpark, and nothing of the node is used after it.
        unsafe { Parker::unpark(parker) };
    }

    /// # Safety
    /// The caller may touch the links, as for all that follow.
    pub(super) unsafe fn is_queued(&self) -> bool {
        // SAFETY: the contract.
        self.links.with(|links| unsafe { (*links).queued })
    }

    /// # Safety
    /// The caller may touch the links.
    pub(super) unsafe fn next(&self) -> *const Self {
        // SAFETY: the contract.
        self.links.with(|links| unsafe { (*links).next })
    }

    /// # Safety
    /// The caller may touch the links.
    pub(super) unsafe fn link(&self, prev: *const Self, next: *const Self) {
        // SAFETY: the contract.
        self.links.with_mut(|links| unsafe { *links = Links { prev, next, queued: true } });
    }

    /// Marks it as in no list, and gives what its neighbours were.
    ///
    /// # Safety
    /// The caller may touch the links.
    pub(super) unsafe fn unlink(&self) -> (*const Self, *const Self) {
        self.links.with_mut(|links| {
            // SAFETY: the contract.
            let links = unsafe { &mut *links };
            links.queued = false;
            (links.prev, links.next)
        })
    }

    /// # Safety
    /// The caller may touch the links.
    pub(super) unsafe fn set_next(&self, next: *const Self) {
        // SAFETY: the contract.
        self.links.with_mut(|links| unsafe { (*links).next = next });
    }

    /// # Safety
    /// The caller may touch the links.
    pub(super) unsafe fn set_prev(&self, prev: *const Self) {
        // SAFETY: the contract.
        self.links.with_mut(|links| unsafe { (*links).prev = prev });
    }
}
