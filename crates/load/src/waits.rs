//! The waits of a region as JSON: the schema `unherd.waits/1`.

use serde::{Serialize, Serializer};
use unherd::Counts;

use crate::Waits;

#[derive(Serialize)]
struct Schema {
    schema: &'static str,
    reasons: Vec<Row>,
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
    Schema { schema: "unherd.waits/1", reasons }.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use unherd::{Ledger, Reason, WaitTable};

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
}
