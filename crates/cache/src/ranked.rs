//! Locks in a fixed order, which debug builds check: two threads that take the same locks in
//! different orders wait for each other for ever, but only once in a while.
//!
//! The order is that of the numbers in [`rank`]. A thread takes a lock only while all that it holds
//! come before it, so never two of one rank. No lock is held across I/O or a wait.
//!
//! Not ranked: a bucket of a wait table, under which a waiter looks at its condition, comes before
//! all (so nobody is woken with a ranked lock held); the I/O thread's slots, its alarm, the rounds
//! of a sync, the absent frames and the two locks of the frame usage are taken with no other; the
//! latest write error may be taken under DURABILITY, and nothing under it.

use std::ops::{Deref, DerefMut};

use unherd_sys::primitives::{Mutex, MutexGuard};

/// The order of the locks.
pub(crate) mod rank {
    /// A file's streams, of reads or of writes.
    pub(crate) const STREAMS: u8 = 0;
    pub(crate) const POOL: u8 = 1;
    /// The table of files.
    pub(crate) const TABLE: u8 = 2;
    pub(crate) const DURABILITY: u8 = 3;
    /// A file's set of unclean pages.
    pub(crate) const UNCLEAN: u8 = 4;
    /// A file's held pages.
    pub(crate) const HOLDS: u8 = 5;
    /// A shard of the index.
    pub(crate) const SHARD: u8 = 6;
    pub(crate) const RUN_BUFFERS: u8 = 7;
}

/// A mutex that has a place in the order.
#[derive(Debug, Default)]
pub(crate) struct Ranked<T, const RANK: u8>(Mutex<T>);

/// The lock is held until this is dropped.
#[derive(Debug)]
pub(crate) struct RankedGuard<'a, T, const RANK: u8> {
    guard: MutexGuard<'a, T>,
    _held: HeldRank<RANK>,
}

impl<T, const RANK: u8> Ranked<T, RANK> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Blocks until the lock is held.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a lock that does not come before.
    #[inline]
    #[track_caller]
    pub(crate) fn lock(&self) -> RankedGuard<'_, T, RANK> {
        let held = HeldRank::note();
        RankedGuard { guard: self.0.lock(), _held: held }
    }
}

impl<T, const RANK: u8> Deref for RankedGuard<'_, T, RANK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for RankedGuard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Not in release builds, nor under the checkers, whose threads share one of the system's.
const IS_CHECKED: bool = cfg!(all(debug_assertions, not(any(loom, shuttle))));

/// That this thread holds a lock of the rank.
#[derive(Debug)]
struct HeldRank<const RANK: u8>(());

std::thread_local! {
    /// A bit for each rank that this thread holds.
    static HELD: std::cell::Cell<u16> = const { std::cell::Cell::new(0) };
}

impl<const RANK: u8> HeldRank<RANK> {
    #[inline]
    #[track_caller]
    fn note() -> Self {
        if IS_CHECKED {
            let held = HELD.get();
            assert!(held >> RANK == 0, "a lock of rank {RANK} is taken under {held:#011b}");
            HELD.set(held | 1 << RANK);
        }
        Self(())
    }
}

impl<const RANK: u8> Drop for HeldRank<RANK> {
    #[inline]
    fn drop(&mut self) {
        if IS_CHECKED {
            HELD.set(HELD.get() & !(1 << RANK));
        }
    }
}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn locks_are_taken_in_their_order() {
        let first = Ranked::<_, { rank::POOL }>::new(1);
        let second = Ranked::<_, { rank::SHARD }>::new(2);
        assert_eq!(*first.lock() + *second.lock(), 3);
        let shard = second.lock();
        assert!(catch_unwind(|| *first.lock()).is_err(), "against the order");
        assert!(catch_unwind(|| *second.lock()).is_err(), "it would wait for itself");
        drop(shard);
        assert_eq!(*first.lock(), 1);
    }
}
