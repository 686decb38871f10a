//! The workload of ready sources.

use unherd_load::poll::{Polling, Sources, run_with};
use unherd_load::{Job, LoadError, Workload};

fn job(with: &str, threads: usize, params: &[(&str, &str)]) -> Job {
    let mut job = Job::new(&Polling.describe(), with, threads);
    let small = [("budget-ms", "10"), ("sources", "70"), ("events", "100")];
    for (name, value) in small.iter().chain(params) {
        job.params.set(name, value).unwrap();
    }
    job
}

#[test]
fn every_scene_runs_with_every_implementation() {
    for scene in ["empty", "post", "event", "flood"] {
        let impls = Polling.describe().impls;
        let wakes = matches!(scene, "event" | "flood");
        let able = impls.iter().filter(|with| !wakes || with.name != "floor");
        let checks: Vec<_> = able
            .map(|with| {
                let round = Polling.run(&job(with.name, 2, &[("scene", scene)])).unwrap();
                let metric = |name| round.metric(name).unwrap();
                assert!(metric("ns_per_call") > 0.0, "{} {scene}: {round:?}", with.name);
                if scene == "flood" {
                    assert!(metric("quiet_events") >= 1.0, "{}: {round:?}", with.name);
                }
                if scene == "event" {
                    assert!(metric("wakeups_per_event") >= 1.0, "{}: {round:?}", with.name);
                }
                round.check
            })
            .collect();
        assert!(checks.windows(2).all(|two| two[0] == two[1]), "{scene}: {checks:?}");
    }
}

#[test]
fn a_check_that_invents_events_is_found() {
    struct Invents;
    impl Sources for Invents {
        type Waiter<'s> = ();
        fn waiter(&self) {}
        fn check(&self, (): &mut ()) -> usize {
            1
        }
        fn wait(&self, (): &mut ()) -> Option<usize> {
            None
        }
        fn post(&self, _: usize) {}
    }
    let error = run_with(&job("unherd", 1, &[]), &Invents).unwrap_err();
    assert!(matches!(error, LoadError::NotPolled { found: 0, .. }), "{error}");
}

#[test]
fn the_floor_has_nobody_to_wake() {
    let error = Polling.run(&job("floor", 1, &[("scene", "event")])).unwrap_err();
    assert_eq!(error.to_string(), "scene=event: the floor has nobody to wake");
}
