//! A result as text. Pure; every table takes figures and gives lines.
//!
//! The order is the reports': what each implementation did, then the comparison with its interval
//! and verdict, then the waits.

mod compared;
mod comparison;
mod machines;
mod markdown;
mod number;
mod profile;
mod slices;
mod summary;
mod sweep;
mod tiotest;
mod trace;
mod transactions;
mod wait_account;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::plan::{Plan, Until};
use crate::printable::printable;
use crate::result::{BenchResult, Point};
use crate::round::Round;
use crate::size::format_size;
use crate::statistics::Better;

pub(crate) use compared::{columns, compared, shown, title, verdicts, word};
pub(crate) use comparison::finding;
pub(crate) use machines::own;
pub use markdown::markdown;
pub(crate) use number::{number, percent, times};
pub use summary::summary;
pub(crate) use sweep::{estimate, load_rows, rate, worst};
pub(crate) use transactions::TRANSACTIONS;
pub(crate) use wait_account::sites;

/// How far the rounds behind a table have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Some: figures without verdicts.
    SoFar,
    /// All of them.
    Done,
}

/// All tables of a result; those of medians have `metrics` in their order.
pub(crate) fn tables(
    plan: &Plan,
    metrics: &[String],
    result: &BenchResult,
    rounds: &[Round],
    progress: Progress,
) -> String {
    let mut text = heading(plan, result, rounds, progress);
    if let Some(report) = slices::report(plan, result) {
        text.push_str(&report);
    }
    text.push_str(&transactions::report(plan, result).unwrap_or_default());
    for cell in 0..plan.cells.len() {
        let point = Point::of(plan, cell);
        let _ = writeln!(text, "\n{}, {point}", plan.workload);
        let report = tiotest::report(plan, result, &point);
        let in_report_shape = report.is_some();
        if let Some(report) = report {
            text.push_str(&report);
        }
        text.push_str(&figures(plan, metrics, result, &point, in_report_shape));
        if progress == Progress::Done {
            text.push_str(&comparison::comparisons(result, &point));
        }
        text.push_str(&wait_account::waits(plan, result, &point));
        text.push_str(&match slices::is_shown(plan) {
            true => slices::profiles(result, &point),
            false => profile::profiles(result, &point),
        });
        text.push_str(&trace::traces(result, &point));
    }
    if progress == Progress::Done {
        text.push_str(&sweep::sweep(plan, result));
        text.push_str(&machines::machines(result));
    }
    text.push_str(&marks(result));
    printable(&text)
}

/// What a reader must know before believing the figures.
fn marks(result: &BenchResult) -> String {
    let mut text = String::new();
    if !result.marks.is_empty() {
        text.push_str("\nBefore believing these figures:\n");
        for mark in &result.marks {
            let _ = writeln!(text, "  * {mark}");
        }
    }
    text
}

/// How many rounds have every contender in every cell, from the round's number of each process.
pub(crate) fn whole_rounds(plan: &Plan, numbers: impl Iterator<Item = usize>) -> usize {
    let mut processes: BTreeMap<usize, usize> = BTreeMap::new();
    for number in numbers {
        *processes.entry(number).or_default() += 1;
    }
    let whole = plan.cells.len() * plan.contenders.len();
    processes.into_values().filter(|&of_round| of_round == whole).count()
}

/// How far the rounds have come: their numbers are those of the processes that count.
pub(crate) fn rounds_finished(plan: &Plan, numbers: impl Iterator<Item = usize> + Clone) -> String {
    let Some(Until { pilot, .. }) = plan.until else {
        return format!("{} of {} rounds", whole_rounds(plan, numbers), plan.rounds);
    };
    match whole_rounds(plan, numbers.clone().filter(|&number| number > pilot)) {
        0 => format!("{} of {pilot} rounds of the pilot", whole_rounds(plan, numbers)),
        1 => format!("1 round after a pilot of {pilot}"),
        done => format!("{done} rounds after a pilot of {pilot}"),
    }
}

/// How many of all rounds are complete.
fn rounds_done(done: usize, of: usize) -> String {
    match done {
        0 => format!("no complete round of {of}"),
        done if done == of => format!("{done} rounds"),
        done => format!("{done} of {of} rounds"),
    }
}

/// How the rounds that are told were run.
fn order(rounds: &str, seed: u64) -> String {
    format!("{rounds}, each a fresh process, in random order from seed {seed}")
}

fn heading(plan: &Plan, result: &BenchResult, rounds: &[Round], progress: Progress) -> String {
    let contenders: Vec<&str> = plan.contenders.iter().map(|c| &*c.label).collect();
    let options: Vec<String> = result
        .params
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name} {text}"),
            None => format!("{name} {value}"),
        })
        .collect();
    let mut text = format!("{}: {}\n", plan.workload, contenders.join(", "));
    if !options.is_empty() {
        let _ = writeln!(text, "{}", options.join(", "));
    }
    let (done, of) = (whole_rounds(plan, rounds.iter().map(|round| round.round)), plan.rounds);
    let _ = match progress {
        Progress::SoFar => writeln!(text, "{done} of {of} rounds, not judged yet"),
        Progress::Done if plan.deterministic => {
            writeln!(text, "nothing is random or timed: the figures are the same in each round")
        }
        Progress::Done => writeln!(text, "{}", order(&rounds_done(done, of), plan.seed)),
    };
    text
}

/// The judged metrics with their ranges, then the medians of the others side by side. In the
/// report's shape the first are there already, and the others would bury them: those stay in the
/// JSON.
fn figures(
    plan: &Plan,
    metrics: &[String],
    result: &BenchResult,
    point: &Point,
    in_report_shape: bool,
) -> String {
    let mut text = String::new();
    for judged in &plan.judged {
        text.push_str(&ranges(plan, result, point, &judged.metric, judged.better));
    }
    let others: Vec<&str> = metrics
        .iter()
        .map(String::as_str)
        .filter(|name| plan.judged.iter().all(|judged| judged.metric != *name))
        .filter(|name| !in_report_shape || name.starts_with("process_"))
        .collect();
    text.push_str(&side_by_side(plan, result, point, &others));
    text
}

/// One metric: median, smallest and largest of each implementation.
fn ranges(
    plan: &Plan,
    result: &BenchResult,
    point: &Point,
    metric: &str,
    better: Better,
) -> String {
    let side = match better {
        Better::Lower => " (less is better)",
        Better::Higher => " (more is better)",
        Better::Neither => "",
    };
    let title = format!("{metric}{side}");
    let mut text = format!("\n  {title:<44}{:>12}{:>12}{:>12}\n", "median", "min", "max");
    for contender in &plan.contenders {
        if let Some(line) = result.summary_of(point, &contender.label, metric) {
            let _ = writeln!(
                text,
                "    {:<42}{:>12}{:>12}{:>12}",
                contender.label,
                number(line.median),
                number(line.min),
                number(line.max)
            );
        }
    }
    text
}

/// Medians only, a column for each implementation.
fn side_by_side(plan: &Plan, result: &BenchResult, point: &Point, metrics: &[&str]) -> String {
    let width = plan.contenders.iter().map(|c| c.label.len()).max().unwrap_or(0).max(10) + 2;
    let mut rows = String::new();
    for &metric in metrics {
        let medians: Vec<Option<f64>> = plan
            .contenders
            .iter()
            .map(|c| result.summary_of(point, &c.label, metric).map(|line| line.median))
            .collect();
        if medians.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(rows, "  {metric:<34}");
        let shown = |median| match metric.ends_with("_bytes") {
            true => format_size(median as u64),
            false => number(median),
        };
        for median in medians {
            let _ = write!(rows, "{:>width$}", median.map_or_else(|| "-".to_owned(), shown));
        }
        rows.push('\n');
    }
    if rows.is_empty() {
        return rows;
    }
    let mut text = format!("\n  {:<34}", "medians");
    for contender in &plan.contenders {
        let _ = write!(text, "{:>width$}", contender.label);
    }
    text.push('\n');
    text.push_str(&rows);
    text
}

#[cfg(test)]
mod tests;
