//! `unherd compare`: any commands, well behaved or not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::place::{Place, Ran};

/// Runs `unherd compare` with these words.
fn compare(place: &Place, words: &[&str]) -> Ran {
    let output = place.command("compare").args(words).output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs scripts for the shell, six rounds.
fn shells(place: &Place, options: &[&str], scripts: &[&str]) -> Ran {
    let mut words = vec!["--shell", "--keep-disturbed"];
    if !options.contains(&"--out") {
        words.extend(["--out", "record"]);
    }
    if !options.iter().any(|option| ["--rounds", "--until"].contains(option)) {
        words.extend(["--rounds", "8"]);
    }
    words.extend(options);
    for script in scripts {
        words.extend(["--", script]);
    }
    compare(place, &words)
}

fn json(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn the_verdict_is_the_first_and_the_last_line() {
    let place = Place::new();
    let ran = shells(
        &place,
        &["--metric", "cost_us=cost: (.*)", "--names", "old,new"],
        &["echo cost: 100", "echo cost: 105"],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let verdict = "new is slower than old: cost_us 1.05 × (1.05 to 1.05).";
    // Below it may stand that other programs ran meanwhile.
    let lines: Vec<_> =
        ran.lines().into_iter().filter(|line| !line.starts_with("Other ")).collect();
    assert_eq!((lines[0], lines[lines.len() - 1]), (verdict, verdict), "{}", ran.stdout);
    for part in
        ["old: sh -c echo cost: 100", "8 rounds", "SLOWER", "wall time", "bytes by read calls"]
    {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(ran.stderr.contains("the record is in record"), "{ran:?}");
    let again = place.run("report record");
    assert_eq!(again.stdout, ran.stdout);
}

/// Its first run takes long, so the rounds are expected to.
#[test]
fn long_rounds_are_announced() {
    let place = Place::new();
    let ran = shells(&place, &[], &["[ -e slow ] || { >slow; sleep 0.8; }", "true"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = ran.stderr.lines().next().unwrap();
    let expected = "unherd: 8 rounds of 2 runs take about ";
    assert!(told.starts_with(expected) && told.ends_with(" seconds in all"), "{ran:?}");
}

#[test]
fn metrics_that_are_no_times_are_better_or_worse() {
    let place = Place::new();
    let ran = shells(
        &place,
        &["--metric", "ops_per_s=ops: (.*)"],
        &["echo ops: 100", "echo ops: 50", "echo ops: 200"],
    );
    let lines = ran.lines();
    assert_eq!(lines[0], "B is worse than A: ops_per_s 2.00 × (2.00 to 2.00).", "{ran:?}");
    assert_eq!(lines[1], "C is better than A: ops_per_s 2.00 × (2.00 to 2.00).", "{ran:?}");
}

#[test]
fn json_has_each_round_and_metric() {
    let place = Place::new();
    let ran = shells(
        &place,
        &["--json", "run.p99", "--format", "json"],
        &[r#"echo '{"run": {"p99": 4}}'"#, r#"echo '{"run": {"p99": 2}}'"#],
    );
    assert_eq!(ran.stderr, "unherd: the record is in record\n");
    let result = json(&ran);
    assert_eq!(result["schema"], "unherd.bench/1");
    assert_eq!(result["comparisons"][0]["metric"], "p99");
    assert_eq!(result["comparisons"][0]["verdict"], "faster");
    assert_eq!(result["commands"][1]["label"], "B");
    assert_eq!(result["commands"][1]["words"][2], r#"echo '{"run": {"p99": 2}}'"#);
    let metrics = result["metrics"].as_array().unwrap();
    let of = |name: &str| {
        let metric = metrics.iter().find(|metric| metric["name"] == name).unwrap();
        [&metric["better"], &metric["unit"]].map(|it| it.as_str().unwrap_or("none").to_owned())
    };
    assert_eq!(of("p99"), ["lower", "none"]);
    assert_eq!(of("peak_bytes"), ["lower", "bytes"]);
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 16);
    for metric in ["wall_s", "cpu_s", "context_switches", "minor_faults", "p99"] {
        assert!(rounds.iter().all(|round| round["metrics"][metric].is_number()), "{metric}");
    }
}

#[test]
fn benchmarks_of_others_are_read_and_judged() {
    let place = Place::new();
    let go =
        |ns: &str| format!("printf 'BenchmarkX-2 100 {ns} ns/op\\nBenchmarkY-2 100 7 ns/op\\n'");
    let ran = shells(&place, &["--rounds", "14"], &[&go("10"), &go("20")]);
    let expected =
        "B is slower than A: X-2 ns/op 2.00 × (2.00 to 2.00); B and A are the same within 2 %: Y-2";
    assert!(ran.stdout.starts_with(expected), "{ran:?}");
    let ran = shells(&place, &["--read", "criterion", "--out", "other"], &[&go("10"), &go("20")]);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("its output is not that of criterion"), "{ran:?}");
}

#[test]
fn swept_values_stand_in_the_commands() {
    let place = Place::new();
    let options = ["--sweep", "jobs=1,2,4,8", "--metric", "ops_per_s=ops: (.*)", "--rounds", "12"];
    let ran = shells(&place, &options, &["echo ops: {jobs}", "echo ops: 3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in [
        "B is better than A by ops_per_s: at jobs 1 3.00 × (3.00 to 3.00), at jobs 2 ",
        "  ops_per_s  A  B  B against A\n  jobs 1     1  3  BETTER ",
        "  jobs 4     4  3  WORSE          1.33 × worse (1.33 to 1.33)\n",
        "  A: ops_per_s by jobs; what each one takes of a thread's time\n",
        "contention (σ)  ",
        "12 rounds, each a fresh process",
        "95 % sure that all 4 intervals hold",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert_eq!(place.run("report record").stdout, ran.stdout);
    for (sweep, what) in [
        ("x=1,2", "{x} stands in no command"),
        ("jobs", "has no values"),
        ("jobs=1..4", "has 1..4, which is one value and no range; give NAME=VALUE,VALUE…"),
    ] {
        let refused = shells(&place, &["--sweep", sweep], &["echo {jobs}", "true"]);
        assert_eq!((refused.code, &*refused.stdout), (Some(125), ""), "{refused:?}");
        assert!(refused.stderr.contains(what), "{refused:?}");
    }
    let options = ["--sweep", "jobs=0,1", "--out", "other"];
    let failed = shells(&place, &options, &["exit {jobs}", "true"]);
    assert!(
        failed.stderr.contains("the first run of A at jobs 1: it ended with exit"),
        "{failed:?}"
    );
}

#[test]
fn cpus_and_memory_are_swept() {
    let place = Place::new();
    let options = ["--cpus", "1", "--cgroup", "memory=64M,128M", "--metric", "n=n: (.*)"];
    let ran = shells(&place, &options, &["echo n: $(nproc)", "echo n: 1"]);
    if ran.stderr.contains("cgroup") {
        println!("skipped: {}", ran.stderr);
        return;
    }
    assert!(ran.stdout.contains("  memory 128M  1  1  SAME "), "{ran:?}");
}

#[test]
fn records_are_compared_or_the_reason_is_given() {
    let place = Place::new();
    let record = |out: &str, name: &str, costs: &[u32; 2]| {
        let metric = format!("{name}=cost: (.*)");
        let echo = costs.map(|cost| format!("echo cost: $((  {cost} + $(cat cost) ))"));
        let scripts: Vec<&str> = echo.iter().map(|script| &**script).collect();
        let ran = shells(&place, &["--metric", &metric, "--out", out], &scripts);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    };
    let change = |cost: &str| fs::write(place.path().join("cost"), cost).unwrap();
    change("0");
    record("monday", "cost_us", &[100, 200]);
    change("10");
    record("tuesday", "cost_us", &[100, 200]);
    let ran = place.run("compare monday tuesday");
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    let opening = "monday and tuesday can be compared, but not in pairs: their rounds did not";
    assert!(ran.stdout.starts_with(opening), "{ran:?}");
    for line in ["1.10 × (1.10 to 1.10)  WORSE", "1.05 × (1.05 to 1.05)  WORSE", "8 and 8 rounds"]
    {
        assert!(ran.stdout.contains(line), "{line}: {ran:?}");
    }
    let compared = json(&place.run("compare monday tuesday --format json"));
    assert_eq!(compared["schema"], "unherd.records/1");
    let line = &compared["comparisons"][0];
    assert_eq!((&line["impl"], &line["verdict"]), (&"A".into(), &"worse".into()), "{line}");
    assert_eq!(line["second_by_first"].as_f64().map(|it| (100.0 * it).round()), Some(110.0));
    record("other-metric", "cost_ms", &[100, 200]);
    record("other-side", "cost_us", &[100, 300]);
    let some = place.run("compare monday other-side").stdout;
    assert!(some.contains("Not compared:\n  * B: it was 'sh -c echo cost"), "{some}");
    let plan = fs::read_to_string(place.path().join("tuesday/plan.json")).unwrap();
    let machine = plan.replace("\"kernel\": \"", "\"kernel\": \"Other ");
    assert_ne!(plan, machine);
    fs::create_dir(place.path().join("elsewhere")).unwrap();
    fs::write(place.path().join("elsewhere/plan.json"), machine).unwrap();
    for (line, what) in [
        ("monday other-metric", "they judge other metrics (cost_us; cost_ms)"),
        ("monday elsewhere", "monday and elsewhere cannot be compared: the machines differ"),
        ("monday none", "none is not the directory of a record; commands stand behind --"),
        ("monday .", ". is not the directory of a record; name one that --out named"),
        ("monday ./monday", "monday and ./monday are the same record"),
        ("monday", "or name two records"),
        ("monday tuesday --rounds 8", "cannot be used with"),
    ] {
        let ran = place.run(&format!("compare {line}"));
        assert_eq!((ran.code, &*ran.stdout), (Some(125), ""), "{line}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{line}: {ran:?}");
        assert!(ran.stderr.contains(what), "{line}: {ran:?}");
    }
}

#[test]
fn repeated_comparisons_are_counted() {
    let place = Place::new();
    let options = |out: &'static str, format: &'static str| {
        ["--metric", "cost_us=cost: (.*)", "--repeat", "3", "--out", out, "--format", format]
    };
    let same = shells(&place, &options("same", "json"), &["echo cost: 5", "echo cost: 5"]);
    let result = json(&same);
    assert_eq!((same.code, &result["different"]), (Some(0), &0.into()), "{same:?}");
    let slower = shells(&place, &options("slower", "text"), &["echo cost: 5", "echo cost: 6"]);
    assert_eq!(slower.code, Some(0), "{slower:?}");
    let found = "8 rounds each, seed ";
    assert!(slower.stdout.contains(found), "{slower:?}");
    assert!(slower.stdout.contains("the second was found slower in 3 of 3 comparisons"));
    let faster = shells(&place, &options("faster", "text"), &["echo cost: 6", "echo cost: 5"]);
    assert_eq!(faster.code, Some(1), "{faster:?}");
    assert!(place.path().join("faster/0003/result.json").exists());
}

#[test]
fn adapter_of_a_user_gives_command_and_metrics() {
    let place = Place::new();
    let adapter = "\
about = 'Prints a rate.'
install = 'nothing'
setup = 'echo 10 >\"$UNHERD_DIR/rate\"'
script = 'echo \"rate: $(($(cat \"$UNHERD_DIR/rate\") + ${1:-0}))\"'
installed = 'true'

[[metric]]
name = 'rate'
pattern = 'rate: ([0-9]+)'
better = 'higher'
";
    fs::write(place.path().join("own.toml"), adapter).unwrap();
    let options = ["--adapter", "own.toml", "--dir", ".", "--rounds", "8", "--keep-disturbed"];
    let ran = compare(&place, &[&options[..], &["--out", "record", "--", "--", "-2"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let verdict = "B is worse than A: rate 1.25 × (1.25 to 1.25).\n";
    assert!(ran.stdout.starts_with(verdict), "{ran:?}");
    assert!(ran.stdout.contains("\nA: own\nB: own -2\n"), "{ran:?}");
    assert_eq!(place.run("report record").stdout, ran.stdout);
    assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new());
    let own = ["--adapter", "own.toml", "--dir", ".", "--rounds", "8", "--aa", "--out", "aa"];
    let ran = compare(&place, &own);
    let first = ran.stdout.lines().next().unwrap();
    assert!(
        first.starts_with("A and A again are the same command, so this is chance: "),
        "{ran:?}"
    );
}

#[test]
fn fail_on_slower_exits_with_one() {
    let place = Place::new();
    let metric = ["--metric", "cost_us=cost: (.*)"];
    let run = |limit: &str, out: &str, cost: &str| {
        let options = [&metric[..], &["--fail-on", limit, "--out", out]].concat();
        let cost = format!("echo cost: {cost}");
        compare(
            &place,
            &[&["--shell", "--rounds", "8"], &options[..], &["--", "echo cost: 100", "--", &cost]]
                .concat(),
        )
    };
    let failed = run("slower", "a", "104");
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let last = failed.stderr.lines().last().unwrap();
    let expected = "unherd: cost_us of B is surely worse than that of A (--fail-on slower)";
    assert_eq!(last, expected);
    assert_eq!(run("slower=3%", "b", "104").code, Some(1));
    assert_eq!(run("slower=5%", "c", "104").code, Some(0));
    assert_eq!(run("slower", "d", "101").code, Some(0), "within delta");
    assert_eq!(run("slower", "e", "90").code, Some(0), "faster");
}

#[test]
fn exit_code_one_means_surely_worse_alone() {
    let place = Place::new();
    let code = |out: &str, options: &[&str], script: &str| {
        let metric = ["--metric", "cost_us=cost: (.*)", "--fail-on", "slower", "--out", out];
        let ran = shells(&place, &[&metric, options].concat(), &["echo cost: 100", script]);
        ran.code
    };
    assert_eq!(code("worse", &[], "echo cost: 200"), Some(1));
    assert_eq!(code("failing", &[], "exit 1"), Some(125));
    assert_eq!(code("option", &["--roundz", "8"], "echo cost: 200"), Some(125));
    // Its eleventh run fails, so a difference was found by then.
    let late = "echo x >>calls; [ $(wc -l <calls) -ne 11 ] && echo cost: 200";
    assert_eq!(code("late", &["--rounds", "14"], late), Some(125));
    // Nobody reads the text, and the code is there all the same.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = place.command("compare --shell --rounds 8 --fail-on slower --out unread");
    unread.args(["--metric", "cost_us=cost: (.*)", "--", "echo cost: 1", "--", "echo cost: 2"]);
    assert_eq!(unread.stdout(writer).status().unwrap().code(), Some(1));
    fs::create_dir(place.path().join("damaged")).unwrap();
    fs::write(place.path().join("damaged/plan.json"), "{").unwrap();
    assert_eq!(place.run("compare --resume damaged").code, Some(125));
    assert_eq!(place.run("compare damaged damaged").code, Some(125));
    assert_eq!(place.run("report damaged").code, Some(2), "which is no comparison");
}

#[test]
fn until_stops_when_narrow_enough() {
    let place = Place::new();
    let options = ["--metric", "cost_us=cost: (.*)", "--until", "±1%", "--format", "json"];
    let result = json(&shells(&place, &options, &["echo cost: 100", "echo cost: 104"]));
    let line = &result["comparisons"][0];
    // Twelve of the pilot, and twelve that are judged: there is no scatter.
    assert_eq!((&line["pairs"], &line["verdict"]), (&12.into(), &"slower".into()), "{line}");
    assert_eq!(result["rounds"].as_array().unwrap().len(), 48);
    let text = place.run("report record");
    let expected = "12 rounds after a pilot of 12 (±1 %)";
    assert!(text.stdout.contains(expected), "{}", text.stdout);
}

#[test]
fn around_each_process_something_may_be_done() {
    let place = Place::new();
    let options = [
        "--prepare",
        "echo $UNHERD_SIDE >>prepared; echo ready >state",
        "--cleanup",
        "rm state",
        "--check",
    ];
    let ran = shells(&place, &options, &["cat state", "cat ./state"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let prepared = fs::read_to_string(place.path().join("prepared")).unwrap();
    // Eight rounds and the first run.
    assert_eq!(prepared.matches("A\n").count(), 9, "{prepared}");
    assert_eq!(prepared.matches("B\n").count(), 9, "{prepared}");
    let broken = shells(&place, &["--prepare", "exit 7", "--out", "b"], &["true", "true"]);
    assert_eq!(broken.code, Some(125), "{broken:?}");
    let line = "unherd: --prepare of A (exit 7): it ended with exit code 7; run it by hand to see \
                why\n";
    assert_eq!(broken.stderr, line);
}

#[test]
fn what_cannot_be_compared_is_refused_in_a_line() {
    let place = Place::new();
    for (name, interpreter) in [("orphan", "/nonexistent/interpreter"), ("brief", "/bin/sh")] {
        let path = place.path().join(name);
        fs::write(&path, format!("#!{interpreter}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (words, what) in [
        (&["--", "true"][..], "one command is not enough"),
        (&["--"], "write unherd compare -- A… -- B…"),
        (&[], "write unherd compare -- A… -- B…"),
        (&["true", "--", "false"], "write unherd compare -- A… -- B…"),
        (&["true", "false", "-n", "3"], "'-n' found; --rounds says how often"),
        (&["--warmup", "3", "--", "true", "--", "true"], "runs once before the rounds anyway"),
        (&["--threads", "4", "--", "true", "--", "true"], "--sweep threads=1,2,4 and {threads}"),
        (&["--seeed", "4", "--", "true", "--", "true"], "a similar argument exists: '--seed'"),
        (&["--resume", "record", "--csv", "x"], "pages: unherd report DIR --html FILE"),
        (&["--resume"], "a value is required for '--resume <DIR>' but none was supplied; see"),
        (&["--exit-code", "256", "--", "true", "--", "true"], "256 is not in 0..=255"),
        (&["--repeat", "0", "--", "true", "--", "true"], "give a whole number, 1 or more"),
        (&["--", "true", "--", "/tmp"], "B: /tmp: that is a directory; see how the command is"),
        (&["--", "true", "--"], "a command is empty; write them as: -- A… -- B…"),
        (&["--", "true", "--", "no-such-program"], "B: no-such-program: there is no such program"),
        (&["--", "true", "--", "./absent"], "B: ./absent: there is no such program"),
        (&["--", "true", "--", "./orphan"], "it is there, and the interpreter that it names is"),
        (
            &["--prepare", "rm -f brief", "--", "true", "--", "./brief"],
            "(os error 2); it was there a moment ago; see what removes it",
        ),
        (&["--rounds", "3", "--", "true", "--", "false"], "exit code 1, not 0"),
        (&["--rounds", "3", "--", "true", "--", "true"], "give --rounds 7 or more"),
        (&["--rounds", "9", "--until", "1%", "--", "true", "--", "true"], "both say when to stop"),
        (&["--until", "0%", "--", "true", "--", "true"], "--until is out of range"),
        (
            &["--until", "1", "--", "true", "--", "true"],
            "--until is out of range, for 1 means 100 %; give a share such as 1%",
        ),
        (&["--metric", "x=(", "--", "true", "--", "true"], "unclosed group"),
        (&["--metric", "x=1", "--", "true", "--", "true"], "printed no x: nothing matches '1'"),
        (&["--judge", "wal_s", "--", "true", "--", "true"], "did you mean 'wall_s'?"),
        (&["--more-is-better", "y", "--", "true", "--", "true"], "no metric is called 'y'"),
        (&["--fail-on", "faster", "--", "true", "--", "true"], "give slower, or slower=5%"),
        (&["--fail-on", "slower=5", "--", "true", "--", "true"], "that is 500 %: give slower=5%"),
        (&["--cgroup", "cpu=3", "--", "true", "--", "true"], "give memory=512M"),
        (&["--cgroup", "memory=1K", "--", "true", "--", "true"], "give at least 1M"),
        (&["--cgroup", "memory=1M,0", "--", "true", "--", "true"], "give at least 1M"),
        (&["--cpus", "0", "--", "true", "--", "true"], "give 1 to"),
        (&["--read", "junit", "--", "true", "--", "true"], "there are: criterion"),
        (&["--shell", "--", "a", "b", "--", "c"], "quote each command"),
        (&["--names", "x", "--", "true", "--", "true"], "1 names for 2 commands"),
        (&["--aa", "--", "true", "--", "true"], "--aa runs one command twice"),
    ] {
        let ran = compare(&place, words);
        assert_eq!(ran.code, Some(125), "{words:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{words:?}");
        let first = ran.stderr.lines().next().unwrap();
        assert!(first.starts_with("unherd: ") && first.contains(what), "{words:?}: {ran:?}");
        assert!(!place.path().join("out").exists(), "{words:?} has left a record");
    }
}

#[test]
fn a_command_that_fails_in_one_round_costs_that_round() {
    let place = Place::new();
    // The first run, then nine rounds; the tenth fails.
    let late = "echo x >>calls; [ $(wc -l <calls) -ne 11 ] || { echo out of luck >&2; exit 3; }; \
                echo cost: 50";
    let options = ["--metric", "cost_us=cost: (.*)", "--rounds", "14"];
    let ran = shells(&place, &options, &["echo cost: 100", late]);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stdout.contains("B is faster than A"), "{ran:?}");
    assert!(ran.stdout.contains("9 of 14 rounds"), "{ran:?}");
    assert!(ran.stderr.contains("round 10 of B: it ended with exit code 3"), "{ran:?}");
    let resume = format!("below; `{} compare --resume record`", env!("CARGO_BIN_EXE_unherd"));
    assert!(ran.stderr.contains(&resume), "{ran:?}");
    assert!(ran.stderr.contains("  | out of luck"), "{ran:?}");
    assert!(
        ran.stdout.contains("run: round 10 of B: it ended with exit code 3, not 0 (--exit-code)\n")
    );
    let resumed = place.run("compare --resume record");
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.stdout.contains("14 rounds, each"), "{resumed:?}");
}

#[test]
fn failed_preparation_names_the_record() {
    let place = Place::new();
    // Two first runs and three rounds of two each; the ninth is in the fourth round.
    let prepare = "echo x >>calls; [ $(wc -l <calls) -ne 9 ] || { echo no room; exit 1; }";
    let options = ["--prepare", prepare, "--rounds", "14"];
    let ran = shells(&place, &options, &["true", "true"]);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stdout.contains("3 of 14 rounds"), "{ran:?}");
    assert!(ran.stdout.contains("run: --prepare of ") && !ran.stdout.contains("below"), "{ran:?}");
    let [first, output] = ran.stderr.lines().collect::<Vec<_>>()[..] else { panic!("{ran:?}") };
    let end = format!(
        "it ended with exit code 1; its output is below; `{} compare --resume record` goes on with \
         what has finished",
        env!("CARGO_BIN_EXE_unherd")
    );
    assert!(first.starts_with("unherd: --prepare of ") && first.ends_with(&end), "{ran:?}");
    assert_eq!(output, "  | no room");
    let resumed = place.run("compare --resume record");
    assert!(resumed.stdout.contains("14 rounds, each"), "{resumed:?}");
    // Where there is no pair yet: in the first round, and in a pilot.
    for (record, options) in [("first", ["--rounds", "14"]), ("pilot", ["--until", "1%"])] {
        let nth = if record == "first" { 4 } else { 9 };
        let prepare = format!("echo x >>{record}s; [ $(wc -l <{record}s) -ne {nth} ]");
        let options = [&["--prepare", &prepare, "--out", record], &options[..]].concat();
        let ran = shells(&place, &options, &["true", "true"]);
        assert!(ran.code == Some(125) && ran.stdout.is_empty(), "{ran:?}");
        let program = env!("CARGO_BIN_EXE_unherd");
        let end = format!(
            "exit code 1; run it by hand to see why; `{program} compare --resume {record}` goes on \
             with what has finished\n"
        );
        assert!(ran.stderr.ends_with(&end), "{ran:?}");
    }
}

#[test]
fn replaced_program_is_not_resumed() {
    let place = Place::new();
    let write = |text: &str| {
        let path = place.path().join("tool");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("echo x >>calls; [ $(wc -l <calls) -ne 8 ] && echo cost: 1");
    let words = ["--rounds", "8", "--metric", "cost_us=cost: (.*)", "--out", "record"];
    let sides = ["--", "echo", "cost: 1", "--", "./tool"];
    let cut = compare(&place, &[&words[..], &sides].concat());
    assert_eq!(cut.code, Some(125), "{cut:?}");
    write("echo cost: 5");
    let resumed = place.run("compare --resume record");
    assert_eq!((resumed.code, &*resumed.stdout), (Some(125), ""), "{resumed:?}");
    let refusal = "the programs have changed since the first rounds of record; put the old ones";
    assert!(resumed.stderr.contains(refusal), "{resumed:?}");
}

#[test]
fn output_that_changes_is_refused_with_its_round() {
    let place = Place::new();
    let once = |out: &str, good: &str, bad: &str| {
        fs::write(place.path().join("calls"), "").unwrap();
        let script =
            format!("echo x >>calls; [ $(wc -l <calls) -lt 3 ] && echo {good} || echo {bad}");
        let options = ["--metric", "x=x: (\\S+)", "--check", "--out", out];
        let same = format!("echo {good}");
        let mut words = vec!["--shell", "--rounds", "8"];
        words.extend(options);
        words.extend(["--", &same, "--", &script]);
        let ran = compare(&place, &words);
        assert_eq!(ran.code, Some(125), "{ran:?}");
        if bad != "x: 2" {
            let few = "Nothing was shown: a verdict takes at least 6 pairs of figures, not 1.\n";
            assert!(ran.stdout.starts_with(few), "{ran:?}");
        }
        ran.stderr.lines().next().unwrap().to_owned()
    };
    assert!(once("a", "x: 1", "y: 1").contains("round 2 of B: it printed no x"));
    assert!(once("b", "x: 1", "x: 1 x: 2").contains("round 2 of B: it printed x twice"));
    assert!(once("c", "x: 1", "x: -1").contains("round 2 of B: its x is -1"));
    assert!(once("d", "x: 1", "x: inf").contains("round 2 of B: its x is inf"));
    assert!(once("e", "x: 1", "x: one").contains("round 2 of B: its x is 'one'"));
    assert!(once("f", "x: 1", "x: 2").contains("round 2: the implementations disagree"));
}

#[test]
fn endless_and_verbose_commands_are_survived() {
    let place = Place::new();
    let endless = shells(&place, &["--timeout", "0.3"], &["true", "sleep 1000"]);
    assert_eq!(endless.code, Some(125), "{endless:?}");
    let expected = "the first run of B: it had not ended after 0.3 s (--timeout) and was killed";
    assert!(endless.stderr.contains(expected) && !endless.stderr.contains("below"), "{endless:?}");
    let flood = shells(
        &place,
        &["--check"],
        &[
            "head -c 12000000 /dev/zero",
            "yes x | head -c 12000000 | tr -d -c '' ; head -c 12000000 /dev/zero",
        ],
    );
    assert_eq!(flood.code, Some(0), "{flood:?}");
    let tty = shells(&place, &["--out", "tty"], &["true", ": </dev/tty"]);
    assert!(tty.stderr.contains("it has neither terminal nor input here"), "{tty:?}");
}

#[test]
fn same_commands_and_programs_are_named() {
    let place = Place::new();
    let ran = compare(&place, &["--rounds", "8", "--out", "a", "--aa", "--", "true"]);
    assert!(ran.stdout.contains("A and A again are the same command: any difference"), "{ran:?}");
    let unnamed = compare(&place, &["--rounds", "8", "--aa", "--", "true"]);
    assert_eq!(unnamed.code, Some(0), "{unnamed:?}");
    assert_eq!(fs::read_to_string(place.path().join("out/.gitignore")).unwrap(), "*\n");
    let copy = place.path().join("copy");
    fs::copy("/bin/true", &copy).unwrap();
    let words = ["--rounds", "8", "--out", "b", "--", "/bin/true", "--", "./copy"];
    let ran = compare(&place, &words);
    assert!(ran.stdout.contains("the programs of A and B are the same, byte by byte"), "{ran:?}");
}

#[test]
fn a_record_has_nowhere_to_go() {
    let place = Place::new();
    fs::write(place.path().join("file"), "").unwrap();
    let ran = compare(&place, &["--out", "file/x", "--rounds", "8", "--", "true", "--", "true"]);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("cannot make the record's directory"), "{ran:?}");
    // Neither a command nor a build runs for it, and nothing is made above it.
    let words = ["--build", "touch built", "--out", "a/b/c", "--", "touch", "ran", "--", "true"];
    let ran = compare(&place, &words);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    let line = "unherd: a/b/c: cannot make the record's directory: No such file or directory \
                (os error 2); make the directory above it, or give another by --out\n";
    assert_eq!(ran.stderr, line);
    // The place of all records cannot be made either.
    fs::write(place.path().join("out"), "").unwrap();
    let line = "unherd: out: cannot make the record's directory: File exists (os error 17); give a \
                directory that can be written by --out\n";
    let sides = ["--build", "touch built", "--", "touch", "ran", "--", "true"];
    assert_eq!(compare(&place, &sides).stderr, line);
    assert_eq!(place.run("prove --cure wake-one -- touch ran").stderr, line);
    for name in ["built", "ran", "a"] {
        assert!(!place.path().join(name).exists(), "{name}");
    }
    let plan = compare(&place, &[&["--plan", "p", "--blocks", "2"], &sides[2..]].concat());
    assert_eq!(plan.code, Some(0), "a plan is no record: {plan:?}");
}

#[test]
fn two_commits_are_built_and_compared() {
    let place = Place::new();
    let words = |revisions: [&str; 2], out: &str| {
        let line = [
            "--git",
            revisions[0],
            revisions[1],
            "--build",
            "cp cost built",
            "--dir",
            ".",
            "--rounds",
            "8",
            "--metric",
            "cost_us=cost: (.*)",
            "--out",
            out,
            "--",
            "cat",
            "built",
        ];
        compare(&place, &line)
    };
    if Command::new("git").arg("--version").output().is_err() {
        let ran = words(["one", "two"], "a");
        assert_eq!(ran.code, Some(125), "{ran:?}");
        assert!(
            ran.stderr.contains("cannot run git") && ran.stderr.contains("install it"),
            "{ran:?}"
        );
        println!("skipped: no git (Debian: git)");
        return;
    }
    let git = |line: &str| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(line.split(' '));
        let output = command.current_dir(place.path()).output().unwrap();
        assert!(output.status.success(), "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    let outside = words(["one", "two"], "a");
    assert!(
        outside.stderr.contains("--git: . is in no repository of git(1); go to"),
        "{outside:?}"
    );
    git("init -q -b main .");
    for (cost, tag) in [(100, "one"), (50, "two")] {
        fs::write(place.path().join("cost"), format!("cost: {cost}\n")).unwrap();
        git("add cost");
        git(&format!("commit -q -m {tag}"));
        git(&format!("tag {tag}"));
    }
    let ran = words(["one", "two"], "a");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("two is faster than one: cost_us 2.00 ×"), "{ran:?}");
    let commit = git("rev-parse --short=12 two");
    assert!(ran.stdout.contains(&format!("\ntwo: cat built (at {})\n", commit.trim())), "{ran:?}");
    assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new());
    let absent = words(["one", "three"], "b");
    assert_eq!(absent.code, Some(125), "{absent:?}");
    assert!(absent.stderr.contains("--git: no commit is called three; see git log"), "{absent:?}");
    let same = words(["one", "one"], "c");
    assert_eq!(same.code, Some(125), "{same:?}");
}

#[test]
fn root_memory_is_bounded_by_a_cgroup() {
    let place = Place::new();
    let ran =
        shells(&place, &["--cgroup", "memory=64M"], &["true", "head -c 200M /dev/zero | tail"]);
    if ran.stderr.contains("no permission") || ran.stderr.contains("no memory cgroup") {
        println!("skipped: {}", ran.stderr);
        return;
    }
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("it needs more memory than --cgroup gives"), "{ran:?}");
}

#[test]
fn difference_of_the_first_build_is_not_confirmed() {
    let place = Place::new();
    let compared = |name: &str, build_b: &str| {
        let build = ["--build-a", "echo 100 >a", "--build-b", build_b];
        let metric = ["--metric", "cost_us=cost: (.*)", "--confirm", "--fail-on", "slower"];
        let options = [&build[..], &metric, &["--rounds", "12", "--out", name]].concat();
        shells(&place, &options, &["echo cost: $(cat a)", "echo cost: $(cat b)"])
    };
    let luck = compared("luck", "echo $((110 - 10 * UNHERD_LAYOUT)) >b");
    assert_eq!(luck.code, Some(0), "{luck:?}");
    assert!(luck.stdout.starts_with("B is slower than A: cost_us 1.10"), "{luck:?}");
    let last =
        "not confirmed: cost_us of B against A may differ by the layout of this build alone.";
    assert_eq!(luck.lines().last(), Some(&last), "{luck:?}");
    let again = place.run("report luck --markdown -").stdout;
    assert!(again.contains("(1.10 to 1.10), not confirmed with other layouts |"), "{again}");
    let real = compared("real", "echo 110 >b");
    assert_eq!(real.code, Some(1), "{real:?}");
    assert!(real.stdout.ends_with("\nconfirmed: cost_us of B against A.\n"), "{real:?}");
    assert!(place.path().join("real/confirm/result.json").exists());
    let kept = fs::read_to_string(place.path().join("real/result.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["comparisons"][0]["confirmed"], true, "{kept}");
    let page = place.run("report real --html -").stdout;
    assert!(page.contains("(1.10 to 1.10), confirmed with other layouts"), "{page}");
    let equal = compared("equal", "echo 100 >b");
    assert!(
        equal.stdout.ends_with("Nothing differs, so nothing is to be confirmed.\n"),
        "{equal:?}"
    );
}

#[test]
fn only_what_differed_is_confirmed() {
    let place = Place::new();
    let options = ["--sweep", "n=1,2,3", "--metric", "cost_us=cost: (.*)", "--confirm"];
    let script = "echo cost: $(( {n} == 2 ? 200 : 100 )); echo ${#UNHERD_PADDING} >>lengths";
    let options = [&options[..], &["--rounds", "16"]].concat();
    let ran = shells(&place, &options, &["echo cost: 100 # {n}", script]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let plan = fs::read_to_string(place.path().join("record/confirm/plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["cells"].as_array().unwrap().len(), 1, "{plan}");
    assert_eq!(plan["cells"][0]["params"]["n"], "2", "{plan}");
    let lengths = fs::read_to_string(place.path().join("lengths")).unwrap();
    let moved: std::collections::BTreeSet<_> = lengths.lines().filter(|it| *it != "0").collect();
    assert!(moved.len() > 10, "17 processes have an environment of another length: {lengths}");
}
