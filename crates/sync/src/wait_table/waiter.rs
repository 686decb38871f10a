//! A waiter's node, on its thread's stack or in its task's future, and who sleeps there.
//!
//! | place | who may touch it, and its sleeper's cells |
//! |---|---|
//! | fresh | its owner |
//! | queued, chosen | the holder of the lock of its hash's home (B1) |
//! | claimed | the waker that took it out, until it hands it back (B5) |
//! | notified | its owner |
#![expect(unsafe_code, reason = "an intrusive list node")]

use std::any::Any as Panic;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::task::Waker;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU64, Ordering, UnsafeCell};

use super::any::Any;
use super::claimed::Closer;
use super::queue::WAY_BITS;
use super::task::Task;
use super::{Tag, Token, Wait};
use crate::parker::Parker;

/// What a search through a bucket reads, of nodes that it passes by, is the first cache line.
#[repr(C, align(64))]
pub(super) struct Waiter<K> {
    /// Changed by a requeue, which holds the locks of the old home and of the new one. Relaxed: to
    /// who holds neither it is a hint where to look; see [`Waiter::hash_hint`].
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

/// Who sleeps, if it is not a thread that waits for one node. Written once, before the node is
/// queued; its cells are guarded as the node is, by which it was reached.
pub(super) struct Sleeper {
    pub(super) kind: Kind,
    /// Whether the wake is to reach another waiter if this one has no use for it. Written by the
    /// waker with the token.
    passes_on: UnsafeCell<bool>,
}

pub(super) enum Kind {
    Task(Task),
    Any(Any),
}

impl Sleeper {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, passes_on: UnsafeCell::new(false) }
    }

    /// Whether the wake is to be passed on.
    ///
    /// # Safety
    /// The caller may touch the sleeper: see the module's table.
    pub(super) unsafe fn passes_on(&self) -> bool {
        // SAFETY: the contract.
        self.passes_on.with(|passes_on| unsafe { *passes_on })
    }
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
    /// Whether it has a [`Sleeper`]: here, so that a search need not look for it on the next cache
    /// line. Never changes in the queue.
    pub(super) has_sleeper: bool,
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
            has_sleeper: false,
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
        unsafe { self.change(|links| links.has_sleeper = true) };
    }

    fn sleeper(&self) -> Option<&Sleeper> {
        // SAFETY: null, or as alive as the node.
        unsafe { self.sleeper.as_ref() }
    }

    /// The owner's mark.
    ///
    /// # Safety
    /// The caller may touch the node, which nobody has claimed: see the module's table.
    pub(super) unsafe fn tag(&self) -> Tag {
        // SAFETY: the contract.
        Tag(self.mark.with(|mark| unsafe { *mark }))
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

    /// Leaves `token` for the owner.
    ///
    /// # Safety
    /// The caller may touch the node, and its owner does not yet.
    pub(super) unsafe fn set_token(&self, token: Token) {
        // SAFETY: the contract.
        self.mark.with_mut(|mark| unsafe { *mark = token.0 });
    }

    /// Leaves for the owner what the wake of `closer` says.
    ///
    /// # Safety
    /// As [`Waiter::set_token`].
    pub(super) unsafe fn tell(&self, closer: &Closer) {
        if let Some(token) = closer.token {
            // SAFETY: the contract.
            unsafe { self.set_token(token) };
        }
        if let Some(sleeper) = self.sleeper() {
            // SAFETY: the contract.
            sleeper.passes_on.with_mut(|passes_on| unsafe { *passes_on = closer.passes_on });
        }
    }

    /// Claims this waiter for a wake, and says whether it may have it: not if it waits for other
    /// keys as well, and another wake has it by one of them, or it has given up. Called under the
    /// lock of its home, perhaps again.
    pub(super) fn try_claim(&self) -> bool {
        match self.sleeper().map(|sleeper| &sleeper.kind) {
            Some(Kind::Any(any)) => any.try_claim(ptr::from_ref(self).addr()),
            _ => true,
        }
    }

    /// Whether [`Waiter::try_claim`] would say no.
    pub(super) fn is_lost(&self) -> bool {
        match self.sleeper().map(|sleeper| &sleeper.kind) {
            Some(Kind::Any(any)) => !any.is_open(),
            _ => false,
        }
    }

    /// Whether a task sleeps here.
    pub(super) fn is_task(&self) -> bool {
        self.sleeper().is_some_and(|sleeper| matches!(sleeper.kind, Kind::Task(_)))
    }

    /// Hands the node back to its owner, with what is still to be done to wake it.
    ///
    /// # Safety
    /// The caller claimed the node (B5), has taken from it what it needs, and does not touch it
    /// again; and sends the wakeup.
    pub(super) unsafe fn hand_back(node: NonNull<Self>, closer: &Closer) -> Wakeup {
        // SAFETY: B5; the owner does not leave before it is notified.
        let this = unsafe { node.as_ref() };
        // SAFETY: B5.
        unsafe { this.tell(closer) };
        let mut parker = NonNull::from(&this.parker);
        let mut waker = None;
        match this.sleeper().map(|sleeper| &sleeper.kind) {
            // SAFETY: B5.
            Some(Kind::Task(task)) => waker = unsafe { task.replace(None) },
            Some(Kind::Any(any)) => parker = NonNull::from(&any.parker),
            None => {}
        }
        // SAFETY: B5; this is the one notification, and nothing of the node is used after it.
        unsafe { Parker::notify(parker) };
        waker.map_or(Wakeup::Thread(parker), Wakeup::Task)
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

    /// Gives `look` the links. No copy: a search that passes by stays on the first cache line.
    ///
    /// # Safety
    /// The caller may touch the node: see the module's table; `look` changes no node.
    #[inline]
    pub(super) unsafe fn look<R>(&self, look: impl FnOnce(&Links<K>) -> R) -> R {
        // SAFETY: the contract.
        self.links.with(|links| look(unsafe { &*links }))
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
