//! Verdicts in words, a line each, in columns.

use std::fmt::Write as _;

use super::number::{number, percent, times, times_apart};
use crate::result::{BenchResult, ComparisonLine, Point};
use crate::statistics::{ALPHA, OUTLIER, Tail, Verdict};

/// All comparisons at one point of the sweep.
pub(super) fn comparisons(result: &BenchResult, point: &Point) -> String {
    let lines: Vec<&ComparisonLine> =
        result.comparisons.iter().filter(|line| line.point == *point).collect();
    let width = |of: fn(&ComparisonLine) -> &str| {
        lines.iter().map(|line| of(line).chars().count()).max().unwrap_or(0)
    };
    let (metric, label) = (width(|line| &line.metric), width(|line| &line.label));
    let mut text = String::new();
    let mut base = "";
    for line in &lines {
        if line.base != base {
            base = &line.base;
            let _ = writeln!(text, "\n  compared with {base} ({})", certainty(result, line));
        }
        let _ = writeln!(
            text,
            "    {:<metric$}  {:<label$}  {:<13}  {}",
            line.metric,
            line.label,
            line.verdict.word().to_uppercase(),
            found(line, result.delta, word_of(line), 6)
        );
        if let Some(tail) = &line.tail {
            text.push_str(&tail_lines(line, tail, result.comparisons.len()));
        }
    }
    text
}

/// How sure the intervals below are: one level for all.
fn certainty(result: &BenchResult, line: &ComparisonLine) -> String {
    if line.level == 1.0 {
        return "exact".to_owned();
    }
    let together = number(100.0 * (1.0 - ALPHA));
    match result.comparisons.len() {
        1 => format!("{} pairs, {together} % sure", line.pairs),
        all => {
            format!("{} pairs; all {all} intervals hold together, {together} % sure", line.pairs)
        }
    }
}

/// The ratio with its interval, in the words of the verdict, and what other layouts said of it.
pub(crate) fn finding(line: &ComparisonLine, delta: f64) -> String {
    found(line, delta, word_of(line), 0)
}

/// The same where better or worse has been said.
pub(super) fn how_much(line: &ComparisonLine, delta: f64) -> String {
    found(line, delta, "", 0)
}

/// `width` is that of a number of times.
fn found(line: &ComparisonLine, delta: f64, word: &str, width: usize) -> String {
    let confirmed = match line.confirmed {
        None => "",
        Some(true) => ", confirmed with other layouts",
        Some(false) => ", not confirmed with other layouts",
    };
    let worse = |ratio: Option<f64>| ratio.map_or(0.0, f64::recip);
    let better = |ratio: Option<f64>| ratio.unwrap_or(f64::INFINITY);
    let apart = |[ratio, low, high]: [f64; 3]| {
        let (low, high) = (times_apart(low), times_apart(high));
        let word = if word.is_empty() { String::new() } else { format!(" {word}") };
        format!("{:>width$} ×{word} ({low} to {high})", times(ratio))
    };
    let found = match line.verdict {
        Verdict::Faster => apart([line.ratio, line.low, line.high].map(better)),
        Verdict::Slower => apart([line.ratio, line.high, line.low].map(worse)),
        Verdict::Same => {
            format!("within {} % ({})", number(delta * 100.0), range(line))
        }
        Verdict::CannotTell if !line.has_interval() => "too few pairs to tell anything".to_owned(),
        Verdict::CannotTell => {
            let delta = number(delta * 100.0);
            let find = match line.rounds_to_find {
                Some(rounds) => format!("{rounds} rounds would find {delta} % in 9 of 10 benches"),
                None => format!("to find {delta} % takes more than 500 rounds"),
            };
            format!("{}; {find}", range(line))
        }
        Verdict::NotExercised => {
            format!("its mechanism was never used, so {} says nothing", range(line))
        }
    };
    found + confirmed
}

/// The verdict in the words of its metric: only times are faster.
pub(super) fn word_of(line: &ComparisonLine) -> &'static str {
    match (line.verdict, is_time(&line.metric)) {
        (Verdict::Faster, false) => "better",
        (Verdict::Slower, false) => "worse",
        (verdict, _) => verdict.word(),
    }
}

/// Whether a metric is a time, by the first unit in its name: `cpu_us_per_event` is one, and
/// `mb_per_s` is a rate.
pub(super) fn is_time(metric: &str) -> bool {
    let words: Vec<&str> = metric.split(|c: char| !c.is_alphanumeric()).collect();
    let is_rate = words.contains(&"per") && !words.iter().take_while(|w| **w != "per").any(is_unit)
        || metric.ends_with("/s");
    !is_rate && words.iter().any(is_unit)
}

fn is_unit(word: &&str) -> bool {
    ["s", "ms", "us", "ns"].contains(word)
}

/// What remains possible.
fn range(line: &ComparisonLine) -> String {
    let end = |ratio: Option<f64>| ratio.map_or_else(|| "infinite".to_owned(), percent);
    format!("{} to {}", end(line.low), end(line.high))
}

/// Where the middle hides something: worst rounds or scatter that differ.
pub(super) fn tail_lines(line: &ComparisonLine, tail: &Tail, comparisons: usize) -> String {
    let ComparisonLine { label, base, pairs, .. } = line;
    let mut text = String::new();
    if tail.worst_differ() {
        let _ = writeln!(
            text,
            "      but the worst round of {label} was {} × its median, of {base} {} ×; rounds \
             above {OUTLIER} ×: {} and {} of {pairs}",
            times(tail.worst),
            times(tail.base_worst),
            tail.outliers,
            tail.base_outliers
        );
    }
    if tail.spread_differs(comparisons) {
        let (more, less, ratio) = if tail.spread_ratio >= 1.0 {
            (label, base, tail.spread_ratio)
        } else {
            (base, label, tail.spread_ratio.recip())
        };
        let _ = writeln!(
            text,
            "      but the rounds of {more} scatter {} × as widely around their median as those of \
             {less}",
            times(ratio)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::tests::line;

    #[test]
    fn each_verdict_has_its_sentence() {
        let said = |low, high, verdict| finding(&line(low, high, verdict), 0.02);
        assert_eq!(said(1.94, 4.22, Verdict::Faster), "3.08 × faster (1.94 to 4.22)");
        assert_eq!(said(0.25, 0.5, Verdict::Slower), "2.67 × slower (2.00 to 4.00)");
        assert_eq!(said(0.996, 1.009, Verdict::Same), "within 2 % (−0.4 % to +0.9 %)");
        let mut some = line(0.984, 1.036, Verdict::CannotTell);
        some.rounds_to_find = Some(20);
        let expected = "−1.6 % to +3.6 %; 20 rounds would find 2 % in 9 of 10 benches";
        assert_eq!(finding(&some, 0.02), expected);
        some.rounds_to_find = None;
        assert!(finding(&some, 0.02).ends_with("to find 2 % takes more than 500 rounds"));
        (some.low, some.high) = (None, None);
        assert_eq!(finding(&some, 0.02), "too few pairs to tell anything");
        let mut infinite = line(2.0, 3.0, Verdict::Faster);
        (infinite.ratio, infinite.high) = (None, None);
        let expected = "infinitely many × faster (2.00 to infinitely many)";
        assert_eq!(finding(&infinite, 0.02), expected);
    }

    #[test]
    fn only_times_are_faster() {
        for metric in ["wall_s", "cpu_us_per_event", "read_s", "Decode-8 ns/op", "fib 20 ns"] {
            assert!(is_time(metric), "{metric}");
        }
        for metric in ["mb_per_s", "work_per_s", "mb_per_cpusec", "Decode-8 MB/s", "peak_bytes"] {
            assert!(!is_time(metric), "{metric}");
        }
    }

    #[test]
    fn worst_rounds_are_printed_beside_same() {
        let tail = Tail {
            base_worst: 1.02,
            worst: 3.1,
            base_outliers: 0,
            outliers: 2,
            spread_ratio: 0.2,
            spread_p_value: 0.001,
        };
        let text = tail_lines(&line(0.99, 1.01, Verdict::Same), &tail, 8);
        let expected = "      but the worst round of unherd was 3.10 × its median, of before 1.02 \
                        ×; rounds above 1.5 ×: 2 and 0 of 6\n      but the rounds of before \
                        scatter 5.00 × as widely around their median as those of unherd\n";
        assert_eq!(text, expected);
        let calm = Tail { worst: 1.1, spread_p_value: 0.01, ..tail };
        assert_eq!(tail_lines(&line(0.99, 1.01, Verdict::Same), &calm, 8), "");
    }
}
