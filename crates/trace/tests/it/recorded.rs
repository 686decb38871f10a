//! What reports say in words, against what they say in numbers: reports recorded as JSON.
//!
//! Each file in `tests/recorded` is a report of a real program, without its stacks and tables.

use std::fs;

use serde_json::Value;

/// Below this share waste may be called little.
const LITTLE_PERCENT: f64 = 1.0;

fn percent(finding: &Value, end: &str) -> f64 {
    finding["cost"][end].as_f64().unwrap_or_default()
}

/// Both ends of a summary's CPU time, in percent of the program's.
fn share(summary: &Value, ns: &Value) -> f64 {
    let number = |of: &Value| of.as_f64().unwrap_or_default();
    let cpu_ns = number(&summary["user_ns"]) + number(&summary["system_ns"])
        - number(&summary["tracing_cpu_ns"]);
    number(ns) * 100.0 / cpu_ns.max(1.0)
}

/// Where the verdict of a report denies its own numbers.
pub(crate) fn contradictions(report: &Value) -> Vec<String> {
    let lines: Vec<&str> =
        report["verdict"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let verdict = lines.join("\n");
    let (summary, findings) = (&report["summary"], report["findings"].as_array());
    let findings: Vec<&Value> = findings.into_iter().flatten().collect();
    let mut found = Vec::new();
    // The finding that may cost most is named, but where a lead about locks explains it.
    let explained = |of: &Value| {
        let of_lock = ["lock", "interpreter_lock"].iter().any(|lock| of["through"] == *lock);
        of_lock && of["try"].is_null() && verdict.contains("waiting for locks")
    };
    let most = findings
        .iter()
        .rev()
        .filter(|of| !explained(of))
        .max_by(|a, b| percent(a, "percent_high").total_cmp(&percent(b, "percent_high")));
    if let Some(most) = most.filter(|of| percent(of, "percent_high") >= LITTLE_PERCENT) {
        let site = most["site"]["function"].as_str().unwrap_or_default();
        let no_processor = most["waste"] == "no_processor";
        if no_processor && !verdict.contains("waiting for a processor") {
            found.push("want of processors may cost most and is not in the verdict".to_owned());
        }
        if !no_processor
            && !["from", "in"].iter().any(|at| verdict.contains(&format!("{at} {site}")))
        {
            found.push(format!("{site} may cost most and is not in the verdict"));
        }
    }
    // What is called little is little, by the summary too.
    let needless = &summary["needless_wakeups_cpu_ns"];
    let (proven, possible) =
        (share(summary, &needless["proven"]), share(summary, &needless["possible"]));
    let polls = share(summary, &summary["timer_polls_cpu_ns"]);
    let little = verdict.starts_with("Little to gain") || verdict.starts_with("Nothing needless");
    if little && possible.max(polls) >= LITTLE_PERCENT {
        found.push(format!("called little: {possible:.1} % of wakeups, {polls:.1} % of polls"));
    }
    let unlikely = verdict.starts_with("Nothing was found that is likely");
    // Of polls all is only possible, and as much is likely as a look takes.
    let likely =
        |of: &&Value| percent(of, "percent_high") * of["likely_share"].as_f64().unwrap_or(1.0);
    let polls: f64 = findings.iter().filter(|of| of["waste"] == "timer_polls").map(likely).sum();
    if unlikely && proven.max(polls) >= LITTLE_PERCENT {
        found.push(format!("called unlikely: {proven:.1} % of wakeups, {polls:.1} % of polls"));
    }
    if verdict.contains("none of them needless") && possible > 0.0 {
        found.push("none is needless, and some are".to_owned());
    }
    // The findings divide what the summary adds up.
    for (waste, end, sum) in [
        ("needless_wakeups", "ns_low", &needless["proven"]),
        ("needless_wakeups", "ns_high", &needless["possible"]),
        ("timer_polls", "ns_high", &summary["timer_polls_cpu_ns"]),
    ] {
        let parts = findings.iter().filter(|finding| finding["waste"] == waste);
        let parts: u64 = parts.filter_map(|finding| finding["cost"][end].as_u64()).sum();
        if parts != sum.as_u64().unwrap_or_default() {
            found.push(format!("{waste}, {end}: findings have {parts}, the summary has {sum}"));
        }
    }
    // What may be useful does not lead, and has no cure.
    if lines.first().is_some_and(|line| line.contains("or to useful work")) {
        found.push("what may be useful leads".to_owned());
    }
    for finding in &findings {
        let possible_only =
            finding["waste"] == "needless_wakeups" && finding["count"]["proven"] == 0;
        if unlikely && possible_only && !finding["try"].is_null() {
            found.push(format!("a cure for what is not likely: {}", finding["try"]));
        }
    }
    found
}

fn recorded() -> Vec<(String, Value)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded");
    let files = fs::read_dir(directory).expect("reports were recorded").flatten();
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).expect("it is a file");
        (path.display().to_string(), serde_json::from_str(&text).expect("it is JSON"))
    };
    files.map(|file| read(file.path())).collect()
}

#[test]
fn recorded_verdicts_do_not_deny_their_numbers() {
    let reports = recorded();
    assert!(reports.len() >= 5, "{}", reports.len());
    for (path, report) in &reports {
        let found = contradictions(report);
        assert!(found.is_empty(), "{path}: {found:?}\n{:#}", report["verdict"]);
    }
}

#[test]
fn a_false_verdict_is_noticed() {
    for (path, mut report) in recorded() {
        let possible = &report["summary"]["needless_wakeups_cpu_ns"]["possible"];
        if share(&report["summary"], possible) < LITTLE_PERCENT {
            continue;
        }
        report["verdict"] = serde_json::json!(["Little to gain: no waste costs 1 % or more."]);
        assert!(contradictions(&report).len() >= 2, "{path}");
        report["findings"].as_array_mut().expect("it is one").clear();
        assert!(contradictions(&report).iter().any(|of| of.contains("the summary has")), "{path}");
    }
}
