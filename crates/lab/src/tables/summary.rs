//! The last lines: what was shown, in sentences.

use std::fmt::Write as _;

use super::compared::{mostly_disturbed, too_few};
use super::comparison::how_much;
use crate::prepared_machine::NO_CGROUP;
use crate::printable::printable;
use crate::result::{BenchResult, ComparisonLine};
use crate::statistics::Verdict;

/// A line of heading, then a sentence for each base and each that is compared with it: where it is
/// better, where worse, and so on. `about` says in words what a base is. Empty where nothing was
/// compared; one line where the pairs are too few for any verdict.
pub fn summary<'a>(result: &BenchResult, about: impl Fn(&str) -> Option<&'a str>) -> String {
    if let Some(line) = too_few(result) {
        return line;
    }
    let mut text = String::new();
    let mut done: Vec<(&str, &str)> = Vec::new();
    for line in &result.comparisons {
        let sides = (&*line.base, &*line.label);
        if done.contains(&sides) {
            continue;
        }
        done.push(sides);
        let lines: Vec<&ComparisonLine> = result
            .comparisons
            .iter()
            .filter(|other| (&*other.base, &*other.label) == sides)
            .collect();
        if text.is_empty() {
            let suffix = common_suffix(&lines);
            let of = if suffix.is_empty() { String::new() } else { format!(", by {suffix}") };
            let _ = writeln!(text, "What was shown{of}:");
        }
        let base = match about(sides.0) {
            Some(about) => format!("{} ({about})", sides.0),
            None => sides.0.to_owned(),
        };
        text.push_str(&of_sides((&base, sides.1), &lines, result.delta));
    }
    text.push_str(mostly_disturbed(result));
    text.push_str(more_for_the_kernel(result));
    printable(&text)
}

/// Whether the sides were compared with the kernel, which had more memory.
fn more_for_the_kernel(result: &BenchResult) -> &'static str {
    let is_kernel = |line: &ComparisonLine| {
        [&line.base, &line.label].into_iter().any(|side| side.starts_with("kernel"))
    };
    let had_all = result.marks.iter().any(|mark| mark.starts_with(NO_CGROUP));
    match had_all && result.comparisons.iter().any(is_kernel) {
        true => {
            "The kernel's page cache had all of the machine's memory: in a memory cgroup (as root) \
             it gets as much as --memory says.\n"
        }
        false => "",
    }
}

fn of_sides((base, label): (&str, &str), lines: &[&ComparisonLine], delta: f64) -> String {
    let suffix = common_suffix(lines);
    let place = |line: &ComparisonLine| {
        let name = line.metric.strip_suffix(suffix).unwrap_or(&line.metric).trim_end_matches('_');
        let name = if name.is_empty() { &line.metric } else { name };
        let several = lines.iter().any(|other| other.point != line.point);
        match several {
            true => {
                let point = line.point.apart(lines.iter().map(|line| &line.point)).to_string();
                match lines.iter().any(|other| other.metric != line.metric) {
                    true => format!("{} at {point}", name.replace('_', " ")),
                    false => point,
                }
            }
            false => name.replace('_', " "),
        }
    };
    let list = |verdict: Verdict| -> Vec<String> {
        let meant = lines.iter().filter(|line| line.verdict == verdict);
        meant
            .map(|line| {
                let found = how_much(line, delta);
                format!("{} {}", place(line), found.split(';').next().unwrap_or_default())
            })
            .collect()
    };
    let of_verdict = |(verdict, words)| {
        let list = list(verdict);
        let named = || format!("{words} in {} of {}: {}", list.len(), lines.len(), list.join(", "));
        (!list.is_empty()).then(named)
    };
    let parts = [
        (Verdict::Faster, "better"),
        (Verdict::Slower, "worse"),
        (Verdict::Same, "the same"),
        (Verdict::CannotTell, "not told apart"),
        (Verdict::NotExercised, "without use of its mechanism"),
    ];
    let parts: Vec<String> = parts.into_iter().filter_map(of_verdict).collect();
    format!("Against {base}, {label} is {}.\n", parts.join(";\n  "))
}

/// What all metrics end in, from an underscore on: `mb_per_cpusec` of several phases.
fn common_suffix<'a>(lines: &[&'a ComparisonLine]) -> &'a str {
    let Some(first) = lines.first() else { return "" };
    let whole = std::iter::once(&*first.metric);
    let parts = first.metric.match_indices('_').map(|(at, _)| &first.metric[at + 1..]);
    let is_end = |metric: &str, suffix: &str| {
        metric.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    };
    whole
        .chain(parts)
        .find(|suffix| lines.iter().all(|line| is_end(&line.metric, suffix)))
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::tests::{line, result};

    #[test]
    fn the_better_and_the_worse_stand_in_sentences() {
        let of = |base: &str, metric: &str, line: ComparisonLine| ComparisonLine {
            base: base.to_owned(),
            metric: metric.to_owned(),
            ..line
        };
        let lines = vec![
            of("kernel", "write_mb_per_cpusec", line(6.0, 8.0, Verdict::Faster)),
            of("kernel", "random_read_mb_per_cpusec", line(0.984, 1.036, Verdict::CannotTell)),
            of("kernel", "read_mb_per_cpusec", line(0.25, 0.5, Verdict::Slower)),
            of("unherd-nofilter", "write_mb_per_cpusec", line(0.996, 1.009, Verdict::Same)),
        ];
        let expected = "\
What was shown, by mb_per_cpusec:
Against kernel (its page cache), unherd is better in 1 of 3: write 7.00 × (6.00 to 8.00);
  worse in 1 of 3: read 2.67 × (2.00 to 4.00);
  not told apart in 1 of 3: random read −1.6 % to +3.6 %.
Against unherd-nofilter, unherd is the same in 1 of 1: write mb per cpusec within 2 % \
         (−0.4 % to +0.9 %).
";
        let about = |name: &str| (name == "kernel").then_some("its page cache");
        let mut result_of = result(lines);
        assert_eq!(summary(&result_of, about), expected);
        result_of.marks = vec![format!("{NO_CGROUP} (--without-cgroup)")];
        assert!(summary(&result_of, about).ends_with("it gets as much as --memory says.\n"));
        assert_eq!(summary(&result(Vec::new()), about), "");
    }

    #[test]
    fn metrics_end_in_whole_words() {
        let of = |metrics: [&str; 2]| {
            let metric = |metric: &str| ComparisonLine {
                metric: metric.to_owned(),
                ..line(6.0, 8.0, Verdict::Faster)
            };
            common_suffix(&metrics.map(metric).iter().collect::<Vec<_>>()).to_owned()
        };
        assert_eq!(of(["write_mb_per_s", "read_mb_per_s"]), "mb_per_s");
        assert_eq!(of(["operations_per_s", "cpu_us"]), "");
    }

    #[test]
    fn too_few_pairs_show_nothing() {
        let mut few = line(1.0, 1.0, Verdict::CannotTell);
        (few.low, few.high, few.pairs) = (None, None, 3);
        let expected = "Nothing was shown: a verdict takes at least 7 pairs of figures, not 3.\n";
        assert_eq!(summary(&result(vec![few.clone(), few]), |_| None), expected);
    }
}
