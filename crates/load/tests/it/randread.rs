//! `randread` at a size that takes no time, on a real file system.

use super::*;

/// With 10 MiB and 8 threads a cache holds 1.4 MiB of the 8.
#[test]
fn all_implementations_agree() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let impls =
        ["kernel", "kernel-direct", "floor-memory", "unherd", "unherd-aio", "unherd-blocking"];
    let rounds = impls.map(|with| {
        let words = format!(
            "randread --with {with} --threads 8 --memory 10M --seed 5 --param file=8M \
             --param reads=1000"
        );
        let mut args: Vec<_> = words.split_whitespace().map(OsString::from).collect();
        args.extend(["--dir".into(), dir.path().into()]);
        let round = run_args(args).unwrap_or_else(|error| panic!("{with}: {error}"));
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
        let figure = |name: &str| metric(&round, name);
        assert_eq!(figure("reads"), 1000.0);
        let parts =
            ["io", "sleep_wake", "cache"].map(|part| figure(&format!("{part}_us_per_read")));
        let sum: f64 = parts.iter().sum();
        assert!((sum / figure("cpu_us_per_read") - 1.0).abs() < 1e-6, "{round}");
        let floor = parts[0] + parts[1];
        assert!((floor * figure("x_floor") / sum - 1.0).abs() < 1e-6, "{round}");
        assert!(figure("latency_us_p50") <= figure("latency_us_p99"), "{round}");
        let counted = round["metrics"].get("wakeups_per_read").is_some();
        assert_eq!(counted, with.starts_with("unherd"), "{round}");
        round
    });
    for round in &rounds {
        assert_eq!(round["check"], rounds[0]["check"], "{round}");
    }
}
