//! The replay of a trace, from the file to the figures.

use std::fs;
use std::process::Command;

use unherd_load::policy::Policy;
use unherd_load::{Job, LoadError, Round, Workload};

fn run(with: &str, trace: &str) -> Result<Round, LoadError> {
    let mut job = Job::new(&Policy.describe(), with, 1);
    job.params.set("requests-from", trace).unwrap();
    Policy.run(&job)
}

/// 100 pages that are read once, and two in each hundred requests again and again.
fn scan_and_loop() -> String {
    let line = |at: u64| format!("{} 1 0 {at}\n{} 1 0 {at}\n{} 2 0 {at}\n", at, at, 1000 + at % 2);
    (0..1000).map(line).collect()
}

#[test]
fn no_policy_beats_the_optimal_bound() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.lis");
    fs::write(&path, scan_and_loop()).unwrap();
    let path = path.to_str().unwrap();
    let all = ["lru", "clock", "s3fifo", "opt"].map(|with| run(with, path).unwrap());
    for round in &all {
        assert_eq!(round.check, all[0].check);
        assert_eq!((round.metric("requests"), round.metric("pages")), (Some(4000.0), Some(1003.0)));
        for pct in [1, 5, 10, 25] {
            let name = format!("hit_pct_at_{pct}");
            let (hits, bound) = (round.metric(&name).unwrap(), all[3].metric(&name).unwrap());
            assert!(hits <= bound && bound < 75.0, "{name}: {hits} of {bound}");
        }
    }
    // Each page is asked for twice in a row, and one of two loops is always there.
    assert!(all[2].metric("hit_pct_at_1").unwrap() > 70.0, "{:?}", all[2]);
}

#[test]
fn compressed_traces_are_unpacked_and_damaged_ones_named() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("trace");
    fs::write(&plain, scan_and_loop()).unwrap();
    let packed = dir.path().join("trace.zst");
    let zstd = Command::new("zstd").arg("-q").arg(&plain).arg("-o").arg(&packed).status();
    if !zstd.is_ok_and(|status| status.success()) {
        println!("skipped: no zstd here");
        return;
    }
    let check = |path: &std::path::Path| run("lru", path.to_str().unwrap()).map(|r| r.check);
    assert_eq!(check(&packed).unwrap(), check(&plain).unwrap());
    let bytes = fs::read(&packed).unwrap();
    fs::write(&packed, &bytes[..bytes.len() - 9]).unwrap();
    let error = check(&packed).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("trace.zst"), "{error}");
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    for (trace, what) in [("", "--requests-from FILE"), ("/nowhere/at.all", "/nowhere/at.all")] {
        let error = run("lru", trace).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(what), "{error}");
    }
    let error = Policy.run(&Job::new(&Policy.describe(), "lru", 2)).unwrap_err();
    assert!(error.to_string().contains("--threads"), "{error}");
}
