//! What the workloads of congestion share: the gate's modes, counts of waits, latencies, and sleeps
//! that end at a time.

use unherd::{Deadline, GateMode, Timestamp, Waited};
use unherd_sys::Futex;

use crate::{Description, Impl, Job, LoadError};

/// The modes of the gate, as implementations.
pub(crate) const IMPLS: &[Impl] = &[
    Impl { name: "fixed", about: "sleeps 100 ms or until the congestion ends, also without any" },
    Impl { name: "fixed-short", about: "the same with 100 us" },
    Impl { name: "skip", about: "yields where nothing is congested, otherwise as fixed" },
    Impl { name: "event", about: "sleeps while congested; all are woken when it ends" },
    Impl { name: "paced", about: "sleeps while congested; one is let go for each unit drained" },
];

/// The mode that the job names.
pub(crate) fn mode(job: &Job, description: &Description) -> Result<GateMode, LoadError> {
    match job.with.as_str() {
        "fixed" => Ok(GateMode::Fixed),
        "fixed-short" => Ok(GateMode::FixedShort),
        "skip" => Ok(GateMode::Skip),
        "event" => Ok(GateMode::Event),
        "paced" => Ok(GateMode::Paced),
        _ => Err(job.unknown_impl(description)),
    }
}

/// The waits of a thread at gates.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GateWaits {
    pub(crate) waits: u64,
    pub(crate) needless: u64,
    pub(crate) slept_ns: u64,
}

impl GateWaits {
    pub(crate) fn note(&mut self, waited: Waited) {
        if !waited.slept.is_zero() {
            self.waits += 1;
            self.needless += u64::from(waited.needless);
            self.slept_ns += waited.slept.as_nanos() as u64;
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.waits += other.waits;
        self.needless += other.needless;
        self.slept_ns += other.slept_ns;
    }
}

/// How long operations took.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Vec<u64>);

impl Latencies {
    /// One that began at `since` is done.
    pub(crate) fn end(&mut self, since: Timestamp) {
        self.0.push(Timestamp::now().as_ns().saturating_sub(since.as_ns()));
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The metrics `WHO_us_p50`, `_p99`, `_p999` and `_max`.
    pub(crate) fn metrics(mut self, who: &str) -> Vec<(String, f64)> {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let parts = [("p50", 500), ("p99", 990), ("p999", 999), ("max", 1000)];
        let at = |part: usize| self.0.get(last * part / 1000).map_or(0.0, |ns| *ns as f64 / 1e3);
        parts.map(|(name, part)| (format!("{who}_us_{name}"), at(part))).to_vec()
    }
}

/// Sleeps until `at`.
pub(crate) fn sleep_until(at: Timestamp) {
    let (nobody, end) = (Futex::new(0), Deadline::at(at));
    while !end.has_passed(Timestamp::now()) {
        nobody.wait_until(0, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_all_operations() {
        let mut all = Latencies((1..=500).map(|us| us * 1000).collect());
        all.append(Latencies((501..=1001).map(|us| us * 1000).collect()));
        let metrics = all.metrics("writer");
        let expected = [("p50", 501.0), ("p99", 991.0), ("p999", 1000.0), ("max", 1001.0)];
        for ((name, value), (part, us)) in metrics.iter().zip(expected) {
            assert_eq!((name.as_str(), *value), (format!("writer_us_{part}").as_str(), us));
        }
        assert!(Latencies::default().metrics("none").iter().all(|(_, value)| *value == 0.0));
    }
}
