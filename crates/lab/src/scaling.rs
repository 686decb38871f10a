//! How throughput grows over a sweep of the load: the knee, the law that fits, and what a unit of
//! work is made of. Pure.
//!
//! The load is the number of threads, or a swept option that counts them by its name ([`LOADS`]),
//! or the CPUs. A metric is a throughput if more of it is better and it is by the second; of
//! compared commands, which do the same work at every load, the inverse of the wall time is one.
//!
//! Of N threads each unit of work takes N/X seconds of thread time: in user mode, in the kernel,
//! asleep for some reason, and the rest. As these add up, so do the coefficients of the law that
//! are fitted to each ([`Coefficients::fit`]); that tells which of them grows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::compare::COMPARE;
use crate::plan::Plan;
use crate::result::{BenchResult, Point, judged_rounds};
use crate::round::Round;
use crate::statistics::{Better, Coefficients, LOADS_MIN, Usl, summary};
use crate::waits;

/// Swept options that count what works at once.
pub(crate) const LOADS: [&str; 6] =
    ["threads", "clients", "jobs", "processes", "workers", "connections"];

/// Less throughput than this share of the peak is a fall.
const FALL: f64 = 0.95;

/// One throughput of one side over all loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingLine {
    /// Whose.
    #[serde(rename = "impl")]
    pub label: String,
    /// The metric that is the throughput, or `wall_s`, whose inverse is.
    pub metric: String,
    /// What the load is: `threads`, `cpus`, or the name of an option.
    pub load: String,
    /// What else was swept; the load's own field says nothing here.
    #[serde(flatten)]
    pub point: Point,
    /// The loads, the smallest first.
    pub loads: Vec<LoadLine>,
    /// The load of the highest throughput, if a later one falls short of it by 5 % and more.
    pub knee: Option<usize>,
    /// The law, where there are loads enough for it.
    pub law: Option<Usl>,
    /// The coefficients of each part of a unit of work; they add up to those of `whole`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartLine>,
}

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadLine {
    /// How many.
    pub load: usize,
    /// The median throughput.
    pub per_s: f64,
    /// What a unit of work takes, in seconds of a thread, by the mean over the rounds; empty where
    /// the rounds do not tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts_s: BTreeMap<String, f64>,
}

/// One part of a unit of work over all loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartLine {
    /// `user`, `system`, a reason to wait, `rest`, or `whole`.
    pub part: String,
    /// In seconds.
    #[serde(flatten)]
    pub coefficients: Coefficients,
}

impl ScalingLine {
    /// What sets its point apart from those of the other lines.
    pub(crate) fn apart(&self, result: &BenchResult) -> Point {
        self.point.apart(result.scaling.iter().map(|line| &line.point))
    }

    /// The load at which the law is furthest from the median throughput, and how many times that it
    /// says.
    pub(crate) fn furthest(&self) -> Option<(usize, f64)> {
        let law = self.law?;
        let ratio =
            |line: &LoadLine| Some((line.load, law.throughput(line.load as f64)? / line.per_s));
        let off = |(_, ratio): &(usize, f64)| ratio.ln().abs();
        self.loads.iter().filter_map(ratio).max_by(|a, b| off(a).total_cmp(&off(b)))
    }
}

/// Which dimension of a sweep is the load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Load {
    Threads,
    Option(String),
    Cpus,
}

impl Load {
    /// The one that varies, if any does.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let options = LOADS.iter().map(|name| Self::Option((*name).to_owned()));
        let candidates = [Self::Threads].into_iter().chain(options).chain([Self::Cpus]);
        candidates.into_iter().find(|load| {
            let mut values: Vec<_> = plan
                .cells
                .iter()
                .enumerate()
                .map(|(index, _)| load.at(&Point::of(plan, index)))
                .collect();
            values.sort_unstable();
            values.dedup();
            values.len() > 1 && values[0].is_some()
        })
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Threads => "threads",
            Self::Option(name) => name,
            Self::Cpus => "cpus",
        }
    }

    /// How many there are at this point.
    pub(crate) fn at(&self, point: &Point) -> Option<usize> {
        let count = match self {
            Self::Threads => Some(point.threads),
            Self::Option(name) => point.params.get(name)?.parse().ok(),
            Self::Cpus => point.cpus,
        };
        count.filter(|count| *count > 0)
    }

    /// What else is swept at it.
    pub(crate) fn rest(&self, point: &Point) -> Point {
        let mut rest = point.clone();
        match self {
            Self::Threads => rest.threads = 0,
            Self::Option(name) => drop(rest.params.remove(name)),
            Self::Cpus => rest.cpus = None,
        }
        rest
    }
}

/// The row of the highest throughput, if a later one falls short of it.
pub(crate) fn knee(throughput: &[f64]) -> Option<usize> {
    let peak = (0..throughput.len()).max_by(|a, b| throughput[*a].total_cmp(&throughput[*b]))?;
    let falls = |later: &f64| *later < FALL * throughput[peak];
    throughput[peak..].iter().any(falls).then_some(peak)
}

/// A line for each throughput of each side; empty where no load was swept.
pub(crate) fn scaling(plan: &Plan, rounds: &[Round]) -> Vec<ScalingLine> {
    let Some(load) = Load::of(plan) else { return Vec::new() };
    let rounds = judged_rounds(plan, rounds);
    let mut lines = Vec::new();
    for sweep in sweeps(plan, &load) {
        for metric in throughputs(plan, &rounds) {
            for contender in &plan.contenders {
                let of = Sweep { cells: &sweep.1, label: &contender.label, metric: &metric };
                lines.extend(of.line(&load, &sweep.0, &rounds));
            }
        }
    }
    lines
}

/// The cells that differ in the load alone, the smallest load first, with what they share.
fn sweeps(plan: &Plan, load: &Load) -> Vec<(Point, Vec<(usize, usize)>)> {
    let mut sweeps: Vec<(Point, Vec<(usize, usize)>)> = Vec::new();
    for cell in 0..plan.cells.len() {
        let point = Point::of(plan, cell);
        let (Some(count), rest) = (load.at(&point), load.rest(&point)) else { continue };
        match sweeps.iter_mut().find(|(shared, _)| *shared == rest) {
            Some((_, cells)) => cells.push((count, cell)),
            None => sweeps.push((rest, vec![(count, cell)])),
        }
    }
    sweeps.iter_mut().for_each(|(_, cells)| cells.sort_unstable());
    sweeps
}

/// The judged metrics that are throughputs, or else all others that are.
fn throughputs(plan: &Plan, rounds: &[Round]) -> Vec<String> {
    let is_rate = |name: &str| name.ends_with("_per_s") || name.ends_with("/s");
    let is_wall = |name: &str| plan.workload == COMPARE && name == "wall_s";
    let judged: Vec<String> = plan
        .judged
        .iter()
        .filter(|it| (it.better == Better::Higher && is_rate(&it.metric)) || is_wall(&it.metric))
        .map(|it| it.metric.clone())
        .collect();
    if !judged.is_empty() {
        return judged;
    }
    let names = rounds.first().into_iter().flat_map(|round| round.metrics.keys());
    names.filter(|name| is_rate(name)).cloned().collect()
}

/// One throughput of one side.
struct Sweep<'a> {
    cells: &'a [(usize, usize)],
    label: &'a str,
    metric: &'a str,
}

impl Sweep<'_> {
    fn line(&self, load: &Load, rest: &Point, rounds: &[Round]) -> Option<ScalingLine> {
        let whole_rounds = self.whole_rounds(rounds);
        let throughput: Vec<Vec<f64>> = whole_rounds
            .iter()
            .map(|round| round.iter().map(|it| self.per_s(it)).collect::<Option<_>>())
            .collect::<Option<_>>()?;
        let parts = self.parts(&whole_rounds, &throughput).unwrap_or_default();
        let loads: Vec<LoadLine> = self
            .cells
            .iter()
            .enumerate()
            .map(|(at, &(load, _))| {
                let values: Vec<f64> = throughput.iter().map(|round| round[at]).collect();
                let parts_s =
                    parts.iter().map(|(name, seconds)| (name.clone(), seconds[at])).collect();
                Some(LoadLine { load, per_s: summary(&values)?.median, parts_s })
            })
            .collect::<Option<_>>()?;
        let medians: Vec<f64> = loads.iter().map(|line| line.per_s).collect();
        let counts: Vec<f64> = loads.iter().map(|line| line.load as f64).collect();
        Some(ScalingLine {
            label: self.label.to_owned(),
            metric: self.metric.to_owned(),
            load: load.name().to_owned(),
            point: rest.clone(),
            knee: knee(&medians).map(|at| loads[at].load),
            law: Usl::fit(&counts, &throughput),
            parts: part_lines(&counts, &parts),
            loads,
        })
    }

    /// The rounds that measured every load, each in their order.
    fn whole_rounds<'r>(&self, rounds: &'r [Round]) -> Vec<Vec<&'r Round>> {
        let mut of_number: BTreeMap<usize, Vec<&Round>> = BTreeMap::new();
        for round in rounds.iter().filter(|round| round.label == self.label) {
            of_number.entry(round.round).or_default().push(round);
        }
        let whole = |all: Vec<&'r Round>| -> Option<Vec<&'r Round>> {
            let at =
                |&(_, cell): &(usize, usize)| all.iter().copied().find(|round| round.cell == cell);
            self.cells.iter().map(at).collect()
        };
        of_number.into_values().filter_map(whole).collect()
    }

    fn per_s(&self, round: &Round) -> Option<f64> {
        let value = *round.metrics.get(self.metric)?;
        let per_s = if self.metric == "wall_s" { value.recip() } else { value };
        (per_s.is_finite() && per_s > 0.0).then_some(per_s)
    }

    /// What a unit of work takes at each load, by part, in the mean over the rounds; the last part
    /// is `whole`, the sum of the others.
    fn parts(
        &self,
        rounds: &[Vec<&Round>],
        throughput: &[Vec<f64>],
    ) -> Option<BTreeMap<String, Vec<f64>>> {
        let mut parts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let count = rounds.len() as f64;
        for (round, throughput) in rounds.iter().zip(throughput) {
            for (at, (round, per_s)) in round.iter().zip(throughput).enumerate() {
                let load = self.cells[at].0 as f64;
                let whole = load / per_s;
                let mut add = |name: String, share: f64| {
                    let sums = parts.entry(name).or_insert_with(|| vec![0.0; self.cells.len()]);
                    sums[at] += share * whole / count;
                };
                let mut rest = 1.0;
                for (name, share) in shares(round, load)? {
                    rest -= share;
                    add(name, share);
                }
                // It had more threads than the load says, so there is no telling what is waiting.
                if rest < -0.05 {
                    return None;
                }
                add("rest".to_owned(), rest);
                add("whole".to_owned(), 1.0);
            }
        }
        Some(parts)
    }
}

/// The shares of the thread time of one process with `load` threads, as far as it tells.
fn shares(round: &Round, load: f64) -> Option<Vec<(String, f64)>> {
    let metric = |names: [&str; 2]| names.iter().find_map(|name| round.metrics.get(*name).copied());
    let elapsed = metric(["wall_s", "process_elapsed_s"])?;
    let time = load * elapsed;
    let mut shares = vec![
        ("user".to_owned(), metric(["user_s", "process_user_s"])? / time),
        ("system".to_owned(), metric(["sys_s", "process_sys_s"])? / time),
    ];
    for line in waits::lines(&round.waits) {
        let asleep = line.counts.iter().find(|(name, _)| name == "asleep_ns");
        if let Some((_, ns)) = asleep.filter(|(_, ns)| *ns > 0.0) {
            shares.push((format!("asleep: {}", line.name), ns / 1e9 / time));
        }
    }
    shares.iter().all(|(_, share)| share.is_finite()).then_some(shares)
}

fn part_lines(loads: &[f64], parts: &BTreeMap<String, Vec<f64>>) -> Vec<PartLine> {
    let Some(wholes) = parts.get("whole").filter(|_| loads.len() >= LOADS_MIN) else {
        return Vec::new();
    };
    let line = |(part, seconds): (&String, &Vec<f64>)| {
        let coefficients = Coefficients::fit(loads, wholes, seconds)?;
        Some(PartLine { part: part.clone(), coefficients })
    };
    parts.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_that_nothing_falls_short_of_is_no_knee() {
        assert_eq!(knee(&[789.59, 1191.56, 1724.63, 1213.63]), Some(2));
        assert_eq!(knee(&[1000.0, 1200.0, 1190.0, 1150.0]), None);
        assert_eq!(knee(&[1000.0, 900.0, 1200.0]), None);
        assert_eq!(knee(&[]), None);
    }
}
