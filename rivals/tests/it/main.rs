//! The rivals' runner at sizes that take no time, against unherd's own runner in this process.
#![cfg(test)]

use std::ffi::OsString;
use std::process::{Command, Output};

use serde_json::Value;

fn runner(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unherd-rivals"));
    command.args(words.split_whitespace()).output().unwrap()
}

fn json(words: &str) -> Value {
    let output = runner(words);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn only_the_rivals_are_listed() {
    let catalogue = json("load --describe");
    let names = |list: &Value| -> Vec<String> {
        let known = list.as_array().unwrap().iter();
        known.map(|known| known["name"].as_str().unwrap().to_owned()).collect()
    };
    let workloads = &catalogue["workloads"];
    // What `unherd` says of these names where this runner is not built.
    assert_eq!(names(workloads), unherd_load::RIVALS.iter().map(|it| it.0).collect::<Vec<_>>());
    for (index, (_, implementations)) in unherd_load::RIVALS.iter().enumerate() {
        assert_eq!(names(&workloads[index]["impls"]), *implementations);
    }
}

#[test]
fn the_caches_have_the_same_pages_as_unherd() {
    for words in ["8", "0"] {
        for writes in [0, 10] {
            let size = format!(
                "--threads 2 --seed 3 --param set=64K --param ops=3000 --param words={words}"
            );
            let args = format!("hit --with floor {size}");
            let args = args.split_whitespace().map(OsString::from);
            let own = unherd_load::run(&[&unherd_load::hit::Hit], args).unwrap();
            let own: Value = serde_json::from_str(&own).unwrap();
            for with in ["quick_cache", "moka", "foyer"] {
                let round = json(&format!("load hit --with {with} {size} --param writes={writes}"));
                assert_eq!(round["check"], own["check"], "{round}");
            }
        }
    }
}

#[test]
fn the_rivals_agree_with_unherd() {
    let size = "--threads 8 --seed 3 --param events=200 --param buckets=1";
    let args = format!("pagewait --with unherd {size}");
    let args = args.split_whitespace().map(OsString::from);
    let own = unherd_load::run(&[&unherd_load::pagewait::PageWait], args).unwrap();
    let own: Value = serde_json::from_str(&own).unwrap();
    for with in ["parking_lot_core", "event-listener"] {
        let round = json(&format!("load pagewait --with {with} {size}"));
        assert_eq!(round["check"], own["check"], "{round}");
        let wakeups = round["metrics"]["wakeups"].as_f64().unwrap();
        let needless = round["metrics"]["needless_wakeups"].as_f64().unwrap();
        // event-listener may see the completion before it sleeps again, and then does not sleep.
        assert!(wakeups - needless <= 200.0, "{round}");
        if with == "parking_lot_core" {
            assert_eq!((wakeups, needless), (200.0, 0.0), "{round}");
        }
    }
}

#[test]
fn the_mutexes_exclude() {
    let size = "--threads 4 --seed 3 --param budget-ms=20 --param burst=3";
    let args = format!("mutex --with unherd {size}");
    let args = args.split_whitespace().map(OsString::from);
    let own = unherd_load::run(&[&unherd_load::mutex::Mutexes], args).unwrap();
    let own: Value = serde_json::from_str(&own).unwrap();
    let round = json(&format!("load mutex --with parking_lot {size}"));
    assert_eq!(round["check"], own["check"], "{round}");
}

#[test]
fn an_unknown_implementation_is_one_line_and_exit_code_2() {
    let output = runner("load pagewait --with unherd");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("parking_lot_core, event-listener"), "{error}");
}
