//! The tables of slices, in the shape of the report of 2006 on the page cache's tree lock: a line
//! for each number of threads, with the knee marked, and a sample of where the processors were.
//!
//! Behind the report's columns stand three more: CPU-seconds for 2^30 bytes, bytes read from the
//! device for each byte asked for, and the CPU time as a multiple of `floor`'s where that ran.

use std::fmt::Write as _;

use unherd_host::{Profile, Side};

use crate::plan::{Contender, Plan};
use crate::result::{BenchResult, Point, Profiled};
use crate::scaling::knee;

const WORKLOAD: &str = "slices";

/// The implementation that all CPU time is a multiple of.
const FLOOR: &str = "floor";

/// What the metrics of a pass begin with, and what the report would have said of it.
const PASSES: [(&str, &str); 2] =
    [("cold", "a file of which a fifth fits in memory"), ("hot", "a part of it that is in memory")];

/// Functions shown of a profile.
const ROUTINES: usize = 20;

/// Whether the result is of slices.
pub(super) fn is_shown(plan: &Plan) -> bool {
    plan.workload == WORKLOAD
}

/// A table for each pass of each implementation with each set of options, or `None` where the
/// result is not of slices.
pub(super) fn report(plan: &Plan, result: &BenchResult) -> Option<String> {
    if !is_shown(plan) {
        return None;
    }
    let mut text = String::new();
    for sweep in sweeps(plan) {
        for contender in &plan.contenders {
            for (pass, about) in PASSES {
                text.push_str(&heading(contender, &sweep, about));
                let figure = |point: &Point, label: &str, metric: &str| {
                    let metric = format!("{pass}_{metric}");
                    Some(result.summary_of(point, label, &metric)?.median)
                };
                text.push_str(&table(&sweep, &contender.label, figure)?);
            }
        }
    }
    Some(text)
}

/// Points that differ in the number of threads alone, fewest first.
fn sweeps(plan: &Plan) -> Vec<Vec<Point>> {
    let mut sweeps: Vec<Vec<Point>> = Vec::new();
    for cell in 0..plan.cells.len() {
        let point = Point::of(plan, cell);
        let same = |sweep: &&mut Vec<Point>| {
            (&sweep[0].cpus, &sweep[0].params) == (&point.cpus, &point.params)
        };
        match sweeps.iter_mut().find(same) {
            Some(sweep) => sweep.push(point),
            None => sweeps.push(vec![point]),
        }
    }
    for sweep in &mut sweeps {
        sweep.sort_by_key(|point| point.threads);
    }
    sweeps
}

fn heading(contender: &Contender, sweep: &[Point], about: &str) -> String {
    let mut options: Vec<String> =
        sweep[0].params.iter().map(|(name, value)| format!("{name} {value}")).collect();
    options.extend(sweep[0].cpus.map(|cpus| format!("{cpus} CPUs")));
    let options =
        if options.is_empty() { String::new() } else { format!(" ({})", options.join(", ")) };
    format!("\n{}{options}, {about}:\n", contender.label)
}

fn table(
    sweep: &[Point],
    label: &str,
    figure: impl Fn(&Point, &str, &str) -> Option<f64>,
) -> Option<String> {
    let mut text = "\
Loads Type  blksize    count av_time    tput    usr%    sys%  intr% |   s/GB device x floor
----- ---- -------- -------- ------- ------- ------- ------- ------ | ------ ------ -------
"
    .to_owned();
    let tput = |point: &Point| figure(point, label, "mb_per_s");
    let knee = knee(&sweep.iter().map(tput).collect::<Option<Vec<f64>>>()?);
    for (row, point) in sweep.iter().enumerate() {
        let of = |metric: &str| figure(point, label, metric);
        let count = of("count")?;
        let block_bytes = of("mb")? * f64::from(1 << 20) / count;
        let _ = write!(
            text,
            "{:>5} read {:>8} {:>8} {:>7.2} {:>7.2} {:>7.2} {:>7.2} {:>6.2} | {:>6.3} {:>6} {:>7}",
            point.threads,
            scaled(block_bytes),
            scaled(count),
            of("av_time_s")?,
            of("mb_per_s")?,
            of("user_pct")?,
            of("sys_pct")?,
            of("intr_pct")?,
            of("cpu_s_per_gb")?,
            of("device_ratio").map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            of("cpu_s_per_gb")
                .zip(figure(point, FLOOR, "cpu_s_per_gb"))
                .map_or_else(|| "-".to_owned(), |(own, floor)| format!("{:.2}", own / floor)),
        );
        text.push_str(if knee == Some(row) { "  <- knee\n" } else { "\n" });
    }
    Some(text)
}

/// As the report has sizes and counts: `256.00K`.
fn scaled(value: f64) -> String {
    match value {
        v if v >= f64::from(1 << 20) => format!("{:.2}M", v / f64::from(1 << 20)),
        v if v >= 1024.0 => format!("{:.2}K", v / 1024.0),
        v => format!("{v:.0}"),
    }
}

/// The samples of every implementation at one point of the sweep.
pub(super) fn profiles(result: &BenchResult, point: &Point) -> String {
    let mut text = String::new();
    for profiled in result.profiles.iter().filter(|profiled| profiled.point == *point) {
        let _ = writeln!(text, "\n{}, one more round under the sampler:", profiled.label);
        match &profiled.sampled {
            Profiled::Taken { cpu, .. } => text.push_str(&pc_samples(cpu)),
            Profiled::Refused { why } => {
                let _ = writeln!(text, "no profile: {why}");
            }
        }
    }
    text
}

/// Ticks by where the processors were, then by routine.
fn pc_samples(profile: &Profile) -> String {
    let Profile { user_ticks, kernel_ticks, idle_ticks, .. } = *profile;
    let all = user_ticks + kernel_ticks + idle_ticks;
    let percent = |ticks: u64, of: u64| 100.0 * ticks as f64 / of.max(1) as f64;
    let mut text = String::new();
    for (name, ticks) in [("user", user_ticks), ("kernel", kernel_ticks), ("idle", idle_ticks)] {
        let label = format!("{name} ticks:");
        let _ = writeln!(text, "{label:<14}{ticks:>7} {:>7.2} %", percent(ticks, all));
    }
    for (side, name) in [(Side::Kernel, "Kernel"), (Side::User, "User")] {
        let rows: Vec<_> = profile.rows.iter().filter(|row| row.side == side).collect();
        let ticks: u64 = rows.iter().map(|row| row.count).sum();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{name}\n  Ticks Percent Cumulative Routine");
        let mut cumulative = 0;
        for row in rows.iter().take(ROUTINES) {
            cumulative += row.count;
            let _ = writeln!(
                text,
                "{:>7} {:>7.2} {:>10.2} {}",
                row.count,
                percent(row.count, ticks),
                percent(cumulative, ticks),
                row.name
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use unherd_host::ProfileRow;

    use super::*;

    fn point(threads: usize) -> Point {
        Point { threads, cpus: None, params: BTreeMap::new() }
    }

    /// The report's table, and a floor that took a quarter of its CPU time.
    fn of_2006(point: &Point, label: &str, metric: &str) -> Option<f64> {
        let (time, tput, user, system, interrupts) = match point.threads {
            1 => (82.92, 789.59, 1.80, 215.40, 18.40),
            4 => (37.83, 1724.63, 2.20, 776.00, 29.30),
            _ => (52.57, 1213.63, 2.20, 1423.60, 24.30),
        };
        Some(match metric {
            "mb" => 65_536.0,
            "count" => 262_144.0,
            "av_time_s" => time,
            "mb_per_s" => tput,
            "user_pct" => user,
            "sys_pct" => system,
            "intr_pct" => interrupts,
            "cpu_s_per_gb" if label == FLOOR => 2.0,
            "cpu_s_per_gb" => 8.0,
            _ => return None,
        })
    }

    #[test]
    fn figures_of_2006_give_their_table() {
        let sweep = [point(1), point(4), point(8)];
        let expected = "\
Loads Type  blksize    count av_time    tput    usr%    sys%  intr% |   s/GB device x floor
----- ---- -------- -------- ------- ------- ------- ------- ------ | ------ ------ -------
    1 read  256.00K  256.00K   82.92  789.59    1.80  215.40  18.40 |  8.000      -    4.00
    4 read  256.00K  256.00K   37.83 1724.63    2.20  776.00  29.30 |  8.000      -    4.00  <- knee
    8 read  256.00K  256.00K   52.57 1213.63    2.20 1423.60  24.30 |  8.000      -    4.00
";
        assert_eq!(table(&sweep, "before", of_2006).unwrap(), expected);
    }

    #[test]
    fn sizes_are_the_reports() {
        let texts = [512.0, 4096.0, 262_144.0, 4_194_304.0].map(scaled);
        assert_eq!(texts, ["512", "4.00K", "256.00K", "4.00M"]);
    }

    #[test]
    fn samples_have_the_reports_columns() {
        let row = |side, count, name: &str| ProfileRow {
            name: name.to_owned(),
            side,
            count,
            size_bytes: None,
            count_per_byte: None,
        };
        let profile = Profile {
            rows: vec![
                row(Side::Kernel, 1897, "_write_lock_irqsave"),
                row(Side::Kernel, 467, "_read_unlock_irq"),
                row(Side::Kernel, 618, "other"),
                row(Side::User, 4, "main"),
            ],
            kernel_ticks: 2982,
            idle_ticks: 4,
            ..Profile::default()
        };
        let expected = "\
user ticks:         0    0.00 %
kernel ticks:    2982   99.87 %
idle ticks:         4    0.13 %
Kernel
  Ticks Percent Cumulative Routine
   1897   63.62      63.62 _write_lock_irqsave
    467   15.66      79.28 _read_unlock_irq
    618   20.72     100.00 other
User
  Ticks Percent Cumulative Routine
      4  100.00     100.00 main
";
        assert_eq!(pc_samples(&profile), expected);
    }
}
