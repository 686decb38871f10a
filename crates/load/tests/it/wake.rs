//! The workload that wakes nobody, and one among many.

use unherd_load::wake::Wake;
use unherd_load::{Job, LoadError, Round, Workload};

fn run(with: &str, params: &[(&str, &str)]) -> Result<Round, LoadError> {
    let mut job = Job::new(&Wake.describe(), with, 1);
    for (name, value) in params {
        job.params.set(name, value).unwrap();
    }
    Wake.run(&job)
}

#[test]
fn waking_nobody_wakes_nobody() {
    for with in ["floor", "futex", "unherd", "unherd-nosignature", "unherd-alone"] {
        let round = run(with, &[("wakes", "10000"), ("keys", "7"), ("foreign", "3")]).unwrap();
        assert!(round.metrics.iter().all(|(_, value)| *value > 0.0), "{with}: {round:?}");
    }
}

#[test]
fn one_is_woken_among_many_that_sleep_on() {
    for with in ["futex", "unherd", "unherd-nosignature", "unherd-alone"] {
        let params =
            [("scene", "one"), ("wakes", "50"), ("keys", "3"), ("foreign", "20"), ("buckets", "1")];
        // It ends only if each of the fifty wakes has arrived, and the last wakes the others.
        let round = run(with, &params).unwrap();
        assert_eq!(round.metrics.len(), 2, "{with}");
    }
}

#[test]
fn bad_scenes_are_named() {
    for (with, scene) in [("unherd", "two"), ("floor", "one")] {
        let error = run(with, &[("scene", scene)]).unwrap_err();
        assert!(matches!(error, LoadError::Usage(_)) && error.to_string().contains("one"));
    }
}
