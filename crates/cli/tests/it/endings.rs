//! Benches that end early: what was measured failed, or somebody asked for an end.

use std::fs;
use std::process::Stdio;

use crate::place::Place;

#[test]
fn a_runner_that_crashes_shows_its_last_words() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,crash --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let mut lines = ran.stderr.lines();
    let first = lines.next().unwrap();
    assert!(first.contains("round 1 of crash: it ended with exit code 3"), "{ran:?}");
    assert_eq!(lines.next(), Some("  | out of cheese"));
    let kept = fs::read_to_string(place.path().join("record/stderr.txt")).unwrap();
    assert_eq!(kept, "out of cheese\n");
}

#[test]
fn escapes_of_a_runner_are_written_out() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,painter");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("  | \\u{1b}[2Jall is well"), "{ran:?}");
    assert!(!ran.stderr.contains('\x1b'), "{ran:?}");
}

#[test]
fn open_pipe_does_not_delay_rounds() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,leaver --rounds 6 --timeout 20");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let pids = fs::read_to_string(place.path().join("left")).unwrap();
    for pid in pids.lines() {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} was left behind");
    }
    assert!(pids.lines().count() >= 6, "{pids}");
}

#[test]
fn the_records_of_finished_rounds_are_kept() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,late --keep-disturbed --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("round 3 of late"), "{ran:?}");
    assert!(place.kept_lines("record") >= 4, "two rounds of both");
    let few = "Nothing was shown: a verdict takes at least 6 pairs of figures, not 2.\n";
    assert!(ran.stdout.ends_with(few), "{ran:?}");
}

/// A runner that fails at its n-th call, and goes well again after that.
fn fails_at(place: &Place, call: usize) {
    fs::write(place.path().join("fails-at"), call.to_string()).unwrap();
}

#[test]
fn crash_in_last_round_costs_it_alone() {
    let place = Place::new();
    fails_at(&place, 12);
    let ran = place.run("bench fake --with before,late --keep-disturbed --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("11 of 12 rounds, each a fresh process"), "{ran:?}");
    assert!(ran.stdout.contains("(11 pairs, 95 % sure)"), "{ran:?}");
    let mark = "* not all rounds were run: round 12 of late: it ended with exit code 1\n";
    assert!(ran.stdout.contains(mark), "{ran:?}");
    let resume = format!("`{} bench --resume record` goes on", env!("CARGO_BIN_EXE_unherd"));
    assert!(ran.stderr.contains(&resume), "{ran:?}");
    assert!(place.path().join("record/result.json").exists());

    let again = place.run("report record");
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stdout.contains("11 of 12 rounds, each a fresh process"), "{again:?}");
    assert!(again.stdout.contains("* not all rounds were run\n"), "{again:?}");

    let resumed = place.run("bench --resume record");
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.stdout.contains("12 rounds, each a fresh process"), "{resumed:?}");
    assert!(resumed.stdout.contains("* the bench was cut short, and gone on with"), "{resumed:?}");
    assert!(place.kept_lines("record") >= 22);
    let json = place.run("report record --format json");
    let result: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(result["comparisons"][0]["pairs"], 12);
    let marks = result["marks"].to_string();
    assert!(marks.contains("the bench was cut short, and gone on with later"), "{marks}");
    assert!(!marks.contains("not all rounds"), "{marks}");
}

#[test]
fn refusal_after_rounds_names_the_record() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,fickle --keep-disturbed --out record");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("2 of 12 rounds, each a fresh process"), "{ran:?}");
    let mark = "* not all rounds were run: the disk is full; make room\n";
    assert!(ran.stdout.contains(mark), "{ran:?}");
    let resume = format!("{} bench --resume record", env!("CARGO_BIN_EXE_unherd"));
    let line =
        format!("unherd: the disk is full; make room; `{resume}` goes on with what has finished\n");
    assert_eq!(ran.stderr, line);
    let resumed = place.run("bench --resume record");
    assert!(resumed.stdout.contains("12 rounds, each a fresh process"), "{resumed:?}");
}

#[test]
fn unresumable_records_are_refused() {
    let place = Place::new();
    let done = place.run("bench fake --out record --rounds 6");
    assert_eq!(done.code, Some(0), "{done:?}");
    let whole = place.run("bench --resume record");
    assert!(whole.stdout.contains("6 rounds, each a fresh process"), "{whole:?}");
    assert!(!whole.stdout.contains("cut short"), "{whole:?}");
    assert_eq!(place.kept_lines("record"), 12, "nothing was left to run");
    let plan = place.path().join("record/plan.json");
    let mut header: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&plan).unwrap()).unwrap();
    header["machine"]["cpus"] = 7777.into();
    fs::write(&plan, header.to_string()).unwrap();
    let elsewhere = place.run("bench --resume record");
    assert_eq!(elsewhere.code, Some(2), "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("was measured on another machine"), "{elsewhere:?}");
    fs::remove_dir_all(place.path().join("record/rounds")).unwrap();
    let empty = place.run("report record");
    assert_eq!(empty.code, Some(2), "{empty:?}");
    assert!(empty.stderr.contains("record holds no finished round"), "{empty:?}");
    for line in ["report absent", "report .", "bench --resume absent"] {
        let ran = place.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains(" is not the directory of a record; name one"), "{ran:?}");
    }
}

#[test]
fn damaged_records_say_what_to_do() {
    let place = Place::new();
    let done = place.run("bench fake --out record --rounds 6");
    assert_eq!(done.code, Some(0), "{done:?}");
    let damaged = |file: &str, text: &str, line: &str| {
        let path = place.path().join("record").join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        let ran = place.run("report record");
        assert_eq!(
            (ran.code, &*ran.stderr),
            (Some(2), &*format!("unherd: record/{file}: {line}\n"))
        );
        fs::write(&path, whole).unwrap();
    };
    damaged("plan.json", "", "it was cut off before its end; measure again");
    damaged("plan.json", "{\"schema\":", "it was cut off before its end; measure again");
    let line = "no plan of a record: missing field `command` at line 1 column 14; name another, or \
                measure again";
    damaged("plan.json", "{\"schema\":\"x\"}", line);
    let line = "line 1: expected ident at line 1 column 2; take that line out, or measure again";
    damaged("rounds/001.jsonl", "nonsense\n", line);
}

#[test]
fn refused_value_names_its_round() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,debtor --keep-disturbed --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("round 9 of debtor: its cost_us is -"), "{ran:?}");
    assert!(ran.stdout.contains("8 of 12 rounds"), "{ran:?}");
}

#[test]
fn full_disk_at_end_costs_no_result() {
    let place = Place::new();
    let record = place.path().join("record");
    fs::create_dir(&record).unwrap();
    std::os::unix::fs::symlink("/dev/full", record.join("result.json.new")).unwrap();
    let ran = place.run("bench fake --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("FASTER"), "{ran:?}");
    let line = format!(
        "unherd: record/result.json: cannot write: No space left on device (os error 28); the \
         rounds are kept: make room, and see `{} report record`\n",
        env!("CARGO_BIN_EXE_unherd")
    );
    assert!(ran.stderr.ends_with(&line), "{ran:?}");
    let again = place.run("report record");
    assert!(again.stdout.contains("FASTER"), "{again:?}");
}

#[test]
fn two_benches_never_share_a_record() {
    let place = Place::new();
    let start = || {
        place.command("bench fake --rounds 6 --out record").stderr(Stdio::null()).spawn().unwrap()
    };
    let mut both: Vec<_> = (0..2).map(|_| start()).collect();
    let mut codes: Vec<_> = both.iter_mut().map(|one| one.wait().unwrap().code()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(2)]);
    assert_eq!(place.kept_lines("record"), 12);
}

#[test]
fn a_runner_that_hangs_is_killed() {
    let place = Place::new();
    // Its children are killed too, or the pipes would stay open and this test would hang.
    fs::File::create(place.path().join("alive")).unwrap();
    let ran = place.run("bench fake --with before,stuck --timeout 0.3 --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("had not ended after 0.3 s (--timeout)"), "{ran:?}");
}

#[test]
fn non_json_output_fails_the_round() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,nonsense --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("its last line is no result"), "{ran:?}");
    assert!(ran.stderr.contains("all is well"), "{ran:?}");
}

#[test]
fn implementations_that_disagree_are_named() {
    let place = Place::new();
    let ran = place.run("bench fake --with before,odd,unherd --out record");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("odd has check decaf"), "{ran:?}");
    assert_eq!(place.kept_lines("record"), 3);
}

#[test]
fn an_interrupt_stops_the_children_and_cleans_up() {
    for signal in ["-INT", "-TERM"] {
        let place = Place::new();
        let line = "bench fakefiles --with stuck --aa --without-cgroup --out record";
        let ran = place.run_until_stuck(line).end_by(signal);
        assert_eq!(ran.code, Some(130), "{ran:?}");
        let resume = format!("{} bench --resume record", env!("CARGO_BIN_EXE_unherd"));
        let expected = format!("unherd: interrupted after 0 of 12 rounds; go on by `{resume}`\n");
        assert_eq!(ran.stderr, expected);
        assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new());
        assert!(place.path().join("record/plan.json").exists());
    }
}

/// The third run of `halting` waits to be interrupted: two rounds are whole then.
#[test]
fn interrupt_judges_finished_rounds() {
    let place = Place::new();
    let line = "bench fake --with before,halting --keep-disturbed --out record";
    let ran = place.run_until_stuck(line).end_by("-INT");
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stdout.contains("2 of 12 rounds, each a fresh process"), "{ran:?}");
    assert!(ran.stdout.contains("cost_us  halting  CANNOT TELL    too few pairs"), "{ran:?}");
    let mark = "* not all rounds were run: interrupted after 2 of 12 rounds\n";
    assert!(ran.stdout.contains(mark), "{ran:?}");
    let few = "Nothing was shown: a verdict takes at least 6 pairs of figures, not 2.\n";
    assert!(ran.stdout.ends_with(few), "{ran:?}");
    let program = env!("CARGO_BIN_EXE_unherd");
    let last = format!(
        "unherd: interrupted after 2 of 12 rounds; go on by `{program} bench --resume record`, \
         see what there is by `{program} report record`\n"
    );
    assert_eq!(ran.stderr, last, "{ran:?}");
    let again = place.run("report record");
    assert!(again.stdout.ends_with(few), "{again:?}");
}

#[test]
fn next_start_cleans_up_after_kill_9() {
    let place = Place::new();
    let line = "bench fakefiles --with stuck --aa --without-cgroup --out record";
    let ran = place.run_until_stuck(line).end_by("-KILL");
    assert_eq!(ran.code, None, "killed by a signal");
    assert_eq!(place.leftovers().len(), 1, "its directory is left");
    let next = place.run("bench fakefiles --with before --aa --without-cgroup");
    assert_eq!(next.code, Some(0), "{next:?}");
    assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn root_next_start_removes_killed_benchs_cgroup() {
    let place = Place::new();
    let bounded = place.run("bench fakefiles --with before --aa --memory 64M");
    if bounded.code == Some(2) && bounded.stderr.contains("cgroup") {
        println!("skipped: {}", bounded.stderr);
        return;
    }
    let stuck = place.run_until_stuck("bench fakefiles --with stuck --aa --memory 64M");
    let mark = format!("unherd-{}-", stuck.pid());
    stuck.end_by("-KILL");
    assert!(!cgroups(&mark).is_empty(), "its cgroup is left");
    let next = place.run("bench fake");
    assert_eq!(next.code, Some(0), "{next:?}");
    assert_eq!(cgroups(&mark), Vec::<std::path::PathBuf>::new());
}

/// The cgroups whose name begins with `mark`, in whatever hierarchy.
fn cgroups(mark: &str) -> Vec<std::path::PathBuf> {
    let entries = |path: &std::path::Path| -> Vec<std::path::PathBuf> {
        let read = fs::read_dir(path).into_iter().flatten().flatten();
        read.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let root = std::path::Path::new("/sys/fs/cgroup");
    let mut found = Vec::new();
    for path in entries(root).into_iter().flat_map(|dir| [entries(&dir), vec![dir]].concat()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(mark) {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_reader_that_leaves_costs_no_record() {
    let place = Place::new();
    let mut bench = place
        .command("bench fake --out record")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(bench.stdout.take());
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(place.path().join("record/result.json").exists());
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = place
        .command("bench fake --format json --out record --keep-disturbed")
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("unherd: standard output: No space left"), "{said}");
    assert!(place.path().join("record/result.json").exists());
}
