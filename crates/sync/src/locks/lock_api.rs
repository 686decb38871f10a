//! Our locks behind the traits of the crate `lock_api`: `lock_api::Mutex<RawMutex, T>`,
//! `lock_api::RwLock<RawRwLock, T>`.
//!
//! Guards of that crate lock again what they have unlocked for a while (`MutexGuard::unlocked`). A
//! panic of that lock would leave them unlocked, beside another guard. So what panics elsewhere, as
//! this thread holds the lock already, aborts here, unless it has a deadline.
#![expect(unsafe_code, reason = "the traits are unsafe: they promise to exclude")]

use std::time::{Duration, Instant};

use lock_api::GuardNoSend;
use unherd_sys::Deadline;

use super::mutex::BARGING;
use super::raw_mutex::RawMutex;
use super::raw_rwlock::RawRwLock;

// SAFETY: LOCKED is set by one thread at a time, and cleared by its holder.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self::new();

    // Debug builds know the thread that has locked.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.0.abort_if_owned("mutex");
        self.0.lock(BARGING, Deadline::NEVER);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the contract.
        unsafe { self.0.unlock(BARGING) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexFair for RawMutex {
    unsafe fn unlock_fair(&self) {
        // SAFETY: the contract.
        unsafe { self.0.unlock(Duration::ZERO) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.lock(BARGING, Deadline::after(timeout))
    }

    #[track_caller]
    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.0.lock(BARGING, until(deadline))
    }
}

/// Both clocks are CLOCK_MONOTONIC, but std does not tell an instant's number.
fn until(deadline: Instant) -> Deadline {
    #[expect(clippy::disallowed_methods, reason = "to convert what the trait has")]
    let left = deadline.saturating_duration_since(Instant::now());
    Deadline::after(left)
}

// SAFETY: RW1 of `raw_rwlock`.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = Self::new();

    // Debug builds know the thread that writes.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.abort_if_owned();
        self.read(Deadline::NEVER);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_read()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the contract.
        unsafe { self.unlock_read() };
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.abort_if_owned();
        self.write(BARGING, Deadline::NEVER);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_write()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the contract.
        unsafe { self.unlock_write(BARGING) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawRwLock::is_locked(self)
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // SAFETY: the contract.
        unsafe { RawRwLock::downgrade(self, BARGING) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.read(Deadline::after(timeout))
    }

    #[track_caller]
    fn try_lock_shared_until(&self, deadline: Instant) -> bool {
        self.read(until(deadline))
    }

    #[track_caller]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.write(BARGING, Deadline::after(timeout))
    }

    #[track_caller]
    fn try_lock_exclusive_until(&self, deadline: Instant) -> bool {
        self.write(BARGING, until(deadline))
    }
}
