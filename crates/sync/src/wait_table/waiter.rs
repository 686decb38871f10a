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

use super::queue::WAY_BITS;
use super::{Tag, Token};
use crate::parker::Parker;

/// What a search through a bucket reads, of nodes that it passes by, is the first cache line.
#[repr(C, align(64))]
pub(super) struct Waiter<K> {
    hash: u64,
    links: UnsafeCell<Links<K>>,
    parker: Parker,
    /// A copy, so that a waker reads no third line.
    key: K,
    tag: Tag,
    /// Written by the waker that claimed the node (B5), read by the owner after NOTIFIED.
    token: UnsafeCell<Token>,
}

/// Where a node stands. Which fields mean something is said in [`super::queue`].
#[repr(C)]
pub(super) struct Links<K> {
    /// In the tree, for the first of its list.
    pub(super) children: [*const Waiter<K>; 1 << WAY_BITS],
    /// In the list of equals; `next` also in the list of claimed nodes.
    pub(super) next: *const Waiter<K>,
    pub(super) prev: *const Waiter<K>,
    pub(super) queued: bool,
    /// The last of its list, for the first.
    pub(super) last: *const Waiter<K>,
}

impl<K> Clone for Links<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Links<K> {}

impl<K> Links<K> {
    pub(super) const NONE: Self = Self {
        children: [ptr::null(); 1 << WAY_BITS],
        next: ptr::null(),
        prev: ptr::null(),
        queued: false,
        last: ptr::null(),
    };
}

impl<K> Waiter<K> {
    pub(super) fn new(key: K, hash: u64, tag: Tag) -> Self {
        Self {
            hash,
            links: UnsafeCell::new(Links::NONE),
            parker: Parker::new(),
            key,
            tag,
            token: UnsafeCell::new(Token(0)),
        }
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Whether it waits for `key`. Runs `Eq`, which may panic; nothing is changed then.
    pub(super) fn waits_for(&self, key: &K) -> bool
    where
        K: Eq,
    {
        self.key == *key
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

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// A copy of the links.
    ///
    /// # Safety
    /// The caller may look at the links: see the module's table.
    pub(super) unsafe fn links(&self) -> Links<K> {
        // SAFETY: the contract.
        self.links.with(|links| unsafe { *links })
    }

    /// Changes the links.
    ///
    /// # Safety
    /// The caller may change the links: see the module's table.
    pub(super) unsafe fn change(&self, change: impl FnOnce(&mut Links<K>)) {
        // SAFETY: the contract.
        self.links.with_mut(|links| change(unsafe { &mut *links }));
    }

    /// The next of its list.
    ///
    /// # Safety
    /// The caller may look at the links.
    pub(super) unsafe fn next(&self) -> *const Self {
        // SAFETY: the contract.
        unsafe { self.links() }.next
    }
}
