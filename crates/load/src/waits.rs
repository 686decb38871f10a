//! The waits of a region as JSON: the schema `unherd.waits/1`.

use serde::{Serialize, Serializer};
use unherd::{Counts, GateAccount, GateWaiter, Timestamp};

use crate::Waits;

#[derive(Serialize)]
struct Schema {
    schema: &'static str,
    reasons: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gates: Vec<Gate>,
}

/// As a report of `unherd trace` names it.
#[derive(Serialize)]
struct Gate {
    reason: &'static str,
    waiters: Vec<Waiter>,
    waiting: u64,
    stalled_ns: u64,
    change_ago_ns: Option<u64>,
    progress_ago_ns: Option<u64>,
    trusted: bool,
    untrusted: u64,
    overdue: u64,
}

#[derive(Serialize)]
struct Waiter {
    thread: Option<u32>,
    reason: &'static str,
    waited_ns: u64,
}

fn gate(of: &GateAccount) -> Gate {
    let ago_ns = |at| of.now.since(at).as_nanos() as u64;
    let waiter = |of: &GateWaiter| Waiter {
        thread: of.thread,
        reason: of.reason.name(),
        waited_ns: ago_ns(of.since),
    };
    Gate {
        reason: of.reason.name(),
        waiters: of.waiters.iter().map(waiter).collect(),
        waiting: of.waiting,
        stalled_ns: of.stalled_for().as_nanos() as u64,
        change_ago_ns: (of.last_change > Timestamp::default()).then(|| ago_ns(of.last_change)),
        progress_ago_ns: of.last_progress.map(ago_ns),
        trusted: of.is_trusted,
        untrusted: of.untrusted,
        overdue: of.overdue,
    }
}

/// The fields are named, and ordered, as `ledger_layout::FIELDS` are.
#[derive(Serialize)]
struct Row {
    reason: &'static str,
    waits: u64,
    asleep_ns: u64,
    wakeups: u64,
    needless_wakeups: u64,
    wakes: u64,
    empty_wakes: u64,
    timeouts: u64,
    locks: u64,
    locks_contended: u64,
}

pub(crate) fn serialize<S: Serializer>(waits: &Waits, serializer: S) -> Result<S::Ok, S::Error> {
    let row = |(reason, counts): (unherd::Reason, Counts)| Row {
        reason: reason.name(),
        waits: counts.waits,
        asleep_ns: counts.asleep_ns,
        wakeups: counts.wakeups,
        needless_wakeups: counts.needless_wakeups,
        wakes: counts.wakes,
        empty_wakes: counts.empty_wakes,
        timeouts: counts.timeouts,
        locks: counts.locks,
        locks_contended: counts.locks_contended,
    };
    let reasons = waits.iter().map(row).collect();
    let gates = waits.gates().iter().map(gate).collect();
    Schema { schema: "unherd.waits/1", reasons, gates }.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use unherd::{Deadline, Gate, Ledger, Reason, WaitTable};

    #[test]
    fn waits_follow_their_schema() {
        let before = Ledger::snapshot();
        let table = WaitTable::<u32>::builder().reason(Reason::register("test-json")).build();
        let _ = table.wake(&0, 1);
        let waits = Ledger::snapshot().since(&before);
        let json = super::serialize(&waits, serde_json::value::Serializer).unwrap();
        assert_eq!(json["schema"], "unherd.waits/1");
        let rows = json["reasons"].as_array().unwrap();
        let row = rows.iter().find(|row| row["reason"] == "test-json").unwrap();
        assert_eq!((&row["empty_wakes"], &row["waits"]), (&1.into(), &0.into()));
        // What tracers call the numbers of a row, in this order.
        let named = row.as_object().unwrap().keys().filter(|key| *key != "reason");
        assert!(named.eq(unherd_sys::ledger_layout::FIELDS), "{row}");
    }

    #[test]
    fn stalled_gate_stands_in_json() {
        let [own, reason] = ["test-json-gate", "test-json-wait"].map(Reason::register);
        let gate = Gate::builder().reason(own).max_wait(std::time::Duration::MAX).build();
        let _congested = gate.congest().into_shared();
        let waits = std::thread::scope(|scope| {
            scope.spawn(|| gate.wait_iff(reason, Deadline::NEVER));
            while gate.status().waiters.is_empty() {
                std::thread::yield_now();
            }
            let waits = Ledger::snapshot();
            gate.close();
            waits
        });
        let json = super::serialize(&waits, serde_json::value::Serializer).unwrap();
        let gates = json["gates"].as_array().unwrap();
        let gate = gates.iter().find(|gate| gate["reason"] == "test-json-gate").unwrap();
        assert_eq!((&gate["waiting"], &gate["trusted"]), (&1.into(), &true.into()), "{gate}");
        assert!(gate["stalled_ns"].as_u64() > Some(0) && gate["progress_ago_ns"].is_null());
        assert!(gate["change_ago_ns"].as_u64() >= gate["stalled_ns"].as_u64(), "{gate}");
        let waiter = &gate["waiters"][0];
        assert!(waiter["thread"].is_u64() && waiter["reason"] == "test-json-wait", "{gate}");
    }
}
