//! A reader-writer lock and the value that it guards.
#![expect(unsafe_code, reason = "the lock decides who may use the value")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use unherd_sys::Deadline;

use super::raw_rwlock::RawRwLock;

/// A value that many threads may read, or one may change.
///
/// Four bytes beside the value (in debug builds sixteen). There is no poisoning: a panic unlocks.
/// Can stand in a `static`, and in a global allocator: no path allocates.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::RwLock;
///
/// static LIMITS: RwLock<(u32, u32)> = RwLock::new((0, 9));
/// std::thread::scope(|scope| {
///     scope.spawn(|| *LIMITS.write() = (10, 19));
///     scope.spawn(|| {
///         let limits = LIMITS.read();
///         assert_eq!(limits.1 - limits.0, 9); // never half of a change
///     });
/// });
/// ```
///
/// # Fairness
/// A writer that waits keeps readers out that come after it, and when it is done wakes the first
/// reader that waits, which wakes the next. `BARGING_US` is what it is for a
/// [`Mutex`](super::Mutex): for how long running threads may come ahead of those that sleep. Once
/// in that time a writer that is done lets in the first four readers that wait, before the next
/// writer, and one hands the lock over to the writer that has slept longest. A reader that was
/// woken and is kept out queues behind the others. With 0 all readers that wait are let in, each
/// time, and readers and writers take turns: a reader waits for one writer, the one that kept it
/// out; and a writer for the writers before it, and for one crowd of readers before
/// each.
///
/// # Misuse
/// A guard that is forgotten leaves it locked for ever. A thread that locks what it holds may sleep
/// for ever, also if it only reads twice: a writer may wait between. In debug builds it panics if
/// it holds the lock for writing. A lock that is held or waited for cannot be dropped:
///
/// ```compile_fail,E0505
/// # use unherd_sync as unherd;
/// let lock = unherd::RwLock::new(0);
/// let guard = lock.read();
/// drop(lock);
/// drop(guard);
/// ```
pub struct RwLock<T: ?Sized, const BARGING_US: u32 = 1000> {
    raw: RawRwLock,
    value: UnsafeCell<T>,
}

// SAFETY: readers share the value, and a writer has it alone, as `raw` says.
unsafe impl<T: ?Sized + Send + Sync, const BARGING_US: u32> Sync for RwLock<T, BARGING_US> {}

/// A [`RwLock`] that is locked for reading: unlocks it on drop.
#[must_use = "the lock is unlocked as soon as the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized, const BARGING_US: u32 = 1000> {
    lock: &'a RwLock<T, BARGING_US>,
    /// Not `Send`, as the other is not.
    _of_this_thread: PhantomData<*const ()>,
}

/// A [`RwLock`] that is locked for writing: unlocks it on drop.
#[must_use = "the lock is unlocked as soon as the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized, const BARGING_US: u32 = 1000> {
    lock: &'a RwLock<T, BARGING_US>,
    /// Not `Send`: debug builds know the thread that has locked.
    _of_this_thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared reference to the value.
unsafe impl<T: ?Sized + Sync, const BARGING_US: u32> Sync for RwLockReadGuard<'_, T, BARGING_US> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync, const BARGING_US: u32> Sync for RwLockWriteGuard<'_, T, BARGING_US> {}

impl<T> RwLock<T> {
    /// An unlocked lock, fair as its type says.
    pub const fn new(value: T) -> Self {
        Self::with_barging(value)
    }
}

impl<T, const BARGING_US: u32> RwLock<T, BARGING_US> {
    /// As [`RwLock::new`], with the fairness among writers that the type names.
    pub const fn with_barging(value: T) -> Self {
        Self { raw: RawRwLock::new(), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, const BARGING_US: u32> RwLock<T, BARGING_US> {
    const BARGING: Duration = Duration::from_micros(BARGING_US as u64);

    /// Locks it for reading. Sleeps, under the reason `rwlock`, while a writer has it or waits for
    /// it.
    ///
    /// One compare-and-swap if there is no writer; unlocking is one subtraction.
    ///
    /// # Panics
    /// In debug builds, if this thread holds it for writing. With 2²² read guards alive it aborts.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T, BARGING_US> {
        self.raw.read(Deadline::NEVER);
        self.read_guard()
    }

    /// Locks it for reading, unless a writer has it or waits for it. Never sleeps.
    ///
    /// Aborts if 2²² read guards are alive.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, BARGING_US>> {
        self.raw.try_read().then(|| self.read_guard())
    }

    /// As [`RwLock::read`]; `None` if the deadline came first.
    ///
    /// # Panics
    /// As [`RwLock::read`].
    #[inline]
    #[track_caller]
    pub fn read_until(&self, deadline: Deadline) -> Option<RwLockReadGuard<'_, T, BARGING_US>> {
        self.raw.read(deadline).then(|| self.read_guard())
    }

    /// Locks it for writing. Sleeps while others hold it: for another writer under the reason
    /// `mutex`, for readers under `rwlock`.
    ///
    /// One compare-and-swap if it is free, and one to unlock it.
    ///
    /// # Panics
    /// In debug builds, if this thread holds it for writing.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, BARGING_US> {
        self.raw.write(Self::BARGING, Deadline::NEVER);
        self.write_guard()
    }

    /// Locks it for writing, unless others hold it. Never sleeps.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, BARGING_US>> {
        self.raw.try_write().then(|| self.write_guard())
    }

    /// As [`RwLock::write`]; `None` if the deadline came first.
    ///
    /// # Panics
    /// As [`RwLock::write`].
    #[inline]
    #[track_caller]
    pub fn write_until(&self, deadline: Deadline) -> Option<RwLockWriteGuard<'_, T, BARGING_US>> {
        self.raw.write(Self::BARGING, deadline).then(|| self.write_guard())
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn raw(&self) -> &RawRwLock {
        &self.raw
    }

    fn read_guard(&self) -> RwLockReadGuard<'_, T, BARGING_US> {
        RwLockReadGuard { lock: self, _of_this_thread: PhantomData }
    }

    fn write_guard(&self) -> RwLockWriteGuard<'_, T, BARGING_US> {
        RwLockWriteGuard { lock: self, _of_this_thread: PhantomData }
    }
}

impl<'a, T: ?Sized, const BARGING_US: u32> RwLockWriteGuard<'a, T, BARGING_US> {
    /// Goes on as a reader; no writer comes between. Readers that sleep are let in; those that come
    /// later stay out if a writer waits: do not wait for one.
    pub fn downgrade(self) -> RwLockReadGuard<'a, T, BARGING_US> {
        let lock = std::mem::ManuallyDrop::new(self).lock;
        // SAFETY: it is locked by this guard, which does not unlock it any more.
        unsafe { lock.raw.downgrade(RwLock::<T, BARGING_US>::BARGING) };
        lock.read_guard()
    }
}

impl<T: ?Sized, const BARGING_US: u32> Drop for RwLockReadGuard<'_, T, BARGING_US> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is locked by this guard.
        unsafe { self.lock.raw.unlock_read() };
    }
}

impl<T: ?Sized, const BARGING_US: u32> Drop for RwLockWriteGuard<'_, T, BARGING_US> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is locked by this guard.
        unsafe { self.lock.raw.unlock_write(RwLock::<T, BARGING_US>::BARGING) };
    }
}

impl<T: ?Sized, const BARGING_US: u32> Deref for RwLockReadGuard<'_, T, BARGING_US> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no writer is in while this guard lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, const BARGING_US: u32> Deref for RwLockWriteGuard<'_, T, BARGING_US> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: nobody else is in; a unique reference borrows the guard uniquely.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, const BARGING_US: u32> DerefMut for RwLockWriteGuard<'_, T, BARGING_US> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: Default, const BARGING_US: u32> Default for RwLock<T, BARGING_US> {
    fn default() -> Self {
        Self::with_barging(T::default())
    }
}

impl<T, const BARGING_US: u32> From<T> for RwLock<T, BARGING_US> {
    fn from(value: T) -> Self {
        Self::with_barging(value)
    }
}

impl<T: ?Sized + fmt::Debug, const BARGING_US: u32> fmt::Debug for RwLock<T, BARGING_US> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_read() {
            Some(guard) => f.debug_struct("RwLock").field("value", &&*guard).finish(),
            None => f.write_str("RwLock { <locked> }"),
        }
    }
}

impl<T: ?Sized + fmt::Debug, const B: u32> fmt::Debug for RwLockReadGuard<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug, const B: u32> fmt::Debug for RwLockWriteGuard<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
