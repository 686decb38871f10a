//! `tiotest` at sizes that take no time, on a real file system.

use std::path::Path;

use super::*;

const PHASES: [&str; 4] = ["write", "random_write", "read", "random_read"];

/// Below the build's own directory: direct I/O is refused on some temporary file systems.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn small(with: &str, dir: &Path, options: &str) -> Result<Value, LoadError> {
    let size = "--threads 4 --param total=4M --param random=1M";
    let mut args: Vec<_> = format!("tiotest --with {with} {size} {options}")
        .split_whitespace()
        .map(OsString::from)
        .collect();
    args.extend(["--dir".into(), dir.into()]);
    run_args(args)
}

fn check_phases(round: &Value) {
    let mb = [4.0, 1.0, 4.0, 1.0];
    for (phase, mb) in PHASES.iter().zip(mb) {
        let figure = |name: &str| metric(round, &format!("{phase}_{name}"));
        assert_eq!(figure("mb"), mb);
        assert!(figure("cpu_s") >= figure("process_cpu_s"), "{round}");
        let scaled = figure("mb_per_s") * 100.0 / (figure("user_pct") + figure("sys_pct"));
        // The report's own identity: throughput scaled by %cpu.
        let ratio = figure("mb_per_cpusec") / scaled;
        assert!((ratio - 1.0).abs() < 1e-6, "{round}");
        assert!(figure("context_switches_per_op") >= 0.0);
        // What nobody counts is not called 0.
        for name in ["wakeups_per_op", "needless_wakeups"] {
            let counted = round["metrics"].get(format!("{phase}_{name}"));
            let is_ours = round["impl"].as_str().is_some_and(|name| name.starts_with("unherd"));
            assert_eq!(counted.is_some(), is_ours, "{round}");
        }
    }
}

/// With 10 MiB and 4 threads the cache holds less than half of the file set.
#[test]
fn all_implementations_agree() {
    let dir = directory();
    let impls = ["kernel", "kernel-direct", "floor", "unherd", "unherd-aio", "unherd-nofilter"];
    let rounds = impls.map(|with| {
        let round = small(with, dir.path(), "--memory 10M --seed 5").unwrap();
        check_phases(&round);
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
        round
    });
    for round in &rounds {
        assert_eq!(round["check"], rounds[0]["check"], "{round}");
    }
    let other_seed = small("kernel", dir.path(), "--memory 10M --seed 6").unwrap();
    assert_ne!(other_seed["check"], rounds[0]["check"]);
}

/// The random writes are four times the memory.
#[test]
fn the_floor_writes_what_it_has_no_room_for() {
    let dir = directory();
    let checks = ["kernel", "floor"].map(|with| {
        let round = small(with, dir.path(), "--memory 10M --seed 5 --param random=40M").unwrap();
        round["check"].clone()
    });
    assert_eq!(checks[0], checks[1]);
}

#[test]
fn missing_space_is_found_before_writing() {
    let dir = directory();
    let error = small("kernel", dir.path(), "--memory 1M --param total=4000000T").unwrap_err();
    assert!(matches!(error, LoadError::Space { .. }), "{error}");
    assert_eq!(error.exit_code(), 2);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn too_little_memory_for_a_cache_is_refused() {
    let dir = directory();
    let error = small("unherd", dir.path(), "--memory 1M").unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("--memory"), "{error}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}
