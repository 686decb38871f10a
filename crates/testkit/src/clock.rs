//! Time that passes only when a test says so.

use std::time::Duration;

use unherd_sys::primitives::{AtomicU64, Ordering};
use unherd_sys::{Clock, Timestamp};

/// A clock that stands still until it is moved by hand.
#[derive(Debug)]
pub struct SimClock {
    // Relaxed: the time orders nothing; who must see a later time is told by other means.
    now_ns: AtomicU64,
}

impl SimClock {
    /// A clock that says `start`.
    pub fn new(start: Timestamp) -> Self {
        Self { now_ns: AtomicU64::new(start.as_ns()) }
    }

    /// Lets `duration` pass, and gives the time that it is then.
    pub fn advance(&self, duration: Duration) -> Timestamp {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Timestamp::from_ns(self.now_ns.fetch_add(ns, Ordering::Relaxed) + ns)
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new(Timestamp::default())
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ns(self.now_ns.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn time_passes_by_hand_alone() {
        let clock = SimClock::default();
        assert_eq!(clock.now(), clock.now());
        let later = clock.advance(Duration::from_micros(3));
        assert_eq!(clock.now(), later);
        assert_eq!(later.since(Timestamp::default()), Duration::from_micros(3));
    }
}
