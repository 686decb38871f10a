//! Benches that go well.

use std::fs;

use serde_json::Value;

use crate::place::{Place, Ran};

/// The last lines, from the last on; below them may stand that other programs ran meanwhile.
fn verdicts(ran: &Ran) -> impl Iterator<Item = &str> {
    ran.lines().into_iter().rev().filter(|line| !line.starts_with("Other "))
}

#[test]
fn bench_prints_tables_and_keeps_record() {
    let place = Place::new();
    let ran = place.run("bench fake --out record --seed 5 --keep-disturbed");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for expected in ["from seed 5", "FASTER", "waits: page"] {
        assert!(ran.stdout.contains(expected), "{expected:?} is not in\n{}", ran.stdout);
    }
    assert_eq!(ran.stdout.matches("waits: page").count(), 1, "the result stands there once");
    assert_eq!(ran.stderr, "unherd: the record is in record\n", "no progress when piped");
    assert_eq!(place.kept_lines("record"), 24);
    let tables = fs::read_to_string(place.path().join("record/tables.txt")).unwrap();
    assert!(ran.stdout.contains(&tables));
    let last: Vec<&str> = verdicts(&ran).take(2).collect();
    assert_eq!(last[1], "What was shown, by cost_us:");
    assert!(
        last[0].starts_with("Against before (Slow.), unherd is better in 1 of 1: cost us 4.0"),
        "{last:?}"
    );
    let again = place.run("bench fake --out record --seed 5 --keep-disturbed");
    assert_eq!(again.code, Some(2), "a record is never written over");
}

/// What stands in for standard error below is the pseudo-terminal of script(1).
#[test]
fn first_tables_are_on_the_terminal_alone() {
    let place = Place::new();
    let unherd = place.command("bench fake --keep-disturbed");
    let line = format!("'{}' bench fake --keep-disturbed >result", env!("CARGO_BIN_EXE_unherd"));
    let mut script = std::process::Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.current_dir(place.path()).stdin(std::process::Stdio::null());
    script.envs(unherd.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(output) = script.output() else {
        eprintln!("skipped: there is no script(1)");
        return;
    };
    let terminal = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{terminal}");
    assert_eq!(terminal.matches("1 of 12 rounds, not judged yet").count(), 1, "{terminal}");
    assert!(!terminal.contains("FASTER"), "{terminal}");
    let result = fs::read_to_string(place.path().join("result")).unwrap();
    assert!(result.contains("FASTER") && !result.contains("not judged yet"), "{result}");
}

/// Its first round takes a second, so the 99 others are expected to take more than one minute.
#[test]
fn long_bench_shows_tables_without_terminal() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,sluggish --rounds 100 --keep-disturbed");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = ran.stderr.lines().next().unwrap();
    let is_told = told.starts_with("unherd: 99 more rounds take about ");
    assert!(is_told && told.ends_with(" minutes"), "{ran:?}");
    assert_eq!(ran.stderr.matches("\n1 of 100 rounds, not judged yet\n").count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("    sluggish  "), "{ran:?}");
    assert!(!ran.stderr.contains("FASTER") && !ran.stdout.contains("not judged"), "{ran:?}");
}

#[test]
fn json_is_the_contract_and_nothing_else() {
    let place = Place::new();
    let ran = place
        .run("bench fake --threads 1,2 --buckets 1,16 --format json --rounds 8 --keep-disturbed");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.starts_with("unherd: the record is in out/fake-"), "{last}");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["schema"], "unherd.bench/1");
    assert_eq!(result["workload"], "fake");
    assert_eq!(result["rounds"].as_array().unwrap().len(), 8 * 4 * 2);
    let comparisons = result["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 4);
    for comparison in comparisons {
        assert_eq!(comparison["verdict"], "faster");
        let (low, high) =
            (comparison["low"].as_f64().unwrap(), comparison["high"].as_f64().unwrap());
        assert!(low > 3.9 && high < 4.1, "{comparison}");
    }
    let points: Vec<_> = comparisons
        .iter()
        .map(|c| (c["threads"].clone(), c["params"]["buckets"].clone()))
        .collect();
    assert!(points.contains(&(Value::from(2), Value::from("16"))), "{points:?}");
    let out = fs::read_dir(place.path().join("out")).unwrap();
    assert_eq!(out.count(), 2, "kept unless told, and a .gitignore");
}

#[test]
fn the_seed_makes_the_order_again() {
    let place = Place::new();
    let order = |seed: u64| -> Vec<String> {
        let ran = place.run(&format!("bench fake --format json --seed {seed}"));
        let result: Value = serde_json::from_str(&ran.stdout).unwrap();
        let rounds = result["rounds"].as_array().unwrap();
        rounds.iter().map(|round| round["impl"].to_string()).collect()
    };
    let first = order(1);
    fs::remove_dir_all(place.path().join("out")).unwrap();
    assert_eq!(first, order(1));
    let others: Vec<_> = (2..6).map(order).collect();
    assert!(others.iter().any(|other| *other != first));
}

#[test]
fn disturbed_rounds_are_repeated_and_marked() {
    let place = Place::new();
    let mut neighbour =
        std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let ran = place.run("bench fake --with before,slow --rounds 6 --out record --format json");
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    let marks = result["marks"].to_string();
    if marks.contains("cannot be seen") {
        println!("skipped: {marks}");
        return;
    }
    assert!(marks.contains("other programs used more than 5 % of the processors"), "{marks}");
    assert!(marks.contains("were run again for it"), "{marks}");
    let told = "unherd: other programs use the processors, so some processes are run again\n";
    assert_eq!(ran.stderr.matches(told).count(), 1, "{ran:?}");
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 12, "one attempt of each counts");
    let shares = rounds.iter().map(|round| &round["surroundings"]["foreign_cpu_share"]);
    assert!(shares.filter(|share| share.as_f64().unwrap() > 0.05).count() >= 6, "{rounds:#?}");
    assert!(rounds[0]["surroundings"]["load_1min"].is_f64(), "{rounds:#?}");
}

#[test]
fn several_bases_are_not_compared_with_each_other() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,idle,unherd --base before,idle --rounds 8");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let last: Vec<&str> = verdicts(&ran).take(3).collect();
    assert_eq!(last[2], "What was shown, by cost_us:");
    assert!(
        last[1].starts_with("Against before (Slow.), unherd is better in 1 of 1: "),
        "{last:?}"
    );
    assert!(last[0].starts_with("Against idle (Wakes nobody.), unherd is "), "{last:?}");
    assert!(!last[0].contains(" better ") && !last[0].contains(" worse "), "{last:?}");
    let all = place.run("bench fake --with before,unherd --base before,unherd");
    assert_eq!(all.code, Some(2), "{all:?}");
}

#[test]
fn unused_mechanism_is_not_exercised() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,idle");
    assert!(ran.stdout.contains("NOT EXERCISED"), "{ran:?}");
}

#[test]
fn aa_is_same_and_plant_is_found() {
    let place = Place::new();
    let run = |options: &str| {
        place.run(&format!("bench fake --with unherd --rounds 6 --keep-disturbed {options}"))
    };
    let same = run("--aa");
    assert!(same.stdout.contains("SAME"), "{same:?}");
    let planted = run("--aa --plant 5% --out planted");
    assert!(
        planted.stdout.contains("unherd#2  SLOWER           1.05 × slower (1.05"),
        "{planted:?}"
    );
    let repeated = run("--repeat 3 --out trials");
    assert_eq!(repeated.code, Some(0), "{repeated:?}");
    assert!(repeated.stdout.contains("0 of 3 A/A benches called different"), "{repeated:?}");
    let found = run("--repeat 3 --plant 5% --out found");
    assert!(found.stdout.contains("found in 3 of 3 comparisons"), "{found:?}");
    assert!(place.path().join("found/0003/result.json").exists());
}

#[test]
fn a_profile_is_taken_or_its_absence_explained() {
    let place = Place::new();
    let ran = place.run("bench fake --profile");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("unherd, one more round under the sampler:"), "{ran:?}");
    assert!(ran.stdout.contains("samples arrived") || ran.stdout.contains("no profile: "));
}

#[test]
fn a_trace_is_taken_or_its_absence_explained() {
    let place = Place::new();
    let ran = place.run("bench fake --trace --out record");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let result = fs::read_to_string(place.path().join("record/result.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["traces"].as_array().unwrap().len(), 2);
    assert_eq!(result["rounds"].as_array().unwrap().len(), 24, "the traced are not judged");
    if ran.stdout.contains("unherd: no trace: ") {
        assert!(ran.stdout.contains("no trace: not permitted to load eBPF programs"), "{ran:?}");
        return;
    }
    for implementation in ["before", "unherd"] {
        let file = format!("traces/{implementation}-0.json");
        let title = format!("{implementation}, one more round under the tracer ({file}):");
        assert!(ran.stdout.contains(&title), "{ran:?}");
        let report = fs::read_to_string(place.path().join("record").join(file)).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["schema"], "unherd.trace/1");
        assert!(report["summary"]["calls"].as_u64().unwrap() > 0);
    }
    assert!(ran.stdout.contains("Top 10 callers of scheduling functions"), "{ran:?}");
}

#[test]
fn a_traced_round_that_fails_costs_no_result() {
    let place = Place::new();
    let ran = place.run("bench fake --with untraceable,unherd --trace --out record");
    if ran.stdout.contains("no trace: not permitted to load eBPF programs") {
        println!("skipped: nobody may trace here");
        return;
    }
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("FASTER"), "{ran:?}");
    let why = "untraceable: no trace: the round failed: it ended with exit code 4";
    assert!(ran.stdout.contains(why), "{ran:?}");
    assert!(ran.stdout.contains("unherd, one more round under the tracer"), "{ran:?}");
    assert!(ran.stderr.contains("round 13 of untraceable: it ended with exit code 4"), "{ran:?}");
    assert!(ran.stderr.contains("  | somebody looks"), "{ran:?}");
    let result = fs::read_to_string(place.path().join("record/result.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["comparisons"].as_array().unwrap().len(), 1);
    assert!(result["traces"][0]["why"].is_string() && result["traces"][1]["file"].is_string());
}

#[test]
fn root_tracer_runs_outside_memory_cgroup() {
    let place = Place::new();
    let ran = place.run("bench fakefiles --with caged --aa --memory 64M --trace");
    if ran.code == Some(2) && ran.stderr.contains("cgroup") {
        println!("skipped: {}", ran.stderr);
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("under the tracer") || ran.stdout.contains("no trace: "));
}

#[test]
fn what_there_is_to_run_is_listed() {
    let place = Place::new();
    let all = place.run("workloads");
    assert!(all.stdout.contains("\n  hackbench: Messages between groups"), "{}", all.stdout);
    let adapter = place.run("workloads hackbench");
    assert!(adapter.stdout.starts_with("about = \"Messages"), "{}", adapter.stdout);
    assert_eq!(all.code, Some(0));
    assert!(all.stdout.contains("fake: Measures nothing."), "{all:?}");
    assert!(all.stdout.contains("pagewait:"), "{all:?}");
    let one = place.run("workloads fake");
    assert!(one.stdout.contains("--buckets  Buckets. [default: 16]"), "{one:?}");
    assert!(one.stdout.contains("(less is better, primary)"), "{one:?}");
    let help = place.run("bench fake --help");
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("Options of fake:") && help.stdout.contains("--buckets"));
    let plain = place.run("bench --help");
    assert!(!plain.stdout.contains("--buckets") && plain.stdout.contains("--rounds"));
    assert!(plain.stdout.contains("`unherd workloads WORKLOAD` lists them"), "{plain:?}");
}

#[test]
fn files_are_removed_after_each_round() {
    let place = Place::new();
    let ran = place.run("bench fakefiles --with before --aa --dir . --without-cgroup");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("no memory cgroup (--without-cgroup)"), "{ran:?}");
    assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn root_memory_is_bounded_by_a_cgroup() {
    let place = Place::new();
    let ran = place.run("bench fakefiles --with caged --aa --memory 64M");
    if ran.code == Some(2) && ran.stderr.contains("cgroup") {
        println!("skipped: {}", ran.stderr);
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn root_a_bystander_runs_beside_a_tracer_of_another() {
    let place = Place::new();
    let ran =
        place.run("load traced --with bystander --threads 2 --seed 1 --dir . --param loops=5000");
    if ran.code != Some(0) {
        // Nobody may trace here, or perf is not installed.
        let why = ["not permitted", "126", "127"];
        assert!(why.iter().any(|why| ran.stderr.contains(why)), "{ran:?}");
        println!("skipped: {}", ran.stderr);
        return;
    }
    let round: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert!(round["metrics"]["operations_per_s"].as_f64().unwrap() > 0.0, "{ran:?}");
    // The tracer was there, and was killed before it could report.
    assert_eq!(fs::read(place.path().join("report")).unwrap(), b"", "{ran:?}");
}

#[test]
fn every_command_has_help_with_examples() {
    let place = Place::new();
    let top = place.run("help");
    assert_eq!((top.code, &*top.stdout), (Some(0), &*place.run("--help").stdout), "{top:?}");
    let commands = top.stdout.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<_> = commands.filter(|it| !it.is_empty() && !it.starts_with('-')).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for name in commands.into_iter().filter(|name| *name != "help") {
        let help = place.run(&format!("help {name}"));
        assert_eq!(help.code, Some(0), "{help:?}");
        assert!(help.stdout.contains("\nExample"), "{name}: {}", help.stdout);
    }
    let trace = place.run("trace ls -la");
    assert!(trace.stderr.contains("'ls' found; the command stands behind --"), "{trace:?}");
}
