//! The workload of full memtables.

use unherd_load::stall::Stall;
use unherd_load::{Job, Workload};

fn job(with: &str, params: &[(&str, &str)]) -> Job {
    let mut job = Job::new(&Stall.describe(), with, 3);
    let small = [("fills", "4"), ("tables", "2"), ("fill-us", "10"), ("flush-us", "50")];
    for (name, value) in small.iter().chain(&[("stall-ms", "5")]).chain(params) {
        job.params.set(name, value).unwrap();
    }
    job
}

#[test]
fn every_mode_flushes_all_tables() {
    for scene in ["full", "stuck"] {
        let checks: Vec<_> = Stall
            .describe()
            .impls
            .iter()
            .filter(|with| scene == "full" || matches!(with.name, "event" | "paced"))
            .map(|with| {
                let round = Stall.run(&job(with.name, &[("scene", scene)])).unwrap();
                let metric = |name| round.metric(name).unwrap();
                assert!(metric("elapsed_s") > 0.0, "{} {scene}: {round:?}", with.name);
                if scene == "stuck" {
                    let told = ["stall_seen_ms", "stall_in_ledger_ms"].map(metric);
                    assert!(told.iter().all(|ms| *ms >= 5.0), "{}: {round:?}", with.name);
                }
                if matches!(with.name, "event" | "paced") {
                    assert_eq!(metric("needless_waits"), 0.0, "{}: {round:?}", with.name);
                }
                round.check
            })
            .collect();
        assert!(checks.windows(2).all(|two| two[0] == two[1]), "{scene}: {checks:?}");
    }
}

#[test]
fn delayed_writers_sleep_needlessly_in_fixed_modes() {
    let round = |with| Stall.run(&job(with, &[("scene", "delay")])).unwrap();
    assert!(round("fixed-short").metric("needless_waits").unwrap() >= 1.0);
    assert_eq!(round("paced").metric("needless_waits").unwrap(), 0.0);
}

#[test]
fn a_stall_needs_writers_that_wait() {
    let refused = |with, tables| {
        let error = Stall.run(&job(with, &[("scene", "stuck"), ("tables", tables)])).unwrap_err();
        error.to_string()
    };
    assert_eq!(refused("paced", "99"), "scene=stuck: give more fills than tables");
    assert_eq!(refused("fixed", "2"), "scene=stuck: give event or paced, whose sleeps last");
}
