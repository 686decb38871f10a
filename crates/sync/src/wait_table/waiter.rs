//! A waiter's node, on its thread's stack.
//!
//! | place | who may touch it |
//! |---|---|
//! | fresh | its owner |
//! | queued, chosen | the holder of the lock of its hash's home (B1) |
//! | claimed | the waker that took it out, until it hands it back (B5) |
//! | notified | its owner |
#![expect(unsafe_code, reason = "an intrusive list node")]

use std::ptr::{self, NonNull};

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU64, Ordering, UnsafeCell};

use super::claimed::Closer;
use super::queue::WAY_BITS;
use super::{Tag, Token, Wait};
use crate::parker::Parker;

/// What a search through a bucket reads, of nodes that it passes by, is the first cache line.
#[repr(C, align(64))]
pub(super) struct Waiter<K> {
    /// Changed by a requeue, which holds the locks of the old home and of the new one. Relaxed: to
    /// who holds neither it is a hint where to look; see [`Waiter::hash_hint`].
    hash: AtomicU64,
    links: UnsafeCell<Links<K>>,
    /// Who sleeps: at present always a thread, on its parker.
    parker: Parker,
    /// A copy, so that a waker reads no third line.
    key: UnsafeCell<K>,
    tag: Tag,
    /// Written by the waker that claimed the node (B5), read by the owner after NOTIFIED.
    token: UnsafeCell<Token>,
}

/// Where a node stands. Which fields mean something is said in [`super::queue`].
#[repr(C)]
pub(super) struct Links<K> {
    /// In the tree, for the first of its list.
    pub(super) children: [*const Waiter<K>; 1 << WAY_BITS],
    pub(super) next: *const Waiter<K>,
    pub(super) prev: *const Waiter<K>,
    /// Whether it is in a queue: queued or chosen.
    pub(super) queued: bool,
    /// Whether its list is closed, for the first.
    pub(super) closed: bool,
    /// Whether it waits to be woken with others, rather than alone. Never changes.
    pub(super) shared: bool,
    /// The number of its list, the same in all its nodes.
    pub(super) list: u32,
    pub(super) end: End<K>,
    /// How many wait in its list, for the first of an open one.
    pub(super) counts: Counts,
}

/// What the first node of a list knows beyond its next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) exclusive: u32,
    pub(super) shared: u32,
}

impl Counts {
    pub(super) const NONE: Self = Self { exclusive: 0, shared: 0 };

    pub(super) fn of(&mut self, shared: bool) -> &mut u32 {
        if shared { &mut self.shared } else { &mut self.exclusive }
    }
}

/// Where a list ends, or by whom: for its first node.
pub(super) union End<K> {
    /// Of an open list: its last node.
    pub(super) last: *const Waiter<K>,
    /// Of a closed list: its closer, which is alive while there is such a list.
    pub(super) closer: *const Closer,
}

impl<K> Clone for End<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for End<K> {}

impl<K> Clone for Links<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Links<K> {}

impl<K> Links<K> {
    pub(super) fn new(shared: bool) -> Self {
        Self {
            children: [ptr::null(); 1 << WAY_BITS],
            next: ptr::null(),
            prev: ptr::null(),
            queued: false,
            closed: false,
            shared,
            list: 0,
            end: End { last: ptr::null() },
            counts: Counts::NONE,
        }
    }

    /// Whether the closer of its list is `closer`.
    pub(super) fn is_closed_by(&self, closer: &Closer) -> bool {
        // SAFETY: both fields are pointers.
        self.closed && ptr::eq(unsafe { self.end.closer }, closer)
    }
}

impl<K> Waiter<K> {
    pub(super) fn new(key: K, hash: u64, how: Wait) -> Self {
        Self {
            hash: AtomicU64::new(hash),
            links: UnsafeCell::new(Links::new(how.shared)),
            parker: Parker::new(),
            key: UnsafeCell::new(key),
            tag: how.tag,
            token: UnsafeCell::new(Token(0)),
        }
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
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
    /// The caller may touch the node, and its owner does not yet.
    pub(super) unsafe fn set_token(&self, token: Token) {
        // SAFETY: B5.
        self.token.with_mut(|cell| unsafe { *cell = token });
    }

    /// Hands the node back to its owner, with what is still to be done to wake it.
    ///
    /// # Safety
    /// The caller claimed the node (B5), has taken from it what it needs, and does not touch it
    /// again; and sends the wakeup.
    pub(super) unsafe fn hand_back(node: NonNull<Self>, token: Token) -> Wakeup {
        // SAFETY: B5; the owner does not leave before it is notified.
        let this = unsafe { node.as_ref() };
        // It is zero already.
        if token != Token(0) {
            // SAFETY: B5.
            unsafe { this.set_token(token) };
        }
        let parker = NonNull::from(&this.parker);
        // SAFETY: B5; this is the one notification, and nothing of the node is used after it.
        unsafe { Parker::notify(parker) };
        Wakeup::Thread(parker)
    }

    /// The hash of its key.
    ///
    /// # Safety
    /// The caller may touch the node: see the module's table.
    #[inline]
    pub(super) unsafe fn hash(&self) -> u64 {
        // Checked by loom for changes that nothing orders.
        #[cfg(loom)]
        // SAFETY: the contract.
        return unsafe { self.hash.unsync_load() };
        #[cfg(not(loom))]
        self.hash.load(Ordering::Relaxed)
    }

    /// The hash of its key, now or once. Who holds the lock of its home and reads it again knows
    /// which: while it is that hash, nobody else changes it.
    #[inline]
    pub(super) fn hash_hint(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// Gives `look` the key, which may panic; nothing is changed then.
    ///
    /// # Safety
    /// The caller may touch the node: see the module's table.
    pub(super) unsafe fn with_key<R>(&self, look: impl FnOnce(&K) -> R) -> R {
        // SAFETY: the contract.
        self.key.with(|key| look(unsafe { &*key }))
    }

    /// Has it wait for another key.
    ///
    /// # Safety
    /// The caller holds the locks of the homes of both hashes, and the node is in no queue.
    pub(super) unsafe fn rekey(&self, key: K, hash: u64) {
        // SAFETY: the contract.
        self.key.with_mut(|cell| unsafe { *cell = key });
        self.hash.store(hash, Ordering::Relaxed);
    }

    /// A copy of the links.
    ///
    /// # Safety
    /// The caller may touch the node: see the module's table.
    pub(super) unsafe fn links(&self) -> Links<K> {
        // SAFETY: the contract.
        self.links.with(|links| unsafe { *links })
    }

    /// Changes the links.
    ///
    /// # Safety
    /// The caller may touch the node: see the module's table.
    pub(super) unsafe fn change(&self, change: impl FnOnce(&mut Links<K>)) {
        // SAFETY: the contract.
        self.links.with_mut(|links| change(unsafe { &mut *links }));
    }
}

/// What is still to be done to wake the owner of a node that was handed back.
pub(super) enum Wakeup {
    /// A thread that may sleep on this parker, of which only the address is left.
    Thread(NonNull<Parker>),
}

impl Wakeup {
    /// Wakes it.
    pub(super) fn send(self) {
        match self {
            // SAFETY: it was notified.
            Self::Thread(parker) => unsafe { Parker::wake(parker) },
        }
    }
}
