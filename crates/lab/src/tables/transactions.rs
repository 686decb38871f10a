//! The tables of workloads that count transactions, in the shape of the report of 2000 on poll
//! without locks: shares of the CPUs' time, that time for each transaction, and, where samples were
//! taken, that of each function.
//!
//! A table stands for all points that differ in the number of CPUs alone. Beside the report's
//! columns stands what bounded each cell: the clients, or the server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use unherd_host::Side;

use crate::plan::Plan;
use crate::result::{BenchResult, Point, Profiled};

/// The metric of workloads that count transactions: the runner is a server, and what it starts are
/// its clients.
pub(crate) const TRANSACTIONS: &str = "transactions_per_s";
/// How many functions are printed.
const TOP: usize = 24;

/// The implementation that does next to nothing: what the clients can ask for.
const CEILING: &str = "floor";

/// A server that has less of its time idle, in percent, and is slower than the clients can be, is
/// what bounds a cell.
const IDLE_PCT_MAX: f64 = 10.0;
/// A server that reaches this share of the clients' ceiling is bounded by them.
const CEILING_SHARE: f64 = 0.9;

/// What one implementation did on a number of CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shares {
    cpus: f64,
    per_s: f64,
    user_pct: f64,
    os_pct: f64,
    idle_pct: f64,
    is_shared: bool,
}

impl Shares {
    /// `None` where the workload counts no transactions.
    fn of(result: &BenchResult, point: &Point, label: &str) -> Option<Self> {
        let figure = |metric| Some(result.summary_of(point, label, metric)?.median);
        Some(Self {
            cpus: figure("server_cpus")?,
            per_s: figure(TRANSACTIONS)?,
            user_pct: figure("user_pct")?,
            os_pct: figure("os_pct")?,
            idle_pct: figure("idle_pct")?,
            is_shared: figure("shared_cpus")? > 0.0,
        })
    }

    /// Microseconds of the CPUs' time for each transaction: user, system, idle.
    fn us_per_transaction(&self) -> [f64; 3] {
        let all_us = self.cpus * 1e6 / self.per_s;
        [self.user_pct, self.os_pct, self.idle_pct].map(|pct| all_us * pct / 100.0)
    }

    fn bound_by(&self, ceiling: Option<&Self>) -> &'static str {
        let is_at_ceiling = ceiling.is_some_and(|top| self.per_s >= CEILING_SHARE * top.per_s);
        if is_at_ceiling || self.idle_pct > IDLE_PCT_MAX { "clients" } else { "server" }
    }
}

/// What each implementation did at one point.
type Row = Vec<Option<Shares>>;

/// The tables, or `None` where the workload counts no transactions.
pub(super) fn report(plan: &Plan, result: &BenchResult) -> Option<String> {
    let mut sweeps: BTreeMap<String, Vec<(Point, Row)>> = BTreeMap::new();
    for cell in 0..plan.cells.len() {
        let point = Point::of(plan, cell);
        let options = point.params.iter().map(|(name, value)| format!(", {name} {value}"));
        let of = |label: &str| Shares::of(result, &point, label);
        let row: Vec<_> = plan.contenders.iter().map(|contender| of(&contender.label)).collect();
        if row.iter().all(Option::is_none) {
            return None;
        }
        let options = options.collect();
        sweeps.entry(options).or_default().push((point, row));
    }
    let labels: Vec<&str> = plan.contenders.iter().map(|contender| &*contender.label).collect();
    let mut text = String::new();
    for (options, mut rows) in sweeps {
        let cpus = |row: &[Option<Shares>]| row.iter().flatten().map(|s| s.cpus as u64).max();
        rows.sort_by_key(|(_, row)| cpus(row));
        let (points, rows): (Vec<Point>, Vec<_>) = rows.into_iter().unzip();
        let _ = write!(text, "\n{}{options}:\n{}", plan.workload, shares(&labels, &rows));
        for (at, label) in labels.iter().enumerate().skip(1).filter(|(_, name)| **name != CEILING) {
            let pairs = rows.iter().filter_map(|row| Some((row[0]?, row[at]?))).collect::<Vec<_>>();
            let _ = write!(text, "\n{} -> {label}:\n{}", labels[0], for_each(&pairs));
        }
        let sampled = |at: usize| -> Vec<Functions> {
            let cells = points.iter().zip(&rows);
            cells
                .filter_map(|(point, row)| Functions::of(result, point, labels[at], row[at]?))
                .collect()
        };
        let first = sampled(0);
        for (at, label) in labels.iter().enumerate().filter(|(_, name)| **name != CEILING) {
            let columns = sampled(at);
            if !columns.is_empty() {
                let base = first.last().filter(|_| at > 0).map(|base| (labels[0], base));
                let _ = write!(text, "\n{label}{options}, {}", functions(&columns, base));
            }
        }
    }
    Some(text)
}

/// Microseconds of each function for each transaction, on a number of CPUs.
#[derive(Debug)]
struct Functions {
    cpus: f64,
    os_us: f64,
    /// By name, and whether it is the kernel's.
    us: BTreeMap<(String, bool), f64>,
}

impl Functions {
    /// The shares of the samples, of the time that was measured without a sampler. `None` where
    /// none were taken.
    fn of(result: &BenchResult, point: &Point, label: &str, shares: Shares) -> Option<Self> {
        let mut profiles = result.profiles.iter();
        let line = profiles.find(|line| line.label == label && line.point == *point)?;
        let Profiled::Taken { cpu, .. } = &line.sampled else { return None };
        let ticks = (cpu.user_ticks + cpu.kernel_ticks) as f64;
        let [user_us, os_us, _] = shares.us_per_transaction();
        let mut us = BTreeMap::new();
        for row in cpu.rows.iter().filter(|_| ticks > 0.0) {
            // Several functions may have one name.
            let sum = us.entry((row.name.clone(), row.side == Side::Kernel)).or_insert(0.0);
            *sum += (user_us + os_us) * row.count as f64 / ticks;
        }
        Some(Self { cpus: shares.cpus, os_us, us })
    }

    fn get(&self, function: &(String, bool)) -> f64 {
        self.us.get(function).copied().unwrap_or(0.0)
    }
}

/// The report's third table, of one implementation: a column for each number of CPUs, what each
/// function takes more on the most than on the fewest, and than the first implementation's.
fn functions(columns: &[Functions], base: Option<(&str, &Functions)>) -> String {
    let mut text = "usec/tran of each function by CPUs (samples of one more round):\n".to_owned();
    let heads = columns.iter().map(|column| format!("{:>9}", column.cpus));
    text.extend(heads.chain([format!("{:>9}", "growth")]));
    if let Some((label, _)) = base {
        let _ = write!(text, " {:>12}", format!("- {label}"));
    }
    let mut line = |of: &dyn Fn(&Functions) -> f64, name: &str| {
        text.push('\n');
        text.extend(columns.iter().map(|column| format!("{:>9.2}", of(column))));
        let (fewest, most) = (of(&columns[0]), of(&columns[columns.len() - 1]));
        let _ = write!(text, "{:>+9.2}", most - fewest);
        if let Some((_, base)) = base {
            let _ = write!(text, " {:>+12.2}", most - of(base));
        }
        let _ = write!(text, "  {name}");
    };
    line(&|column| column.os_us, "total OS time");
    let largest = |function: &(String, bool)| {
        columns.iter().map(|column| column.get(function)).fold(0.0, f64::max)
    };
    let all: BTreeSet<_> = columns.iter().flat_map(|column| column.us.keys()).collect();
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by(|a, b| largest(b).total_cmp(&largest(a)));
    for function in all.into_iter().take(TOP) {
        let (name, is_kernel) = function;
        let side = if *is_kernel { "" } else { " (user)" };
        line(&|column| column.get(function), &format!("{name}{side}"));
    }
    text.push('\n');
    text
}

/// The report's first table.
fn shares(labels: &[&str], rows: &[Vec<Option<Shares>>]) -> String {
    let width = labels.iter().map(|label| label.len()).max().unwrap_or(0).max("kernel".len());
    let mut text = format!(
        "#cpu {:<width$}      tran/s    user      os    idle bound by\n{}\n",
        "kernel",
        "-".repeat(width + 50)
    );
    let ceiling_at = labels.iter().position(|label| *label == CEILING);
    for row in rows {
        let ceiling = ceiling_at.and_then(|at| row[at].as_ref());
        for (label, shares) in labels.iter().zip(row) {
            let Some(shares) = shares else { continue };
            let bound = if *label == CEILING { "(ceiling)" } else { shares.bound_by(ceiling) };
            let _ = writeln!(
                text,
                "{:>4} {label:<width$} {:>11.2} {:>6.1}% {:>6.1}% {:>6.1}% {bound}",
                shares.cpus, shares.per_s, shares.user_pct, shares.os_pct, shares.idle_pct
            );
        }
    }
    if rows.iter().flatten().flatten().any(|shares| shares.is_shared) {
        let cpus = rows.iter().flatten().flatten().filter(|shares| shares.is_shared);
        let most = cpus.map(|shares| shares.cpus).fold(0.0, f64::max);
        let _ = writeln!(text, "With {most} CPUs the clients run on the server's, too.");
    }
    text
}

/// The report's second table: before and after.
fn for_each(pairs: &[(Shares, Shares)]) -> String {
    let mut text = "\
#cpu user(usec/tran)   os(usec/tran) idle(usec/tran)
----------------------------------------------------
"
    .to_owned();
    for (before, after) in pairs {
        let _ = write!(text, "{:>4}", before.cpus);
        let both = before.us_per_transaction().into_iter().zip(after.us_per_transaction());
        for (before, after) in both {
            let _ = write!(text, " {:>15}", format!("{before:.1}->{after:.1}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cpus: f64, per_s: f64, [user_pct, os_pct, idle_pct]: [f64; 3]) -> Shares {
        Shares { cpus, per_s, user_pct, os_pct, idle_pct, is_shared: false }
    }

    /// The report's own figures for 8 clients, and its own times made of them.
    #[test]
    fn the_reports_tables_follow_from_its_shares() {
        let before = of(2.0, 1518.40, [20.1, 62.9, 17.1]);
        let after = of(2.0, 1519.80, [20.1, 60.2, 19.7]);
        let expected = "\
#cpu user(usec/tran)   os(usec/tran) idle(usec/tran)
----------------------------------------------------
   2    264.8->264.5    828.5->792.2    225.2->259.2
";
        assert_eq!(for_each(&[(before, after)]), expected);
        let expected = "\
#cpu kernel        tran/s    user      os    idle bound by
----------------------------------------------------------
   2 orig         1518.40   20.1%   62.9%   17.1% clients
   2 poll-opt     1519.80   20.1%   60.2%   19.7% clients
";
        assert_eq!(shares(&["orig", "poll-opt"], &[vec![Some(before), Some(after)]]), expected);
    }

    #[test]
    fn functions_stand_by_their_largest_time() {
        let column = |cpus, os_us, lock, copy| {
            let us = [(("lock".to_owned(), true), lock), (("copy".to_owned(), false), copy)];
            Functions { cpus, os_us, us: us.into() }
        };
        let (one, two) = (column(1.0, 700.0, 3.0, 40.0), column(2.0, 830.0, 60.5, 41.0));
        let base = column(2.0, 900.0, 100.0, 41.0);
        let expected = "\
usec/tran of each function by CPUs (samples of one more round):
        1        2   growth       - orig
   700.00   830.00  +130.00       -70.00  total OS time
     3.00    60.50   +57.50       -39.50  lock
    40.00    41.00    +1.00        +0.00  copy (user)
";
        assert_eq!(functions(&[one, two], Some(("orig", &base))), expected);
    }

    #[test]
    fn cells_are_bound_by_the_slower_side() {
        let busy = of(1.0, 1000.0, [30.0, 70.0, 0.0]);
        assert_eq!(busy.bound_by(None), "server");
        assert_eq!(busy.bound_by(Some(&of(1.0, 4000.0, [0.0; 3]))), "server");
        assert_eq!(busy.bound_by(Some(&of(1.0, 1100.0, [0.0; 3]))), "clients");
        assert_eq!(of(1.0, 1000.0, [20.0, 60.0, 20.0]).bound_by(None), "clients");
    }
}
