//! A sweep: a table for each judged metric of each pair of sides, a line for each point; and how
//! throughput grows with the load.

use std::fmt::Write as _;

use super::compared::{columns, duration, median, title, word};
use super::comparison::finding;
use super::number::{number, percent};
use crate::plan::Plan;
use crate::result::{BenchResult, ComparisonLine, Point};
use crate::scaling::ScalingLine;
use crate::statistics::{Coefficients, Estimate, Usl};

/// Empty where nothing was swept.
pub(super) fn sweep(plan: &Plan, result: &BenchResult) -> String {
    if plan.cells.len() < 2 {
        return String::new();
    }
    let mut text = String::new();
    let (bases, others) = plan.sides();
    for judged in &plan.judged {
        for base in bases {
            for other in others {
                let lines: Vec<&ComparisonLine> = result
                    .comparisons
                    .iter()
                    .filter(|line| (&line.base, &line.label) == (&base.label, &other.label))
                    .filter(|line| line.metric == judged.metric)
                    .collect();
                text.push_str(&table(result, &lines));
            }
        }
    }
    for line in &result.scaling {
        text.push_str(&scaling(line, &line.apart(result)));
    }
    text
}

/// One metric of two sides at all points.
fn table(result: &BenchResult, lines: &[&ComparisonLine]) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let against = format!("{} against {}", first.label, first.base);
    let mut rows = vec![[title(&first.metric), first.base.clone(), first.label.clone(), against]];
    for line in lines {
        let median = |label: &str| median(result, &line.point, label, &line.metric);
        rows.push([
            line.point.apart(lines.iter().map(|line| &line.point)).to_string(),
            median(&line.base),
            median(&line.label),
            format!("{:<13}  {}", word(line), finding(line, result.delta)),
        ]);
    }
    format!("\n{}", columns("", &rows, &[0, 3]))
}

/// One throughput of one side over the loads: what a unit takes, and the law.
fn scaling(line: &ScalingLine, point: &Point) -> String {
    let ScalingLine { label, load, loads, knee, law, parts, .. } = line;
    let parts_named = parts_of(line);
    let mut text = format!("\n  {label}: {} by {load}{}", rate(line), point.suffix());
    if !parts_named.is_empty() {
        text.push_str("; what each one takes of a thread's time");
    }
    text.push('\n');
    let mut rows = load_rows(line);
    for (row, line) in rows[1..].iter_mut().zip(loads) {
        if *knee == Some(line.load) {
            row.push("<- knee".to_owned());
        }
    }
    let coefficient = |name: &str, of: fn(&Coefficients) -> f64| {
        let mut row = vec![name.to_owned(), String::new()];
        row.extend(parts_named.iter().map(|part| {
            let found = parts.iter().find(|line| line.part == *part);
            found.map_or_else(String::new, |line| duration(of(&line.coefficients)))
        }));
        row
    };
    if !parts.is_empty() {
        rows.push(coefficient("alone", |it| it.alone));
        rows.push(coefficient("× (N−1)", |it| it.contention));
        rows.push(coefficient("× N(N−1)", |it| it.crosstalk));
    }
    text.push_str(&columns("  ", &rows, &[0]));
    if !parts.is_empty() {
        text.push_str(
            "    The last three lines are a fit: what a unit takes alone, more with each other \
             load, and\n    with each pair of loads; below 0, less (docs/measuring.md).\n",
        );
    }
    if let Some(law) = law {
        text.push_str(&law_lines(line, law));
    }
    text
}

/// What grows with the load.
pub(crate) fn rate(line: &ScalingLine) -> &str {
    if line.metric == "wall_s" { "runs_per_s" } else { &line.metric }
}

/// The headings, then for each load its throughput and what a unit of work takes.
pub(crate) fn load_rows(line: &ScalingLine) -> Vec<Vec<String>> {
    let parts = parts_of(line);
    let mut heads = vec![line.load.clone(), rate(line).to_owned()];
    heads.extend(parts.iter().map(|part| part_title(part).to_owned()));
    let mut rows = vec![heads];
    for load in &line.loads {
        let mut row = vec![load.load.to_string(), number(load.per_s)];
        let second = |part: &&str| duration(load.parts_s.get(*part).copied().unwrap_or(0.0));
        row.extend(parts.iter().map(second));
        rows.push(row);
    }
    rows
}

fn law_lines(line: &ScalingLine, law: &Usl) -> String {
    let mut text = String::new();
    let at_a_time = match law.sigma.value {
        Some(share) if share > 1.0 => "more than all of the work: several do less than one alone",
        _ => "of the work goes one at a time",
    };
    for (name, found, what) in [
        ("alone (λ)", law.lambda, "a second"),
        ("contention (σ)", law.sigma, at_a_time),
        ("crosstalk (κ)", law.kappa, "for each pair"),
        ("peak", law.peak, "at most useful, by this law"),
    ] {
        let _ = writeln!(text, "    {name:<14}  {:<32}  {what}", estimate(found));
    }
    if let Some(worst) = worst(line) {
        let _ = writeln!(text, "    {worst}");
    }
    text
}

/// Where the law is furthest from what was measured.
pub(crate) fn worst(line: &ScalingLine) -> Option<String> {
    let (load, ratio) = line.furthest()?;
    Some(format!("the law is furthest off at {load}: by {}", percent(ratio)))
}

/// An estimate with its interval.
pub(crate) fn estimate(found: Estimate) -> String {
    let end = |value: Option<f64>| value.map_or_else(|| "infinite".to_owned(), short);
    let value = end(found.value);
    match (found.low, found.high) {
        (None, None) => value,
        (low, high) => format!("{value} ({} to {})", end(low), end(high)),
    }
}

/// Three significant digits, with a minus that can be seen; coefficients may be tiny.
fn short(value: f64) -> String {
    let text = match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1e-3 => format!("{:.2e}", size),
        size if size >= 1000.0 => number(size.round()),
        size => {
            let decimals = (2.0 - size.log10().floor()).clamp(0.0, 5.0) as usize;
            format!("{size:.decimals$}")
        }
    };
    if value < 0.0 { format!("−{text}") } else { text }
}

/// The parts of a unit of work in their order: on the CPU, asleep, the rest, the whole.
fn parts_of(line: &ScalingLine) -> Vec<&str> {
    let parts = line.loads.iter().flat_map(|load| load.parts_s.keys());
    let mut names: Vec<&str> = parts.map(String::as_str).collect();
    let place = |name: &&str| match *name {
        "user" => 0,
        "system" => 1,
        "rest" => 3,
        "whole" => 4,
        _ => 2,
    };
    names.sort_by_key(|name| (place(name), *name));
    names.dedup();
    names
}

/// A part's name for people.
fn part_title(part: &str) -> &str {
    match part {
        "rest" => "waiting, rest",
        "whole" => "together",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::round::Round;
    use crate::round::tests::round;

    /// Contention of 10 % for one side, and crosstalk beside it for the other.
    fn swept() -> (Plan, BenchResult) {
        let request = Request {
            seed: 3,
            delta: 0.02,
            threads: vec![8, 1, 2, 4],
            metrics: vec!["work_per_s".to_owned()],
            ..Request::default()
        };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        let mut rounds: Vec<Round> = Vec::new();
        for number in 1..=16 {
            for (cell, threads) in [8.0, 1.0, 2.0, 4.0_f64].into_iter().enumerate() {
                for (label, crosstalk) in [("before", 0.1), ("unherd", 0.0)] {
                    let others = threads - 1.0;
                    let cost = 1.0 + 0.1 * others + crosstalk * threads * others;
                    let jitter = 1.0 + 0.01 * f64::from((number as i32 * 7 + cell as i32) % 5 - 2);
                    let per_s = 1000.0 * threads / cost * jitter;
                    let mut round = Round { cell, ..round(number, label, 1e6 / per_s) };
                    round.metrics.extend(BTreeMap::from(
                        [("process_elapsed_s", 1.0), ("process_user_s", 0.7)]
                            .map(|(name, value)| (name.to_owned(), value)),
                    ));
                    round.metrics.insert("process_sys_s".to_owned(), 0.1);
                    round.waits = serde_json::json!([{"reason": "lock", "asleep_ns": 50_000_000}]);
                    rounds.push(round);
                }
            }
        }
        let result = BenchResult::new(&plan, &rounds, serde_json::Value::Null, Vec::new());
        (plan, result)
    }

    #[test]
    fn each_metric_has_a_table_over_the_sweep() {
        let (plan, result) = swept();
        let text = sweep(&plan, &result);
        for expected in [
            "  work_per_s  before  unherd  unherd against before\n",
            "  8 threads     1096    4706  BETTER         4.29 × better (4.29 to 4.29)\n",
            "\n  before: work_per_s by threads; what each one takes of a thread's time\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }

    #[test]
    fn the_law_and_the_knee_are_found() {
        let (_, result) = swept();
        let [before, unherd] = &*result.scaling else { panic!("{:?}", result.scaling) };
        assert_eq!((before.knee, unherd.knee), (Some(4), None));
        let within = |found: Estimate, truth: f64| {
            (found.low.unwrap()..=found.high.unwrap()).contains(&truth)
        };
        let law = before.law.unwrap();
        assert!(within(law.sigma, 0.1) && within(law.kappa, 0.1), "{law:?}");
        let text = scaling(before, &before.point);
        assert_eq!(text.matches("<- knee").count(), 1, "{text}");
        assert!(text.contains("asleep: lock"), "{text}");
    }

    #[test]
    fn parts_of_a_unit_add_up() {
        let (_, result) = swept();
        for line in &result.scaling {
            for load in &line.loads {
                let parts = load.parts_s.iter().filter(|(name, _)| *name != "whole");
                let sum: f64 = parts.map(|(_, seconds)| seconds).sum();
                assert!((sum / load.parts_s["whole"] - 1.0).abs() < 1e-9, "{load:?}");
            }
            let sum = |of: fn(&Coefficients) -> f64| -> f64 {
                let signed = |line: &crate::scaling::PartLine| {
                    if line.part == "whole" {
                        -of(&line.coefficients)
                    } else {
                        of(&line.coefficients)
                    }
                };
                line.parts.iter().map(signed).sum()
            };
            assert_eq!(line.parts.len(), 5, "user, system, asleep, rest, whole");
            assert!(sum(|it| it.alone).abs() < 1e-9 && sum(|it| it.crosstalk).abs() < 1e-9);
        }
    }

    #[test]
    fn estimates_have_three_digits() {
        let of = |value, low, high| estimate(Estimate { value, low, high });
        assert_eq!(of(Some(0.0513), Some(-0.000_12), Some(1234.6)), "0.0513 (−1.20e-4 to 1235)");
        assert_eq!(of(None, Some(65.6), None), "infinite (65.6 to infinite)");
        assert_eq!(of(None, None, None), "infinite");
        assert_eq!(of(Some(2.0), None, None), "2.00");
    }
}
