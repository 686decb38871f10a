//! The workload of commits.

use unherd_load::commit::Commit;
use unherd_load::{Job, Workload};

fn job(dir: &std::path::Path, with: &str, params: &[(&str, &str)]) -> Job {
    let mut job = Job::new(&Commit.describe(), with, 8);
    job.dir = Some(dir.into());
    for (name, value) in [("ms", "50"), ("laps", "4")].iter().chain(params) {
        job.params.set(name, value).unwrap();
    }
    job
}

#[test]
fn all_commit_and_the_cache_shares_flushes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut checks = Vec::new();
    for with in Commit.describe().impls {
        for record in ["4096", "96"] {
            let round = Commit.run(&job(dir.path(), with.name, &[("record", record)])).unwrap();
            let metric = |name| round.metric(name).unwrap();
            assert!(metric("commits_per_s") > 0.0 && metric("commit_us_max") > 0.0, "{round:?}");
            let flushes = metric("flushes_per_commit");
            match with.name {
                "kernel" => assert_eq!(flushes, 1.0),
                _ => assert!(flushes > 0.0 && flushes < 0.9, "{}: {flushes}", with.name),
            }
            checks.push((record, round.check));
        }
    }
    checks.sort_unstable();
    checks.dedup();
    assert_eq!(checks.len(), 2, "one for each size");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_record_is_of_whole_words() {
    let dir = tempfile::tempdir().unwrap();
    let error = Commit.run(&job(dir.path(), "unherd", &[("record", "100")])).unwrap_err();
    assert_eq!(error.to_string(), "record=100: give a multiple of 32");
}
