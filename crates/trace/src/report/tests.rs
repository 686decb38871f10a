use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::fixture::{self, CONDITION, futex, observation, symbols};
use super::html::tests::{assert_has, html, page_texts};
use super::pprof::tests::pprof_sums;
use super::*;
use crate::advice::Waste;
use crate::observation::{self as seen, FutexKind, FutexRow, Object, StackId};
use crate::{Budget, Count};

fn report() -> Report {
    Report::new(&observation(), &mut symbols())
}

fn text(report: &Report, full: bool, width: usize, colour: bool) -> String {
    let mut bytes = Vec::new();
    report.write_text(&mut bytes, full, width, colour).expect("memory takes it");
    String::from_utf8(bytes).expect("text")
}

fn json(report: &Report) -> Value {
    let mut bytes = Vec::new();
    report.write_json(&mut bytes).expect("memory takes it");
    serde_json::from_slice(&bytes).expect("it is JSON")
}

fn budget(text: &str) -> Budget {
    Budget::parse(text).expect(text)
}

#[test]
fn the_verdict_names_share_site_object_and_cure() {
    let verdict = report().verdict;
    assert!(verdict.len() <= 5, "{verdict:?}");
    // 1.200 to 1.456 of 3.89 s of CPU.
    assert_eq!(
        verdict[0],
        "1.20 to 1.46 s of the program's 3.89 s of CPU time (31 to 37 %) go to needless wakeups \
         (7,376 to 7,408 of the 8,512 wakeups there)."
    );
    assert_eq!(verdict[1], "Site: epoll_pwait from worker_loop [jit], server.");
    assert!(verdict[2].starts_with("Object: anon_inode:[eventpoll] (fd 5) and 15 others; herds"));
    assert!(verdict[2].ends_with("woken by interrupt for listening socket :8080."), "{verdict:?}");
    assert!(verdict[3].starts_with("Try: EPOLLEXCLUSIVE"), "{verdict:?}");
    assert!(verdict[4].contains("none proven"), "{verdict:?}");
}

#[test]
fn nothing_found_is_said_plainly() {
    let mut quiet = Observation { ended_ns: 2_000_000_000, cpus: 2, ..Observation::default() };
    quiet.totals.wakeups = 1_200;
    quiet.totals.threads = 3;
    let of = |quiet: &Observation| Report::new(quiet, &mut symbols()).verdict.join("\n");
    let expected = "Nothing needless was found: 1,200 wakeups of 3 threads in 2.00 s, none of \
                    them needless.";
    assert_eq!(of(&quiet), expected);
    quiet.losses.waits = 1;
    assert!(of(&quiet).ends_with("but events were lost."), "{}", of(&quiet));
}

#[test]
fn idle_programs_have_little_to_gain() {
    // 39 ms of CPU in 10 s, a third of them needless.
    let mut observation = observation();
    for row in &mut observation.waits {
        row.needless_cpu_ns /= 100;
        row.possibly_needless_cpu_ns /= 100;
        row.possibly_needless_in_herds_cpu_ns /= 100;
    }
    observation.totals.user_ns /= 100;
    observation.totals.system_ns /= 100;
    observation.locks.clear();
    observation.stalls.clear();
    let verdict = Report::new(&observation, &mut symbols()).verdict;
    assert_eq!(verdict[0], "The program used 38.9 ms of CPU in 10.0 s: there is little to gain.");
    assert!(verdict[1].starts_with("The most: 31 to 37 % of"), "{verdict:?}");
    assert!(verdict.len() <= 3, "{verdict:?}");
}

#[test]
fn small_shares_are_less_than_a_bound() {
    let cost = Cost {
        kind: CostKind::Cpu,
        ns_low: 1,
        ns_high: 1,
        estimated: true,
        percent_low: 0.01,
        percent_high: 0.01,
    };
    assert_eq!(verdict::cost_share(cost), "less than 0.1 %");
}

#[test]
fn little_waste_is_called_little() {
    let mut little = observation();
    little.totals.user_ns = 1_000_000_000_000;
    little.totals.threads = 1_000;
    little.locks.clear();
    little.stalls.clear();
    let verdict = Report::new(&little, &mut symbols()).verdict;
    assert_eq!(verdict[0], "Little to gain: no waste costs 1 % or more.");
}

#[test]
fn possible_waste_without_herd_never_leads() {
    let mut observation = observation();
    observation.wakes.clear();
    let is_herd = |row: &seen::WaitRow| row.needless_in_call > 0;
    observation.waits.retain(|row| !is_herd(row));
    observation.totals.user_ns = 0;
    let of = |observation: &Observation| Report::new(observation, &mut symbols()).verdict;
    assert!(of(&observation)[0].starts_with(
        "Up to 90.0 ms of the program's 2.50 s of CPU time (3.6 %) may go to needless wakeups"
    ));
    for row in &mut observation.waits {
        (row.possibly_needless_in_herds, row.possibly_needless_in_herds_cpu_ns) = (0, 0);
    }
    let verdict = of(&observation);
    assert!(verdict[0].starts_with("Nothing was found that is likely"), "{verdict:?}");
    assert!(verdict[1].starts_with("Possible: Up to 3.6 %"), "{verdict:?}");
}

#[test]
fn larger_possible_waste_is_never_hidden() {
    // Locks and stalls lead with some of the threads' time. More than half of the CPU time may be
    // needless, and none of that came in herds.
    let mut observation = observation();
    let pool = observation.waits.iter_mut().find(|row| row.possibly_needless > 1_000).unwrap();
    (pool.possibly_needless_in_herds, pool.possibly_needless_cpu_ns) = (0, 2_220_000_000);
    pool.possibly_needless_in_herds_cpu_ns = 0;
    observation.totals.threads = 2;
    observation.waits.retain(|row| row.needless_in_call == 0);
    observation.wakes.clear();
    let verdict = Report::new(&observation, &mut symbols()).verdict;
    assert!(verdict[0].contains("stalls") || verdict[0].contains("locks"), "{verdict:?}");
    let last = verdict.last().unwrap();
    assert!(
        last.starts_with("Possible: Up to 57 % of the program's CPU time may go to needless"),
        "{verdict:?}"
    );
}

#[test]
fn waste_of_many_sites_is_not_called_little() {
    let mut observation = observation();
    observation.locks.clear();
    observation.stalls.clear();
    observation.wakes.clear();
    let row = observation.waits.swap_remove(0);
    // 0.5 % of the CPU at each of 100 programs.
    observation.waits.clear();
    for pid in 1..=100 {
        let comm = format!("program{pid}");
        observation.processes.push(seen::Process { pid, comm, ..Default::default() });
        let needless_cpu_ns = 19_450_000;
        observation.waits.push(seen::WaitRow { pid, needless_cpu_ns, ..row.clone() });
    }
    let verdict = Report::new(&observation, &mut symbols()).verdict;
    assert!(verdict[0].starts_with("No one site is likely"), "{verdict:?}");
    assert!(verdict[0].contains("take 50 to 91 % of the program's CPU time"), "{verdict:?}");
}

proptest! {
    /// Whatever was seen: one ranking, and no line that another part of the report denies.
    #[test]
    fn verdict_and_summary_agree(
        costs in proptest::collection::vec((0u64..400_000_000, 0u64..400_000_000, 0u64..10), 5),
        user_ns in 0u64..100_000_000_000,
        others: bool,
    ) {
        let mut observation = observation();
        observation.wakes.clear();
        observation.waits.drain(..15);
        (observation.totals.user_ns, observation.totals.threads) = (user_ns, 2);
        if !others {
            observation.locks.clear();
            observation.stalls.clear();
            observation.futexes.clear();
        }
        for (row, (proven_ns, possible_ns, in_herds)) in observation.waits.iter_mut().zip(costs) {
            (row.needless_in_call, row.possibly_needless) = (9, 9);
            row.possibly_needless_in_herds = in_herds;
            row.possibly_needless_in_herds_cpu_ns = possible_ns / 9 * in_herds;
            (row.needless_cpu_ns, row.possibly_needless_cpu_ns) = (proven_ns, possible_ns);
        }
        let report = Report::new(&observation, &mut symbols());
        let verdict = report.verdict.join("\n");
        let weights: Vec<f64> = report.findings.iter().map(Finding::weight).collect();
        prop_assert!(weights.is_sorted_by(|a, b| a >= b), "{weights:?}");
        let costs = report.findings.iter().filter_map(|finding| finding.cost);
        let most = costs.map(|cost| cost.percent_high).fold(0.0, f64::max);
        let bound = quantity::percents(most, most);
        prop_assert!(most < 1.0 || verdict.contains(&bound), "{most} is not in:\n{verdict}");
        let needless_ns = report.summary.needless_wakeups_cpu_ns.unwrap();
        let little = verdict.starts_with("Little") || verdict.starts_with("Nothing");
        let cpu_ns = report.summary.own_cpu_ns();
        prop_assert!(!little || needless_ns.proven * 100 < cpu_ns, "{needless_ns:?}:\n{verdict}");
        let little = verdict.starts_with("Little");
        prop_assert!(!little || needless_ns.possible * 100 < cpu_ns, "{needless_ns:?}:\n{verdict}");
        // The findings divide what the summary adds up.
        let is_needless = |of: &&Finding| of.waste == Waste::NeedlessWakeups;
        let costs = report.findings.iter().filter(is_needless).filter_map(|of| of.cost);
        let (low, high) = costs.fold((0, 0), |sum, of| (sum.0 + of.ns_low, sum.1 + of.ns_high));
        prop_assert_eq!((low, high), (needless_ns.proven, needless_ns.possible));
    }
}

#[test]
fn several_futexes_are_herd_of_waker() {
    let mut observation = observation();
    let herd = observation.wakes.iter_mut().find(|row| row.object == Object::Futex(CONDITION));
    herd.unwrap().object = Object::SEVERAL_FUTEXES;
    let named = herds_named(&observation);
    let pool = named.iter().filter(|(comm, _)| comm == "pool").collect::<Vec<_>>();
    let [(_, Some(herd))] = &pool[..] else { panic!("{named:?}") };
    assert!(
        herd.ends_with("woken by futex from pool::queue::push [jit] for several futexes"),
        "{herd}"
    );
}

/// Sleeps shorter than a switch in the pool, and nothing else that is worth a word.
fn short_sleeps(count: u64, pool_cpu_ns: Option<u64>) -> Report {
    let mut observation = observation();
    observation.waits.retain(|row| row.short_sleeps > 0);
    for row in &mut observation.waits {
        (row.possibly_needless, row.possibly_needless_cpu_ns) = (0, 0);
        row.redundant_wakes = 0;
        row.short_sleeps = count;
    }
    observation.wakes.clear();
    observation.futexes.clear();
    observation.locks.clear();
    observation.stalls.clear();
    observation.processes[1].cpu_ns = pool_cpu_ns;
    Report::new(&observation, &mut symbols())
}

#[test]
fn estimated_cost_is_no_bound() {
    // Half a round trip of 5.1 µs each, of 3.89 s.
    let report = short_sleeps(100_000, Some(2_000_000_000));
    let cost = report.findings[0].cost.expect("an estimate");
    assert_eq!((cost.ns_low, cost.ns_high, cost.estimated), (255_000_000, 255_000_000, true));
    let headline = &report.verdict[0];
    assert!(
        headline.starts_with(
            "About 255 ms of the program's 3.89 s of CPU time (6.6 %) go to sleeps shorter"
        ),
        "{headline}"
    );
    let text = text(&report, true, 100, false);
    assert!(
        text.contains("about 6.6 % of the program's CPU time") && !text.contains("least"),
        "{text}"
    );
}

#[test]
fn estimate_never_exceeds_process_cpu_time() {
    // A number that by the round trip alone they would have taken 25 s.
    let of = |cpu_ns| {
        let report = short_sleeps(10_000_000, cpu_ns);
        (report.findings[0].cost.expect("an estimate").ns_high, report.verdict[0].clone())
    };
    let (ns, headline) = of(Some(389_000_000));
    assert_eq!(ns, 389_000_000);
    assert!(headline.contains(" of CPU time (10 %) go to "), "{headline}");
    assert_eq!(of(None).0, 3_890_000_000, "where it is not known, all CPU time is the bound");
}

#[test]
fn shares_are_of_own_cpu_time() {
    // 91,234 calls, 16,700 of them futex calls, 13,680 sleeps and 812 preemptions.
    let mut observation = observation();
    let added = seen::AddedPrices { call_ns: 200, futex_call_ns: 500, sleep_ns: 4_800 };
    observation.totals.added = added;
    let report = Report::new(&observation, &mut symbols());
    let expected = 74_534 * 200 + 16_700 * 500 + 14_492 * 4_800;
    assert_eq!(report.summary.tracing_cpu_ns, Some(expected));
    assert_eq!(report.summary.own_cpu_ns(), 3_890_000_000 - expected);
    let cost = report.findings[0].cost.expect("it was measured");
    // A sleep each, and a call for the 96 that came back by another one.
    assert_eq!(cost.ns_low, 1_200_000_000 - 7_376 * 4_800 - 96 * 200);
    let whole = (3_890_000_000 - expected) as f64;
    assert!((cost.percent_low - cost.ns_low as f64 * 100.0 / whole).abs() < 1e-9, "{cost:?}");
    let text = text(&report, false, 200, false);
    assert!(text.contains("is tracing's, and left out of all shares: 200 ns a call"), "{text}");
    assert!(!self::text(&self::report(), false, 200, false).contains("tracing's"));
}

/// The fixture, a tenth of whose threads' time goes by without a processor.
fn with_time() -> Observation {
    let mut observation = observation();
    let by_class_ns = [4, 6, 4, 9, 20, 50, 4, 1, 2].map(|percent| percent * 1_000_000_000);
    let time = seen::TimeSpent { wall_ns: 100_000_000_000, by_class_ns };
    observation.time = time;
    let thread = |tid, wall_ns| seen::ThreadRow {
        pid: 4_000_000_200,
        tid,
        comm: "worker".into(),
        time: seen::TimeSpent { wall_ns, by_class_ns: [wall_ns, 0, 0, 0, 0, 0, 0, 0, 0] },
    };
    observation.threads = vec![thread(1, 5_000_000), thread(2, 9_000_000)];
    observation
}

#[test]
fn time_is_told_by_class() {
    let report = Report::new(&with_time(), &mut symbols());
    let text = text(&report, true, 140, false);
    for told in ["Time of the threads: 100 s in all", "asleep for descriptors", "50 %", "2 worker"]
    {
        assert!(text.contains(told), "{told:?} is not in\n{text}");
    }
    let json = json(&report);
    assert_eq!(json["time"]["classes"][5]["class"], "asleep_descriptor");
    assert_eq!(json["time"]["threads"][0]["tid"], 2, "the longest first");
    let unseen = self::report();
    assert_eq!(unseen.time, None, "what nobody saw is no zero");
}

#[test]
fn want_of_processors_never_leads() {
    let report = Report::new(&with_time(), &mut symbols());
    let found = report.findings.iter().find(|of| of.waste == Waste::NoProcessor);
    let cost = found.and_then(|of| of.cost).expect("it was measured");
    assert_eq!((cost.percent_low, cost.percent_high), (0.0, 10.0));
    assert!(report.verdict[0].contains("needless wakeups"), "{:?}", report.verdict);
    let mut alone = with_time();
    (alone.waits, alone.wakes, alone.futexes) = (Vec::new(), Vec::new(), Vec::new());
    (alone.locks, alone.stalls) = (Vec::new(), Vec::new());
    let verdict = Report::new(&alone, &mut symbols()).verdict;
    assert!(verdict[1].contains("waiting for a processor"), "{verdict:?}");
}

#[test]
fn wakers_site_stands_in_finding() {
    let report = report();
    let is_broadcast = |of: &&Finding| of.waste == Waste::NeedlessWakeups && of.call == "futex";
    let broadcast = report.findings.iter().find(is_broadcast).expect("the pool's");
    assert_eq!(broadcast.waker.as_ref().expect("it is traced").function, "pool::queue::push");
    let detail = broadcast.detail.as_deref().unwrap_or_default();
    assert!(detail.contains("woken by futex from pool::queue::push [jit]"), "{detail}");
}

#[test]
fn the_summary_adds_up() {
    let summary = report().summary;
    assert_eq!(summary.needless_wakeups, Some(Interval { proven: 7_376, possible: 10_888 }));
    let cpu = Interval { proven: 1_200_000_000, possible: 1_546_000_000 };
    assert_eq!(summary.needless_wakeups_cpu_ns, Some(cpu));
    assert_eq!((summary.empty_wakes, summary.refused_waits), (Some(11_000), Some(650)));
    assert_eq!(summary.empty_wakes_cpu_ns, Some(11_000 * 300));
    assert_eq!(summary.refused_waits_cpu_ns, Some(650 * 300));
    assert_eq!((summary.timer_polls, summary.short_sleeps), (Some(898), Some(25)));
    assert_eq!((summary.contended_locks, summary.stalls), (Some(1_510), Some(15)));
    assert_eq!(summary.contended_locks_cpu_ns, Some(3_000_000), "those that spin");
    assert_eq!(summary.herds, Some(1_000), "three events woke two with good cause");
    assert_eq!(summary.context_switches, 14_492);
}

#[test]
fn scheduler_locks_are_folded_into_switches() {
    // As if the spin locks were run queues': a quarter of the CPU time.
    let mut observation = observation();
    let kernel = |offset: u64| 0xffff_ffff_8100_0000 + offset;
    let frames = vec![kernel(0x1210), kernel(0x10), kernel(0x410), kernel(0x610)];
    observation.stacks.insert(StackId(9), seen::Stack { frames, truncated: false });
    observation.locks[0].kernel_stack = Some(StackId(9));
    observation.locks[0].total_ns = 972_500_000;
    let report = Report::new(&observation, &mut symbols());
    assert_eq!(report.summary.scheduler_locks_cpu_ns, Some(972_500_000));
    let is_own = |of: &Finding| of.waste == Waste::KernelLocks && of.call == "spin lock";
    assert!(!report.findings.iter().any(is_own), "{:?}", report.findings);
    let last = report.verdict.last().unwrap();
    assert!(
        last.starts_with("Switches: about 25 % of the program's CPU time goes to the scheduler's")
            && last.ends_with("29 % of all sleeps are futex from pool::queue::pop [jit], pool."),
        "{last}"
    );
}

#[test]
fn poll_is_reported_once_with_period() {
    let report = report();
    let about = |waste| report.findings.iter().filter(move |finding| finding.waste == waste);
    let polls: Vec<_> = about(Waste::TimerPolls).collect();
    assert_eq!(polls.len(), 1);
    assert_eq!(polls[0].site_text(), "clock_nanosleep from poll_for_work [jit], pool");
    assert_eq!(polls[0].detail.as_deref(), Some("every 10.0 ms"));
    assert!(about(Waste::NeedlessWakeups).all(|finding| finding.call != "clock_nanosleep"));
    // So are herds that the sleepers' side tells of.
    assert_eq!(about(Waste::Herd).count(), 0);
    let broadcast = about(Waste::NeedlessWakeups).find(|finding| finding.call == "futex");
    assert!(broadcast.is_some_and(|finding| finding.waker_stacks.is_some()));
}

/// Another program beside those of the fixture, with a wait site like the one at `like`.
fn with_another(like: usize, change: impl Fn(&mut seen::WaitRow)) -> Observation {
    const OTHER: u32 = 4_000_000_300;
    let mut observation = observation();
    let process = seen::Process { pid: OTHER, comm: "other".into(), ..Default::default() };
    observation.processes.push(process);
    let mut row = observation.waits[like].clone();
    row.pid = OTHER;
    change(&mut row);
    observation.waits.push(row);
    observation
}

/// What is said of needless wakeups in each program: its herd, if one is named.
fn herds_named(observation: &Observation) -> Vec<(String, Option<String>)> {
    let report = Report::new(observation, &mut symbols());
    let needless = |of: &&Finding| matches!(of.waste, Waste::NeedlessWakeups | Waste::Herd);
    let mut named: Vec<_> = report.findings.iter().filter(needless).collect();
    named.sort_by_key(|finding| (&finding.comm, finding.waste));
    named.into_iter().map(|of| (of.comm.clone(), of.detail.clone())).collect()
}

#[test]
fn herd_is_named_at_woken_program() {
    // A few needless wakeups in epoll, too few to be those of the server's herd.
    let few = with_another(0, |row| row.possibly_needless_in_herds = 0);
    let [other, pool, server] = &herds_named(&few)[..] else { panic!("{:?}", herds_named(&few)) };
    assert_eq!(*other, ("other".to_owned(), None));
    let herd = |of: &(String, Option<String>)| of.1.clone().unwrap_or_default();
    assert!(herd(server).contains("listening socket :8080"), "{server:?}");
    assert!(herd(pool).contains("woken by futex"), "{pool:?}");
    // As many as the server has: the herd may be either's, and stands for itself.
    let many = with_another(0, |row| {
        (row.needless_in_call, row.possibly_needless_in_herds) = (9_000, 40);
    });
    let named = herds_named(&many);
    let without = |comm: &str| named.contains(&(comm.to_owned(), None));
    assert!(without("other") && without("server"), "{named:?}");
    assert!(named.contains(&(String::new(), Some("500 herds of up to 16".into()))), "{named:?}");
}

#[test]
fn futexes_differ_between_programs() {
    let observation = with_another(16, |_| {});
    assert_eq!(observation.waits[16].object, Object::Futex(CONDITION));
    let named = herds_named(&observation);
    assert!(named.contains(&("other".to_owned(), None)), "{named:?}");
    let pool = named.iter().find(|(comm, _)| comm == "pool").and_then(|(_, herd)| herd.as_deref());
    assert!(pool.is_some_and(|herd| herd.contains("woken by futex")), "{named:?}");
}

#[test]
fn futex_calls_merge_by_site_and_word() {
    let mut observation = observation();
    let woken = seen::Outcomes { calls: 5, woke_one: 5, woken: 5, ..Default::default() };
    let again = FutexRow { outcomes: woken, ..futex(FutexKind::Wake, CONDITION, 14) };
    observation.futexes.push(again);
    let futexes = Report::new(&observation, &mut symbols()).futexes.expect("seen");
    assert_eq!(futexes.lines.len(), 3);
    let wake = &futexes.lines[0];
    assert_eq!((wake.kind, wake.word, wake.outcomes.calls), ("wake", CONDITION, 10_005));
    assert_eq!(wake.outcomes.woke_one, 505);
    assert_eq!(futexes.totals["wake"].calls, 12_005);
}

#[test]
fn callers_are_first_outside_scheduler() {
    let callers = report().callers;
    let names: Vec<&str> = callers.kernel.iter().map(|of| of.function.as_str()).collect();
    assert_eq!(names, ["ep_poll", "futex_wait", "do_nanosleep", "folio_wait_bit"]);
    assert_eq!(callers.kernel[0].sleeps, 16 * 540);
    assert_eq!(callers.kernel[0].sleeps_per_byte, Some(8_640.0 / 1_024.0));
    let sum = |of: &[Caller]| of.iter().map(|caller| caller.sleeps).sum::<u64>();
    assert_eq!(sum(&callers.kernel), sum(&callers.user));
    assert_eq!(callers.user[0].function, "epoll_pwait in worker_loop [jit]");
}

#[test]
fn profile_has_the_expected_columns() {
    let profile = report().consumers.expect("samples were taken");
    assert_eq!((profile.user_ticks, profile.kernel_ticks), (215, Some(408)));
    assert_eq!(profile.idle_ticks, Some(2_800));
    let first = &profile.functions[0];
    assert_eq!((first.function.as_str(), first.ticks), ("finish_task_switch", 320));
    assert_eq!(first.ticks_per_byte, Some(320.0 / 512.0));
    assert!((profile.functions.last().unwrap().cumulative_percent - 100.0).abs() < 1e-9);
}

#[test]
fn the_ledger_stands_beside_what_was_seen() {
    let ledger = &report().ledgers[0];
    assert_eq!(ledger.says_in_all["waits"], 100);
    assert_eq!((ledger.saw.waits, ledger.saw.wakeups), (100, Some(100)));
    assert_eq!(ledger.saw.needless_wakeups, Some(Interval::default()));
    assert_eq!(ledger.saw_elsewhere.waits, 4_900);
}

#[test]
fn unseen_counts_are_unknown_not_zero() {
    let report = Report::of_switches_only(&observation(), &mut symbols());
    let json = json(&report);
    for name in ["needless_wakeups", "wakeups", "empty_wakes", "timer_polls", "stalls", "herds"] {
        assert_eq!(json["summary"][name], Value::Null, "{name}");
    }
    assert_eq!(json["summary"]["sleeps"], 13_680);
    let wait = &json["waits"]["reasons"][0];
    for name in ["needless_wakeups", "wakeups", "uninterruptible_sleeps", "uninterruptible_ns"] {
        assert_eq!(wait[name], Value::Null, "{name}");
    }
    assert!(wait["waits"].is_u64());
    let reasons = json["waits"]["reasons"].as_array().expect("an array");
    assert!(reasons.iter().all(|wait| wait["reason"] != "no call"), "{reasons:?}");
    assert_eq!(json["trust"]["processes_running"], Value::Null);
    assert_eq!(json["ledgers"][0]["saw"]["wakeups"], Value::Null);
    assert!(report.findings.is_empty());
    assert!(report.verdict[0].starts_with("Not judged"), "{:?}", report.verdict);
    let text = text(&report, true, 100, false);
    let line = text.lines().find(|line| line.contains("needless wakeups,")).unwrap();
    assert!(line.ends_with("unknown"), "{line}");
    let exceeded = report.exceeded(&[budget("timer_polls=1000000"), budget("sleeps=1000000")]);
    assert_eq!(exceeded.len(), 1, "what cannot be counted keeps no budget");
    assert_eq!(exceeded[0].count, None);
}

#[test]
fn a_table_without_its_tracepoint_is_unknown() {
    let mut observation = observation();
    observation.locks.clear();
    assert_eq!(Report::new(&observation, &mut symbols()).kernel_locks, Some(Vec::new()));
    observation.missing.push(seen::Missing {
        tracepoint: "contention_begin".into(),
        consequence: "contended kernel locks are not seen".into(),
    });
    let report = Report::new(&observation, &mut symbols());
    assert_eq!((report.kernel_locks.clone(), report.summary.contended_locks), (None, None));
    assert!(text(&report, true, 100, false).contains("without contention_begin"));
}

#[test]
fn budgets_name_the_worst_site() {
    let report = report();
    let budgets = [
        "needless_wakeups.proven=7375",
        "needless_wakeups.possible=10888",
        "timer_polls=10",
        "herds=0",
        "lost_events=0",
    ];
    let exceeded = report.exceeded(&budgets.map(budget));
    let names: Vec<&str> = exceeded.iter().map(|of| of.name).collect();
    assert_eq!(names, ["needless_wakeups.proven", "timer_polls", "herds", "lost_events"]);
    let worst = exceeded[0].worst_site.as_deref().unwrap();
    assert!(worst.starts_with("epoll_pwait from worker_loop [jit], server, anon_inode"), "{worst}");
    assert_eq!(
        exceeded[1].to_string(),
        "timer_polls is 898, allowed are 10; the worst: clock_nanosleep from poll_for_work [jit], \
         pool"
    );
    assert!(exceeded[2].to_string().contains("listening socket :8080"));
    for count in Count::ALL {
        assert!(report.count(count).is_some(), "{count:?}");
    }
}

#[test]
fn json_follows_schema_and_is_stable() {
    let json = json(&report());
    assert_eq!(json["schema"], "unherd.trace/1");
    assert_eq!(json["summary"]["needless_wakeups"]["proven"], 7_376);
    assert_eq!(json["summary"]["needless_wakeups"]["possible"], 10_888);
    assert_eq!(json["waits"]["schema"], "unherd.waits/1");
    let wait = &json["waits"]["reasons"][0];
    assert_eq!(wait["reason"], "epoll_pwait", "the most needless CPU in one line");
    assert_eq!(wait["site"], "worker_loop [jit]");
    assert_eq!((&wait["needless_wakeups"], &wait["waits"]), (&461.into(), &540.into()));
    assert_eq!(wait["needless_wakeups_possible"], 463);
    assert!(json["findings"][0]["try"].as_str().unwrap().starts_with("EPOLLEXCLUSIVE"));
    let stack = json["findings"][0]["stacks"]["user"].as_u64().unwrap() as usize;
    assert_eq!(json["stacks"][stack]["frames"][0]["name"], "worker_loop");
    let mut turned = observation();
    turned.waits.reverse();
    turned.wakes.reverse();
    turned.futexes.reverse();
    let of = |observation| {
        let report = Report::new(observation, &mut symbols());
        (report.verdict.clone(), text(&report, true, 100, false))
    };
    assert_eq!(of(&turned), of(&observation()), "the order of rows says nothing");
}

#[test]
fn text_keeps_width_without_escapes() {
    let report = report();
    for width in [100, 140] {
        let text = text(&report, true, width, false);
        let columns = |line: &&str| line.chars().count() > width;
        assert_eq!(text.lines().filter(columns).collect::<Vec<_>>(), Vec::<&str>::new());
        assert!(!text.contains('\x1b'));
    }
    assert!(text(&report, false, 100, true).contains("\x1b[1m"));
    let (short, long) = (text(&report, false, 100, false), text(&report, true, 100, false));
    assert!(short.contains("What to try") && !short.contains("Top CPU consumers"));
    for heading in [
        "Herds",
        "Futexes",
        "Top 10 callers",
        "Top CPU consumers",
        "Contended kernel locks",
        "Needless sleeps",
        "Stalls",
        "What pool (4000000200) says",
        "Stacks of the top findings",
        "What is not in",
    ] {
        assert!(long.contains(&format!("\n{heading}")), "{heading}");
    }
    println!("{long}");
}

#[test]
fn all_that_was_lost_is_told() {
    let mut observation = observation();
    observation.losses = seen::Losses {
        ledgers: 2,
        ending_threads: 3,
        reused_pids: 4,
        sampler_records: 5,
        samples_without_room: 6,
        ..seen::Losses::default()
    };
    observation.processes[0].running = true;
    let report = Report::new(&observation, &mut symbols());
    assert_eq!(report.trust.lost_events, 5, "what the sampler lost is in no count");
    let text = text(&report, false, 0, false);
    for told in [
        "lost events: 5 ",
        "of these: threads that ended as tracing did 3, ledgers 2",
        "processes with the number of an earlier one, their counts together: at least 4",
        "processes that still ran when tracing ended: 1",
        "; records lost: 5; without room for their stacks: 6",
    ] {
        assert!(text.contains(told), "{told:?} is not in\n{text}");
    }
}

#[test]
fn names_of_others_cannot_steer_the_terminal() {
    let mut observation = observation();
    observation.processes[0].comm = "evil\u{1b}[2J\nname".into();
    let report = Report::new(&observation, &mut symbols());
    assert!(text(&report, true, 100, false).contains("evil?[2J?name"));
}

#[test]
fn folded_stacks_sum_to_needless_cpu() {
    let folded = |observation: &Observation| {
        let mut bytes = Vec::new();
        let report = Report::new(observation, &mut symbols());
        let weight = report.write_folded(&mut bytes).expect("memory takes it");
        let text = String::from_utf8(bytes).expect("text");
        let weight_of = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        (weight, text.lines().map(weight_of).sum::<u64>(), text)
    };
    let (weight, sum, text) = folded(&observation());
    assert_eq!((weight, sum), (FoldedWeight::NeedlessCpu, 1_546_000));
    assert!(text.contains("server;main;worker_loop;entry_SYSCALL_64_after_hwframe_[k];"), "{text}");
    let mut idle = observation();
    for row in &mut idle.waits {
        (row.needless_cpu_ns, row.possibly_needless_cpu_ns) = (0, 0);
    }
    let (weight, sum, _) = folded(&idle);
    assert_eq!((weight, sum), (FoldedWeight::Asleep, 173_130_000));
}

fn any_object() -> impl Strategy<Value = Object> {
    prop_oneof![
        Just(Object::None),
        (0..4u64).prop_map(|word| Object::Futex(word * 8)),
        any::<i32>().prop_map(Object::Descriptor),
        any::<u64>().prop_map(Object::Set),
        (0..3u16, any::<bool>()).prop_map(|(port, listening)| Object::Socket { port, listening }),
    ]
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![0..3u64, any::<u64>(), Just(u64::MAX)]
}

/// Counts that no kernel would deliver, stacks that do not exist, processes that nobody knows.
fn any_observation() -> impl Strategy<Value = Observation> {
    let rows = proptest::collection::vec(
        (0..30usize, any_object(), proptest::collection::vec(any_count(), 16), 0..20u32),
        0..12,
    );
    let totals = proptest::collection::vec(any_count(), 8);
    (rows, totals).prop_map(|(rows, totals)| {
        let mut observation = fixture::observation();
        for (index, object, counts, stack) in rows {
            let stacks = vec![seen::SampledStack {
                kernel: Some(StackId(stack)),
                user: Some(StackId(stack + 8)),
                count: counts[0],
            }];
            let waits = observation.waits.len();
            let wait = &mut observation.waits[index % waits];
            wait.object = object;
            wait.stacks.clone_from(&stacks);
            (wait.sleeps, wait.wakeups) = (counts[1], counts[2]);
            (wait.needless_in_call, wait.needless_again) = (counts[3], counts[4]);
            (wait.possibly_needless, wait.needless_cpu_ns) = (counts[5], counts[6]);
            (wait.possibly_needless_cpu_ns, wait.timer_polls) = (counts[7], counts[8]);
            (wait.timer_poll_ns, wait.short_sleeps) = (counts[9], counts[10]);
            (wait.timer_poll_cpu_ns, wait.possibly_needless_in_herds_cpu_ns) =
                (counts[11], counts[12]);
            let wakes = observation.wakes.len();
            let wake = &mut observation.wakes[index % wakes];
            wake.object = object;
            (wake.herds, wake.herd_woken, wake.largest) = (counts[11], counts[12], counts[13]);
            (wake.herd_needless, wake.herd_possibly) = (counts[3], counts[5]);
            let futexes = observation.futexes.len();
            let futex = &mut observation.futexes[index % futexes];
            (futex.outcomes.calls, futex.outcomes.woke_none) = (counts[14], counts[15]);
            futex.pid = stack;
            observation.locks[index % 2].total_ns = counts[6];
            observation.stalls[index % 2].count = counts[7];
        }
        observation.totals.user_ns = totals[0];
        observation.totals.system_ns = totals[1];
        observation.totals.threads = totals[2];
        observation.totals.switch_round_trip_ns = totals[3];
        observation.totals.futex_call_ns = totals[3] / 2;
        observation.ended_ns = totals[4];
        observation.losses.stacks_lost = totals[5];
        observation.losses.waits = totals[6];
        observation.cpus = usize::try_from(totals[7]).unwrap_or(usize::MAX);
        observation
    })
}

/// Every number under a name that says percent.
fn percents(value: &Value, found: &mut Vec<f64>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| percents(item, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                found.extend(value.as_f64().filter(|_| name.contains("percent")));
                percents(value, found);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_was_counted_the_report_holds_together(observation in any_observation()) {
        let report = Report::new(&observation, &mut symbols());
        prop_assert!((1..=5).contains(&report.verdict.len()));
        for finding in &report.findings {
            prop_assert!(finding.count.proven <= finding.count.possible);
            if let Some(cost) = finding.cost {
                prop_assert!(cost.ns_low <= cost.ns_high);
                prop_assert!(cost.percent_low <= cost.percent_high);
                prop_assert!(!cost.estimated || cost.ns_high <= report.summary.cpu_ns());
            }
        }
        let costs: Vec<f64> = report.findings.iter().map(Finding::weight).collect();
        prop_assert!(costs.is_sorted_by(|a, b| a >= b));
        let json = json(&report);
        let mut found = Vec::new();
        percents(&json, &mut found);
        prop_assert!(!found.is_empty());
        prop_assert!(found.iter().all(|share| (0.0..=100.0).contains(share)), "{:?}", found);
        let needless = report.summary.needless_wakeups.expect("judged");
        prop_assert!(needless.proven <= needless.possible);
        for (full, width) in [(true, 100), (false, 0), (true, 1)] {
            prop_assert!(!text(&report, full, width, false).is_empty());
        }
        report.write_folded(&mut Vec::new()).expect("memory takes it");
        let all: Vec<Budget> = Count::ALL.map(|count| Budget { count, limit: 0 }).into();
        let names: BTreeSet<_> = report.exceeded(&all).iter().map(|of| of.name).collect();
        prop_assert!(names.len() <= all.len());
    }
}

proptest! {
    // Each page takes long.
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn pages_and_profiles_hold_whatever_was_counted(observation in any_observation()) {
        let report = Report::new(&observation, &mut symbols());
        assert_has(&page_texts(&html(&report)), &report.verdict[0]);
        prop_assert_eq!(pprof_sums(&report).len(), 5);
    }
}
