//! Runs a scene under the tracer.

use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use unherd_sys::primitives::{Mutex, MutexGuard};
use unherd_trace::observation::{Observation, WaitRow};
use unherd_trace::{Follow, TraceOptions, Tracer};

static MACHINE: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(()));

/// The right to trace, one test at a time; `None`, and a line that says why, without root.
pub(crate) fn root(test: &str) -> Option<MutexGuard<'static, ()>> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped {test}: loading eBPF needs root");
        return None;
    }
    Some(MACHINE.lock())
}

/// The truth program with this scene.
pub(crate) fn scene(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unherd-truth"));
    command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stdin(Stdio::null());
    command
}

/// What the tracer saw of the scene, and what the scene says of itself.
pub(crate) fn trace(arguments: &str) -> (Observation, Value) {
    trace_with(arguments, &TraceOptions::default())
}

/// The same with other sizes.
pub(crate) fn trace_with(arguments: &str, options: &TraceOptions) -> (Observation, Value) {
    let tracer = Tracer::start(Follow::NextChild, options).expect("root may trace");
    let child = scene(arguments).spawn().expect("the truth program is built");
    let output = child.wait_with_output().expect("its output can be read");
    assert!(output.status.success(), "{arguments}: {}", output.status);
    let seen = tracer.finish().expect("the maps can be read");
    let truth = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    println!("{arguments}: {truth}");
    (seen, truth)
}

/// A number of the truth.
pub(crate) fn number(truth: &Value, name: &str) -> u64 {
    truth[name].as_u64().unwrap_or_else(|| panic!("no {name} in {truth}"))
}

/// A sum over all waits.
pub(crate) fn sum(seen: &Observation, count: impl Fn(&WaitRow) -> u64) -> u64 {
    seen.waits.iter().map(count).sum()
}

/// Wakeups that are proven needless.
pub(crate) fn proven(seen: &Observation) -> u64 {
    sum(seen, |row| row.needless_in_call + row.needless_again)
}

/// Nothing found no room.
pub(crate) fn assert_nothing_lost(seen: &Observation) {
    let lost = &seen.losses;
    let counts = [lost.waits, lost.wakes, lost.futexes, lost.locks, lost.threads, lost.notices];
    assert_eq!((counts, lost.ending_threads), ([0; 6], 0), "{lost:?}");
}

/// Lets other processes and the kernel come to rest.
pub(crate) fn settle() {
    let moment = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    // A signal would only shorten it.
    let _interrupted = rustix::thread::nanosleep(&moment);
}
