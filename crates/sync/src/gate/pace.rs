//! When something happened last, and how long a unit of progress takes.

use std::time::Duration;

use unherd_sys::Timestamp;

use crate::ledger::gates::{GateField, GateRow};

/// The weight of a new measurement is one in as many.
const WEIGHT: u64 = 8;
/// A waiter is overdue when it has waited as many times as long as its turn should have taken.
const PATIENCE: u64 = 8;
/// The shortest bound is this part of the longest.
const BOUND_PARTS: u32 = 16;

impl GateRow {
    /// The gate was congested or cleared.
    pub(super) fn note_change(&self, now: Timestamp) {
        self.set(GateField::ChangedNs, now.as_ns());
    }

    /// `n` units of progress; the time that they took counts if the gate is congested.
    pub(super) fn note_progress(&self, now: Timestamp, n: u64, is_congested: bool) {
        let before = self.last().as_ns();
        self.set(GateField::ProgressedNs, now.as_ns());
        if !is_congested {
            return;
        }
        let taken = now.as_ns().saturating_sub(before) / n;
        let unit = match self.get(GateField::UnitNs) {
            0 => taken,
            unit => unit - unit / WEIGHT + taken / WEIGHT,
        };
        self.set(GateField::UnitNs, unit.max(1));
    }

    pub(crate) fn changed(&self) -> Timestamp {
        Timestamp::from_ns(self.get(GateField::ChangedNs))
    }

    pub(crate) fn progressed(&self) -> Option<Timestamp> {
        let at = self.get(GateField::ProgressedNs);
        (at > 0).then(|| Timestamp::from_ns(at))
    }

    pub(super) fn unit(&self) -> Option<Duration> {
        let unit = self.get(GateField::UnitNs);
        (unit > 0).then(|| Duration::from_nanos(unit))
    }

    /// How long a waiter with `ahead` others before it is to wait at most.
    pub(super) fn bound(&self, ahead: u64, max_wait: Duration) -> Duration {
        let Some(unit) = self.unit() else { return max_wait };
        let turn_ns = (unit.as_nanos() as u64).saturating_mul(ahead + 1);
        let patience = Duration::from_nanos(turn_ns.saturating_mul(PATIENCE));
        patience.clamp(max_wait / BOUND_PARTS, max_wait)
    }
}
