//! How far the counts can be trusted: what was lost, and what has no name.

use serde::Serialize;

use super::share::percent;
use crate::observation::{self, Observation};
use crate::symbols::UnknownFrames;

/// A tracepoint that this kernel lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its name.
    pub tracepoint: String,
    /// What the report lacks for it.
    pub consequence: String,
}

impl Missing {
    pub(crate) fn of(of: &observation::Missing) -> Self {
        Self { tracepoint: of.tracepoint.clone(), consequence: of.consequence.clone() }
    }
}

/// What is not in the counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Trust {
    /// All events that found no room: those below added up.
    pub lost_events: u64,
    /// Their share of the events seen and lost, in percent.
    pub lost_percent: f64,
    /// Sleeps and wakeups of threads that found no room in the map of waits.
    pub lost_waits: u64,
    /// Wakes.
    pub lost_wakes: u64,
    /// Futex calls.
    pub lost_futexes: u64,
    /// Waits for kernel locks.
    pub lost_locks: u64,
    /// Threads that could not be followed.
    pub lost_threads: u64,
    /// Notices of processes that began, executed or ended.
    pub lost_notices: u64,
    /// Programs that the kernel skipped because they were running already.
    pub recursion_misses: u64,
    /// Episodes that were open at the end and are not judged.
    pub open_episodes: u64,
    /// Stacks that were asked for.
    pub stacks_wanted: u64,
    /// Those that could not be had, in percent.
    pub stacks_lost_percent: Option<f64>,
    /// Stacks that are deeper than could be walked, of those that the report names.
    pub stacks_truncated: u64,
    /// Processes whose mappings could not be read.
    pub maps_lost: u64,
    /// Addresses without names.
    pub unknown_frames: UnknownFrames,
    /// CPU samples that came, in percent of those asked for.
    pub samples_delivered_percent: Option<f64>,
    /// Samples that came.
    pub samples_delivered: Option<u64>,
    /// Samples asked for.
    pub samples_expected: Option<u64>,
    /// Kernel memory that the maps take, which is their bound.
    pub map_bytes: u64,
}

impl Trust {
    pub(crate) fn new(observation: &Observation, unknown_frames: UnknownFrames) -> Self {
        let losses = &observation.losses;
        let lost = [
            losses.waits,
            losses.wakes,
            losses.futexes,
            losses.locks,
            losses.threads,
            losses.notices,
            losses.recursion_misses,
        ];
        let add = |sum: u64, count: &u64| sum.saturating_add(*count);
        let lost_events = lost.iter().fold(0, add);
        let totals = &observation.totals;
        let locks = observation.locks.iter().fold(0, |sum: u64, row| sum.saturating_add(row.count));
        let seen = [totals.sleeps, totals.wakeups, totals.calls, locks];
        let all = seen.iter().fold(lost_events, add);
        let samples = observation.samples.as_ref();
        let truncated = observation.stacks.values().filter(|stack| stack.truncated).count();
        let maps_lost = observation.processes.iter().filter(|process| process.maps_lost).count();
        Self {
            lost_events,
            lost_percent: percent(lost_events, all).unwrap_or_default(),
            lost_waits: losses.waits,
            lost_wakes: losses.wakes,
            lost_futexes: losses.futexes,
            lost_locks: losses.locks,
            lost_threads: losses.threads,
            lost_notices: losses.notices,
            recursion_misses: losses.recursion_misses,
            open_episodes: losses.open_episodes,
            stacks_wanted: losses.stacks_wanted,
            stacks_lost_percent: percent(losses.stacks_lost, losses.stacks_wanted),
            stacks_truncated: truncated as u64,
            maps_lost: maps_lost as u64,
            unknown_frames,
            samples_delivered_percent: samples.and_then(|of| percent(of.delivered, of.expected)),
            samples_delivered: samples.map(|of| of.delivered),
            samples_expected: samples.map(|of| of.expected),
            map_bytes: losses.map_bytes,
        }
    }
}
