//! `order` at a size that takes no time, on a real file system.

use super::*;

const IMPLS: [&str; 6] =
    ["kernel", "kernel-direct", "unherd", "unherd-aio", "unherd-blocking", "unherd-noreadahead"];

/// With 10 MiB and 2 threads a cache holds 1.8 MiB of the 8.
#[test]
fn all_implementations_agree() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for pattern in ["tree", "strided", "backward", "interleaved", "alternating"] {
        let rounds = IMPLS.map(|with| {
            let words = format!(
                "order --with {with} --threads 2 --memory 10M --seed 5 --param file=8M \
                 --param pattern={pattern}"
            );
            let mut args: Vec<_> = words.split_whitespace().map(OsString::from).collect();
            args.extend(["--dir".into(), dir.path().into()]);
            let round = run_args(args).unwrap_or_else(|error| panic!("{with}, {pattern}: {error}"));
            assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
            let mb = match pattern {
                "strided" => 2.0,
                "alternating" => 2.5,
                _ => 8.0,
            };
            assert_eq!(metric(&round, "mb"), mb);
            let counted = round["metrics"].get("wasted_pct").is_some();
            assert_eq!(counted, with.starts_with("unherd"), "{round}");
            round
        });
        for round in &rounds {
            assert_eq!(round["check"], rounds[0]["check"], "{round}");
        }
    }
}
