//! `slices` at sizes that take no time, on a real file system.

use std::path::Path;

use super::*;

const IMPLS: [&str; 14] = [
    "kernel",
    "kernel-direct",
    "floor",
    "before",
    "unherd",
    "unherd-aio",
    "unherd-blocking",
    "unherd-nocopy",
    "unherd-uncached",
    "unherd-noreadahead",
    "unherd-noreuse",
    "unherd-64k",
    "unherd-64k-noreuse",
    "unherd-aio-64k-noreuse",
];

/// Below the build's own directory: direct I/O is refused on some temporary file systems.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn small(with: &str, dir: &Path, options: &str) -> Result<Value, LoadError> {
    let mut args: Vec<_> = format!("slices --with {with} --threads 4 {options}")
        .split_whitespace()
        .map(OsString::from)
        .collect();
    args.extend(["--dir".into(), dir.into()]);
    run_args(args)
}

#[test]
fn floor_memory_reads_what_floor_does_or_names_its_memory() {
    let dir = directory();
    let options = "--memory 32M --param file=32M --param verify=full --seed 5";
    let [one, all] =
        ["floor", "floor-memory"].map(|with| small(with, dir.path(), options).unwrap());
    assert_eq!(one["check"], all["check"]);
    assert_eq!(metric(&all, "cold_mb"), 32.0);
    let options = "--memory 10M --param file=8M";
    let error = small("floor-memory", dir.path(), options).unwrap_err().to_string();
    assert!(error.contains("2097152 bytes for each of 4 threads"), "{error}");
}

/// With 10 MiB and 4 threads a cache holds 1.7 MiB of the 8.
#[test]
fn all_implementations_agree() {
    let dir = directory();
    let sizes = "--memory 10M --param file=8M --param verify=full --seed 5";
    for block in ["4K", "256K"] {
        let rounds = IMPLS.map(|with| {
            let round = small(with, dir.path(), &format!("{sizes} --param block={block}"));
            let round = round.unwrap_or_else(|error| panic!("{with}, {block}: {error}"));
            assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
            for pass in ["cold", "hot"] {
                let figure = |name: &str| metric(&round, &format!("{pass}_{name}"));
                assert!(figure("mb") >= 8.0, "{round}");
                assert!(figure("av_time_s") <= figure("s"), "{round}");
                assert!(figure("intr_pct") >= 0.0);
                let per_gb = 1024.0 / figure("mb_per_cpusec");
                assert!((figure("cpu_s_per_gb") / per_gb - 1.0).abs() < 1e-6, "{round}");
            }
            assert_eq!(metric(&round, "cold_mb"), 8.0);
            // Nothing of the file was cached before, and everybody reads all of it.
            assert!(metric(&round, "cold_device_ratio") >= 0.99, "{round}");
            round
        });
        for round in &rounds {
            assert_eq!(round["check"], rounds[0]["check"], "{round}");
        }
    }
}

/// `kernel-dontcache` does what the others do, or says what is missing.
#[test]
fn uncached_reads_work_or_are_refused_in_a_line() {
    let dir = directory();
    for workload in ["slices --param file=1M --param block=64K", "tiotest --param total=1M"] {
        let words = format!("{workload} --threads 2 --memory 10M --with kernel-dontcache");
        let mut args: Vec<_> = words.split_whitespace().map(OsString::from).collect();
        args.extend(["--dir".into(), dir.path().into()]);
        match run_args(args) {
            Ok(round) => assert_eq!(round["impl"], "kernel-dontcache"),
            Err(error) => {
                assert!(error.to_string().contains("RWF_DONTCACHE"), "{error}");
                assert!(!error.to_string().contains('\n'), "{error}");
                assert_eq!(error.exit_code(), 2);
            }
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
    }
}
