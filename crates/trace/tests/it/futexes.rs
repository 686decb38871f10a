//! Futex calls, to the call.

use serde_json::Value;
use unherd_trace::observation::{FutexKind, FutexRow, Observation, Outcomes};

use crate::session::{assert_nothing_lost, root, trace};

/// Compares every outcome of one kind of call on one word with what the calls returned.
fn assert_exact(seen: &Observation, truth: &Value, kind: FutexKind, calls: &str) {
    let word = truth["word"].as_u64().expect("a word has an address");
    let rows = seen.futexes.iter().filter(|row| row.word == word && row.kind == kind);
    let rows: Vec<&FutexRow> = rows.collect();
    let count = |of: fn(&Outcomes) -> u64| rows.iter().map(|row| of(&row.outcomes)).sum::<u64>();
    let counts = [
        ("calls", count(|of| of.calls)),
        ("none", count(|of| of.woke_none)),
        ("one", count(|of| of.woke_one)),
        ("many", count(|of| of.woke_many)),
        ("slept", count(|of| of.slept)),
        ("refused", count(|of| of.refused)),
        ("timed_out", count(|of| of.timed_out)),
        ("failed", count(|of| of.failed)),
    ];
    for (name, counted) in counts {
        let expected = truth[calls][name].as_u64().unwrap_or(0);
        assert_eq!(counted, expected, "{name} of {calls} at {word:#x}: {rows:#?}");
    }
    assert!(rows.iter().all(|row| row.user_stack.is_some()), "{rows:#?}");
}

#[test]
fn root_futex_calls_are_counted_by_outcome() {
    let Some(_machine) = root("futex calls") else { return };
    let (seen, truth) = trace("futexes 900 100");
    assert_exact(&seen, &truth["lonely"], FutexKind::Wake, "wakes");
    assert_exact(&seen, &truth["meeting"], FutexKind::Wake, "wakes");
    assert_exact(&seen, &truth["meeting"], FutexKind::Wait, "waits");
    assert_exact(&seen, &truth["refused"], FutexKind::Wait, "waits");
    assert_nothing_lost(&seen);
}
