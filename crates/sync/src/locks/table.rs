//! The one wait table of all locks, and the names of their waits.

use std::ops::Deref;

use crate::{Reason, WaitTable};

/// What kind of lock is waited for.
///
/// A future that is forgotten stays in its queue after its lock is gone, and another lock may come
/// to the same address. So each kind has queues of its own: in those of which no task waits, all
/// who stand there borrow the lock (`condvar` trusts in that), and a tag means the same to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mutex,
    RwLock,
    Condvar,
    Semaphore,
    EventCount,
    Once,
    Latch,
    Barrier,
}

/// The queue of a lock, or of a part of it: each part has a byte of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(any(loom, shuttle)), derive(Hash))]
pub(super) struct Address(u64);

/// The rest of an address may be a tag, and two tags of one byte are one byte.
const ADDRESS_BITS: u32 = 56;

impl Address {
    pub(super) fn of<T>(kind: Kind, lock: *const T) -> Self {
        let address = lock.addr() as u64 % (1 << ADDRESS_BITS);
        Self((kind as u64) << ADDRESS_BITS | address)
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Address {
    /// One of `n` places, a power of two. Neighbours have places of their own (multiplied by the
    /// golden ratio, they lie far from one another), and so have the parts of a lock.
    pub(super) fn place(self, n: usize) -> usize {
        let spread = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> (u64::BITS - n.ilog2())) as usize
    }

    /// `bits` bits, which differ for most locks of one place.
    pub(super) fn fingerprint(self, bits: u32) -> u64 {
        (self.0 ^ (self.0 >> bits)) % (1 << bits)
    }
}

/// Under the checkers a run is to be repeated, so nothing may follow from an address.
#[cfg(any(loom, shuttle))]
impl std::hash::Hash for Address {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// What all locks share.
pub(super) struct Locks {
    table: WaitTable<Address>,
    pub(super) mutex: Reason,
    pub(super) condvar: Reason,
    pub(super) rwlock: Reason,
    pub(super) event: Reason,
    pub(super) semaphore: Reason,
    pub(super) once: Reason,
    pub(super) latch: Reason,
    pub(super) barrier: Reason,
}

impl Deref for Locks {
    type Target = WaitTable<Address>;

    fn deref(&self) -> &WaitTable<Address> {
        &self.table
    }
}

/// A fixed number: to ask how many processors there are would allocate. 1 MiB of addresses.
const BUCKETS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1 << 14 };

impl Locks {
    fn new() -> Self {
        let builder = WaitTable::builder().buckets(BUCKETS).reason(Reason::register("lock"));
        #[cfg(any(loom, shuttle))]
        let builder = builder.seed(1);
        Self {
            table: builder.build(),
            mutex: Reason::register("mutex"),
            condvar: Reason::register("condvar"),
            rwlock: Reason::register("rwlock"),
            event: Reason::register("event"),
            semaphore: Reason::register("semaphore"),
            once: Reason::register("once"),
            latch: Reason::register("latch"),
            barrier: Reason::register("barrier"),
        }
    }
}

/// The table, which the first call makes. Allocates nothing.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn locks() -> &'static Locks {
    static LOCKS: std::sync::LazyLock<Locks> = std::sync::LazyLock::new(Locks::new);
    &LOCKS
}

#[cfg(any(loom, shuttle))]
pub(super) fn locks() -> &'static Locks {
    unherd_sys::primitives::lazy_static! {
        static ref LOCKS: Locks = Locks::new();
    }
    &LOCKS
}
