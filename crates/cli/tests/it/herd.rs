//! Our own workload under our own tracer: the herd and its absence, and two accounts that agree.

use serde_json::Value;

use crate::trace::{is_refused, ran, trace};

const THREADS: u64 = 32;

/// What the runner says of a round of `pagewait`, and what the trace says.
fn pagewait(with: &str, buckets: &str) -> Option<(Value, Value)> {
    let (threads, buckets) = (THREADS.to_string(), format!("buckets={buckets}"));
    let params = ["--param", &buckets, "--param", "events=500"];
    load(&[&["pagewait", "--with", with, "--threads", &threads], &params[..]].concat())
}

/// What the runner says of a round, and what the trace says.
fn load(args: &[&str]) -> Option<(Value, Value)> {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report");
    let report = report.to_str().unwrap();
    let runner = ["--format", "json", "-o", report, "--", env!("CARGO_BIN_EXE_unherd"), "load"];
    let ran = ran(trace(&[&runner[..], args, &["--seed", "1"]].concat()));
    if is_refused(&ran) {
        return None;
    }
    if ran.stderr.contains("could not be started") {
        println!("skipped, for the limit on threads: {}", ran.stderr);
        return None;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let line = ran.stdout.lines().last().unwrap();
    let seen = std::fs::read_to_string(report).unwrap();
    Some((serde_json::from_str(line).unwrap(), serde_json::from_str(&seen).unwrap()))
}

fn number(value: &Value) -> u64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number")) as u64
}

#[test]
fn root_herd_of_one_bucket_is_measured() {
    let Some((said, seen)) = pagewait("before", "1") else { return };
    let needless = &seen["summary"]["needless_wakeups"];
    // What the runner counts is of its timed events, and the trace saw a few more: each thread's
    // first and last. It saw a few less where a thread was claimed before it slept.
    let of_said = |name: &str| number(&said["metrics"][name]);
    let (wakeups, truth) = (of_said("wakeups"), of_said("needless_wakeups"));
    let least = truth.min(of_said("context_switches"));
    assert!(number(&needless["proven"]) <= truth, "{needless} {said}");
    assert!(number(&needless["possible"]) * 100 >= least * 95, "{needless} {said}");
    let herds = seen["herds"].as_array().unwrap();
    let largest = herds.iter().map(|herd| number(&herd["largest"])).max().unwrap_or(0);
    assert!((THREADS / 2..=THREADS).contains(&largest), "{largest}");
    let woken: u64 = herds.iter().map(|herd| number(&herd["herd_woken"])).sum();
    assert!(woken * 100 >= least * 90, "{woken} of {least}");
    assert!(woken <= wakeups + 4 * THREADS, "{woken} of {wakeups}");
}

#[test]
fn root_wait_table_ledger_agrees_with_trace() {
    for buckets in ["1", "16", "1024", "auto"] {
        let Some((said, seen)) = pagewait("unherd", buckets) else { return };
        assert_eq!(number(&said["metrics"]["needless_wakeups"]), 0);
        assert_eq!(seen["summary"]["needless_wakeups"]["proven"], 0);
        assert_eq!(seen["summary"]["herds"], 0, "{:#}", seen["herds"]);
        let ledger = &seen["ledgers"][0];
        let says = &ledger["says_in_all"];
        assert_eq!(ledger["at_end"], true);
        assert_eq!(says["needless_wakeups"], 0);
        // One wake call for each wakeup, and no sleep more than that: here the two accounts meet.
        assert_eq!(says["wakeups"], ledger["saw_wake_calls"], "{ledger:#}");
        // A thread that is on its way when its last completion comes needs no wakeup for it.
        assert!((500..=500 + THREADS).contains(&number(&says["wakeups"])), "{ledger:#}");
        assert!(number(&ledger["saw"]["wakeups"]) <= number(&says["wakeups"]), "{ledger:#}");
    }
}

/// However many it wakes, a wake of all makes one system call for each thread.
#[test]
fn root_wake_all_makes_one_call_per_thread() {
    let (sleepers, wakes) = (1024, 3);
    let scene = ["wake", "--with", "unherd", "--threads", "1", "--param", "scene=all"];
    let counts = ["--param", "sleepers=1024", "--param", "wakes=3"];
    let Some((_, seen)) = load(&[&scene[..], &counts].concat()) else { return };
    let ledger = &seen["ledgers"][0];
    assert_eq!(ledger["at_end"], true, "{ledger:#}");
    assert_eq!(number(&ledger["says_in_all"]["wakes"]), wakes, "{ledger:#}");
    assert_eq!(number(&ledger["says_in_all"]["wakeups"]), wakes * sleepers, "{ledger:#}");
    assert_eq!(number(&ledger["saw_wake_calls"]), wakes * sleepers, "{ledger:#}");
}
