//! The workload that wakes nobody, and one among many.

use std::os::unix::process::CommandExt;
use std::process::Command;

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
fn no_wakes_are_refused() {
    for scene in ["nobody", "one", "all"] {
        let error = run("unherd", &[("scene", scene), ("wakes", "0")]).unwrap_err();
        assert!(matches!(error, LoadError::Usage(_)), "{error:?}");
        assert_eq!(error.to_string(), "wakes=0: give at least 1");
    }
}

/// In a process of its own, of a user who may have some tens of threads.
#[test]
fn where_threads_are_refused_nobody_sleeps_on() {
    const LIMITED: &str = "UNHERD_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        let limited = Command::new("prlimit")
            .arg("--nproc=40")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "wake::where_threads_are_refused_nobody_sleeps_on"])
            .env(LIMITED, "1")
            .uid(64_123)
            .gid(64_123)
            .output();
        match limited {
            Ok(limited) if limited.status.code() != Some(126) => {
                let said = String::from_utf8_lossy(&limited.stdout);
                assert!(limited.status.success() && said.contains("1 passed"), "{limited:?}");
            }
            // Not root, no such program, or a build that is nobody else's.
            limited => println!("skipped: {limited:?}"),
        }
        return;
    }
    for with in ["futex", "unherd"] {
        for wakes in ["1", "2", "1000"] {
            let params = [("scene", "all"), ("sleepers", "1000"), ("wakes", wakes)];
            let error = run(with, &params).unwrap_err().to_string();
            assert!(error.contains(" of 1000 ") && error.contains("--sleepers"), "{error}");
        }
    }
    let error = run("futex", &[("foreign", "1000")]).unwrap_err().to_string();
    assert!(error.contains("--foreign"), "{error}");
}

#[test]
fn bad_scenes_are_named() {
    for (with, scene) in [("unherd", "two"), ("floor", "one")] {
        let error = run(with, &[("scene", scene)]).unwrap_err();
        assert!(matches!(error, LoadError::Usage(_)) && error.to_string().contains("scene"));
    }
}
