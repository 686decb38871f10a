//! One comparison in blocks, on several machines: `--plan`, `run-block`, `merge`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{Place, Ran};

fn succeeded(place: &Place, line: &str) -> Ran {
    let ran = place.run(line);
    assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
    ran
}

/// What each process was asked and has answered, in the order of the record, without the times.
fn answers(place: &Place, record: &str) -> Vec<Value> {
    let rounds = place.path().join(record).join("rounds");
    let mut names: Vec<_> = fs::read_dir(rounds).unwrap().map(|it| it.unwrap().path()).collect();
    names.sort();
    let text: String = names.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let answer = |line: &str| {
        let mut round: Value = serde_json::from_str(line).unwrap();
        round["surroundings"] = Value::Null;
        let metrics = round["metrics"].as_object_mut().unwrap();
        metrics.retain(|name, _| !name.starts_with("process_") && name != "wall_s");
        round
    };
    text.lines().map(answer).collect()
}

fn result(place: &Place, record: &str) -> Value {
    let ran = succeeded(place, &format!("report {record} --format json"));
    serde_json::from_str(&ran.stdout).unwrap()
}

const BENCH: &str = "bench fake --threads 1,4 --seed 7 --rounds 10 --keep-disturbed";

#[test]
fn three_blocks_give_the_record_of_one_run() {
    let place = Place::new();
    let planned = succeeded(&place, &format!("{BENCH} --plan plan.json --blocks 3"));
    assert!(planned.stdout.starts_with("10 rounds in 3 blocks."), "{planned:?}");
    let blocks: Vec<_> = (1..=3)
        .map(|number| {
            let line = format!("run-block {number} --plan plan.json");
            place.command(&line).stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut block in blocks {
        assert!(block.wait().unwrap().success());
    }
    let merged = succeeded(&place, "merge plan-2 plan-3 plan-1 --out merged");
    succeeded(&place, &format!("{BENCH} --out one"));
    assert_eq!(answers(&place, "merged"), answers(&place, "one"));
    assert_eq!(answers(&place, "plan-2").len(), 3 * 2 * 2, "rounds 4 to 6");
    let (merged_result, one) = (result(&place, "merged"), result(&place, "one"));
    assert_eq!(merged_result["comparisons"], one["comparisons"]);
    assert!(merged.stdout.contains("10 rounds, each a fresh process"), "{merged:?}");
    let header = fs::read_to_string(place.path().join("merged/plan.json")).unwrap();
    let header: Value = serde_json::from_str(&header).unwrap();
    let spans: Vec<_> = header["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!([it["first"], it["last"]]))
        .collect();
    assert_eq!(spans, [json!([1, 3]), json!([4, 6]), json!([7, 10])]);
}

#[test]
fn cut_short_block_is_gone_on_with() {
    let place = Place::new();
    let line = "bench fake --with before,late --rounds 6 --keep-disturbed --plan p.json --blocks 2";
    succeeded(&place, line);
    // The third call of `late` is that of round 3.
    let failed = place.run("run-block 1 --plan p.json");
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let short = succeeded(&place, "merge p-1 --out short");
    assert!(short.stdout.contains("of 2 blocks these are missing: 2"), "{short:?}");
    assert!(short.stdout.contains("has 2 of 3 rounds"), "{short:?}");
    let rest = succeeded(&place, "run-block 1 --plan p.json");
    assert!(rest.stderr.contains("going on with p-1"), "{rest:?}");
    succeeded(&place, "run-block 2 --plan p.json");
    let whole = succeeded(&place, "merge p-1 p-2 --out whole");
    assert!(whole.stdout.contains("6 rounds, each a fresh process"), "{whole:?}");
}

#[test]
fn blocks_without_sense_are_refused() {
    let place = Place::new();
    let six = "bench fake --rounds 6 --keep-disturbed --seed";
    succeeded(&place, &format!("{six} 1 --plan a.json --blocks 2"));
    succeeded(&place, &format!("{six} 2 --plan b.json --blocks 2"));
    succeeded(&place, "run-block 1 --plan a.json");
    succeeded(&place, "run-block 2 --plan b.json");
    succeeded(&place, &format!("{six} 1 --out other"));
    for (line, what) in [
        ("merge a-1 a-1", "are both block 1; name each block once"),
        ("merge a-1 b-2", "are of different plans"),
        ("merge other", "other is no block of a plan"),
        ("merge absent", "absent is not the directory of a record"),
        ("run-block 3 --plan a.json", "there is no block 3; give 1 to 2"),
        ("run-block 1 --plan absent.json", "cannot read the plan absent.json"),
        ("run-block 1 --plan catalogue.json", "no plan in blocks"),
        ("run-block 2 --plan a.json --out a-1", "a-1 holds another record"),
        ("bench fake --rounds 6 --plan c.json --blocks 7", "6 rounds cannot be divided into 7"),
        ("bench fake --rounds 6 --plan c.json", "--blocks"),
        ("bench fake --rounds 6 --plan a.json --blocks 2", "cannot make the plan a.json"),
    ] {
        let refused = place.run(line);
        assert!(refused.code != Some(0) && refused.stdout.is_empty(), "{line}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{line}: {refused:?}");
        assert!(refused.stderr.contains(what), "{line}: {refused:?}");
    }
}

#[test]
fn block_killed_before_its_plan_begins_again() {
    let place = Place::new();
    succeeded(&place, "bench fake --rounds 6 --keep-disturbed --plan p.json --blocks 2");
    fs::create_dir_all(place.path().join("p-1/rounds")).unwrap();
    fs::write(place.path().join("p-1/plan.json"), "").unwrap();
    let begun = succeeded(&place, "run-block 1 --plan p.json");
    assert!(!begun.stderr.contains("going on"), "{begun:?}");
    assert_eq!(answers(&place, "p-1").len(), 3 * 2);
}

#[test]
fn rounds_of_other_blocks_are_refused() {
    let place = Place::new();
    succeeded(&place, "bench fake --rounds 6 --keep-disturbed --plan p.json --blocks 2");
    succeeded(&place, "run-block 1 --plan p.json");
    succeeded(&place, "run-block 2 --plan p.json");
    let rounds = |block: usize| place.path().join(format!("p-{block}/rounds"));
    let files = |block: usize| fs::read_dir(rounds(block)).unwrap().map(|it| it.unwrap().path());
    let copied: Vec<_> = files(2).collect();
    for path in &copied {
        fs::copy(path, rounds(1).join(path.file_name().unwrap())).unwrap();
    }
    let refused = place.run("merge p-1 p-2 --out strange");
    assert!(refused.stderr.contains("p-1 has a round 4 that is not its own"), "{refused:?}");
    for path in &copied {
        fs::remove_file(rounds(1).join(path.file_name().unwrap())).unwrap();
        let twice = fs::read_to_string(path).unwrap().repeat(2);
        fs::write(path, twice).unwrap();
    }
    let refused = place.run("merge p-1 p-2 --out twice");
    assert!(
        refused.stderr.contains("p-2 has a round 4 that is not its own, or twice"),
        "{refused:?}"
    );
    for path in files(1).chain(files(2)) {
        fs::remove_file(path).unwrap();
    }
    let refused = place.run("merge p-1 p-2 --out empty");
    assert!(refused.stderr.contains("no block has a finished round"), "{refused:?}");
    for out in ["strange", "twice", "empty"] {
        assert!(!place.path().join(out).exists(), "{out} was made");
    }
}

#[test]
fn blocks_of_other_programs_are_marked() {
    let place = Place::new();
    let tool = place.path().join("tool");
    let write = |text: &str| {
        fs::write(&tool, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&tool, mode).unwrap();
    };
    write("#!/bin/sh\n");
    let plan =
        "compare --plan p.json --blocks 3 --rounds 12 --keep-disturbed -- ./tool -- ./tool 1";
    succeeded(&place, plan);
    succeeded(&place, "run-block 1 --plan p.json");
    succeeded(&place, "run-block 2 --plan p.json");
    let same = succeeded(&place, "merge p-1 p-2 --out same");
    assert!(!same.stdout.contains("differ in their bytes"), "{same:?}");
    write("#!/bin/sh\n# rebuilt\n");
    succeeded(&place, "run-block 3 --plan p.json");
    let other = succeeded(&place, "merge p-1 p-3 --out other");
    assert!(other.stdout.contains("differ in their bytes"), "{other:?}");
    let again = place.run("run-block 1 --plan p.json");
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("the programs have changed since"), "{again:?}");
}

#[test]
fn commands_run_in_blocks_by_gnu_parallel() {
    let place = Place::new();
    let is_there = Command::new("parallel").arg("--version").output();
    if !is_there.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("GNU")) {
        println!("skipped: no GNU parallel (Debian: parallel)");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/machines/parallel.sh");
    let output = Command::new(script)
        .current_dir(place.path())
        .env("UNHERD", env!("CARGO_BIN_EXE_unherd"))
        .args(["--shell", "--keep-disturbed", "--rounds", "6", "--metric", "cost_us=cost: (.*)"])
        .args(["--", "echo cost: 100", "--", "echo cost: 50"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let verdict = "B is faster than A: cost_us 2.00 × (2.00 to 2.00).\n";
    assert!(said.ends_with(verdict) && said.contains("6 rounds"), "{said}");
}
