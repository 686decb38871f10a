//! The ledgers that programs with our library keep, against what they have in them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use unherd_trace::{Follow, Observation, TraceOptions, Tracer};

use crate::session::{number, root, scene, trace, trace_with};

/// Each reason and count that is not zero, and whether it was read at the process's end.
fn counts(seen: &Observation) -> Vec<(&str, &str, u64, bool)> {
    seen.ledgers
        .iter()
        .flat_map(|row| row.counts.iter().map(move |(name, count)| (row, name, *count)))
        .filter(|(_, _, count)| *count > 0)
        .map(|(row, name, count)| (row.reason.as_str(), name.as_str(), count, row.at_end))
        .collect()
}

/// The one gate, with its waiter, as the scene has them.
fn assert_stall_is_seen(seen: &Observation, progress_ns: u64) {
    let [gate] = &*seen.gates else { panic!("one gate: {:?}", seen.gates) };
    assert_eq!((gate.reason.as_str(), gate.waiting, gate.overdue), ("page-read", 1, 9));
    assert_eq!((gate.changed_ns, gate.progressed_ns), (progress_ns - 5_000_000, Some(progress_ns)));
    assert!(gate.is_trusted && gate.untrusted == 0 && gate.read_ns > progress_ns, "{gate:?}");
    let [waiter] = &*gate.waiters else { panic!("one waiter: {gate:?}") };
    assert_eq!((waiter.thread, waiter.reason.as_str()), (4711, "page-read"));
    assert_eq!(waiter.since_ns, progress_ns - 5_000_000);
}

#[test]
fn root_ledger_is_read_at_process_end() {
    let Some(_machine) = root("ledgers") else { return };
    let (seen, truth) = trace("ledger 3 7 1 0");
    let waits = number(&truth, "waits");
    let expected = [("other", "locks_contended", 3, true), ("page-read", "waits", waits, true)];
    assert_eq!(counts(&seen), expected);
    assert_eq!(seen.losses.ledgers, 0);
    assert_stall_is_seen(&seen, number(&truth, "progress_ns"));
}

#[test]
fn root_longest_waiters_of_ended_process_are_kept() {
    let Some(_machine) = root("waiters of the ended") else { return };
    let (seen, _) = trace("ledger 4 7 100 0");
    let [gate] = &*seen.gates else { panic!("one gate: {:?}", seen.gates) };
    let threads: Vec<_> = gate.waiters.iter().map(|of| of.thread).collect();
    assert_eq!((gate.waiting, threads), (100, (4711..4711 + 64).collect()));
}

/// As on a kernel that announces an exit when the memory is gone, and lacks `others` besides.
fn late_exits(others: &[&str]) -> TraceOptions {
    let mut options = TraceOptions::default();
    let missing = ["exit_has_memory"].iter().chain(others);
    options.pretend_missing = missing.map(|&name| name.to_owned()).collect();
    options
}

#[test]
fn root_ledgers_are_read_before_late_exits() {
    let Some(_machine) = root("ledgers on older kernels") else { return };
    let (seen, truth) = trace_with("ledger 3 7 1 0", &late_exits(&[]));
    let waits = number(&truth, "waits");
    let expected = [("other", "locks_contended", 3, true), ("page-read", "waits", waits, true)];
    assert_eq!(counts(&seen), expected);
    assert_eq!(seen.missing, []);
}

#[test]
fn root_unreadable_ledgers_are_one_line() {
    let Some(_machine) = root("ledgers that cannot be read") else { return };
    let (seen, _) = trace_with("ledger 3 7 1 0", &late_exits(&["sys_enter"]));
    assert_eq!(counts(&seen), []);
    let missing: Vec<&str> = seen.missing.iter().map(|lacks| lacks.tracepoint.as_str()).collect();
    assert_eq!(missing, ["sys_enter"]);
}

#[test]
fn root_ledger_of_killed_process_is_read() {
    let Some(_machine) = root("ledgers of the killed") else { return };
    let tracer =
        Tracer::start(Follow::NextChild, &TraceOptions::default()).expect("root may trace");
    let mut child = scene("ledger 2 5 1 1").stdin(Stdio::piped()).spawn().expect("it is built");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    output.read_line(&mut String::new()).expect("it says when it is ready");
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    let seen = tracer.finish().expect("the maps can be read");
    let waits = 2 * 5 * unherd_sys::ledger_layout::SLOTS as u64;
    let expected = [("other", "locks_contended", 3, true), ("page-read", "waits", waits, true)];
    // Since Linux 6.16, as CI has it.
    assert_eq!(counts(&seen), expected);
}

#[test]
fn root_ledger_of_living_process_is_read() {
    let Some(_machine) = root("ledgers of the living") else { return };
    let mut child = scene("ledger 2 5 1 1").stdin(Stdio::piped()).spawn().expect("it is built");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut ready = String::new();
    output.read_line(&mut ready).expect("it says when it is ready");
    let ready = serde_json::from_str(&ready).expect("it prints JSON");
    let follow = Follow::Processes(vec![child.id()]);
    let tracer = Tracer::start(follow, &TraceOptions::default()).expect("root may trace");
    let seen = tracer.finish().expect("the maps can be read");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    let waits = 2 * 5 * unherd_sys::ledger_layout::SLOTS as u64;
    let expected = [("other", "locks_contended", 3, false), ("page-read", "waits", waits, false)];
    assert_eq!(counts(&seen), expected);
    assert_stall_is_seen(&seen, number(&ready, "progress_ns"));
}

#[test]
fn root_foreign_program_has_no_ledger() {
    let Some(_machine) = root("no ledger") else { return };
    let (seen, _) = trace("eventfd 10 2");
    assert_eq!(seen.ledgers, []);
}
