//! `mix` at a size that takes no time, on a real file system.

use super::*;

/// With 10 MiB and 4 threads a cache holds a fifth of the 8.
#[test]
fn kernel_and_cache_agree() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |with: &str, more: &str| {
        let words = format!(
            "mix --with {with} --threads 4 --memory 10M --seed 3 --param transactions=400 {more}"
        );
        let mut args: Vec<_> = words.split_whitespace().map(OsString::from).collect();
        args.extend(["--dir".into(), dir.path().into()]);
        run_args(args)
    };
    let rounds = ["kernel", "unherd"].map(|with| run(with, "--param file=8M").unwrap());
    for round in &rounds {
        assert_eq!(round["check"], rounds[0]["check"], "{round}");
        assert!(metric(round, "transactions_per_s") > 0.0, "{round}");
        assert!(metric(round, "transaction_us_max") >= metric(round, "transaction_us_p50"));
    }
    let refused = run("unherd", "--param file=4K").unwrap_err();
    assert_eq!(refused.to_string(), "file=4096: give at least 327680");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}
