//! Signals while tracing: the report is never lost.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::place::{Ran, send};
use crate::trace::{is_refused, trace, with_default_signals};

/// A tracer whose command has said that it is ready.
struct Tracing {
    tracer: Child,
    stdout: BufReader<ChildStdout>,
    /// What the command said: its process number.
    command: String,
    has_ended: bool,
}

impl Drop for Tracing {
    /// A test that fails leaves nobody behind.
    fn drop(&mut self) {
        if !self.has_ended {
            let _gone_already = send("-KILL", &self.command);
            let _gone_already = self.tracer.kill();
            let _reaped = self.tracer.wait();
        }
    }
}

impl Tracing {
    /// Traces `sh -c SCRIPT`, which first says its number. `None` where nobody may trace.
    fn start(script: &str) -> Option<Self> {
        let script = format!("{script}; echo $$; while :; do sleep 0.01; done");
        let mut command = trace(&["--", "sh", "-c", &script]);
        // A group of its own, as a terminal gives to each job.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tracer = command.spawn().unwrap();
        let mut stdout = BufReader::new(tracer.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let output = tracer.wait_with_output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            let ran = Ran { code: output.status.code(), stdout: String::new(), stderr };
            assert!(is_refused(&ran), "{ran:?}");
            return None;
        }
        Some(Self { tracer, stdout, command: line.trim().to_owned(), has_ended: false })
    }

    fn send(&self, signal: &str, to: &str) {
        assert!(send(signal, to), "{signal} to {to}");
    }

    fn group(&self) -> String {
        format!("-{}", self.tracer.id())
    }

    fn pid(&self) -> String {
        self.tracer.id().to_string()
    }

    /// Reads both outputs to the end, which comes when the command and the tracer have ended.
    fn end(mut self) -> Ran {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let mut stderr = String::new();
        self.tracer.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = self.tracer.wait().unwrap();
        self.has_ended = true;
        Ran { code: status.code(), stdout, stderr }
    }
}

/// Sends the signal to tracer and command, as a terminal does, and wants a report and this code.
fn dies_with_a_report(script: &str, signal: &str, code: i32) {
    let Some(tracing) = Tracing::start(script) else { return };
    tracing.send(signal, &tracing.group());
    let ran = tracing.end();
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(ran.stderr.contains("\nSummary\n"), "{ran:?}");
}

#[test]
fn root_after_ctrl_c_there_is_a_report() {
    dies_with_a_report(":", "-INT", 130);
}

#[test]
fn root_after_a_quit_there_is_a_report() {
    dies_with_a_report("ulimit -c 0", "-QUIT", 131);
}

#[test]
fn root_group_signal_does_not_kill() {
    // The tracer passes on what its command has got already; timeout(1) sends it twice besides.
    let trap = "trap 'echo got it; trap \"\" TERM; sleep 1; exit 5' TERM";
    let Some(tracing) = Tracing::start(trap) else { return };
    tracing.send("-TERM", &tracing.pid());
    tracing.send("-TERM", &tracing.group());
    let ran = tracing.end();
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stdout.starts_with("got it\n"), "{ran:?}");
    assert!(ran.stderr.contains("\nSummary\n"), "{ran:?}");
}

/// Presses Ctrl-C in a terminal in which the tracer runs `wrapper sh -c …`, and returns how often
/// the command got it, with the tracer's report.
fn press_ctrl_c(wrapper: &str) -> (usize, String) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (log, report) = (at("log"), at("report"));
    // It goes on for a while, so that a second one would arrive.
    let script = format!(
        "trap 'echo got >> {log}' INT; echo ready
         i=0; while [ ! -s {log} ] && [ $i -lt 500 ]; do sleep 0.01; i=$((i + 1)); done
         for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.03; done"
    );
    fs::write(at("script"), script).unwrap();
    let unherd = env!("CARGO_BIN_EXE_unherd");
    let line = format!("exec {unherd} trace -o {report} -- {wrapper} sh {}", at("script"));
    // script(1) gives it a terminal, and types what it reads.
    let mut command = with_default_signals("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = command.spawn().unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut screen = BufReader::new(terminal.stdout.take().unwrap());
    let mut shown = String::new();
    while screen.read_line(&mut shown).unwrap() > 0 {
        if shown.contains("ready") {
            keys.write_all(b"\x03").unwrap();
            break;
        }
    }
    screen.read_to_string(&mut shown).unwrap();
    drop(keys);
    terminal.wait().unwrap();
    println!("{wrapper}: {shown}");
    let got = fs::read_to_string(&log).unwrap_or_default().lines().count();
    // Empty where nothing could be traced.
    let report = fs::read_to_string(&report).unwrap_or_default();
    (got, if report.is_empty() { shown } else { report })
}

#[test]
fn root_ctrl_c_arrives_once_wherever_the_command_is() {
    // Not timeout(1), which signals its command and then its group, and may make two of one.
    for wrapper in ["", "setsid"] {
        let (got, report) = press_ctrl_c(wrapper);
        if got == 0 && report.contains("unherd: ") {
            println!("skipped: {report}");
            return;
        }
        assert_eq!(got, 1, "{wrapper}: {report}");
        assert!(report.contains("\nSummary\n"), "{wrapper}: {report}");
    }
}

#[test]
fn root_what_the_tracer_is_sent_the_command_gets() {
    let Some(tracing) = Tracing::start("trap 'echo got it; exit 5' TERM") else { return };
    tracing.send("-TERM", &tracing.pid());
    let ran = tracing.end();
    assert_eq!((ran.code, &*ran.stdout), (Some(5), "got it\n"), "{ran:?}");
    assert!(ran.stderr.contains("\nSummary\n"), "{ran:?}");
}

#[test]
fn root_second_signal_kills_deaf_command() {
    let Some(tracing) = Tracing::start("trap '' INT TERM") else { return };
    tracing.send("-INT", &tracing.pid());
    // At once, it would be taken for the same.
    assert!(Command::new("sleep").arg("0.2").status().unwrap().success());
    tracing.send("-TERM", &tracing.pid());
    let ran = tracing.end();
    assert_eq!(ran.code, Some(137), "{ran:?}");
    assert!(ran.stderr.contains("\nSummary\n"), "{ran:?}");
}

#[test]
fn root_a_killed_tracer_takes_its_command_along() {
    let Some(tracing) = Tracing::start(":") else { return };
    let command = tracing.command.clone();
    tracing.send("-KILL", &tracing.pid());
    // The pipe is closed once the command is dying too; a moment later it is dead.
    let ran = tracing.end();
    assert_eq!(ran.code, None);
    let state = || std::fs::read_to_string(format!("/proc/{command}/stat")).unwrap_or_default();
    let is_dead = |_| {
        let state = state();
        let dead = state.is_empty() || state.contains(") Z ");
        dead || !Command::new("sleep").arg("0.01").status().unwrap().success()
    };
    assert!((0..500).any(is_dead), "{}", state());
}

#[test]
fn root_who_is_attached_to_goes_on() {
    attached_goes_on("--default-signal=INT,QUIT");
    // As the background job of a script.
    attached_goes_on("--ignore-signal=INT,QUIT");
}

/// Ends the trace of a living process by SIGINT, that it got with env(1)'s option.
fn attached_goes_on(signals: &str) {
    let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = sleep.id().to_string();
    let mut command = Command::new("env");
    command.arg(signals).arg(env!("CARGO_BIN_EXE_unherd"));
    command.args(["trace", "--duration", "forever", "-p", &pid]);
    let tracer = command.stderr(Stdio::piped()).spawn().unwrap();
    let id = tracer.id();
    // It catches signals before it says anything; until then they would end it without a report.
    let catches = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_none_or(|mask| mask & 0x4002 == 0x4002)
    };
    while !catches() {
        std::thread::yield_now();
    }
    assert!(send("-INT", &id.to_string()));
    let output = tracer.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let ran = Ran { code: output.status.code(), stdout: String::new(), stderr };
    let is_alive = sleep.try_wait().unwrap().is_none();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    if is_refused(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(is_alive && ran.stderr.contains("\nSummary\n"), "{ran:?}");
}
