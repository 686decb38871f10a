//! Verdict and summary are two accounts of one model, whatever the program.

use unherd_trace::advice::Waste;
use unherd_trace::observation::{TimeClass, TimeSpent};
use unherd_trace::report::{Finding, LITTLE_PERCENT, Report};
use unherd_trace::{Observation, Symbols};

use crate::recorded::contradictions;
use crate::session::root;
use crate::stacks::report_with;

fn assert_agrees(scene: &str, report: &Report) {
    let verdict = report.verdict.join("\n");
    println!("{scene}:\n{verdict}\n");
    let mut json = Vec::new();
    report.write_json(&mut json).expect("memory takes it");
    let found = contradictions(&serde_json::from_slice(&json).expect("it is JSON"));
    assert!(found.is_empty(), "{scene}: {found:?}\n{verdict}");
}

/// Each moment of each thread is in one class, and each sleep in a row that tells for what.
fn assert_time_adds_up(scene: &str, seen: &Observation) {
    let adds_up = |time: &TimeSpent| {
        let sum: u64 = time.by_class_ns.iter().sum();
        sum * 100 >= time.wall_ns * 99 && sum <= time.wall_ns
    };
    assert_eq!((seen.threads.len() as u64, seen.losses.lives), (seen.totals.threads, 0), "{scene}");
    for row in &seen.threads {
        assert!(row.time.wall_ns > 0 && adds_up(&row.time), "{scene}: {row:?}");
    }
    assert!(adds_up(&seen.time), "{scene}: {:?}", seen.time);
    let asleep_ns: u64 = seen.time.by_class_ns[3..].iter().sum();
    let told_ns: u64 = seen.waits.iter().map(|row| row.asleep_ns + row.uninterruptible_ns).sum();
    assert!(told_ns * 100 >= asleep_ns * 99, "{scene}: {told_ns} of {asleep_ns}");
}

/// A thread waits for a lock while another sleeps with it.
fn assert_holder_is_named(report: &Report) {
    let waits = report.findings.iter().find(|of| of.waste == Waste::LockWaits);
    let waits = waits.unwrap_or_else(|| panic!("no lock is waited for: {:#?}", report.waits.lines));
    let holder = waits.waker.as_ref().expect("somebody gives it back");
    assert!(holder.function.ends_with("pauses::guard"), "{holder:?}");
    let detail = waits.detail.as_deref().unwrap_or_default();
    let (_, asleep) = detail.split_once("asleep for up to").expect("it sleeps");
    assert!(asleep.contains("longest in nanosleep from unherd_truth::count::pause"), "{detail}");
    assert!(report.verdict.join("\n").contains("waiting for locks"), "{:?}", report.verdict);
}

#[test]
fn root_verdicts_agree_with_their_summaries() {
    let Some(_machine) = root("verdicts and summaries") else { return };
    let scenes = [
        "accept 8 100 0 0",
        "accept 8 100 0 1",
        "monitor 8 100 0 0",
        "monitor 8 100 100 1",
        "monitor 4 30 0 2",
        "roll 8 50 0",
        "roll 8 50 1",
        "lookout 20 5",
        "produce 50",
        "guard 50",
        "compute 50",
        "hold 6 30 0",
        "hold 6 30 1",
        "ladder 30",
        "look 50 0",
        "look 50 1",
        "eventfd 20 5",
        "futexes 50 50",
        "threads 50",
        "forks 20",
    ];
    // What is read of files is kept from one scene to the next.
    let mut symbols = Symbols::new();
    for scene in scenes {
        let (seen, report) = report_with(scene, &mut symbols);
        assert_agrees(scene, &report);
        assert_time_adds_up(scene, &seen);
        if scene == "forks 20" {
            let [child, other] = [TimeClass::AsleepChild, TimeClass::AsleepOther];
            assert!(seen.time.of(child) > 10 * seen.time.of(other), "{:?}", seen.time);
        }
        if scene == "guard 50" {
            assert_holder_is_named(&report);
        }
        if scene.starts_with("hold") {
            let verdict = report.verdict.join("\n");
            assert!(verdict.contains("goes to waiting for locks"), "{verdict}");
            let sleeps = verdict.contains(" % of that time, longest in nanosleep");
            assert!(sleeps || scene.ends_with('0'), "{verdict}");
            assert!(!verdict.contains("or to useful work"), "{verdict}");
        }
    }
}

/// Whether a herd's cure is advised for a wakeup.
fn advises_signal(report: &Report) -> bool {
    let mut advice = report.findings.iter().filter_map(|finding| finding.advice);
    advice.any(|advice| advice.pattern == "broadcast")
}

/// The report of a scene in which nothing but its wakeups may lead. On a busy machine threads that
/// are made while others map their memory wait for that lock of the kernel's, which is a finding,
/// and a true one; and where work is there each time that a thread looks, none is woken twice. So
/// it is tried until neither is the case.
fn report_of_wakeups(scene: &str, symbols: &mut Symbols) -> Report {
    for _ in 0..20 {
        let (_seen, report) = report_with(scene, symbols);
        let mut locks = report.findings.iter().filter(|of| of.waste == Waste::KernelLocks);
        let costs = |of: &Finding| of.cost.is_some_and(|cost| cost.percent_low >= LITTLE_PERCENT);
        let has_locks = locks.any(costs);
        if !has_locks && report.findings.iter().any(|of| of.waste == Waste::NeedlessWakeups) {
            return report;
        }
    }
    panic!("{scene}: each run had waits for kernel locks, or no wakeups to judge");
}

#[test]
fn root_work_after_each_wakeup_is_no_waste() {
    let Some(_machine) = root("threads with work") else { return };
    let mut symbols = Symbols::new();
    for scene in ["barrier 8 20", "pool 4 60"] {
        let report = report_of_wakeups(scene, &mut symbols);
        let verdict = report.verdict.join("\n");
        println!("{scene}:\n{verdict}\n");
        assert!(verdict.starts_with("Nothing was found that is likely"), "{scene}:\n{verdict}");
        assert!(!verdict.contains("Try:") && !advises_signal(&report), "{:?}", report.findings);
    }
    let (_seen, report) = report_with("monitor 8 100 0 0", &mut symbols);
    let verdict = report.verdict.join("\n");
    assert!(verdict.contains("may go to needless wakeups"), "{verdict}");
    assert!(advises_signal(&report), "{:?}", report.findings);
}

/// Switches make run queues' locks contended, which are no cause of their own.
#[test]
fn root_locks_of_run_queues_are_no_findings() {
    let Some(_machine) = root("locks of run queues") else { return };
    let mut symbols = Symbols::new();
    // With one processor for all of the scene nobody contends.
    for _ in 0..10 {
        let (_seen, report) = report_with("roll 16 200 1", &mut symbols);
        assert_agrees("roll 16 200 1", &report);
        let locks = report.findings.iter().filter(|of| of.waste == Waste::KernelLocks);
        let sites: Vec<_> = locks.map(|of| of.site.function.as_str()).collect();
        for site in ["__schedule", "try_to_wake_up", "__task_rq_lock"] {
            assert!(!sites.contains(&site), "{sites:?}");
        }
        if report.summary.scheduler_locks_cpu_ns.is_some_and(|ns| ns > 0) {
            return;
        }
    }
    panic!("no run queue's lock was contended");
}

/// Of 100 tokens 99 are signalled to one of eight; the last wakes all.
#[test]
fn root_one_herd_does_not_speak_for_all() {
    let Some(_machine) = root("a signal, and one broadcast") else { return };
    let (_seen, report) = report_with("monitor 8 100 99 0", &mut Symbols::new());
    let wakes = report.findings.iter().filter(|of| of.waste == Waste::NeedlessWakeups);
    let most = wakes.max_by_key(|of| of.count.possible).expect("a look is possibly needless");
    let herds = report.herds.as_ref().expect("herds were looked at");
    let in_herds: u64 = herds.iter().map(|herd| herd.needless.possible).sum();
    assert!(0 < in_herds && in_herds * 4 < most.count.possible, "{in_herds} of {most:?}");
    let detail = most.detail.as_deref().unwrap_or_default();
    assert!(detail.starts_with("woken by futex from "), "{most:?}");
}
