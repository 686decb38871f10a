//! `highalloc` at a size that takes no time, on a real file system.

use super::*;

#[test]
fn kernel_and_cache_agree() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |with: &str, more: &str| {
        let words = format!(
            "highalloc --with {with} --memory 40M --seed 3 --param file=16M --param attempts=8 \
             {more}"
        );
        let mut args: Vec<_> = words.split_whitespace().map(OsString::from).collect();
        args.extend(["--dir".into(), dir.path().into()]);
        run_args(args)
    };
    let cached = run("unherd", "--threads 4").unwrap();
    let pinned = run("unherd-pin", "--threads 4").unwrap();
    assert_eq!(pinned["check"], cached["check"], "{pinned}");
    // Where nobody holds pages each attempt gives a piece.
    for (round, pass) in [(&cached, "pass1"), (&cached, "rest"), (&pinned, "rest")] {
        assert_eq!(metric(round, &format!("{pass}_success_pct")), 100.0, "{round}");
        assert!(metric(round, &format!("{pass}_us_max")) > 0.0, "{round}");
    }
    match run("kernel", "--threads 4") {
        Ok(round) => assert_eq!(round["check"], cached["check"], "{round}"),
        Err(error) => assert!(error.to_string().contains("transparent huge pages"), "{error}"),
    }
    for (with, more, expected) in [
        ("kernel", "--threads 4 --param piece=1M", "piece=1048576: the kernel has 2M"),
        ("unherd", "--threads 2", "2 threads: give at least 3"),
        ("unherd", "--threads 3 --param piece=5000", "piece=5000: give a power of two"),
        ("unherd", "--threads 3 --param piece=4M", "more than this cache gives, 2 MiB"),
    ] {
        let refused = run(with, more).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}
