//! Adapters as files, and each that is shipped with the real program.

use std::time::Duration;

use super::*;
use crate::compare::metrics::Metrics;
use crate::launch::{Ending, Launch};

const MINIMAL: &str = "about = 'x'\ninstall = 'y'\ncommand = ['echo', 'n: 3']\n";

fn refused(text: &str) -> String {
    Adapter::parse("own", text).unwrap_err().to_string()
}

#[test]
fn shipped_adapters_are_sorted_and_complete() {
    let all = Adapter::shipped().unwrap();
    assert!(all.is_sorted_by_key(|adapter| adapter.name.clone()));
    for adapter in &all {
        assert!(adapter.about.ends_with('.'), "{}", adapter.name);
        assert!(adapter.install.starts_with("apt-get install "), "{}", adapter.name);
    }
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/adapters")).unwrap();
    assert_eq!(files.count(), all.len(), "each file is shipped");
}

#[test]
fn malformed_adapters_are_refused_in_a_line() {
    let metric = |rest: &str| format!("{MINIMAL}[[metric]]\nname = 'n'\n{rest}");
    for (text, what) in [
        ("about = ", "line 1: "),
        ("about = 'x'\ninstall = 'y'", "needs either command or script"),
        ("about = 'x'\ninstall = 'y'\ncommand = []", "needs either command or script"),
        ("about = 'x'\ncommand = ['true']", "missing field `install`"),
        (&format!("{MINIMAL}script = 'true'"), "needs either command or script"),
        (&format!("{MINIMAL}metrics = 3"), "line 4: unknown field `metrics`"),
        (&metric("better = 'lower'"), "n needs either pattern or json"),
        (&metric("pattern = 'n'\njson = 'n'\nbetter = 'lower'"), "n needs either"),
        (&metric("pattern = '('\nbetter = 'lower'"), "is no regular expression"),
        (&metric("pattern = 'n'"), "missing field `better`"),
        (&metric("pattern = 'n'\nbetter = 'more'"), "unknown variant `more`"),
    ] {
        let said = refused(text);
        assert!(said.contains(what) && !said.contains('\n'), "{text}: {said}");
    }
}

#[test]
fn unknown_adapters_get_the_nearest() {
    let said = Adapter::load("hackbnch").unwrap_err().to_string();
    assert_eq!(said, "no adapter is called 'hackbnch'; did you mean 'hackbench'?");
    let said = Adapter::load("./none.toml").unwrap_err().to_string();
    assert!(said.starts_with("cannot read the adapter ./none.toml"), "{said}");
}

#[test]
fn options_are_added_to_the_adapters_command() {
    let adapter = Adapter::parse("own", MINIMAL).unwrap();
    let words = |given: &str| {
        let given: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        let (words, shown_as) = adapter.command(&given);
        (words.join(" "), shown_as)
    };
    assert_eq!(words(""), ("echo n: 3".to_owned(), None));
    assert_eq!(words("-x 1"), ("echo n: 3 -x 1".to_owned(), None));
    assert_eq!(words("other -x"), ("other -x".to_owned(), None));
    let script = MINIMAL.replace("command = ['echo', 'n: 3']", "script = 'echo \"$@\"'");
    let (words, shown_as) = Adapter::parse("own", &script).unwrap().command(&["-P".to_owned()]);
    assert_eq!(words, ["sh", "-e", "-c", "echo \"$@\"", "own", "-P"]);
    assert_eq!(shown_as.as_deref(), Some("own -P"));
}

#[test]
fn missing_programs_say_how_to_install_them() {
    let text = "about = 'x'\ninstall = 'apt-get install y'\ncommand = ['no-such-program']";
    let adapter = Adapter::parse("own", text).unwrap();
    let place = tempfile::tempdir().unwrap();
    let set_up = |given: &str| {
        let sides = Side::parse(&[given.to_owned()], "--", &[], false, Some(&adapter)).unwrap();
        adapter.set_up(&sides, place.path(), &Interrupt::new().unwrap()).map(drop)
    };
    let error = set_up("-x").unwrap_err();
    assert_eq!(error.to_string(), "own is not installed; apt-get install y");
    assert!(set_up("true").is_ok(), "another program is the user's own affair");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "something is left");
}

/// One run of the real program, a short one, and the look at its figures.
fn real(name: &str, shorter: &[&str]) {
    let adapter = Adapter::load(name).unwrap();
    if !adapter.is_installed() {
        println!("skipped: {name} is not installed; {}", adapter.install);
        return;
    }
    let (place, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::new().unwrap());
    let shorter: Vec<String> = shorter.iter().map(|&word| word.to_owned()).collect();
    let sides = Side::parse(&shorter, "--", &[], false, Some(&adapter)).unwrap();
    let files = adapter.set_up(&sides, place.path(), &interrupt).unwrap();
    let program = sides[0].program().unwrap();
    let args = sides[0].words[1..].iter().map(Into::into).collect();
    let launch = Launch {
        environment: vec![(DIRECTORY, &files.directory)],
        own_session: true,
        ..Launch::new(&program, args, Duration::from_secs(60))
    };
    let finished = launch.run(&interrupt).unwrap();
    let said = format!("{name}: {}{}", finished.stdout, finished.stderr);
    assert!(
        matches!(finished.ending, Ending::Exited(status) if status.success()),
        "{:?} {said}",
        finished.ending
    );
    let metrics = Metrics::new(adapter.sources.clone(), None, Vec::new());
    let values = metrics.read(&finished, 0).unwrap_or_else(|error| panic!("{error}: {said}"));
    for source in &adapter.sources {
        let value = values.iter().find(|(name, _)| name == source.name());
        assert!(value.is_some_and(|(_, value)| *value > 0.0), "{value:?}: {said}");
    }
    drop(files);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{name} has left something");
}

#[test]
fn real_compile() {
    real("compile", &["--always-make"]);
}

#[test]
fn real_fio_randread() {
    real("fio-randread", &["--io_size=1M"]);
}

#[test]
fn real_hackbench() {
    real("hackbench", &["-l", "10"]);
}

#[test]
fn real_iperf3() {
    real("iperf3", &["-n", "10M"]);
}

#[test]
fn real_mbw() {
    real("mbw", &[]);
}

#[test]
fn real_perf_futex_hash() {
    real("perf-futex-hash", &["-f", "64"]);
}

#[test]
fn real_perf_sched_pipe() {
    real("perf-sched-pipe", &["-l", "1000"]);
}

#[test]
fn real_pgbench() {
    real("pgbench", &["-t", "100"]);
}

#[test]
fn real_redis_benchmark() {
    real("redis-benchmark", &["-n", "1000"]);
}

#[test]
fn real_sysbench_cpu() {
    real("sysbench-cpu", &["--events=100"]);
}

#[test]
fn real_sysbench_memory() {
    real("sysbench-memory", &["--memory-total-size=100M"]);
}

#[test]
fn real_sysbench_mutex() {
    real("sysbench-mutex", &["--mutex-locks=100"]);
}

#[test]
fn real_sysbench_threads() {
    real("sysbench-threads", &["--events=100"]);
}
