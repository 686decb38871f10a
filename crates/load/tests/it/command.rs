//! The catalogue, and what the command line refuses.

use std::os::unix::ffi::OsStringExt;

use super::*;

#[test]
fn the_catalogue_is_complete_and_agrees_with_itself() {
    let catalogue = run("--describe").unwrap();
    assert_eq!(catalogue["schema"], "unherd.catalogue/1");
    let workloads = catalogue["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 7);
    for workload in workloads {
        let names = |list: &str| -> Vec<String> {
            let items = workload[list].as_array().unwrap_or_else(|| panic!("{list}"));
            items
                .iter()
                .map(|item| {
                    assert!(
                        item["about"].as_str().is_some_and(|about| !about.is_empty()),
                        "{item}"
                    );
                    item["name"].as_str().unwrap().to_owned()
                })
                .collect()
        };
        let (impls, metrics, params) = (names("impls"), names("metrics"), names("params"));
        for listed in [&impls, &metrics, &params] {
            let distinct: std::collections::HashSet<_> = listed.iter().collect();
            assert_eq!(distinct.len(), listed.len(), "{listed:?}");
        }
        for primary in workload["primary"].as_array().unwrap() {
            assert!(metrics.iter().any(|name| primary == name), "{primary}");
        }
        for default in workload["default_impls"].as_array().unwrap() {
            assert!(impls.iter().any(|name| default == name), "{default}");
        }
        // Where threads may read all they want without a wait, none proves nothing.
        let may_not_wait = ["slices", "randread", "order", "mix", "highalloc"]
            .iter()
            .any(|name| workload["name"] == *name);
        let counted = (!may_not_wait).then_some("wakeups");
        assert_eq!(workload["counts_as_exercised"].as_str(), counted);
        for metric in workload["metrics"].as_array().unwrap() {
            let better = metric["better"].as_str().unwrap();
            assert!(["lower", "higher", "neither"].contains(&better), "{better}");
        }
        for param in workload["params"].as_array().unwrap() {
            let kind = param["kind"].as_str().unwrap();
            assert!(["count", "size", "text", "flag"].contains(&kind), "{kind}");
            assert!(param["default"].is_string());
        }
        for flag in ["uses_dir", "takes_dir", "uses_memory", "kernel_work"] {
            assert!(workload[flag].is_boolean(), "{flag}");
        }
        assert!(workload["default_threads"].as_u64().unwrap() >= 1);
    }
}

#[test]
fn what_the_command_line_refuses() {
    let refused = [
        ("", "usage"),
        ("--describe more", "alone"),
        ("nosuch --with unherd", "pagewait, slices, randread, order, tiotest"),
        ("pagewait", "--with is missing"),
        ("pagewait --with nosuch", "before, per-page, unherd, unherd-nofilter"),
        ("pagewait --with unherd --threads 0", "--threads 0"),
        ("pagewait --with unherd --threads 8193", "1 to 8192"),
        ("pagewait --with unherd --threads many", "--threads many"),
        ("pagewait --with unherd --threads", "--threads needs a value"),
        ("pagewait --with unherd --seed -1", "--seed -1"),
        ("pagewait --with unherd --plant nan", "--plant nan"),
        ("pagewait --with unherd --idle-busy -0.5", "--idle-busy -0.5"),
        ("pagewait --with unherd --nosuch 1", "--nosuch"),
        ("pagewait --with unherd --param buckets", "NAME=VALUE"),
        ("pagewait --with unherd --param nosuch=1", "buckets, pages"),
        ("pagewait --with unherd --param buckets=0", "buckets=0"),
        ("pagewait --with before --param buckets=auto", "buckets=auto"),
        ("pagewait --with unherd --param buckets=-4", "buckets=-4"),
        ("pagewait --with unherd --threads 8 --param pages=7", "pages=7"),
        ("pagewait --with unherd --param outstanding=0", "outstanding=0"),
        ("tiotest --with kernel --memory 1M", "--dir"),
        ("tiotest --with kernel --dir /tmp", "--memory"),
        ("tiotest --with kernel --memory 0 --dir /tmp", "--memory 0"),
        ("tiotest --with kernel --memory 1Q --dir /tmp", "--memory 1Q"),
        ("tiotest --with kernel --memory 99999999T --dir /tmp", "--memory 99999999T"),
        (
            "tiotest --with kernel --memory 64M --dir /nonexistent/directory",
            "/nonexistent/directory",
        ),
        ("tiotest --with kernel --memory 1M --dir /tmp", "512 blocks of 4096 bytes"),
        ("tiotest --with kernel --memory 64M --dir /tmp --param total=1K", "less than a block"),
        ("tiotest --with kernel --memory 64M --dir /tmp --param block=1000", "block=1000"),
        ("tiotest --with kernel --memory 64M --dir /tmp --param scale=huge", "scale=huge"),
        ("slices --with kernel --memory 64M --dir /tmp --param verify=some", "verify=some"),
        ("randread --with kernel --memory 64M --dir /tmp --param reads=0", "reads=0"),
        ("order --with kernel --memory 64M --dir /tmp --param pattern=zigzag", "pattern=zigzag"),
        ("slices --with unherd --memory 4M --threads 2 --dir /tmp", "--memory 4194304"),
        (
            "slices --with kernel --memory 64M --dir /nonexistent/directory",
            "/nonexistent/directory",
        ),
    ];
    for (words, named) in refused {
        let error = run(words).expect_err(words);
        let text = error.to_string();
        assert!(text.contains(named), "{words}: {text}");
        assert!(!text.contains('\n'), "{words}: {text}");
        assert_eq!(error.exit_code(), 2, "{words}: {text}");
    }
}

#[test]
fn an_argument_that_is_not_text_is_refused() {
    let args = ["pagewait".into(), OsString::from_vec(vec![0xff, 0xfe])].to_vec();
    assert_eq!(run_args(args).unwrap_err().exit_code(), 2);
}
