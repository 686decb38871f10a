//! What a waiter has on its stack beside the table's node, by which operations of several steps
//! choose it. The table knows it by its address, in the waiter's tag.

use std::ptr;

use unherd_sync::Tag;
use unherd_sys::primitives::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use crate::queue_lock::QueueLock;
use crate::{ParkToken, UnparkToken};

const WAITING: u8 = 0;
const CHOSEN: u8 = 1;
const READY: u8 = 2;

/// All accesses are Relaxed: what one thread writes and another reads is ordered by the bucket
/// lock, the queue lock, or the table's wake; the table of the crate says which.
pub(crate) struct Parked {
    pub(crate) park_token: ParkToken,
    state: AtomicU8,
    /// Under which it was chosen.
    key: AtomicUsize,
    token: AtomicUsize,
    /// The one that the same operation has chosen before.
    next: AtomicPtr<Self>,
}

impl Parked {
    pub(crate) fn new(park_token: ParkToken) -> Self {
        Self {
            park_token,
            state: AtomicU8::new(WAITING),
            key: AtomicUsize::new(0),
            token: AtomicUsize::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn tag(&self) -> Tag {
        Tag(ptr::from_ref(self).expose_provenance() as u64)
    }

    /// The waiter whose tag this is.
    ///
    /// # Safety
    /// It is alive as long as the result is used.
    pub(crate) unsafe fn of<'a>(tag: Tag) -> &'a Self {
        let parked = ptr::with_exposed_provenance::<Self>(tag.0 as usize);
        // SAFETY: the contract; every tag in the table is the address of one.
        unsafe { &*parked }
    }

    /// Whether it was chosen.
    pub(crate) fn is_chosen(&self) -> bool {
        self.state.load(Ordering::Relaxed) != WAITING
    }

    /// The token of one that was chosen. Its owner calls it, when it waits no more, and says
    /// whether it was woken.
    pub(crate) fn token(&self, woken: bool) -> UnparkToken {
        if !woken || self.state.load(Ordering::Relaxed) == CHOSEN {
            // F1. And without a wake nothing else shows the token.
            drop(QueueLock::of(self.key.load(Ordering::Relaxed)));
        }
        UnparkToken(self.token.load(Ordering::Relaxed))
    }
}

/// The waiters that an operation has chosen, whose queue lock it holds.
#[derive(Default)]
pub(crate) struct Chosen {
    last: Option<*const Parked>,
    pub(crate) len: usize,
}

impl Chosen {
    /// Chooses a waiter of `key`. Called with its bucket locked.
    pub(crate) fn push(&mut self, parked: &Parked, key: usize) {
        let before = self.last.replace(ptr::from_ref(parked)).unwrap_or_default();
        parked.next.store(before.cast_mut(), Ordering::Relaxed);
        parked.key.store(key, Ordering::Relaxed);
        parked.state.store(CHOSEN, Ordering::Relaxed);
        self.len += 1;
    }

    /// Gives all of them `token`; they find it behind the queue lock.
    pub(crate) fn give(&self, token: UnparkToken) {
        self.for_each(|parked| parked.token.store(token.0, Ordering::Relaxed));
    }

    /// Gives all of them `token`, before any was woken.
    pub(crate) fn give_ready(&self, token: UnparkToken) {
        self.give(token);
        self.for_each(|parked| parked.state.store(READY, Ordering::Relaxed));
    }

    fn for_each(&self, mut act: impl FnMut(&Parked)) {
        let mut next = self.last.unwrap_or_default();
        // SAFETY: null, or alive (F1).
        while let Some(parked) = unsafe { next.as_ref() } {
            next = parked.next.load(Ordering::Relaxed);
            act(parked);
        }
    }
}
