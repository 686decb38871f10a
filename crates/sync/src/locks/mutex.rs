//! A mutex and the value that it guards.
#![expect(unsafe_code, reason = "the lock decides who may use the value")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::AtomicU8;

use super::word_mutex::ByteMutex;

/// That of a mutex whose type says nothing about it.
#[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
pub(super) const BARGING: Duration = Mutex::<()>::BARGING;

/// A value that one thread at a time may use.
///
/// One byte beside the value (in debug builds sixteen). There is no poisoning: a panic unlocks.
/// Can stand in a `static`, and in a global allocator: no path allocates.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Mutex;
///
/// static TOTAL: Mutex<u64> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     for n in 1..=4 {
///         scope.spawn(move || *TOTAL.lock() += n);
///     }
/// });
/// assert_eq!(*TOTAL.lock(), 10);
/// ```
///
/// # Fairness
/// `BARGING_US` is how long, in microseconds, running threads may take the mutex ahead of a thread
/// that sleeps for it (*barging*): 1,000, unless the type says otherwise ([`Mutex::with_barging`]).
/// Once in that time an unlock hands the mutex directly to the longest sleeper, if it has slept for
/// as long. 0 hands it over at each unlock, in the order in which threads came, which costs a
/// switch of threads each time; `u32::MAX`, over an hour, is as good as never.
///
/// # Misuse
/// A guard that is forgotten ([`std::mem::forget`]) leaves the mutex locked for ever. A thread that
/// locks what it holds sleeps for ever; in debug builds it panics instead. A mutex that is locked
/// or waited for cannot be dropped:
///
/// ```compile_fail,E0505
/// # use unherd_sync as unherd;
/// let mutex = unherd::Mutex::new(0);
/// let guard = mutex.lock();
/// drop(mutex);
/// drop(guard);
/// ```
pub struct Mutex<T: ?Sized, const BARGING_US: u32 = 1000> {
    raw: ByteMutex,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the value: the one that has locked `raw`.
unsafe impl<T: ?Sized + Send, const BARGING_US: u32> Sync for Mutex<T, BARGING_US> {}
// A mutex owns its value, and nothing else that cares for threads: `Send` as the value is.

/// A locked [`Mutex`]: unlocks it on drop.
#[must_use = "the mutex is unlocked as soon as the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized, const BARGING_US: u32 = 1000> {
    mutex: &'a Mutex<T, BARGING_US>,
    /// Not `Send`: debug builds know the thread that has locked.
    _of_this_thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared reference to the value.
unsafe impl<T: ?Sized + Sync, const BARGING_US: u32> Sync for MutexGuard<'_, T, BARGING_US> {}

/// A [`Mutex`] that a task has locked by [`Mutex::lock_async`]: unlocks it on drop.
///
/// Unlike a [`MutexGuard`] it may go to another thread, as its task does.
#[cfg(feature = "async")]
#[must_use = "the mutex is unlocked as soon as the guard is dropped"]
pub struct AsyncMutexGuard<'a, T: ?Sized, const BARGING_US: u32 = 1000>(
    MutexGuard<'a, T, BARGING_US>,
);

// SAFETY: it gives what the mutex guards; that it is a thread's is known of threads' locks alone.
#[cfg(feature = "async")]
unsafe impl<T: ?Sized + Send, const BARGING_US: u32> Send for AsyncMutexGuard<'_, T, BARGING_US> {}

impl<T> Mutex<T> {
    /// An unlocked mutex, with 1 ms of barging.
    pub const fn new(value: T) -> Self {
        Self::with_barging(value)
    }
}

impl<T, const BARGING_US: u32> Mutex<T, BARGING_US> {
    /// An unlocked mutex with the fairness that its type names, as in
    /// `Mutex::<_, 0>::with_barging(value)`.
    pub const fn with_barging(value: T) -> Self {
        Self { raw: ByteMutex::new(AtomicU8::new(0)), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, const BARGING_US: u32> Mutex<T, BARGING_US> {
    const BARGING: Duration = Duration::from_micros(BARGING_US as u64);

    /// Locks it. Sleeps, under the reason `mutex`, while another thread holds it.
    ///
    /// One compare-and-swap if it is free. Else it spins for some microseconds, and then sleeps in
    /// a wait table that all locks of the process share.
    ///
    /// **Not on a thread of an executor (async runtime) whose tasks lock the mutex by
    /// `lock_async`: a thread that polls tasks must not block on what these tasks await.** A task
    /// that was woken for the mutex, or has it, goes on only when it is polled; if the thread that
    /// would poll it sleeps here, both wait for ever. Use [`Mutex::lock_async`] there, or
    /// [`Mutex::try_lock`].
    ///
    /// # Panics
    /// In debug builds, if this thread holds it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T, BARGING_US> {
        self.raw.lock(Self::BARGING, Deadline::NEVER);
        self.guard()
    }

    /// Locks it, unless a thread holds it, be it this one. Never sleeps, and does not panic.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, BARGING_US>> {
        self.raw.try_lock().then(|| self.guard())
    }

    /// As [`Mutex::lock`]; `None` if it was held until the deadline.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[inline]
    #[track_caller]
    pub fn lock_until(&self, deadline: Deadline) -> Option<MutexGuard<'_, T, BARGING_US>> {
        self.raw.lock(Self::BARGING, deadline).then(|| self.guard())
    }

    /// As [`Mutex::lock`], in an async task: tasks and threads stand in one queue. No runtime is
    /// needed, and no memory is allocated.
    ///
    /// The guard may be held across an `.await` and go to other threads. A future that is dropped
    /// gives back what it was given: no hand-over is lost. But a mutex that was handed over to a
    /// task stays locked until that is polled or dropped; and once a task was woken for a mutex
    /// that is free, the other sleepers are not woken until it has been polled or dropped. So do
    /// not leave the future lying about, half done. There is no deadline, for there is no clock
    /// without a runtime: drop the future when its timer says so. A task that locks what it holds
    /// waits for ever, in debug builds too.
    ///
    /// **A thread that polls such tasks must not block on the mutex itself, by [`Mutex::lock`]**,
    /// in a task or between polls: it may wait for a task that it alone would poll. Threads outside
    /// of the executor may.
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// async fn add(total: &unherd::Mutex<u64>, n: u64) {
    ///     *total.lock_async().await += n;
    /// }
    /// ```
    #[cfg(feature = "async")]
    pub async fn lock_async(&self) -> AsyncMutexGuard<'_, T, BARGING_US> {
        self.raw.lock_async(Self::BARGING).await;
        AsyncMutexGuard(self.guard())
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// That of a mutex that was locked just now.
    fn guard(&self) -> MutexGuard<'_, T, BARGING_US> {
        MutexGuard { mutex: self, _of_this_thread: PhantomData }
    }
}

impl<T: ?Sized, const BARGING_US: u32> MutexGuard<'_, T, BARGING_US> {
    pub(super) const BARGING: Duration = Mutex::<T, BARGING_US>::BARGING;

    pub(super) fn raw(&self) -> &ByteMutex {
        &self.mutex.raw
    }

    /// Unlocks, and hands the mutex over to the thread that has slept for it longest, if there is
    /// one: no other comes between.
    pub fn unlock_fair(self) {
        let guard = std::mem::ManuallyDrop::new(self);
        // SAFETY: it is locked by this guard, which does not unlock it again.
        unsafe { guard.mutex.raw.unlock(Duration::ZERO) };
    }
}

#[cfg(feature = "async")]
impl<T: ?Sized, const BARGING_US: u32> AsyncMutexGuard<'_, T, BARGING_US> {
    /// As [`MutexGuard::unlock_fair`].
    pub fn unlock_fair(self) {
        self.0.unlock_fair();
    }
}

#[cfg(feature = "async")]
impl<T: ?Sized, const BARGING_US: u32> Deref for AsyncMutexGuard<'_, T, BARGING_US> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(feature = "async")]
impl<T: ?Sized, const BARGING_US: u32> DerefMut for AsyncMutexGuard<'_, T, BARGING_US> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(feature = "async")]
impl<T: ?Sized + fmt::Debug, const B: u32> fmt::Debug for AsyncMutexGuard<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized, const BARGING_US: u32> Drop for MutexGuard<'_, T, BARGING_US> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is locked by this guard.
        unsafe { self.mutex.raw.unlock(Self::BARGING) };
    }
}

impl<T: ?Sized, const BARGING_US: u32> Deref for MutexGuard<'_, T, BARGING_US> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked by this guard; a unique reference borrows the guard uniquely.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized, const BARGING_US: u32> DerefMut for MutexGuard<'_, T, BARGING_US> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: Default, const BARGING_US: u32> Default for Mutex<T, BARGING_US> {
    fn default() -> Self {
        Self::with_barging(T::default())
    }
}

impl<T, const BARGING_US: u32> From<T> for Mutex<T, BARGING_US> {
    fn from(value: T) -> Self {
        Self::with_barging(value)
    }
}

impl<T: ?Sized + fmt::Debug, const BARGING_US: u32> fmt::Debug for Mutex<T, BARGING_US> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_struct("Mutex").field("value", &&*guard).finish(),
            None => f.write_str("Mutex { <locked> }"),
        }
    }
}

impl<T: ?Sized + fmt::Debug, const BARGING_US: u32> fmt::Debug for MutexGuard<'_, T, BARGING_US> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
