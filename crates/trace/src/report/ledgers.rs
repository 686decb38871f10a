//! What programs that use unherd's library say of their waits, beside what the trace saw.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::share::Interval;
use super::site::Namer;
use super::waits::Waits;
use crate::observation::{self as seen, FutexKind, GateRow, Observation};
use crate::symbols::printable;

/// One reason of the program's own ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Its name.
    pub reason: String,
    /// Its counts by name.
    pub counts: BTreeMap<String, u64>,
}

/// A gate of the program, as its ledger had it when that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// The gate's own reason.
    pub reason: String,
    /// The threads that waited, the longest waiting first.
    pub waiters: Vec<GateWaiter>,
    /// How many waited, tasks among them.
    pub waiting: u64,
    /// For how long somebody had waited and nothing had happened: since the last event, or since
    /// the first of the waiters had come, if that was later; 0 if nobody waited. While the signal
    /// was not trusted, since the last event. 0 if there never was one.
    pub stalled_ns: u64,
    /// How long ago it was congested or cleared last; `None` if never.
    pub change_ago_ns: Option<u64>,
    /// How long ago progress was made last; `None` if never.
    pub progress_ago_ns: Option<u64>,
    /// Whether its signal was trusted.
    pub trusted: bool,
    /// How often it had become untrusted.
    pub untrusted: u64,
    /// How many waits had ended by the gate's bound.
    pub overdue: u64,
}

/// A thread that waits at a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateWaiter {
    /// Its number; `None` if not known.
    pub thread: Option<u32>,
    /// For what it waits.
    pub reason: String,
    /// For how long.
    pub waited_ns: u64,
}

impl Gate {
    /// The names come out of the memory of a program that may be hostile.
    fn of(row: &GateRow) -> Self {
        let ago = |at_ns: u64| (at_ns > 0).then(|| row.read_ns.saturating_sub(at_ns));
        let change_ago_ns = ago(row.changed_ns);
        let progress_ago_ns = row.progressed_ns.and_then(ago);
        let quiet_ns = [change_ago_ns, progress_ago_ns].into_iter().flatten().min();
        let waited_ns = row.waiters.first().map(|of| row.read_ns.saturating_sub(of.since_ns));
        let waited_ns = if row.waiting == 0 { Some(0) } else { waited_ns };
        let waited_ns = waited_ns.filter(|_| row.is_trusted).unwrap_or(u64::MAX);
        let waiter = |of: &seen::GateWaiter| GateWaiter {
            thread: (of.thread > 0).then_some(of.thread),
            reason: printable(&of.reason),
            waited_ns: row.read_ns.saturating_sub(of.since_ns),
        };
        Self {
            reason: printable(&row.reason),
            waiters: row.waiters.iter().map(waiter).collect(),
            waiting: row.waiting,
            stalled_ns: quiet_ns.map_or(0, |quiet_ns| quiet_ns.min(waited_ns)),
            change_ago_ns,
            progress_ago_ns,
            trusted: row.is_trusted,
            untrusted: row.untrusted,
            overdue: row.overdue,
        }
    }
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
    /// Its gates, with their waiters, and whether anything moves.
    pub gates: Vec<Gate>,
    /// How many gates it has besides, for which its ledger has no room.
    pub gates_hidden: u64,
    /// What the trace saw of the library's waits, which bear its mark.
    pub saw: Seen,
    /// Threads that the library's wake calls were for, one call each: as many as its ledger counts
    /// as wakeups, also those that had not gone to sleep yet. `None` if calls were not looked at.
    pub saw_wake_calls: Option<u64>,
    /// What it saw of the process's other waits.
    pub saw_elsewhere: Seen,
}

impl Ledger {
    /// Whether it is that of a program with a cache, whose reasons it names.
    pub(crate) fn is_of_cache(&self) -> bool {
        self.says.iter().any(|of| of.reason == "write-back" || of.reason.starts_with("page-"))
    }
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
    let gates = seen.gates.iter().filter(|row| row.pid == pid).map(Gate::of).collect();
    let gates_hidden = seen.gates_hidden.get(&pid).copied().unwrap_or_default();
    Ledger {
        pid,
        comm,
        at_end,
        says,
        says_in_all,
        gates,
        gates_hidden,
        saw,
        saw_wake_calls,
        saw_elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::GateRow;
    use crate::report::Report;
    use crate::report::fixture::{observation, symbols};

    fn text(report: &Report) -> String {
        let mut bytes = Vec::new();
        report.write_text(&mut bytes, false, 200, false).expect("memory takes it");
        String::from_utf8(bytes).expect("it is text")
    }

    #[test]
    fn stalled_gate_is_told() {
        let report = Report::new(&observation(), &mut symbols());
        let json = serde_json::to_value(&report).expect("it is JSON");
        let gate = &json["ledgers"][0]["gates"][0];
        assert_eq!((&gate["reason"], &gate["waiting"]), (&"writeback".into(), &1.into()));
        assert_eq!(gate["stalled_ns"], 300_000_000, "since it waits");
        assert_eq!(gate["progress_ago_ns"], 1_000_000_000);
        assert_eq!(gate["waiters"][0]["thread"], 203);
        assert_eq!(gate["waiters"][0]["waited_ns"], 300_000_000);
        let text = text(&report);
        let told = "gate writeback: waiting: 1; stalled for 300 ms; progress: 1.00 s ago";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("thread 203 for 300 ms at page-read"), "{text}");
        assert!(!text.contains("gates are not shown"), "{text}");
    }

    #[test]
    fn stall_is_as_the_library_tells_it() {
        let stalled_ns = |change: fn(&mut GateRow)| {
            let mut seen = observation();
            change(&mut seen.gates[0]);
            Report::new(&seen, &mut symbols()).ledgers[0].gates[0].stalled_ns
        };
        assert_eq!(stalled_ns(|gate| gate.waiters.clear()), 1_000_000_000, "tasks wait");
        assert_eq!(stalled_ns(|gate| gate.is_trusted = false), 1_000_000_000);
        let no_event = |gate: &mut GateRow| (gate.changed_ns, gate.progressed_ns) = (0, None);
        assert_eq!(stalled_ns(no_event), 0);
    }

    #[test]
    fn hidden_gates_and_waiters_are_counted() {
        let mut seen = observation();
        let pid = seen.gates[0].pid;
        seen.gates_hidden.insert(pid, 6);
        seen.gates[0].waiting = 70;
        let report = Report::new(&seen, &mut symbols());
        assert_eq!(report.ledgers[0].gates_hidden, 6);
        let text = text(&report);
        assert!(text.contains("… and 69 more"), "{text}");
        assert!(text.contains("6 more gates are not shown: the ledger has no room"), "{text}");
    }

    #[test]
    fn gate_without_waiters_is_not_stalled() {
        let mut calm = observation();
        (calm.gates[0].waiting, calm.gates[0].waiters) = (0, Vec::new());
        let report = Report::new(&calm, &mut symbols());
        assert_eq!(report.ledgers[0].gates[0].stalled_ns, 0);
        assert!(!text(&report).contains("gate writeback"));
    }
}
