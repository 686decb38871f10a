//! The workloads of futexes: each implementation wakes as many as come back.

use unherd_load::futex_storm::FutexStorm;
use unherd_load::futex_wake::FutexWake;
use unherd_load::{Job, Round, Workload};

/// One round of each implementation.
fn rounds(workload: &dyn Workload, threads: usize, params: &[(&str, &str)]) -> Vec<Round> {
    let description = workload.describe();
    let run = |with: &str| {
        let mut job = Job::new(&description, with, threads);
        for (name, value) in [("budget-ms", "20")].iter().chain(params) {
            job.params.set(name, value).unwrap();
        }
        workload.run(&job).unwrap_or_else(|error| panic!("{with}: {error}"))
    };
    description.impls.iter().map(|with| run(with.name)).collect()
}

#[test]
fn wakes_find_sleepers_and_nobody() {
    for round in rounds(&FutexWake, 2, &[("sleepers", "4"), ("empty", "50")]) {
        let figure = |name: &str| round.metric(name).unwrap();
        assert!(figure("empty_wake_ns") > 0.0 && figure("found_wake_ns") > 0.0, "{round:?}");
        assert!(figure("empty_pct") >= 50.0 && figure("empty_pct") < 100.0, "{round:?}");
    }
}

#[test]
fn storm_wakes_as_many_as_come_back() {
    for round in rounds(&FutexStorm, 16, &[("words", "3")]) {
        assert!(round.metric("woken_pct").unwrap() > 0.0, "{round:?}");
    }
}
