//! Verdict and summary are two accounts of one model, whatever the program.

use unherd_trace::Symbols;
use unherd_trace::report::Report;

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
