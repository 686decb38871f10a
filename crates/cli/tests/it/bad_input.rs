//! Everything that the command line or the machine does not allow: exit 2, and one line that says
//! what and what to do.

use crate::place::Place;

/// Runs `line`, which must be refused in one line; gives that line.
fn refusal(place: &Place, line: &str) -> String {
    let ran = place.run(line);
    assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
    assert_eq!(ran.stdout, "", "{line}");
    assert_eq!(ran.stderr.lines().count(), 1, "{line}: {}", ran.stderr);
    assert!(ran.stderr.starts_with("unherd: "), "{line}: {}", ran.stderr);
    assert!(!place.path().join("out").exists(), "{line} has left a record");
    assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new(), "{line}");
    ran.stderr
}

#[test]
fn names_that_nothing_has_get_the_nearest() {
    let place = Place::new();
    for (line, near) in [
        ("bench fak", "no workload is called 'fak'; did you mean 'fake'?"),
        ("bench fake --with unhered", "'unhered'; did you mean 'unherd'?"),
        ("bench fake --base befor", "did you mean 'before'?"),
        ("bench fake --metric cost_ms", "no metric is called 'cost_ms'; did you mean 'cost_us'?"),
        ("bench fake --bucket 3", "'--buckets'; 'unherd workloads fake' lists the options of fake"),
        ("bench fake --xyz 3", "see 'unherd bench --help'; 'unherd workloads fake' lists"),
        ("bench fake --tread 3", "'--threads'"),
        ("workloads pagewiat", "did you mean 'pagewait'?"),
        (
            "workloads hackbenhc",
            "no workload or adapter is called 'hackbenhc'; did you mean 'hackb",
        ),
    ] {
        let said = refusal(&place, line);
        assert!(said.contains(near), "{line}: {said}");
    }
}

/// Wrong usage exits with 2, or with 125 where lower codes are read as a program's; help says so.
#[test]
fn help_tells_codes_of_wrong_usage() {
    let place = Place::new();
    for (command, code) in [("", 2), ("bench", 2), ("trace", 125), ("compare", 125), ("prove", 2)] {
        let wrong = place.run(&format!("{command} --nosuch"));
        assert_eq!((wrong.code, wrong.stderr.lines().count()), (Some(code), 1), "{wrong:?}");
        let help = place.run(&format!("{command} --help"));
        let codes = help.stdout.split("Exit codes: ").nth(1).unwrap_or_else(|| panic!("{help:?}"));
        let told = codes.split_whitespace().any(|word| word == code.to_string());
        assert!(told, "{command}: {codes}");
    }
}

/// A command alone gets a whole line of its own, and nothing of clap's words.
#[test]
fn bare_command_says_how_it_is_written() {
    let place = Place::new();
    for (command, line) in [
        ("bench", "no workload is given; write unherd bench WORKLOAD; 'unherd workloads' lists"),
        ("bench --quick", "no workload is given; write"),
        ("report", "no record is given; write unherd report DIR with the directory that a bench"),
        ("report --html x", "no record is given; write"),
        ("run-block", "a block and its plan are needed; write unherd run-block NUMBER --plan"),
        ("run-block 1", "a block and its plan are needed; write"),
        ("merge", "no record is given; write unherd merge RECORD…"),
        ("reproduce", "no report is given; write unherd reproduce REPORT, which is 000, 001"),
        ("compare", "no command is given; write unherd compare -- A… -- B…, or name two records"),
        ("compare out/x", "a second record is needed; write unherd compare -- A… -- B…, or name"),
        ("trace diff x", "two reports are needed; name two: unherd trace diff BEFORE AFTER"),
        ("trace", "nothing to trace is given; write unherd trace -- CMD…, or give --pid PID or"),
        ("prove", "no command is given; write unherd prove -- CMD…"),
    ] {
        let ran = place.run(command);
        assert_eq!(ran.stderr.lines().count(), 1, "{command}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("unherd: {line}")), "{command}: {ran:?}");
        let own_code = ["compare", "trace"].iter().any(|it| command.starts_with(it));
        assert_eq!(ran.code, Some(if own_code { 125 } else { 2 }), "{command}: {ran:?}");
    }
    let half = place.run("compare --plan plan.json -- true -- true");
    assert!(half.stderr.contains("--blocks <N>; see 'unherd compare --help'"), "{half:?}");
}

#[test]
fn values_that_make_no_sense_are_named() {
    let place = Place::new();
    for (line, what) in [
        ("bench fake --rounds 5", "give --rounds 6 or more"),
        ("bench fake --threads 1,2,3,4 --rounds 7", "--rounds 8 or more"),
        ("bench fake --threads 0", "--threads 0 runs nothing"),
        ("bench fake --threads x", "'--threads <N>'; give a number, or several as 1,4,16"),
        ("bench fake --cpus 1,x", "invalid value 'x' for '--cpus <N>'; give a number, or several"),
        ("bench fake --rounds x", "invalid value 'x' for '--rounds <R>'; give a whole number"),
        ("bench fake --rounds 99999999999999999999", "give a smaller number"),
        ("run-block x --plan p", "invalid value 'x' for '<NUMBER>'; give a whole number"),
        ("bench fake --cpus 100000", "--cpus 100000 is more than this process may use"),
        ("bench fake --buckets many", "--buckets 'many' is no count"),
        ("bench fake --metric size_bytes", "no better side"),
        ("bench fake --memory 1M", "not bounded by memory"),
        ("bench fake --dir .", "uses no files"),
        ("bench fake --timeout 0", "give seconds"),
        ("bench fake --delta 300%", "--delta is out of range"),
        ("bench fake --plant 5%", "add --aa"),
        ("bench fake --aa --with unherd --repeat 0", "give a whole number, 1 or more"),
        ("bench fake --rounds -1", "'-1' found; no option takes a number below 0"),
        ("nosuch", "no command is called 'nosuch'; there are: bench, report, workloads, compare"),
        ("benhc", "no command is called 'benhc'; did you mean 'bench'?"),
        ("-v", "no command is given; see 'unherd --help'"),
        ("bench fake --aa", "name exactly one by --with"),
        ("bench fake --quick --rounds 6", "cannot be used with '--rounds"),
        ("bench fake --with unherd before", "commas between them: --with A,B"),
        ("bench --resume record --html x", "pages: unherd report DIR --html FILE"),
        ("", "no command is given"),
        ("bench fakefiles --memory 0", "'--memory <SIZE>': give at least 1M"),
        ("bench fakefiles --memory 1K", "invalid value '1K' for '--memory <SIZE>': give at least"),
        ("bench fakefiles --memory 100000T", "more than this machine has"),
        ("bench fakefiles --memory lots", "give bytes"),
    ] {
        let said = refusal(&place, line);
        assert!(said.contains(what), "{line}: {said}");
    }
}

#[test]
fn directories_that_cannot_be_used_are_named() {
    let place = Place::new();
    // That so few rounds say little is not said before anything is run.
    let bench = "bench fakefiles --with before --aa --quick --without-cgroup";
    for (dir, what) in [
        ("absent", "cannot use directory absent"),
        ("runner.sh", "runner.sh is not a directory"),
        ("/proc", "cannot write in directory /proc"),
    ] {
        let said = refusal(&place, &format!("{bench} --dir {dir}"));
        assert!(said.contains(what), "{said}");
    }
    let said = refusal(&place, "bench fake --out runner.sh/record");
    assert!(said.contains("cannot make the record's directory"), "{said}");
    for options in ["", " --repeat 2 --aa --with unherd"] {
        let said = refusal(&place, &format!("bench fake --out absent/deep/record{options}"));
        assert!(said.contains("; make the directory above it, or give another"), "{said}");
    }
    assert!(!place.path().join("absent").exists());
}

#[test]
fn what_a_runner_refuses_is_passed_on() {
    let place = Place::new();
    let refused = "unherd: the disk is too small; need 5 GiB, have 1 GiB";
    let said = |seed: u32| {
        let ran = place.run(&format!("bench fake --with before,refuse --seed {seed} --out {seed}"));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        ran.stderr
    };
    // The first process of all, or after one that has finished.
    assert_eq!(said(5), format!("{refused}\n"));
    let resume = format!("{} bench --resume 1", env!("CARGO_BIN_EXE_unherd"));
    assert_eq!(said(1), format!("{refused}; `{resume}` goes on with what has finished\n"));
}

#[test]
fn a_runner_that_cannot_describe_itself_is_named() {
    let place = Place::new();
    std::fs::write(place.path().join("catalogue.json"), "{}").unwrap();
    let said = refusal(&place, "bench fake");
    assert!(said.contains("runner.sh load --describe: missing field"), "{said}");
}
