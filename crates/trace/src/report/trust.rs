//! How far the counts can be trusted: what was lost, and what has no name.

use serde::Serialize;

use super::share::percent;
use crate::observation::{self, Observation, Process};
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
    /// Threads that ended while tracing was being ended, with what they had counted last.
    pub lost_ending_threads: u64,
    /// Notices of processes that began, executed or ended.
    pub lost_notices: u64,
    /// Ledgers of programs that use unherd's library.
    pub lost_ledgers: u64,
    /// Programs that the kernel skipped because they were running already.
    pub recursion_misses: u64,
    /// Processes whose number an earlier one had, so that their counts are one, as far as is known.
    pub reused_pids: u64,
    /// Followed processes that still ran when tracing ended; `None` where that was not seen.
    pub processes_running: Option<u64>,
    /// Episodes that were open at the end and are not judged.
    pub open_episodes: u64,
    /// Waits that a timeline leaves out, of which it has the first; in no count of losses.
    pub episodes_left_out: u64,
    /// Waits that a timeline lacks since too many ended at a time; in no count of losses.
    pub episodes_without_room: u64,
    /// Stacks that were asked for.
    pub stacks_wanted: u64,
    /// Those that could not be had, in percent.
    pub stacks_lost_percent: Option<f64>,
    /// User stacks that were copied, to be unwound where frame pointers are missing.
    pub stacks_copied: u64,
    /// The bytes of these copies.
    pub stacks_copied_bytes: u64,
    /// Of the copies, those of which unwinding made more than the walk by frame pointers.
    pub stacks_unwound: u64,
    /// Copies that were not made, for want of room or because they were too many at a time.
    pub stack_copies_lost: u64,
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
    /// Records of the sampler that the kernel had no room for: samples, or mappings of code.
    pub lost_sampler_records: u64,
    /// Samples that came and were dropped, since there were too many different stacks.
    pub samples_without_room: u64,
    /// Kernel memory that the maps take, which is their bound.
    pub map_bytes: u64,
}

impl Trust {
    pub(crate) fn new(
        observation: &Observation,
        privileged: bool,
        unknown_frames: UnknownFrames,
    ) -> Self {
        let losses = &observation.losses;
        let lost = [
            losses.waits,
            losses.wakes,
            losses.futexes,
            losses.locks,
            losses.threads,
            losses.ending_threads,
            losses.notices,
            losses.ledgers,
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
        let processes = |which: fn(&Process) -> bool| {
            observation.processes.iter().filter(|of| which(of)).count()
        };
        let maps_lost = processes(|process| process.maps_lost);
        let running = processes(|process| process.running) as u64;
        Self {
            lost_events,
            lost_percent: percent(lost_events, all).unwrap_or_default(),
            lost_waits: losses.waits,
            lost_wakes: losses.wakes,
            lost_futexes: losses.futexes,
            lost_locks: losses.locks,
            lost_threads: losses.threads,
            lost_ending_threads: losses.ending_threads,
            lost_notices: losses.notices,
            lost_ledgers: losses.ledgers,
            recursion_misses: losses.recursion_misses,
            reused_pids: losses.reused_pids,
            processes_running: privileged.then_some(running),
            open_episodes: losses.open_episodes,
            episodes_left_out: losses.episodes,
            episodes_without_room: losses.episodes_without_room,
            stacks_wanted: losses.stacks_wanted,
            stacks_lost_percent: percent(losses.stacks_lost, losses.stacks_wanted),
            stacks_copied: losses.copies,
            stacks_copied_bytes: losses.copied_bytes,
            stacks_unwound: losses.copies_unwound,
            stack_copies_lost: losses.copies_lost,
            stacks_truncated: truncated as u64,
            maps_lost: maps_lost as u64,
            unknown_frames,
            samples_delivered_percent: samples.and_then(|of| percent(of.delivered, of.expected)),
            samples_delivered: samples.map(|of| of.delivered),
            samples_expected: samples.map(|of| of.expected),
            lost_sampler_records: losses.sampler_records,
            samples_without_room: losses.samples_without_room,
            map_bytes: losses.map_bytes,
        }
    }
}
