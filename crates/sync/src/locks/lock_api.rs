//! Our mutex behind the traits of the crate `lock_api`: `lock_api::Mutex<RawMutex, T>`.
#![expect(unsafe_code, reason = "the traits are unsafe: they promise to exclude")]

use std::time::{Duration, Instant};

use lock_api::GuardNoSend;
use unherd_sys::Deadline;

use super::mutex::BARGING;
use super::raw_mutex::RawMutex;

// SAFETY: LOCKED is set by one thread at a time, and cleared by its holder.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self::new();

    // Debug builds know the thread that has locked.
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        RawMutex::lock(self, BARGING, Deadline::NEVER);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        RawMutex::try_lock(self)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the contract.
        unsafe { RawMutex::unlock(self, BARGING) };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawMutex::is_locked(self)
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexFair for RawMutex {
    unsafe fn unlock_fair(&self) {
        // SAFETY: the contract.
        unsafe { RawMutex::unlock(self, Duration::ZERO) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        RawMutex::lock(self, BARGING, Deadline::after(timeout))
    }

    #[track_caller]
    fn try_lock_until(&self, deadline: Instant) -> bool {
        // Both clocks are CLOCK_MONOTONIC, but std does not tell an instant's number.
        #[expect(clippy::disallowed_methods, reason = "to convert what the trait has")]
        let left = deadline.saturating_duration_since(Instant::now());
        RawMutex::lock(self, BARGING, Deadline::after(left))
    }
}
