//! The tables of tiotest, in the shape of the report of 2004 on filtered wakeups, so that the two
//! can be read side by side.

use std::fmt::Write as _;

use crate::plan::Plan;
use crate::result::{BenchResult, Point, RoundLine};

const WORKLOAD: &str = "tiotest";

/// The report's items and what the metrics of their phase begin with.
const PHASES: [(&str, &str); 4] = [
    ("Write", "write"),
    ("Random Write", "random_write"),
    ("Read", "read"),
    ("Random Read", "random_read"),
];

/// The tables of each implementation, or `None` where the result is not tiotest's.
pub(super) fn report(plan: &Plan, result: &BenchResult, point: &Point) -> Option<String> {
    if plan.workload != WORKLOAD {
        return None;
    }
    let mut text = String::new();
    for contender in &plan.contenders {
        let figure = |phase: &str, metric: &str| {
            let name = format!("{phase}_{metric}");
            Some(result.summary_of(point, &contender.label, &name)?.median)
        };
        text.push_str(&heading(result, point, &contender.label)?);
        text.push_str(&in_a_box(point.threads, figure)?);
        text.push_str(&scaled(figure)?);
        if let Some(cpu) = result.summary_of(point, &contender.label, "setup_cpu_s")
            && cpu.median > 0.0
        {
            let _ =
                writeln!(text, "Making the cache: {:.2} s of CPU, once, in no phase", cpu.median);
        }
        text.push_str(&wakeups(figure));
    }
    Some(text)
}

/// `None` where no round of it has finished. Those whose others have not count here, too.
fn heading(result: &BenchResult, point: &Point, label: &str) -> Option<String> {
    let is_its = |round: &&RoundLine| round.label == label && round.point == *point;
    let of = match result.rounds.iter().filter(is_its).count() {
        0 => return None,
        1 => String::new(),
        rounds => format!(" (medians of {rounds} rounds)"),
    };
    Some(format!("\n{label}{of}:\n"))
}

fn in_a_box(threads: usize, figure: impl Fn(&str, &str) -> Option<f64>) -> Option<String> {
    let mut text = format!("Tiotest results for {threads} concurrent io threads:\n");
    text.push_str(",----------------------------------------------------------------------.\n");
    text.push_str("| Item                  | Time     | Rate         | Usr CPU  | Sys CPU |\n");
    text.push_str("+-----------------------+----------+--------------+----------+---------+\n");
    for (item, phase) in PHASES {
        let _ = writeln!(
            text,
            "| {item}{:>size$.0} MBs | {:>6} s | {:>7} MB/s | {:>5.1} %  | {:>5.1} % |",
            figure(phase, "mb")?,
            seconds(figure(phase, "s")?),
            fitted(figure(phase, "mb_per_s")?, 7, 3),
            figure(phase, "user_pct")?,
            figure(phase, "sys_pct")?,
            size = 17 - item.len(),
        );
    }
    text.push_str("`----------------------------------------------------------------------'\n");
    Some(text)
}

/// As the report has them; today's phases may be over in less than the tenth that it shows.
fn seconds(value: f64) -> String {
    fitted(value, 6, if value < 10.0 { 3 } else { 1 })
}

/// As many of `decimals` as leave the number within `width`: today's disks outgrow the box of 2004.
fn fitted(value: f64, width: usize, decimals: usize) -> String {
    (0..=decimals)
        .rev()
        .map(|decimals| format!("{value:.decimals$}"))
        .find(|text| text.len() <= width)
        .unwrap_or_else(|| format!("{value:.0}"))
}

fn scaled(figure: impl Fn(&str, &str) -> Option<f64>) -> Option<String> {
    let mut text = "\nThroughput scaled by %cpu:\n".to_owned();
    for (item, phase) in PHASES {
        let label = format!("{item}:");
        let value = figure(phase, "mb_per_cpusec")?;
        let _ = writeln!(text, "{label}{value:>width$.4}MB/cpusec", width = 24 - label.len());
    }
    Some(text)
}

/// Not in the report, which counted callers of `schedule` instead: what each operation cost in
/// context switches, which the kernel counts for all alike, and in wakeups where the
/// implementation counts them itself.
fn wakeups(figure: impl Fn(&str, &str) -> Option<f64>) -> String {
    let mut text = String::new();
    for (item, phase) in PHASES {
        let Some(switches) = figure(phase, "context_switches_per_op") else { continue };
        let label = format!("{item}:");
        let width = 24 - label.len();
        let _ = write!(text, "{label}{switches:>width$.4} switches");
        if let Some(wakeups) = figure(phase, "wakeups_per_op") {
            let _ = write!(text, ", {wakeups:.4} wakeups");
        }
        if let Some(needless) = figure(phase, "needless_wakeups") {
            let _ = write!(text, ", {needless:.0} needless in all");
        }
        text.push('\n');
    }
    if text.is_empty() {
        text
    } else {
        format!("\nContext switches and wakeups an operation:\n{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::round::tests::round;

    /// The figures of the report's first table.
    fn of_2004(phase: &str, metric: &str) -> Option<f64> {
        let row: [f64; 6] = match phase {
            "write" => [16384.0, 1118.1, 14.654, 1.6, 280.9, 5.1873],
            "random_write" => [2000.0, 336.2, 5.950, 0.8, 20.4, 28.0660],
            "read" => [16384.0, 1717.1, 9.542, 1.4, 31.8, 28.7410],
            _ => [2000.0, 465.2, 4.300, 1.1, 36.1, 11.5591],
        };
        let names = ["mb", "s", "mb_per_s", "user_pct", "sys_pct", "mb_per_cpusec"];
        Some(row[names.iter().position(|&name| name == metric)?])
    }

    #[test]
    fn figures_of_2004_give_their_tables() {
        let expected = "\
Tiotest results for 512 concurrent io threads:
,----------------------------------------------------------------------.
| Item                  | Time     | Rate         | Usr CPU  | Sys CPU |
+-----------------------+----------+--------------+----------+---------+
| Write       16384 MBs | 1118.1 s |  14.654 MB/s |   1.6 %  | 280.9 % |
| Random Write 2000 MBs |  336.2 s |   5.950 MB/s |   0.8 %  |  20.4 % |
| Read        16384 MBs | 1717.1 s |   9.542 MB/s |   1.4 %  |  31.8 % |
| Random Read  2000 MBs |  465.2 s |   4.300 MB/s |   1.1 %  |  36.1 % |
`----------------------------------------------------------------------'
";
        assert_eq!(in_a_box(512, of_2004).unwrap(), expected);
        let expected = "
Throughput scaled by %cpu:
Write:            5.1873MB/cpusec
Random Write:    28.0660MB/cpusec
Read:            28.7410MB/cpusec
Random Read:     11.5591MB/cpusec
";
        assert_eq!(scaled(of_2004).unwrap(), expected);
    }

    #[test]
    fn heading_counts_the_rounds_of_its_side() {
        let request = Request { seed: 3, delta: 0.02, ..Request::default() };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        // No round is complete.
        let rounds = [1, 2, 3].map(|number| round(number, "before", 100.0));
        let result = BenchResult::new(&plan, &rounds, serde_json::Value::Null, Vec::new());
        let of = |label: &str| heading(&result, &Point::of(&plan, 0), label);
        assert_eq!(of("before").unwrap(), "\nbefore (medians of 3 rounds):\n");
        assert_eq!(of("unherd"), None);
    }

    #[test]
    fn fast_disks_stay_within_the_box() {
        assert_eq!(fitted(1234.5678, 7, 3), "1234.57");
        assert_eq!(fitted(14.654, 7, 3), "14.654");
        assert_eq!([seconds(336.2), seconds(0.0714)], ["336.2", "0.071"]);
        assert_eq!(fitted(12_345_678.9, 7, 3), "12345679");
    }

    #[test]
    fn what_nobody_counts_is_left_out() {
        let kernel = |phase: &str, metric: &str| match (phase, metric) {
            ("write", "context_switches_per_op") => Some(0.25),
            ("random_read", "context_switches_per_op") => Some(1.000_04),
            _ => None,
        };
        let expected = "
Context switches and wakeups an operation:
Write:            0.2500 switches
Random Read:      1.0000 switches
";
        assert_eq!(wakeups(kernel), expected);
        let counted = |phase: &str, metric: &str| match metric {
            "wakeups_per_op" => Some(0.5),
            "needless_wakeups" => Some(17.0),
            _ => kernel(phase, metric),
        };
        let expected = "
Context switches and wakeups an operation:
Write:            0.2500 switches, 0.5000 wakeups, 17 needless in all
Random Read:      1.0000 switches, 0.5000 wakeups, 17 needless in all
";
        assert_eq!(wakeups(counted), expected);
        assert_eq!(wakeups(|_, _| None), "");
    }
}
