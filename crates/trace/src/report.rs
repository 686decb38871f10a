//! What it means: the tables, the findings and the verdict, with names in place of numbers.
//!
//! [`Report::new`] turns an [`Observation`] into plain data. [`Report::write_text`] prints it,
//! [`Report::write_json`] writes the schema `unherd.trace/1`, [`Report::write_html`] a page for
//! browsers, [`Report::write_folded`] stacks for flame graphs, [`Report::write_pprof`] a profile,
//! [`Report::write_perfetto`] and [`Report::write_firefox`] timelines, and [`Report::exceeded`]
//! checks budgets.
//!
//! Two rules run through all of it. Where the truth is only known to lie between two numbers both
//! are given, never one ([`Interval`]). And what was not seen is `None`, never 0.

mod callers;
mod consumers;
mod findings;
mod firefox;
#[cfg(test)]
mod fixture;
mod folded;
mod futexes;
mod herds;
mod html;
mod ledgers;
mod locks;
mod numbers;
mod perfetto;
mod pprof;
pub(crate) mod quantity;
mod share;
mod site;
mod stalls;
mod summary;
mod text;
mod time;
mod timeline;
mod trust;
mod verdict;
mod waits;
mod wrappers;

use std::io::{self, Write};

use serde::Serialize;

pub use self::callers::{Caller, Callers};
pub use self::consumers::{Consumer, Consumers};
pub use self::findings::{Cost, CostKind, Finding, LITTLE_PERCENT};
pub use self::folded::FoldedWeight;
pub use self::futexes::{FutexLine, Futexes, Outcomes};
pub use self::herds::Herd;
pub use self::ledgers::{Gate, GateWaiter, Ledger, Reason, Seen};
pub use self::locks::KernelLock;
pub use self::share::Interval;
pub(crate) use self::share::apportion;
use self::site::Namer;
pub use self::site::{NamedStack, Site, StackPair};
pub use self::stalls::Stall;
pub use self::summary::Summary;
pub use self::time::{ClassTime, ThreadTime, Time};
use self::timeline::Timeline;
pub use self::trust::{Missing, Trust};
pub use self::waits::{WaitLine, Waits};
use crate::observation::Observation;
use crate::symbols::Symbols;

/// The report of one session of tracing, the schema `unherd.trace/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The schema's name.
    pub schema: &'static str,
    /// What was found, in at most five lines.
    pub verdict: Vec<String>,
    /// Whether eBPF programs counted. Without that privilege only context switches are seen: all
    /// else is `None`, and tables that would need it are too.
    pub privileged: bool,
    /// Whether wakeups and what calls return were seen, so that wakeups could be judged. If not,
    /// what hangs on them is `None`.
    pub judged: bool,
    /// Table 1.
    pub summary: Summary,
    /// What the threads did with their time.
    pub time: Option<Time>,
    /// By call site, the most costly first, each with what to try (table 9).
    pub findings: Vec<Finding>,
    /// Table 2.
    pub herds: Option<Vec<Herd>>,
    /// Table 3.
    pub futexes: Option<Futexes>,
    /// Table 4.
    pub callers: Callers,
    /// Table 5.
    pub consumers: Option<Consumers>,
    /// Table 6.
    pub kernel_locks: Option<Vec<KernelLock>>,
    /// Tables 4 and 7 are made of these: waits by process, call and object (`unherd.waits/1`).
    pub waits: Waits,
    /// Table 8.
    pub stalls: Option<Vec<Stall>>,
    /// What programs with unherd's library say of themselves, beside what was seen.
    pub ledgers: Vec<Ledger>,
    /// What is not in the counts.
    pub trust: Trust,
    /// Tracepoints that this kernel lacks.
    pub missing: Vec<Missing>,
    /// The stacks that all tables name by index.
    pub stacks: Vec<NamedStack>,
    /// The waits one by one.
    #[serde(skip)]
    pub(crate) timeline: Timeline,
}

impl Report {
    /// Names and judges all that was seen.
    ///
    /// Reads the programs' files and `/proc/kallsyms` as far as `symbols` has not done so yet.
    /// Never fails: what cannot be named is shown as an address and counted.
    #[must_use]
    pub fn new(observation: &Observation, symbols: &mut Symbols) -> Self {
        Self::build(observation, symbols, true)
    }

    /// Of an observation that holds context switches and nothing else, as it can be had without
    /// privilege: everything that cannot be known from it is `None`.
    #[must_use]
    pub fn of_switches_only(observation: &Observation, symbols: &mut Symbols) -> Self {
        Self::build(observation, symbols, false)
    }

    fn build(observation: &Observation, symbols: &mut Symbols, privileged: bool) -> Self {
        let mut namer = Namer::new(observation, symbols);
        let names = &mut namer;
        let lacks = |parts: &[&str]| {
            let lacking = |of: &crate::observation::Missing| {
                parts.iter().any(|part| of.tracepoint.contains(part))
            };
            observation.missing.iter().any(lacking)
        };
        // Without one of these no count of wakeups or futex calls means anything.
        let core = ["sched_switch", "sched_waking", "sys_exit", "hrtimer_expire_entry"];
        let judged = privileged && !lacks(&core);
        let waits = Waits::new(&observation.waits, privileged, judged, names);
        let herds = judged.then(|| herds::herds(&observation.wakes, &observation.waits, names));
        let futexes = judged.then(|| Futexes::new(&observation.futexes, names));
        // A table without rows means that there was nothing only if it could have been seen.
        let saw_locks = privileged && !(observation.locks.is_empty() && lacks(&["contention_"]));
        let kernel_locks = saw_locks.then(|| locks::locks(&observation.locks, names));
        let lacks_stalls = lacks(&["vmscan", "balance_dirty"]);
        let saw_stalls = privileged && !(observation.stalls.is_empty() && lacks_stalls);
        let stalls = saw_stalls.then(|| stalls::stalls(&observation.stalls, names));
        let consumers =
            observation.samples.as_ref().map(|of| Consumers::new(of, privileged, names));
        let mut callers = Callers::new(&waits.lines, names);
        callers.preemptions = observation.totals.preemptions;
        callers.machine_idle_ns = observation.totals.machine_idle_ns;
        let seen = summary::Seen {
            waits: &waits.lines,
            judged,
            herds: herds.as_deref(),
            futexes: futexes.as_ref(),
            locks: kernel_locks.as_deref(),
            stalls: stalls.as_deref(),
        };
        let summary = Summary::new(observation, &seen);
        let time = Time::new(observation, &waits.lines, judged);
        let ledgers = ledgers::ledgers(observation, &waits, names);
        let wakers = herds::wakers(if judged { &observation.wakes } else { &[] }, names);
        let findings = findings::findings(
            if judged { &waits.lines } else { &[] },
            herds::Wakes { herds: herds.as_deref().unwrap_or_default(), wakers: &wakers },
            futexes.as_ref().map_or(&[], |futexes| &futexes.lines),
            kernel_locks.as_deref().unwrap_or_default(),
            stalls.as_deref().unwrap_or_default(),
            &findings::Scale::new(&summary, time.as_ref(), observation, &ledgers),
            names,
        );
        let timeline = Timeline::new(observation, &waits.lines, judged, names);
        let stacks = namer.finish();
        let trust = Trust::new(observation, privileged, symbols.unknown());
        let missing = observation.missing.iter().map(Missing::of).collect();
        let mut report = Self {
            schema: "unherd.trace/1",
            verdict: Vec::new(),
            privileged,
            judged,
            summary,
            time,
            findings,
            herds,
            futexes,
            callers,
            consumers,
            kernel_locks,
            waits,
            stalls,
            ledgers,
            trust,
            missing,
            stacks,
            timeline,
        };
        report.verdict = verdict::verdict(&report);
        report
    }

    /// Writes the report as JSON, indented, with a line feed at the end.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *to, self)?;
        writeln!(to)
    }
}

#[cfg(test)]
mod tests;
