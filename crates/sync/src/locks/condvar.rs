//! A condition variable that moves its waiters to the mutex instead of waking them.
//!
//! A thread that is notified needs the mutex next. If another holds it, to wake the thread is for
//! nothing: it would sleep again at once. So a notification *moves* waiters to the queue of the
//! mutex while that is held, where its unlock finds them; only with the mutex free it wakes, and
//! then one of them, who holds the mutex next, so that the others are moved.
//!
//! - **V1** All that wait for a condition variable at a time have unlocked the same mutex. `mutex`
//!   is written under the bucket lock, by a waiter that comes to an empty queue; the others check.
//!   So while anybody is queued it points to a mutex that is alive: that waiter borrows it. Nobody
//!   is queued that does not, as no task waits here (`Kind`).
//! - **V2** Who reads `mutex` without the lock has a guess. It is followed under the lock of the
//!   condition variable's bucket, with a waiter there, and if it is still the same.
//! - **V3** Waiters are moved to a mutex under the lock of its bucket, after PARKED was set there
//!   under the same. So the unlock that comes finds them (M1 of `word_mutex`).
//!
//! ```text
//!  waiter                                   notifier
//!  ------                                   --------
//!  lock bucket; push; unlock bucket         lock the mutex; change the condition; unlock it
//!  unlock the mutex                         look at the bucket: is anybody there?
//! ```
//!
//! Excluded: that the waiter has not seen the change and is not found. It looked while it held the
//! mutex, so before the change; then it was queued before it unlocked, so before the notifier
//! locked. A notifier that changes the condition without the mutex has no such promise.
#![expect(unsafe_code, reason = "the mutex is reached by a pointer while its waiters borrow it")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicPtr, Ordering};

#[cfg(not(loom))]
use super::mutex::MutexGuard;
use super::table::{Address, Kind, locks};
use super::word_mutex::ByteMutex;
use crate::wait_table::resume_unless_unwinding;
use crate::{Outcome, TimedOut, Token, Wait};

/// Lets threads that hold a [`Mutex`](super::Mutex) sleep until a condition has changed.
///
/// Notified threads that would only queue for the mutex are moved to its queue, still asleep.
/// Threads may be woken without a notification: look at the condition in a loop, or use
/// [`Condvar::wait_while`].
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::{Condvar, Mutex};
///
/// static READY: Mutex<bool> = Mutex::new(false);
/// static CHANGED: Condvar = Condvar::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| CHANGED.wait_while(&mut READY.lock(), |ready| !*ready));
///     *READY.lock() = true;
///     CHANGED.notify_all();
/// });
/// ```
///
/// # Panics
/// Waiting panics while others wait with another mutex.
#[derive(Debug)]
pub struct Condvar {
    /// Relaxed: V1, V2.
    mutex: AtomicPtr<ByteMutex>,
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    /// One that nobody waits for.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { mutex: AtomicPtr::new(ptr::null_mut()) }
    }

    /// One that nobody waits for.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { mutex: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Unlocks the mutex, sleeps until it is notified, under the reason `condvar`, and locks the
    /// mutex again.
    #[cfg(not(loom))]
    pub fn wait<T: ?Sized, const B: u32>(&self, guard: &mut MutexGuard<'_, T, B>) {
        let _notified = self.wait_until(guard, Deadline::NEVER);
    }

    /// As [`Condvar::wait`], for as long as `condition` is true.
    #[cfg(not(loom))]
    pub fn wait_while<T: ?Sized, const B: u32>(
        &self,
        guard: &mut MutexGuard<'_, T, B>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// As [`Condvar::wait_while`], until `deadline` at most. The mutex is locked again in any case,
    /// and that has no deadline: it takes as long as others hold the mutex.
    ///
    /// # Errors
    /// [`TimedOut`] if the condition is true after the deadline.
    #[cfg(not(loom))]
    pub fn wait_while_until<T: ?Sized, const B: u32>(
        &self,
        guard: &mut MutexGuard<'_, T, B>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: Deadline,
    ) -> Result<(), TimedOut> {
        while condition(guard) {
            if self.wait_until(guard, deadline).is_err() {
                return if condition(guard) { Err(TimedOut) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// As [`Condvar::wait`], until `deadline` at most. The mutex is locked again in any case, and
    /// that has no deadline: it takes as long as others hold the mutex.
    ///
    /// # Errors
    /// [`TimedOut`] if no notification had found the thread by the deadline. One that had, while
    /// the mutex was held, is this thread's also if it gets the mutex after the deadline.
    #[cfg(not(loom))]
    pub fn wait_until<T: ?Sized, const B: u32>(
        &self,
        guard: &mut MutexGuard<'_, T, B>,
        deadline: Deadline,
    ) -> Result<(), TimedOut> {
        // SAFETY: the guard has locked it, and nobody uses the guard meanwhile.
        unsafe { self.wait_raw(guard.raw(), MutexGuard::<'_, T, B>::BARGING, deadline) }
    }

    /// # Safety
    /// The caller holds `mutex`, and does without it until this returns.
    pub(super) unsafe fn wait_raw(
        &self,
        mutex: &ByteMutex,
        barging: Duration,
        deadline: Deadline,
    ) -> Result<(), TimedOut> {
        let locks = locks();
        let validate = |is_first| {
            let this = ptr::from_ref(mutex).cast_mut();
            if is_first {
                self.mutex.store(this, Ordering::Relaxed);
            }
            // V1.
            self.mutex.load(Ordering::Relaxed) == this
        };
        // An unlock may unwind, as the waker of a task does that it wakes; but it has unlocked. The
        // caller's guard must not be dropped before it is locked again.
        let mut panic = None;
        // SAFETY: the caller holds it.
        let unlock = || unsafe { mutex.unlock(barging) };
        let unlock = || panic = catch_unwind(AssertUnwindSafe(unlock)).err();
        let (here, mut was_moved) = (Address::of(Kind::Condvar, self), false);
        // One that was moved is notified: nobody else was, in its place.
        let timed_out = |key: &Address, _| was_moved = *key != here;
        let how = Wait::new(locks.condvar).deadline(deadline);
        let outcome = locks.wait_with(&here, validate, unlock, timed_out, how);
        assert!(outcome != Outcome::Invalid, "others wait for this condvar with another mutex");
        let token = if let Outcome::Woken(token) = outcome { token } else { Token(0) };
        mutex.lock_woken(token, barging);
        if let Some(panic) = panic {
            resume_unless_unwinding(panic);
        }
        if outcome == Outcome::TimedOut && !was_moved { Err(TimedOut) } else { Ok(()) }
    }

    /// Notifies the thread that has waited longest; says whether there was one.
    ///
    /// With nobody waiting it costs one load if nobody ever waited, and else what a wake of nobody
    /// costs.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.notify(1) > 0
    }

    /// Notifies all threads that wait, and says how many: those woken, and those moved.
    #[inline]
    pub fn notify_all(&self) -> usize {
        self.notify(usize::MAX)
    }

    #[inline]
    fn notify(&self, n: usize) -> usize {
        let mutex = self.mutex.load(Ordering::Relaxed);
        if mutex.is_null() { 0 } else { self.notify_slow(mutex, n) }
    }

    fn notify_slow(&self, mut mutex: *mut ByteMutex, n: usize) -> usize {
        let (locks, from) = (locks(), Address::of(Kind::Condvar, self));
        let mut is_free = false;
        loop {
            let guess = mutex;
            let (wake_n, move_n) = if is_free { (1, n - 1) } else { (0, n) };
            let validate = || {
                mutex = self.mutex.load(Ordering::Relaxed);
                if mutex != guess {
                    return false;
                }
                // SAFETY: V2: somebody waits, the bucket is locked, and it is the same.
                let is_held = unsafe { &*mutex }.expect_waiters(is_free && move_n > 0);
                is_held != is_free
            };
            let done =
                locks.requeue_if(&from, &Address::of(Kind::Mutex, guess), wake_n, move_n, validate);
            match done {
                Some(done) => return done.woken.total() + done.moved,
                // It was locked or unlocked meanwhile.
                None if mutex == guess => is_free = !is_free,
                None => {}
            }
        }
    }
}
