//! The workload around tracers: what it says where something is missing.

use unherd_load::traced::Traced;
use unherd_load::{Job, LoadError, Workload};

fn job(with: &str, scene: &str, dir: &tempfile::TempDir) -> Job {
    let mut job = Job::new(&Traced.describe(), with, 2);
    job.dir = Some(dir.path().to_owned());
    job.params.set("scene", scene).unwrap();
    job.params.set("loops", "100").unwrap();
    job
}

#[test]
fn a_scene_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Traced.run(&job("floor", "apache", &dir)).unwrap_err();
    assert!(matches!(error, LoadError::Usage(_)), "{error}");
    assert!(error.to_string().contains("apache") && error.to_string().contains("nginx"), "{error}");
}

#[test]
fn a_program_that_fails_is_quoted() {
    let dir = tempfile::tempdir().unwrap();
    // The place of its output is taken by a directory.
    std::fs::create_dir(dir.path().join("pipe")).unwrap();
    let error = Traced.run(&job("floor", "pipe", &dir)).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n') && text.starts_with("perf bench"), "{text}");
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn a_pipe_is_timed() {
    let dir = tempfile::tempdir().unwrap();
    match Traced.run(&job("floor", "pipe", &dir)) {
        Ok(round) => {
            let per_s = round.metrics.iter().find(|(name, _)| name == "operations_per_s").unwrap();
            assert!(per_s.1 > 0.0);
        }
        Err(error) => {
            // The shell's word for a program that is not there.
            assert!(error.to_string().contains("127"), "{error}");
            println!("skipped: perf is not installed");
        }
    }
}
