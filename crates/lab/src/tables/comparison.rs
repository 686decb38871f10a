//! Verdicts in words.

use std::fmt::Write as _;

use super::number;
use crate::result::{BenchResult, ComparisonLine, Point};
use crate::statistics::Verdict;

/// All comparisons at one point of the sweep, a sentence each.
pub(super) fn comparisons(result: &BenchResult, point: &Point) -> String {
    let lines: Vec<&ComparisonLine> =
        result.comparisons.iter().filter(|line| line.point == *point).collect();
    let Some(first) = lines.first() else {
        return String::new();
    };
    let mut text = format!("\n  compared with {} (ratios above 1 are better)\n", first.base);
    let width = lines.iter().map(|line| line.metric.len()).max().unwrap_or(0);
    for line in lines {
        let _ = writeln!(
            text,
            "    {:<width$}  {}: {}",
            line.metric,
            line.verdict.word().to_uppercase(),
            sentence(line, result.delta)
        );
    }
    text
}

fn sentence(line: &ComparisonLine, delta: f64) -> String {
    let label = &line.label;
    let level = match line.level {
        1.0 => "exact".to_owned(),
        level => format!("{} %, {} pairs", number((level * 1e4).round() / 1e2), line.pairs),
    };
    let range = match (line.low, line.high) {
        (Some(low), Some(high)) => format!("{} to {}; {level}", number(low), number(high)),
        (Some(low), None) => format!("{} to infinite; {level}", number(low)),
        _ => level,
    };
    let times = line.ratio.map_or_else(|| "infinitely many".to_owned(), number);
    match line.verdict {
        Verdict::Faster | Verdict::Slower => {
            format!("{label} is {times} times as good as {} ({range})", line.base)
        }
        Verdict::Same => {
            let within = number(delta * 100.0);
            format!("{label} is the same as {} within {within} % ({range})", line.base)
        }
        Verdict::CannotTell => {
            let effect = match line.smallest_effect {
                Some(ratio) => {
                    let percent = number(((ratio - 1.0) * 1e3).round() / 10.0);
                    format!("the smallest effect these pairs could have shown is {percent} %")
                }
                None => "there are too few pairs to tell anything".to_owned(),
            };
            format!("{label} may be {times} times as good ({range});\n        {effect}")
        }
        Verdict::NotExercised => {
            format!("{label} never used its mechanism here, so {times} ({range}) says nothing")
        }
    }
}
