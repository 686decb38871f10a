//! Compared commands as text: the verdict first and last, and in between a line a metric.

use std::fmt::Write as _;

use super::comparison::{finding, how_much, is_time, tail_lines, word_of};
use super::machines::machines;
use super::number::{number, percent};
use super::sweep::sweep;
use super::{marks, order, rounds_done, rounds_finished, whole_rounds};
use crate::printable::printable;
use crate::record::Header;
use crate::result::{BenchResult, ComparisonLine, Point};
use crate::size::format_size;
use crate::statistics::{ALPHA, Better, Verdict, pairs_needed};

/// The whole report.
pub(crate) fn compared(header: &Header, result: &BenchResult) -> String {
    let verdict = verdicts(result);
    let mut text = format!("{verdict}\n");
    for side in &header.sides {
        let _ = writeln!(text, "{}: {}", side.label, side.shown());
    }
    let _ = writeln!(text, "{}", course(header, result));
    match &*header.plan.cells {
        [cell] => {
            let (_, others) = header.plan.sides();
            for other in others {
                text.push_str(&judged(header, result, &other.label));
            }
            text.push_str(&not_judged(header, result, &Point::of_cell(cell)));
        }
        _ => text.push_str(&sweep(&header.plan, result)),
    }
    text.push_str(&machines(result));
    text.push_str(&marks(result));
    let _ = write!(text, "\n{verdict}");
    printable(&text)
}

/// What came of it, a sentence for each side that was compared with the base.
pub(crate) fn verdicts(result: &BenchResult) -> String {
    if let Some(line) = too_few(result) {
        return line + mostly_disturbed(result);
    }
    let mut labels: Vec<&str> = Vec::new();
    for line in &result.comparisons {
        if !labels.contains(&&*line.label) {
            labels.push(&line.label);
        }
    }
    let mut text = String::new();
    for label in labels {
        let lines: Vec<&ComparisonLine> =
            result.comparisons.iter().filter(|line| line.label == label).collect();
        let [base, other] = [&lines[0].base, label]
            .map(|label| result.commands.iter().find(|side| side.label == *label));
        if base.zip(other).is_some_and(|(base, other)| base.is_same(other)) {
            let base = &lines[0].base;
            let _ = write!(text, "{base} and {label} are the same command, so this is chance: ");
        }
        text.push_str(&verdict(&lines, result.delta));
    }
    if text.is_empty() {
        text.push_str("Nothing was compared.\n");
    }
    text.push_str(mostly_disturbed(result));
    text
}

/// A line that stands for all verdicts where the pairs are too few for any. A round whose figures
/// have no ratio makes none.
pub(super) fn too_few(result: &BenchResult) -> Option<String> {
    let pairs = result.pairs_if_too_few()?;
    let needed = pairs_needed(result.comparisons.len());
    Some(format!(
        "Nothing was shown: a verdict takes at least {needed} pairs of figures, not {pairs}.\n"
    ))
}

/// What is too grave to be left to the marks at the end, if it is so.
pub(super) fn mostly_disturbed(result: &BenchResult) -> &'static str {
    let disturbed = result.rounds.iter().filter(|round| round.surroundings.is_disturbed()).count();
    match 2 * disturbed > result.rounds.len() {
        true => "Other programs used the processors during most of it: run it again alone.\n",
        false => "",
    }
}

fn verdict(lines: &[&ComparisonLine], delta: f64) -> String {
    const NAMED_MAX: usize = 4;
    let (label, base) = (&lines[0].label, &lines[0].base);
    let of = |verdict: Verdict| -> Vec<&ComparisonLine> {
        lines.iter().copied().filter(|line| line.verdict == verdict).collect()
    };
    let is_sweep = lines.iter().any(|line| line.point != lines[0].point);
    let one_metric = lines.iter().all(|line| line.metric == lines[0].metric);
    let name_of = |line: &ComparisonLine| {
        let point = line.point.apart(lines.iter().map(|line| &line.point));
        match (is_sweep, one_metric) {
            (false, _) => title(&line.metric),
            (true, false) => format!("{} at {point}", title(&line.metric)),
            (true, true) => format!("at {point}"),
        }
    };
    let named = |found: &[&ComparisonLine]| {
        let name = |line: &&ComparisonLine| match line.verdict {
            Verdict::Faster | Verdict::Slower => {
                format!("{} {}", name_of(line), how_much(line, delta))
            }
            _ => name_of(line),
        };
        let mut names: Vec<String> = found.iter().take(NAMED_MAX).map(name).collect();
        if found.len() > NAMED_MAX {
            names.push(format!("and {} more", found.len() - NAMED_MAX));
        }
        names.join(", ")
    };
    let (better, worse) = (of(Verdict::Faster), of(Verdict::Slower));
    let times = lines.iter().all(|line| is_time(&line.metric));
    let (is_better, is_worse) = if times { ("faster", "slower") } else { ("better", "worse") };
    let by = match is_sweep && one_metric {
        true => format!(" by {}", title(&lines[0].metric)),
        false => String::new(),
    };
    let mut changed = [(is_better, &better), (is_worse, &worse)];
    // What takes longer stands first, whatever else is gained.
    if worse.iter().any(|line| is_time(&line.metric)) {
        changed.reverse();
    }
    let changed = changed.iter().filter(|(_, lines)| !lines.is_empty());
    let mut parts: Vec<String> = changed
        .map(|(word, lines)| format!("{label} is {word} than {base}{by}: {}", named(lines)))
        .collect();
    let same = of(Verdict::Same);
    if !same.is_empty() {
        let within = number(100.0 * delta);
        parts.push(format!(
            "{label} and {base} are the same within {within} %{by}: {}",
            named(&same)
        ));
    }
    let open = of(Verdict::CannotTell);
    if !open.is_empty() {
        parts.push(format!("{label} and {base} cannot be told apart{by}: {}", named(&open)));
    }
    format!("{}.\n", parts.join("; "))
}

/// How many rounds, in which order, how surely.
fn course(header: &Header, result: &BenchResult) -> String {
    let plan = &header.plan;
    let sure = number(100.0 * (1.0 - ALPHA));
    let together = match result.comparisons.len() {
        0 | 1 => String::new(),
        2 => " that both intervals hold".to_owned(),
        all => format!(" that all {all} intervals hold"),
    };
    let numbers = result.rounds.iter().map(|round| round.round);
    let rounds = match plan.until {
        None => rounds_done(whole_rounds(plan, numbers), plan.rounds),
        Some(until) => {
            let mut lines = result.comparisons.iter();
            // In the pilot there is none.
            let reached = lines.len() > 0 && lines.all(|line| line.is_within(until.width));
            let not = if reached { "" } else { " was not reached" };
            let width = number(100.0 * until.width);
            format!("{} (±{width} %{not})", rounds_finished(plan, numbers))
        }
    };
    format!("{}; {sure} % sure{together}", order(&rounds, plan.seed))
}

/// A line for each judged metric of one side.
fn judged(header: &Header, result: &BenchResult, label: &str) -> String {
    let lines: Vec<&ComparisonLine> =
        result.comparisons.iter().filter(|line| line.label == label).collect();
    let Some(first) = lines.first() else { return String::new() };
    let mut rows = vec![[
        String::new(),
        first.base.clone(),
        label.to_owned(),
        format!("{label} against {}", first.base),
    ]];
    for line in &lines {
        rows.push([
            format!("{}{}", title(&line.metric), direction(header, &line.metric)),
            median(result, &line.point, &line.base, &line.metric),
            median(result, &line.point, label, &line.metric),
            format!("{:<11}  {}", word(line), finding(line, result.delta)),
        ]);
    }
    let mut text = format!("\n{}", columns("", &rows, &[0, 3]));
    text.push_str(
        "  medians; the ratio is estimated from pairs of runs, and may differ from \
         that of the medians\n",
    );
    for line in &lines {
        if let Some(tail) = &line.tail {
            let tails = tail_lines(line, tail, result.comparisons.len());
            text.push_str(&tails.replace("but ", &format!("{}: ", title(&line.metric))));
        }
    }
    debug_assert!(!header.sides.is_empty());
    text
}

/// Which way is better, of a metric that is no time.
pub(crate) fn direction(header: &Header, metric: &str) -> &'static str {
    let metrics = header.description.iter().flat_map(|workload| &workload.metrics);
    let better = metrics.filter(|it| it.name == metric).map(|it| it.better).next();
    match better {
        Some(Better::Higher) => " (more is better)",
        Some(Better::Lower) if !is_time(metric) => " (less is better)",
        _ => "",
    }
}

/// The verdict of a line, in the words of its metric.
pub(crate) fn word(line: &ComparisonLine) -> String {
    word_of(line).to_uppercase()
}

/// How much a metric that is not judged has changed, if that can be told.
fn change(metric: &str, base: f64, other: f64) -> Option<String> {
    // The kernel divides CPU time by ticks of up to 10 ms: a part of fewer than 20 says nothing.
    let least = match metric {
        "user_s" | "sys_s" => 0.2,
        _ => f64::MIN_POSITIVE,
    };
    (base >= least).then(|| percent(other / base))
}

/// The other metrics, with their medians.
fn not_judged(header: &Header, result: &BenchResult, point: &Point) -> String {
    let metrics = header.description.iter().flat_map(|workload| &workload.metrics);
    let others = metrics
        .map(|metric| &metric.name)
        .filter(|name| header.plan.judged.iter().all(|judged| judged.metric != **name));
    let labels: Vec<&str> = header.plan.contenders.iter().map(|side| &*side.label).collect();
    let mut heading = vec!["not judged, medians".to_owned()];
    heading.extend(labels.iter().map(|label| (*label).to_owned()));
    let mut rows = vec![heading];
    for metric in others {
        let lines: Vec<_> =
            labels.iter().map(|label| result.summary_of(point, label, metric)).collect();
        if lines.iter().all(Option::is_none) {
            continue;
        }
        let mut row = vec![title(metric)];
        row.extend(labels.iter().map(|label| median(result, point, label, metric)));
        if let [Some(base), Some(other)] = *lines {
            row.extend(change(metric, base.median, other.median));
        }
        rows.push(row);
    }
    let left = [0, 1 + labels.len()];
    if rows.len() == 1 { String::new() } else { format!("\n{}", columns("", &rows, &left)) }
}

/// Rows with the columns of these numbers to the left, the others to the right.
pub(crate) fn columns<R: AsRef<[String]>>(indent: &str, rows: &[R], left: &[usize]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (column, cell) in row.as_ref().iter().enumerate() {
            let width = width(column);
            let _ = match left.contains(&column) {
                true => write!(line, "  {cell:<width$}"),
                false => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The middle of one metric of one side.
pub(super) fn median(result: &BenchResult, point: &Point, label: &str, metric: &str) -> String {
    let found = result.summary_of(point, label, metric);
    found.map_or_else(|| "-".to_owned(), |line| shown(metric, line.median))
}

/// A metric's name for people.
pub(crate) fn title(metric: &str) -> String {
    let title = match metric {
        "wall_s" => "wall time",
        "cpu_s" => "CPU time",
        "user_s" => "user time",
        "sys_s" => "system time",
        "peak_bytes" => "peak memory",
        "minor_faults" => "minor page faults",
        "major_faults" => "major page faults",
        "context_switches" => "context switches",
        "read_bytes" => "bytes by read calls",
        "written_bytes" => "bytes by write calls",
        other => return other.to_owned(),
    };
    title.to_owned()
}

/// A value with its unit, where the metric is the kernel's.
pub(crate) fn shown(metric: &str, value: f64) -> String {
    match metric {
        "wall_s" | "cpu_s" | "user_s" | "sys_s" => duration(value),
        "peak_bytes" | "read_bytes" | "written_bytes" => format_size(value as u64),
        _ => number(value),
    }
}

pub(crate) fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        0.0 => return "0".to_owned(),
        s if s >= 1.0 => (seconds, "s"),
        s if s >= 1e-3 => (seconds * 1e3, "ms"),
        s if s >= 1e-6 => (seconds * 1e6, "µs"),
        _ => (seconds * 1e9, "ns"),
    };
    // Not −0.
    format!("{} {unit}", number((value * 1e3).round() / 1e3 + 0.0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::catalogue::tests::registry;
    use crate::claims::tests::{line, result};
    use crate::plan::{Plan, Request, Until};
    use crate::result::RoundLine;
    use crate::round::Round;
    use crate::round::tests::round;
    use crate::surroundings::Surroundings;

    fn of_metric(metric: &str, line: ComparisonLine) -> ComparisonLine {
        let (base, label) = ("A".to_owned(), "B".to_owned());
        ComparisonLine { metric: metric.to_owned(), base, label, ..line }
    }

    #[test]
    fn verdicts_are_sentences_in_the_metrics_words() {
        let slower = of_metric("wall_s", line(0.94, 0.96, Verdict::Slower));
        let same = of_metric("cpu_s", line(0.99, 1.01, Verdict::Same));
        assert_eq!(
            verdicts(&result(vec![slower.clone(), same])),
            "B is slower than A: wall time 1.05 × (1.04 to 1.06); B and A are the same within 2 %: \
             CPU time.\n"
        );
        let worse = of_metric("ops_per_s", line(0.94, 0.96, Verdict::Slower));
        assert_eq!(word(&worse), "WORSE");
        let said = verdicts(&result(vec![worse]));
        assert_eq!(said, "B is worse than A: ops_per_s 1.05 × (1.04 to 1.06).\n");
        let many = (0..6).map(|i| of_metric(&format!("b{i} ns"), slower.clone())).collect();
        assert!(verdicts(&result(many)).ends_with("b3 ns 1.05 × (1.04 to 1.06), and 2 more.\n"));
        assert_eq!(verdicts(&result(Vec::new())), "Nothing was compared.\n");
    }

    #[test]
    fn longer_time_stands_before_other_gains() {
        let fewer = of_metric("context_switches", line(1.9, 2.1, Verdict::Faster));
        let slower = of_metric("wall_s", line(0.19, 0.21, Verdict::Slower));
        let said = verdicts(&result(vec![fewer.clone(), slower]));
        assert!(said.starts_with("B is worse than A: wall time 5."), "{said}");
        assert!(said.contains("; B is better than A: context switches 2."), "{said}");
        let more = of_metric("peak_bytes", line(0.94, 0.96, Verdict::Slower));
        let said = verdicts(&result(vec![more, fewer]));
        assert!(said.starts_with("B is better than A: context switches"), "{said}");
    }

    #[test]
    fn few_ticks_make_no_percent() {
        for part in ["user_s", "sys_s"] {
            assert_eq!(change(part, 0.01, 0.0), None);
            assert_eq!(change(part, 0.01, 0.5), None);
            assert_eq!(change(part, 0.2, 0.1).as_deref(), Some("−50.0 %"));
        }
        assert_eq!(change("wall_s", 0.01, 0.02).as_deref(), Some("+100 %"));
        assert_eq!(change("major_faults", 0.0, 1.0), None);
    }

    #[test]
    fn a_verdict_says_if_most_of_it_was_disturbed() {
        let said = |shares: [f64; 2]| {
            let round = |share| RoundLine {
                round: 1,
                label: "A".to_owned(),
                point: line(1.0, 1.0, Verdict::Same).point,
                metrics: BTreeMap::new(),
                attempt: 1,
                surroundings: Surroundings {
                    foreign_cpu_share: Some(share),
                    ..Surroundings::default()
                },
            };
            verdicts(&BenchResult { rounds: shares.map(round).into(), ..result(Vec::new()) })
        };
        assert_eq!(said([0.5, 0.0]), "Nothing was compared.\n");
        let expected = "Nothing was compared.\nOther programs used the processors during most of \
                        it: run it again alone.\n";
        assert_eq!(said([0.5, 0.06]), expected);
    }

    #[test]
    fn rounds_without_a_figure_are_rounds() {
        let request = Request { seed: 3, delta: 0.02, ..Request::default() };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        let course_of = |rounds: &[Round]| {
            let result = BenchResult::new(&plan, rounds, serde_json::Value::Null, Vec::new());
            let pairs = result.comparisons.first().map_or(0, |line| line.pairs);
            (pairs, course(&Header::of(plan.clone(), Vec::new()), &result))
        };
        let sides = |n| [round(n, "before", 2.0), round(n, "unherd", 1.0)];
        let mut rounds: Vec<Round> = (1..=3).flat_map(sides).collect();
        rounds[5].metrics.clear();
        let (pairs, text) = course_of(&rounds);
        assert!(pairs == 2 && text.starts_with("3 of 12 rounds, each a fresh"), "{pairs} {text}");
        let (_, text) = course_of(&rounds[..1]);
        assert!(text.starts_with("no complete round of 12, each a fresh process"), "{text}");
        let until = Some(Until { width: 0.01, pilot: 2 });
        let plan = Plan { until, ..plan };
        let course_of = |rounds: &[Round]| {
            let result = BenchResult::new(&plan, rounds, serde_json::Value::Null, Vec::new());
            course(&Header::of(plan.clone(), Vec::new()), &result)
        };
        let text = course_of(&rounds[..3]);
        assert!(text.starts_with("1 of 2 rounds of the pilot (±1 % was not reached), "), "{text}");
        let text = course_of(&rounds);
        assert!(text.starts_with("1 round after a pilot of 2 (±1 % "), "{text}");
    }

    #[test]
    fn values_have_units_for_people() {
        let shown = [0.0, 0.000_012_34, 0.0123, 1.5].map(|value| shown("wall_s", value));
        assert_eq!(shown, ["0", "12.34 µs", "12.30 ms", "1.500 s"]);
        assert_eq!([2.5e-7, -1e-15, -0.002].map(duration), ["250 ns", "0 ns", "-2 ms"]);
        assert_eq!(super::shown("peak_bytes", 2_097_152.0), "2 MiB");
        assert_eq!(super::shown("ops", 3.0), "3");
    }
}
