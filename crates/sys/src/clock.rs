//! Time: monotonic time stamps, absolute deadlines, and the clock that tells them.
//!
//! All of unherd waits until a [`Deadline`], never for a duration: a wait that is interrupted and
//! begun again must not last longer for it. The clock is `CLOCK_MONOTONIC`, the one that futex(2)
//! measures absolute timeouts by, so a change of the wall clock has no effect.

use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time stamp `ns` nanoseconds after the clock's zero.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds after the clock's zero.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// What `CLOCK_MONOTONIC` says now. Does not block; about 20 ns (vDSO).
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Self(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// The time since `earlier`, zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This time stamp and `duration`, at most the last that can be told (584 years).
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// When to give up waiting: at a point of monotonic time, or never.
///
/// A deadline in the past is legal: the condition is looked at once, and the wait times out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deadline(Option<Timestamp>);

impl Deadline {
    /// Wait for as long as it takes.
    pub const NEVER: Self = Self(None);

    /// Give up at `at`.
    pub const fn at(at: Timestamp) -> Self {
        Self(Some(at))
    }

    /// Give up `duration` from now by the monotonic clock.
    pub fn after(duration: Duration) -> Self {
        Self(Some(Timestamp::now().after(duration)))
    }

    /// The time stamp, or `None` for [`Deadline::NEVER`].
    pub const fn timestamp(self) -> Option<Timestamp> {
        self.0
    }

    /// The one that comes first.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        let first = self.0.into_iter().chain(other.0).min();
        Self(first)
    }

    /// Whether it has passed at `now`.
    pub fn has_passed(self, now: Timestamp) -> bool {
        self.0.is_some_and(|at| at <= now)
    }
}

/// Who tells the time. Real code takes [`SystemClock`]; simulations bring their own.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
