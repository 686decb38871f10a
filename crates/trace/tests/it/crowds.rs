//! Many threads, processes and frames: nothing is lost silently.

use unherd_trace::observation::Object;
use unherd_trace::{Follow, TraceOptions, Tracer};

use crate::session::{assert_nothing_lost, number, root, scene, sum, trace, trace_with};

/// The waits at timers alone.
fn naps(seen: &unherd_trace::observation::Observation) -> u64 {
    let nap = Some(libc::SYS_nanosleep as u32);
    let rows = seen.waits.iter().filter(|row| row.syscall == nap && row.object == Object::None);
    rows.map(|row| row.sleeps).sum()
}

#[test]
fn root_short_lived_threads_are_counted() {
    let Some(_machine) = root("many threads") else { return };
    let (seen, truth) = trace("threads 10000");
    assert_eq!(seen.totals.threads, 10_001);
    assert_eq!(naps(&seen), number(&truth, "naps"));
    assert_nothing_lost(&seen);
    assert!(seen.losses.map_bytes < 64 << 20, "{:?}", seen.losses);
}

#[test]
fn root_short_lived_processes_are_counted() {
    let Some(_machine) = root("many processes") else { return };
    let (seen, truth) = trace("forks 100");
    assert_eq!(number(&truth, "forks"), 100);
    let names = seen.processes.iter().map(|process| process.comm.as_str());
    assert_eq!(names.filter(|comm| *comm == "true").count(), 100);
    assert_eq!(seen.processes.len(), 101);
    assert_nothing_lost(&seen);
}

#[test]
fn root_small_maps_are_reported() {
    let Some(_machine) = root("small maps") else { return };
    let mut options = TraceOptions::default();
    (options.waits, options.wakes, options.futexes, options.processes) = (1, 1, 1, 3);
    let (seen, _) = trace_with("forks 20", &options);
    assert!(seen.losses.waits > 0, "{:?}", seen.losses);
    assert!(seen.losses.threads > 0, "{:?}", seen.losses);
    let (seen, truth) = trace_with("futexes 900 100", &options);
    let calls: u64 = seen.futexes.iter().map(|row| row.outcomes.calls).sum();
    assert!(seen.losses.futexes > 0 && seen.losses.wakes > 0, "{:?}", seen.losses);
    // What is counted and what is lost make up all that was called (by the scene; starting and
    // joining its thread takes some more).
    let told =
        [["lonely", "wakes"], ["meeting", "wakes"], ["meeting", "waits"], ["refused", "waits"]];
    let told: u64 = told.iter().map(|[word, calls]| number(&truth[word][calls], "calls")).sum();
    assert!(calls + seen.losses.futexes >= told, "{calls} of {told}: {:?}", seen.losses);
}

#[test]
fn root_deep_stack_is_marked_cut() {
    let Some(_machine) = root("deep stacks") else { return };
    // The kernel's side alone has more frames than that.
    let mut options = TraceOptions::default();
    options.stack_depth = 4;
    let (seen, _) = trace_with("lookout 5 1", &options);
    let deepest = seen.stacks.values().max_by_key(|stack| stack.frames.len());
    let deepest = deepest.expect("a first sleep is sampled");
    assert!(deepest.truncated && deepest.frames.len() == 4, "{:?}", seen.stacks);
    let (seen, _) = trace("lookout 5 1");
    assert!(seen.stacks.values().all(|stack| !stack.truncated), "{:?}", seen.stacks);
    assert!(seen.stacks.values().any(|stack| stack.frames.len() > 4), "{:?}", seen.stacks);
}

#[test]
fn root_living_process_is_followed_with_threads() {
    let Some(_machine) = root("attaching") else { return };
    let mut child = scene("eventfd 100 5").spawn().expect("the truth program is built");
    crate::session::settle();
    let follow = Follow::Processes(vec![child.id()]);
    let tracer = Tracer::start(follow, &TraceOptions::default()).expect("root may trace");
    assert!(child.wait().expect("it ends").success());
    let seen = tracer.finish().expect("the maps can be read");
    assert_eq!(seen.totals.threads, 2);
    assert!(sum(&seen, |row| row.wakeups) > 20, "{:#?}", seen.waits);
    assert_eq!(seen.processes.len(), 1);
    // The call that each thread was in when it was attached to is known too.
    let nowhere = seen.waits.iter().filter(|row| row.syscall.is_none());
    assert_eq!(nowhere.map(|row| row.sleeps).sum::<u64>(), 0, "{:#?}", seen.waits);
    assert_nothing_lost(&seen);
}
