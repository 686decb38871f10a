//! What programs that use unherd's library say of their waits, beside what the trace saw.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::share::Interval;
use super::site::Namer;
use super::waits::Waits;
use crate::observation::{FutexKind, Observation};
use crate::symbols::printable;

/// One reason of the program's own ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Its name.
    pub reason: String,
    /// Its counts by name.
    pub counts: BTreeMap<String, u64>,
}

/// What the trace counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Sleeps.
    pub waits: u64,
    /// Time asleep.
    pub asleep_ns: u64,
    /// Wakeups, if they could be seen.
    pub wakeups: Option<u64>,
    /// Needless wakeups, if they could be seen.
    pub needless_wakeups: Option<Interval>,
}

/// Both accounts of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Whether its ledger was read at its end; otherwise a little earlier, and may lack waits.
    pub at_end: bool,
    /// What the program says.
    pub says: Vec<Reason>,
    /// The sum of what it says, by count.
    pub says_in_all: BTreeMap<String, u64>,
    /// What the trace saw of the library's waits, which bear its mark.
    pub saw: Seen,
    /// Threads that the library's wake calls were for, one call each: as many as its ledger counts
    /// as wakeups, also those that had not gone to sleep yet. `None` if calls were not looked at.
    pub saw_wake_calls: Option<u64>,
    /// What it saw of the process's other waits.
    pub saw_elsewhere: Seen,
}

pub(crate) fn ledgers(seen: &Observation, waits: &Waits, namer: &Namer<'_>) -> Vec<Ledger> {
    let pids: BTreeSet<u32> = seen.ledgers.iter().map(|row| row.pid).collect();
    pids.into_iter().map(|pid| ledger(pid, seen, waits, namer)).collect()
}

fn ledger(pid: u32, seen: &Observation, waits: &Waits, namer: &Namer<'_>) -> Ledger {
    let own = || seen.ledgers.iter().filter(|row| row.pid == pid);
    let mut says_in_all: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in own().flat_map(|row| &row.counts) {
        let sum = says_in_all.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    let mut says: Vec<Reason> = own()
        // The name comes out of the memory of a program that may be hostile.
        .map(|row| Reason { reason: printable(&row.reason), counts: row.counts.clone() })
        .collect();
    says.sort_by(|a, b| a.reason.cmp(&b.reason));
    let nothing = Seen {
        wakeups: waits.judged.then_some(0),
        needless_wakeups: waits.judged.then_some(Interval::default()),
        ..Seen::default()
    };
    let (mut saw, mut saw_elsewhere) = (nothing, nothing);
    for line in waits.lines.iter().filter(|line| line.pid == pid) {
        let seen = if line.library { &mut saw } else { &mut saw_elsewhere };
        seen.waits = seen.waits.saturating_add(line.sleeps);
        seen.asleep_ns = seen.asleep_ns.saturating_add(line.asleep_ns);
        seen.wakeups = seen.wakeups.map(|sum| sum.saturating_add(line.wakeups));
        if let Some(sum) = &mut seen.needless_wakeups {
            sum.add(line.needless);
        }
    }
    let at_end = own().all(|row| row.at_end);
    let wakes = seen.futexes.iter().filter(|row| row.pid == pid && row.library);
    let wakes = wakes.filter(|row| row.kind == FutexKind::Wake).map(|row| row.outcomes.calls);
    let saw_wake_calls = waits.judged.then(|| wakes.fold(0, u64::saturating_add));
    let comm = namer.comm(pid);
    Ledger { pid, comm, at_end, says, says_in_all, saw, saw_wake_calls, saw_elsewhere }
}
