//! When something happened last, and how long a unit of progress takes.

use std::time::Duration;

use unherd_sys::Timestamp;
use unherd_sys::primitives::{AtomicU64, Ordering};

/// The weight of a new measurement is one in as many.
const WEIGHT: u64 = 8;
/// A waiter is overdue when it has waited as many times as long as its turn should have taken.
const PATIENCE: u64 = 8;
/// The shortest bound is this part of the longest.
const BOUND_PARTS: u32 = 16;

/// Relaxed, and each word by itself: of two changes at a time one may be lost, which makes an
/// estimate worse and a stall look younger, and nothing else.
#[derive(Debug)]
pub(super) struct Pace {
    changed_ns: AtomicU64,
    /// 0 before the first progress.
    progressed_ns: AtomicU64,
    /// The moving average of the time from one unit to the next; 0 before it is known.
    unit_ns: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Self {
        let word = || AtomicU64::new(0);
        Self { changed_ns: word(), progressed_ns: word(), unit_ns: word() }
    }

    /// The gate was congested or cleared.
    pub(super) fn note_change(&self, now: Timestamp) {
        self.changed_ns.store(now.as_ns(), Ordering::Relaxed);
    }

    /// `n` units of progress; the time that they took counts if the gate is congested.
    pub(super) fn note_progress(&self, now: Timestamp, n: u64, is_congested: bool) {
        let before = self.last().as_ns();
        self.progressed_ns.store(now.as_ns(), Ordering::Relaxed);
        if !is_congested {
            return;
        }
        let taken = now.as_ns().saturating_sub(before) / n;
        let unit = match self.unit_ns.load(Ordering::Relaxed) {
            0 => taken,
            unit => unit - unit / WEIGHT + taken / WEIGHT,
        };
        self.unit_ns.store(unit.max(1), Ordering::Relaxed);
    }

    /// When anything happened last.
    pub(super) fn last(&self) -> Timestamp {
        self.changed().max(self.progressed().unwrap_or_default())
    }

    pub(super) fn changed(&self) -> Timestamp {
        Timestamp::from_ns(self.changed_ns.load(Ordering::Relaxed))
    }

    pub(super) fn progressed(&self) -> Option<Timestamp> {
        let at = self.progressed_ns.load(Ordering::Relaxed);
        (at > 0).then(|| Timestamp::from_ns(at))
    }

    pub(super) fn unit(&self) -> Option<Duration> {
        let unit = self.unit_ns.load(Ordering::Relaxed);
        (unit > 0).then(|| Duration::from_nanos(unit))
    }

    /// How long a waiter with `ahead` others before it is to wait at most.
    pub(super) fn bound(&self, ahead: u32, max_wait: Duration) -> Duration {
        let Some(unit) = self.unit() else { return max_wait };
        let turn_ns = (unit.as_nanos() as u64).saturating_mul(u64::from(ahead) + 1);
        let patience = Duration::from_nanos(turn_ns.saturating_mul(PATIENCE));
        patience.clamp(max_wait / BOUND_PARTS, max_wait)
    }
}
