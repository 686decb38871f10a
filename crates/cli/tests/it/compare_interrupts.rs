//! `unherd compare` that somebody interrupts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::place::{Place, send};

#[test]
fn an_interrupt_keeps_and_judges_what_there_is() {
    let place = Place::new();
    let pipe = place.path().join("alive");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Its twelfth run tells, and waits.
    let stuck = "echo x >>calls; [ $(wc -l <calls) -ne 12 ] || { echo here >alive; sleep 1000; }; \
                 echo cost: 50";
    let mut child = place
        .command("compare --shell --rounds 14 --keep-disturbed --out record")
        .args(["--metric", "cost_us=cost: (.*)", "--", "echo cost: 100", "--", stuck])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(fs::File::open(&pipe).unwrap()).read_line(&mut String::new()).unwrap();
    assert!(send("-INT", &child.id().to_string()));
    let mut kept = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut kept).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted after 10 of 14 rounds; go on by"), "{stderr}");
    let report = format!("by `{} report record`\n", env!("CARGO_BIN_EXE_unherd"));
    assert!(stderr.ends_with(&report), "{stderr}");
    assert!(kept.starts_with("B is faster than A: cost_us 2.00 ×"), "{kept}");
    assert!(place.path().join("record/result.json").exists());
}

/// Sends SIGINT to a comparison as soon as `pipe` tells; gives what is on standard error.
fn interrupted(command: &mut Command, pipe: &std::path::Path) -> String {
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(fs::File::open(pipe).unwrap()).read_line(&mut String::new()).unwrap();
    assert!(send("-INT", &child.id().to_string()));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// How many rounds there are to be is in the plan, whether the command line tells it or not.
#[test]
fn interrupt_tells_rounds_of_the_plan() {
    let place = Place::new();
    let pipe = place.path().join("alive");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let stop = "echo x >>calls; [ $(wc -l <calls) -ne 9 ] || { echo here >alive; sleep 1000; }";
    let stopped = |out: &str, options: &[&str], sides: [&str; 2]| {
        fs::write(place.path().join("calls"), "").unwrap();
        let mut command = place.command("compare --shell --keep-disturbed --out");
        command.arg(out).args(options).args(["--", sides[0], "--", sides[1]]);
        let said = interrupted(&mut command, &pipe);
        let plan = fs::read_to_string(place.path().join(out).join("plan.json")).unwrap();
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        let rounds = if out == "c" { &plan["until"]["pilot"] } else { &plan["rounds"] };
        (said, rounds.clone())
    };
    // The first run, then seven rounds.
    let (said, rounds) = stopped("a", &[], ["true", stop]);
    let expected = format!("unherd: interrupted after 7 of {rounds} rounds; go on by `");
    assert!(said.starts_with(&expected), "{said}");
    // While something is prepared for the fourth round.
    let (said, rounds) = stopped("b", &["--prepare", stop], ["true", "true"]);
    let expected = format!("unherd: interrupted after 3 of {rounds} rounds; go on by `");
    assert!(said.starts_with(&expected), "{said}");
    let (said, pilot) = stopped("c", &["--until", "1%"], ["true", stop]);
    let expected = format!("7 of {pilot} rounds of the pilot");
    assert!(
        said.starts_with(&format!("unherd: interrupted after {expected}; go on by `")),
        "{said}"
    );
    let report = place.run("report c");
    assert!(report.stdout.contains(&expected), "{report:?}");
}

#[test]
fn interrupt_before_the_rounds_has_its_code() {
    let place = Place::new();
    let pipe = place.path().join("alive");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = "echo here >alive; sleep 1000";
    for options in [&[][..], &["--prepare", script]] {
        let mut command = place.command("compare --out record --shell");
        let command = command.args(options).args(["--", script, "--", "true"]);
        let child = command.stderr(Stdio::piped()).spawn();
        let child = child.unwrap();
        BufReader::new(fs::File::open(&pipe).unwrap()).read_line(&mut String::new()).unwrap();
        assert!(send("-INT", &child.id().to_string()));
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert!(stderr.ends_with(": interrupted\n"), "{stderr}");
    }
}
