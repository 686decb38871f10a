//! Stacks of code without frame pointers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_trace::advice::Waste;
use unherd_trace::{Observation, Pause, Report, Session, SessionOptions, Symbols, Target};

use crate::session::{root, scene};

/// The functions of a stack, the innermost first, without the path of their crate.
fn functions(report: &Report, stack: Option<usize>) -> Vec<String> {
    let frames = stack.map(|index| &report.stacks[index].frames[..]).unwrap_or_default();
    let short = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
    frames.iter().map(|frame| short(&frame.name)).collect()
}

fn report(arguments: &str) -> (Observation, Report) {
    report_with(arguments, &mut Symbols::new())
}

/// What a session saw of a scene.
pub(crate) fn report_with(arguments: &str, symbols: &mut Symbols) -> (Observation, Report) {
    report_of(scene(arguments), symbols)
}

/// What a session saw of a command.
fn report_of(command: Command, symbols: &mut Symbols) -> (Observation, Report) {
    let target = Target::Command(command);
    let mut session = Session::start(target, &SessionOptions::default()).expect("root may trace");
    let ended = session.run(Deadline::after(Duration::from_secs(20)), None).expect("it is traced");
    assert!(matches!(ended, Pause::Ended(Some(status)) if status.success()), "{ended:?}");
    let seen = session.finish().expect("the maps can be read");
    println!("{:?}", seen.losses);
    let report = Report::new(&seen, symbols);
    (seen, report)
}

#[test]
fn root_site_without_frame_pointers_has_callers() {
    let Some(_machine) = root("stacks without frame pointers") else { return };
    let (seen, report) = report("depths 8000");
    let lines = report.waits.lines.iter().filter(|line| line.call == "recvfrom");
    let line = lines.max_by_key(|line| line.sleeps).unwrap();
    assert!(line.site.function.ends_with("depths::waits_here"), "{:?}", line.site);
    assert!(seen.losses.copies_unwound > 0 && seen.losses.copies_lost == 0, "{:?}", seen.losses);
    let (mut often, mut seldom) = (0, 0);
    for pair in &line.stacks {
        let functions = functions(&report, pair.user);
        println!("{} {functions:?}", pair.count);
        let has = |name: &str| functions.iter().any(|function| function == name);
        assert!(has("middle_of_path") && has("by_two_paths"), "{functions:?}");
        assert!(has("often_path") != has("seldom_path"), "{functions:?}");
        assert!(functions.iter().any(|function| function.starts_with("_start")), "{functions:?}");
        *if has("often_path") { &mut often } else { &mut seldom } += pair.count;
    }
    // Frame pointers have one stack for both.
    assert!(0 < seldom && seldom < often, "one in five was on the seldom path: {seldom}, {often}");
}

#[test]
fn root_futex_calls_without_frames_keep_words() {
    let Some(_machine) = root("futex calls without frame pointers") else { return };
    let (_seen, report) = report("futexes 500 100");
    let lines = &report.futexes.as_ref().unwrap().lines;
    for (kind, function) in [("wake", "meet"), ("wait", "call")] {
        // Of the word where one thread waits for the other.
        let line = lines.iter().filter(|line| line.kind == kind).max_by_key(|line| {
            let of = line.outcomes;
            of.woke_one + of.slept
        });
        let line = line.unwrap();
        let functions = functions(&report, line.stack);
        println!("{line:?} {functions:?}");
        assert!(line.site.function.contains("futexes::"), "{:?}", line.site);
        assert!(functions.iter().any(|name| name == function), "{functions:?}");
        // A thread begins in the C library, whose names are in a package of their own.
        let begins = ["_start", "clone", "[libc"].iter();
        let last = functions.last().unwrap();
        assert!(begins.into_iter().any(|name| last.starts_with(name)), "{functions:?}");
    }
}

#[test]
fn root_site_of_most_sleeps_is_named() {
    let Some(_machine) = root("a site that is met late") else { return };
    let (_seen, report) = report("sites 10 990");
    let lines = report.waits.lines.iter().filter(|line| line.call == "nanosleep");
    let line = lines.max_by_key(|line| line.sleeps).unwrap();
    let (share, interval) = (line.site_percent.unwrap(), line.site_percent_interval);
    println!("{} {share} {interval:?}", line.site);
    assert!(line.site.function.contains("pauses::late_site"), "{:?}", line.site);
    let [low, high] = interval.expect("no thousand stacks were taken");
    assert!(low > 70.0 && low < 99.0 && high > 99.0 && share < 100.0, "{share} {interval:?}");
}

/// Who sleeps more often in the same call, and does something each time, is not the poller.
#[test]
fn root_site_of_polls_is_not_that_of_most_sleeps() {
    let Some(_machine) = root("a poller beside another sleeper") else { return };
    let (seen, report) = report("beside 400 3000");
    let polls: u64 = seen.waits.iter().map(|row| row.timer_polls).sum();
    let line = report.waits.lines.iter().max_by_key(|line| line.timer_polls).unwrap();
    let finding = report.findings.iter().find(|of| of.waste == Waste::TimerPolls).unwrap();
    println!(
        "{polls} of {}, {} beside {}: {:?}",
        line.sleeps, finding.site, line.site, line.stacks
    );
    assert!((200..=410).contains(&polls), "{polls}");
    assert!(line.sleeps > 3_000 && line.site.function.contains("pauses::pacing_site"), "{line:?}");
    assert!(finding.site.function.contains("pauses::looking_site"), "{finding:?}");
    let [low, high] = finding.site_percent_interval.expect("not each poll was looked at");
    assert!(low > 50.0 && high > 90.0, "{low} to {high}");
}

/// Threads that wait for a queue, for the interpreter and for time.
const PYTHON: &str = "
import queue, threading, time
q = queue.Queue()
def work():
    while q.get() is not None: sum(range(1000))
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
for i in range(200): q.put(i); time.sleep(0.001)
[q.put(None) for t in threads]; [t.join() for t in threads]
";

#[test]
fn root_interpreters_own_waits_are_no_sites() {
    let Some(_machine) = root("an interpreter's waits") else { return };
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        return eprintln!("skipped an interpreter's waits: there is no {python}");
    }
    let mut symbols = Symbols::new();
    let mut command = Command::new(python);
    command.args(["-c", PYTHON]);
    let (_seen, report) = report_of(command, &mut symbols);
    let lines = report.waits.lines.iter().filter(|line| line.sleeps >= 50);
    let waits = lines.map(|line| (&line.site.function, line.sleeps));
    let lines = report.futexes.iter().flat_map(|of| &of.lines);
    let calls = lines.filter(|line| line.outcomes.calls >= 50);
    let sites: Vec<_> =
        waits.chain(calls.map(|line| (&line.site.function, line.outcomes.calls))).collect();
    println!("{sites:?}");
    let own = ["PyThread_", "PyCOND", "take_gil", "drop_gil", "pysleep", "acquire_timed"];
    let library = ["futex", "pthread", "nanosleep", "lll_", "sem_", "[libc"];
    for (site, _) in &sites {
        let is_own = own.iter().chain(&library).any(|part| site.contains(part))
            && !site.starts_with("callers of ");
        assert!(!is_own, "{site} of {sites:?}");
    }
    assert!(sites.len() >= 2, "{sites:?}");
}
