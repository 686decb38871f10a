//! `pagewait` at sizes that take no time.

use unherd_load::pagewait::{PageWaits, Tally, run_with};
use unherd_load::{Job, Workload};
use unherd_sys::primitives::{AtomicUsize, Mutex, Ordering};

use super::*;

const IMPLS: [&str; 4] = ["before", "per-page", "unherd", "unherd-nofilter"];

/// The ledger and the CPU time are the process's: one round at a time, or they are mixed up.
static ROUND: Mutex<()> = Mutex::new(());

fn small(with: &str, options: &str) -> Value {
    let _one = ROUND.lock();
    let size = "--threads 8 --param events=200 --param pages=64";
    run(&format!("pagewait --with {with} {size} {options}")).unwrap()
}

#[test]
fn all_implementations_agree() {
    for buckets in [1, 4] {
        let options = format!("--seed 7 --param buckets={buckets}");
        let rounds = IMPLS.map(|with| small(with, &options));
        for (with, round) in IMPLS.iter().zip(&rounds) {
            assert_eq!(round["workload"], "pagewait");
            assert_eq!(round["impl"], *with);
            assert_eq!(round["threads"], 8);
            assert_eq!(round["seed"], 7);
            assert_eq!(round["params"]["buckets"], buckets.to_string());
            assert_eq!(round["check"], rounds[0]["check"], "{with}");
            assert_eq!(metric(round, "events"), 200.0);
            assert!(metric(round, "wakeups_per_event") >= 1.0, "{round}");
            assert!(metric(round, "wait_bytes") > 0.0);
        }
    }
    let checks = ["1", "2"].map(|seed| small("unherd", &format!("--seed {seed}"))["check"].clone());
    assert_ne!(checks[0], checks[1]);
}

#[test]
fn every_metric_of_the_catalogue_is_there() {
    let round = small("unherd", "");
    let listed: Vec<_> =
        PageWait.describe().metrics.into_iter().map(|metric| metric.name).collect();
    let given: Vec<_> = round["metrics"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(given, listed);
}

#[test]
fn filtered_wakeups_are_exact_and_the_ledger_agrees() {
    for with in ["unherd", "unherd-nofilter"] {
        let round = small(with, "--param buckets=1");
        let (wakeups, needless) = (metric(&round, "wakeups"), metric(&round, "needless_wakeups"));
        if with == "unherd-nofilter" {
            // Some of the herd may still be looking when the region ends: no exact sum here.
            assert!(needless > 0.0, "{round}");
            continue;
        }
        assert_eq!((wakeups, needless), (200.0, 0.0), "{round}");
        let reasons = round["waits"]["reasons"].as_array().unwrap();
        let waits = reasons.iter().find(|entry| entry["reason"] == "page-wait").unwrap();
        assert_eq!(waits["wakeups"], 200, "{waits}");
        assert_eq!(waits["needless_wakeups"], 0, "{waits}");
        assert_eq!(waits["empty_wakes"], 0, "{waits}");
    }
}

#[test]
fn a_table_that_grows_wakes_exactly() {
    let round = small("unherd", "--param buckets=auto");
    assert_eq!((metric(&round, "wakeups"), metric(&round, "needless_wakeups")), (200.0, 0.0));
}

#[test]
fn one_thread_and_one_page() {
    let _one = ROUND.lock();
    let round =
        run("pagewait --with unherd --threads 1 --param events=50 --param pages=1").unwrap();
    assert_eq!(metric(&round, "events"), 50.0);
    assert_eq!(metric(&round, "wakeups_per_event"), 1.0);
}

#[test]
fn a_budget_makes_at_least_a_hundred_events() {
    let round = run("pagewait --with per-page --threads 4 --param budget-ms=0").unwrap();
    assert_eq!(metric(&round, "events"), 100.0);
}

#[test]
fn a_planted_slowdown_is_burned() {
    let round = small("per-page", "--plant 0.5");
    let cpu_s = metric(&round, "cpu_us_per_event") * metric(&round, "events") / 1e6;
    assert!(metric(&round, "planted_s") >= 0.3 * cpu_s, "{round}");
}

/// An implementation that now and then returns before the completion.
struct Early {
    calls: AtomicUsize,
}

impl PageWaits for Early {
    fn wait(&self, _page: usize, _tally: &Tally, pending: impl Fn() -> bool) {
        let early = self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(64);
        while pending() && !early {
            unherd_sys::primitives::thread::yield_now();
        }
    }

    fn complete(&self, _page: usize, publish: impl FnOnce()) {
        publish();
    }

    fn wait_bytes(&self, _threads: usize) -> usize {
        0
    }
}

#[test]
fn a_wait_that_ends_early_fails_the_round() {
    let mut job = Job::new(&PageWait.describe(), "early", 4);
    job.params.set("events", "200").unwrap();
    let error = run_with(&job, &Early { calls: AtomicUsize::new(0) }).unwrap_err();
    assert!(matches!(error, LoadError::Early { .. }), "{error}");
    assert_eq!(error.exit_code(), 1);
}

/// An implementation that panics in some of the threads that wait.
struct Panicking {
    /// The waits before this one are in order.
    at: usize,
    /// From then on, one wait in this many panics before its completion, and another after it.
    one_in: usize,
    calls: AtomicUsize,
}

impl PageWaits for Panicking {
    fn wait(&self, _page: usize, _tally: &Tally, pending: impl Fn() -> bool) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(call < self.at || !call.is_multiple_of(self.one_in), "the test's own panic");
        while pending() {
            unherd_sys::primitives::thread::yield_now();
        }
        assert!(call < self.at || call % self.one_in != 1, "the test's own panic");
    }

    fn complete(&self, _page: usize, publish: impl FnOnce()) {
        publish();
    }

    fn wait_bytes(&self, _threads: usize) -> usize {
        0
    }
}

/// Before the first wait, while others wait, after a completion; one thread, some, and all.
#[test]
fn panicking_thread_fails_round_without_hang() {
    for (at, one_in) in [(0, 1), (0, 4), (1, 4), (20, 1), (20, 16), (100, 64)] {
        let mut job = Job::new(&PageWait.describe(), "panicking", 4);
        job.params.set("events", "100000").unwrap();
        let waits = Panicking { at, one_in, calls: AtomicUsize::new(0) };
        let error = run_with(&job, &waits).unwrap_err();
        assert!(matches!(error, LoadError::Panicked { .. }), "{at}, {one_in}: {error}");
        assert_eq!(error.exit_code(), 1);
    }
}
