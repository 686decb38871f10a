//! Table 4, the callers of scheduling functions: where threads went to sleep.

use std::collections::BTreeMap;

use serde::Serialize;

use super::share::apportion;
use super::site::{NamedStack, Namer, StackPair};
use super::waits::WaitLine;
use crate::symbols::Frame;

/// One function that put threads to sleep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Caller {
    /// The function; on the user side with the call that it made.
    pub function: String,
    /// Sleeps.
    pub sleeps: u64,
    /// Time asleep.
    pub asleep_ns: u64,
    /// Sleeps per byte of the function's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleeps_per_byte: Option<f64>,
}

/// Where threads went to sleep.
///
/// Sleeps are counted exactly by process, call and object. Where several stacks were met for one
/// of these, its sleeps are shared out in proportion to the stacks that were taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Callers {
    /// By the first kernel function that is not the scheduler's own; `?` without a stack.
    pub kernel: Vec<Caller>,
    /// By call site and call.
    pub user: Vec<Caller>,
    /// Switch-outs of threads that could have gone on.
    pub preemptions: u64,
    /// Idle time of the machine's processors.
    pub machine_idle_ns: u64,
}

/// The scheduler's own functions: sleeping begins behind them.
const SCHEDULER: [&str; 14] = [
    "schedule",
    "__schedule",
    "__traceiter_",
    "trace_",
    "bpf_",
    "preempt_schedule",
    "io_schedule",
    "futex_wait_queue",
    "do_wait_intr",
    "do_sched_yield",
    "prepare_task_switch",
    "perf_trace_",
    "__perf_event_",
    "perf_event_",
];

pub(crate) fn is_scheduler(function: &str) -> bool {
    SCHEDULER.iter().any(|prefix| function.starts_with(prefix))
}

#[derive(Default)]
struct Sums(BTreeMap<String, (u64, u64, Option<u64>)>);

impl Sums {
    fn add(&mut self, function: String, sleeps: u64, asleep_ns: u64, size: Option<u64>) {
        let sum = self.0.entry(function).or_insert((0, 0, size));
        sum.0 = sum.0.saturating_add(sleeps);
        sum.1 = sum.1.saturating_add(asleep_ns);
    }

    fn finish(self) -> Vec<Caller> {
        let caller = |(function, (sleeps, asleep_ns, size)): (String, (u64, u64, Option<u64>))| {
            let per_byte = |size| sleeps as f64 / size as f64;
            let sleeps_per_byte = size.filter(|size| *size > 0).map(per_byte);
            Caller { function, sleeps, asleep_ns, sleeps_per_byte }
        };
        let mut callers: Vec<Caller> = self.0.into_iter().map(caller).collect();
        callers.retain(|caller| caller.sleeps > 0);
        callers.sort_by_key(|caller| std::cmp::Reverse((caller.sleeps, caller.asleep_ns)));
        callers
    }
}

impl Callers {
    pub(crate) fn new(lines: &[WaitLine], namer: &Namer<'_>) -> Self {
        let (mut kernel, mut user) = (Sums::default(), Sums::default());
        for line in lines {
            let sleeps = line.sleeps.saturating_add(line.uninterruptible_sleeps);
            let asleep_ns = line.asleep_ns.saturating_add(line.uninterruptible_ns);
            let nothing = [StackPair { kernel: None, user: None, count: 1 }];
            let pairs = if line.stacks.is_empty() { &nothing } else { &line.stacks[..] };
            let weights: Vec<u64> = pairs.iter().map(|pair| pair.count).collect();
            let shares =
                apportion(sleeps, &weights).into_iter().zip(apportion(asleep_ns, &weights));
            for (pair, (sleeps, asleep_ns)) in pairs.iter().zip(shares) {
                let stack = pair.kernel.and_then(|index| namer.stacks().get(index));
                let caller = stack.and_then(first_caller);
                let name = caller.map_or_else(|| "?".into(), |frame| frame.name.clone());
                let size = caller.and_then(|frame| frame.size_bytes);
                kernel.add(name, sleeps, asleep_ns, size);
                let site = format!("{} in {}", line.call, namer.site(pair.user));
                user.add(site, sleeps, asleep_ns, None);
            }
        }
        Self { kernel: kernel.finish(), user: user.finish(), ..Self::default() }
    }
}

/// The first kernel function that is not the scheduler's own.
fn first_caller(stack: &NamedStack) -> Option<&Frame> {
    stack.frames.iter().find(|frame| !is_scheduler(&frame.name)).or_else(|| stack.frames.last())
}
