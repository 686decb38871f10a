//! Verdict and summary are two accounts of one model, whatever the program.

use unherd_trace::Symbols;
use unherd_trace::advice::Waste;
use unherd_trace::report::{Cost, Finding, Report};

use crate::session::root;
use crate::stacks::report_with;

/// Below this share waste may be called little.
const LITTLE_PERCENT: f64 = 1.0;

fn most(finding: &Finding) -> f64 {
    finding.cost.map_or(0.0, |cost| cost.percent_high)
}

fn assert_agrees(scene: &str, report: &Report) {
    let verdict = report.verdict.join("\n");
    println!("{scene}:\n{verdict}\n");
    let largest = report.findings.iter().rev().max_by(|a, b| most(a).total_cmp(&most(b)));
    let largest = largest.filter(|finding| most(finding) >= LITTLE_PERCENT);
    let named = largest.is_none_or(|finding| verdict.contains(&finding.site_text()));
    assert!(named, "{scene}: {largest:?} is not in\n{verdict}");
    let summary = &report.summary;
    let needless_ns = summary.needless_wakeups_cpu_ns.expect("wakeups were judged");
    let polls_ns = summary.timer_polls_cpu_ns.expect("they were");
    let is_little = |ns: u64| ns as f64 * 100.0 < LITTLE_PERCENT * summary.cpu_ns() as f64;
    if verdict.starts_with("Little") || verdict.starts_with("Nothing needless") {
        assert!(is_little(needless_ns.possible) && is_little(polls_ns), "{summary:?}\n{verdict}");
    }
    // The findings divide what the summary adds up.
    let of = |waste, end: fn(&Cost) -> u64| -> u64 {
        let findings = report.findings.iter().filter(|finding| finding.waste == waste);
        findings.filter_map(|finding| finding.cost.as_ref()).map(end).sum()
    };
    let ends = (
        of(Waste::NeedlessWakeups, |cost| cost.ns_low),
        of(Waste::NeedlessWakeups, |cost| cost.ns_high),
    );
    assert_eq!(ends, (needless_ns.proven, needless_ns.possible), "{scene}");
    assert_eq!(of(Waste::TimerPolls, |cost| cost.ns_high), polls_ns, "{scene}");
}

#[test]
fn root_verdicts_agree_with_their_summaries() {
    let Some(_machine) = root("verdicts and summaries") else { return };
    let scenes = [
        "accept 8 100 0 0",
        "accept 8 100 0 1",
        "monitor 8 100 0 0",
        "monitor 8 100 1 1",
        "monitor 4 30 0 2",
        "roll 8 50 0",
        "roll 8 50 1",
        "lookout 20 5",
        "produce 50",
        "guard 50",
        "compute 50",
        "look 50 0",
        "look 50 1",
        "eventfd 20 5",
        "futexes 50 50",
        "threads 50",
    ];
    // What is read of files is kept from one scene to the next.
    let mut symbols = Symbols::new();
    for scene in scenes {
        assert_agrees(scene, &report_with(scene, &mut symbols).1);
    }
}

/// Whether a herd's cure is advised for a wakeup.
fn advises_signal(report: &Report) -> bool {
    let mut advice = report.findings.iter().filter_map(|finding| finding.advice);
    advice.any(|advice| advice.pattern == "broadcast")
}

#[test]
fn root_work_after_each_wakeup_is_no_waste() {
    let Some(_machine) = root("threads with work") else { return };
    let mut symbols = Symbols::new();
    for scene in ["barrier 8 20", "pool 4 60"] {
        let (_seen, report) = report_with(scene, &mut symbols);
        let verdict = report.verdict.join("\n");
        println!("{scene}:\n{verdict}\n");
        assert!(verdict.starts_with("Nothing was found that is likely"), "{scene}:\n{verdict}");
        assert!(verdict.contains("or to useful work"), "{scene}:\n{verdict}");
        assert!(!verdict.contains("Try:") && !advises_signal(&report), "{:?}", report.findings);
    }
    let (_seen, report) = report_with("monitor 8 100 0 0", &mut symbols);
    assert!(report.verdict[0].starts_with("Up to"), "{:?}", report.verdict);
    assert!(advises_signal(&report), "{:?}", report.findings);
}
