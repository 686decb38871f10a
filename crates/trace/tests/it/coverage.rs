//! What the tracer says of itself: notices, missing tracepoints, processes that are not there.

use std::process::Command;
use std::time::Duration;

use unherd_trace::{Follow, Notice, Report, Symbols, TraceError, TraceOptions, Tracer};

use crate::session::{root, trace, trace_with};

#[test]
fn root_notices_follow_a_process() {
    let Some(_machine) = root("notices") else { return };
    let options = TraceOptions::default();
    let mut tracer = Tracer::start(Follow::NextChild, &options).expect("root may trace");
    let mut child = Command::new("/bin/true").spawn().expect("every system has it");
    let pid = child.id();
    assert!(child.wait().expect("it ends").success());
    // A second child is not the next.
    assert!(Command::new("/bin/true").status().expect("every system has it").success());
    let notices = tracer.poll(Duration::from_millis(100)).expect("the ring can be read");
    let expected = [
        Notice::Began { pid, parent: std::process::id() },
        Notice::Exec { pid, comm: "true".into() },
        Notice::Ended { pid },
    ];
    assert_eq!(notices, expected);
    let seen = tracer.finish().expect("the maps can be read");
    assert_eq!(seen.totals.threads, 1);
}

#[test]
fn root_missing_tracepoint_is_reported() {
    let Some(_machine) = root("missing tracepoints") else { return };
    let mut options = TraceOptions::default();
    options.pretend_missing = vec!["contention_begin".into(), "sk_data_ready".into()];
    let (seen, _) = trace_with("eventfd 10 2", &options);
    let names: Vec<_> = seen.missing.iter().map(|missing| missing.tracepoint.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(options.pretend_missing.iter().all(|name| names.contains(&name.as_str())));
    assert!(seen.totals.sleeps > 10);
    let (seen, _) = trace("eventfd 10 2");
    assert_eq!(seen.missing, []);
}

#[test]
fn root_without_calls_nothing_is_judged() {
    let Some(_machine) = root("leaving calls alone") else { return };
    let mut options = TraceOptions::default();
    options.calls = false;
    let (seen, truth) = trace_with("accept 4 50 0 0", &options);
    assert!(truth["needless"].as_u64().is_some_and(|needless| needless > 0), "{truth}");
    assert!(seen.waits.iter().any(|row| row.sleeps > 50), "{:#?}", seen.waits);
    assert!(seen.waits.iter().all(|row| row.needless_in_call + row.needless_again == 0));
    assert!(seen.waits.iter().all(|row| row.possibly_needless + row.timer_polls == 0));
    let left_out: Vec<_> = seen.missing.iter().map(|of| of.tracepoint.as_str()).collect();
    assert_eq!(left_out, ["sys_exit"]);
    let report = Report::new(&seen, &mut Symbols::new());
    assert_eq!(report.summary.needless_wakeups, None);
    assert_eq!(report.summary.empty_wakes, None);
}

#[test]
fn root_absent_process_is_an_error() {
    let Some(_machine) = root("no such process") else { return };
    let pid = i32::MAX as u32;
    let started = Tracer::start(Follow::Processes(vec![pid]), &TraceOptions::default());
    assert!(matches!(started, Err(TraceError::NoProcess(p)) if p == pid), "{started:?}");
}
