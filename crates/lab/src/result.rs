//! What a bench found: the contract `unherd.bench/1`, made from a plan and its finished rounds.
//! Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use unherd_host::Profile;

use crate::blocks::MachineLine;
use crate::catalogue::Metric;
use crate::compare::Side;
use crate::plan::{Cell, Contender, Judged, Plan, Until};
use crate::record::Header;
use crate::round::Round;
use crate::scaling::{ScalingLine, scaling};
use crate::statistics::{
    ALPHA, Better, Comparison, Judgement, Look, Tail, Verdict, judge_at, judge_exact, log_ratio,
    look_at, looks, rounds_to_find, summary, tail,
};
use crate::surroundings::Surroundings;
use crate::waits::{self, WaitCountLine};

/// The schema of a result.
pub const RESULT_SCHEMA: &str = "unherd.bench/1";

/// What a bench found. Fields are only ever added within a schema version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`RESULT_SCHEMA`].
    pub schema: String,
    /// The machine.
    pub machine: Value,
    /// The workload.
    pub workload: String,
    /// The options that were the same in every round.
    pub params: Map<String, Value>,
    /// Where all randomness started.
    pub seed: u64,
    /// Changes within this share are called the same.
    pub delta: f64,
    /// What was compared, where it was any commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Side>,
    /// Which way each metric is better, and its unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricLine>,
    /// What a reader must know before believing the figures.
    pub marks: Vec<String>,
    /// Every round.
    pub rounds: Vec<RoundLine>,
    /// Every metric of every implementation in every cell.
    pub summary: Vec<SummaryLine>,
    /// Every verdict.
    pub comparisons: Vec<ComparisonLine>,
    /// How throughput grows, where a load was swept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<ScalingLine>,
    /// The wait accounts of implementations that keep one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitCountLine>,
    /// Each machine's own estimates, where blocks of rounds were measured on several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineLine>,
    /// The profiles of one more round of each implementation, if any were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfileLine>,
    /// The traces of one more round of each implementation, if any were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<TraceLine>,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricLine {
    /// Its name.
    pub name: String,
    /// Which side of it is better.
    pub better: Better,
    /// What its name ends with; a plain number has none.
    pub unit: Option<String>,
    /// What it is.
    pub about: String,
}

impl MetricLine {
    fn new(metric: &Metric) -> Self {
        let Metric { name, about, better } = metric.clone();
        Self { unit: unit(&name).map(str::to_owned), name, better, about }
    }
}

/// What stands last in a metric's name: `p99_us`, `sections_per_s`, `Decode-2 ns/op`.
fn unit(name: &str) -> Option<&str> {
    const UNITS: [&str; 10] = ["s", "ms", "us", "ns", "bytes", "kb", "mb", "gb", "pct", "hz"];
    if let Some((_, unit)) = name.rsplit_once(' ') {
        return Some(unit);
    }
    if let Some((before, _)) = name.split_once("_per_") {
        return Some(&name[before.rfind('_').map_or(0, |end| end + 1)..]);
    }
    name.rsplit('_').next().filter(|last| last.len() < name.len() && UNITS.contains(last))
}

/// One implementation under the tracer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceLine {
    /// Whose.
    #[serde(rename = "impl")]
    pub label: String,
    /// The point of the sweep.
    #[serde(flatten)]
    pub point: Point,
    /// What was seen.
    #[serde(flatten)]
    pub traced: Traced,
}

/// What came of tracing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Traced {
    /// It was permitted.
    Taken {
        /// The whole report (schema `unherd.trace/1`), in the record's directory.
        file: String,
        /// Its verdict.
        verdict: Value,
        /// Its summary.
        summary: Value,
        /// The same as text, with its tables; beside the file.
        #[serde(skip)]
        text: String,
    },
    /// It was not, or the traced round failed.
    Refused {
        /// What the tracer said, or how it failed.
        why: String,
    },
}

/// One implementation under the sampler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileLine {
    /// Whose.
    #[serde(rename = "impl")]
    pub label: String,
    /// The point of the sweep.
    #[serde(flatten)]
    pub point: Point,
    /// What was sampled.
    #[serde(flatten)]
    pub sampled: Profiled,
}

/// What came of sampling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Profiled {
    /// It was permitted.
    Taken {
        /// Who used the processors.
        cpu: Profile,
        /// Who put threads to sleep.
        switches: Profile,
    },
    /// It was not, or the sampled round failed.
    Refused {
        /// What the kernel said, and what to do; or how it failed.
        why: String,
    },
}

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundLine {
    /// Which, from 1.
    pub round: usize,
    /// Whose.
    #[serde(rename = "impl")]
    pub label: String,
    /// The point of the sweep.
    #[serde(flatten)]
    pub point: Point,
    /// What was measured.
    pub metrics: BTreeMap<String, f64>,
    /// From 1; above it where the process was run again because others used the machine.
    #[serde(default)]
    pub attempt: usize,
    /// What else went on.
    #[serde(default)]
    pub surroundings: Surroundings,
}

/// A point of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Threads.
    pub threads: usize,
    /// CPUs that the process could use; all if `null`.
    pub cpus: Option<usize>,
    /// The options that were given on the command line.
    pub params: BTreeMap<String, String>,
}

/// One metric over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryLine {
    /// Whose.
    #[serde(rename = "impl")]
    pub label: String,
    /// The point of the sweep.
    #[serde(flatten)]
    pub point: Point,
    /// Which.
    pub metric: String,
    /// The middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// One verdict. Ratios tell how many times *better* than the base, in the metric's direction: above
/// 1 is better, whether less or more of the metric is. A ratio of `null` is infinite (the worse
/// side was 0); so are the ends, unless there were too few pairs for any.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparisonLine {
    /// About which metric.
    pub metric: String,
    /// Compared with whom.
    pub base: String,
    /// Who.
    #[serde(rename = "impl")]
    pub label: String,
    /// The point of the sweep.
    #[serde(flatten)]
    pub point: Point,
    /// The estimate.
    pub ratio: Option<f64>,
    /// The interval's lower end.
    pub low: Option<f64>,
    /// The interval's upper end.
    pub high: Option<f64>,
    /// The confidence of the interval by itself; together, all of the result hold with 95 %.
    pub level: f64,
    /// How many pairs.
    pub pairs: usize,
    /// The exact p-value, before Holm.
    pub p_value: f64,
    /// The word for it.
    pub verdict: Verdict,
    /// Half the interval's width, as a ratio. A change of this size is found in half the cases
    /// only; it is kept for readers of earlier results.
    pub smallest_effect: Option<f64>,
    /// Where nothing can be told: how many rounds would find a change of δ in 9 of 10 benches, if
    /// 500 would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_to_find: Option<usize>,
    /// The scatter and the worst rounds of the two sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// Of a difference that was measured again with other layouts: whether it was there again, in
    /// the same direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
}

impl ComparisonLine {
    /// Whether there were pairs enough for an interval. (Its ends may be infinite, which is `None`
    /// too, but then the verdict tells which way.)
    pub fn has_interval(&self) -> bool {
        self.low.is_some() || self.high.is_some() || self.verdict != Verdict::CannotTell
    }
}

impl ComparisonLine {
    /// Whether its interval is within a factor of 1 + `width` of its middle.
    pub(crate) fn is_within(&self, width: f64) -> bool {
        match (self.low, self.high) {
            (Some(low), Some(high)) => low == high || (high / low).sqrt() <= 1.0 + width,
            _ => false,
        }
    }
}

impl BenchResult {
    /// Judges the finished rounds. Rounds in which a side is missing make no pair, nor do figures
    /// that have no ratio, which a mark names.
    pub fn new(plan: &Plan, rounds: &[Round], machine: Value, mut marks: Vec<String>) -> Self {
        let error = error(plan, rounds);
        let judged = &judged_rounds(plan, rounds);
        let comparisons = comparisons(plan, judged, error, &mut marks);
        Self {
            schema: RESULT_SCHEMA.to_owned(),
            machine,
            workload: plan.workload.clone(),
            params: common_params(rounds),
            seed: plan.seed,
            delta: plan.delta,
            commands: Vec::new(),
            metrics: Vec::new(),
            marks,
            rounds: rounds.iter().map(|round| round_line(plan, round)).collect(),
            summary: summaries(plan, judged),
            comparisons,
            scaling: scaling(plan, rounds),
            waits: waits::medians(plan, judged),
            machines: Vec::new(),
            profiles: Vec::new(),
            traces: Vec::new(),
        }
    }

    /// What one metric of one side was at a point.
    pub(crate) fn summary_of(
        &self,
        point: &Point,
        label: &str,
        metric: &str,
    ) -> Option<&SummaryLine> {
        let wanted = (point, label, metric);
        self.summary.iter().find(|line| (&line.point, &*line.label, &*line.metric) == wanted)
    }

    /// The most pairs that a comparison has, where no comparison has enough for an interval.
    pub(crate) fn pairs_if_too_few(&self) -> Option<usize> {
        let most = self.comparisons.iter().map(|line| line.pairs).max()?;
        (!self.comparisons.iter().any(ComparisonLine::has_interval)).then_some(most)
    }

    /// With what the header says of the commands and metrics.
    pub(crate) fn described_by(self, header: &Header) -> Self {
        let metrics = header.description.iter().flat_map(|workload| &workload.metrics);
        Self {
            commands: header.sides.clone(),
            metrics: metrics.map(MetricLine::new).collect(),
            ..self
        }
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        match self.threads {
            // Compared commands have as many as they please.
            0 => {}
            1 => parts.push("1 thread".to_owned()),
            threads => parts.push(format!("{threads} threads")),
        }
        parts.extend(self.cpus.map(|cpus| format!("{cpus} CPUs")));
        parts.extend(self.params.iter().map(|(name, value)| format!("{name} {value}")));
        f.write_str(&parts.join(", "))
    }
}

impl Point {
    /// What is not the same at all of these points.
    pub(crate) fn apart<'a>(&self, points: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let differs = |is_same: &dyn Fn(&Self) -> bool| !points.clone().all(is_same);
        let threads = differs(&|other| other.threads == self.threads);
        let cpus = differs(&|other| other.cpus == self.cpus);
        let mut params = self.params.clone();
        params.retain(|name, value| differs(&|other| other.params.get(name) == Some(value)));
        Self {
            threads: if threads { self.threads } else { 0 },
            cpus: self.cpus.filter(|_| cpus),
            params,
        }
    }

    /// What a heading about it ends with.
    pub fn suffix(&self) -> String {
        self.unless_empty(", ", "")
    }

    /// What stands behind a name in a table of all points.
    pub(crate) fn bracketed(&self) -> String {
        self.unless_empty(" (", ")")
    }

    /// Between two texts; nothing where all points are one.
    pub(crate) fn unless_empty(&self, before: &str, after: &str) -> String {
        match self.to_string() {
            point if point.is_empty() => point,
            point => format!("{before}{point}{after}"),
        }
    }

    /// The point at which the plan's cell of this index stands.
    pub(crate) fn of(plan: &Plan, cell: usize) -> Self {
        Self::of_cell(&plan.cells[cell])
    }

    /// The point at which a cell stands.
    pub(crate) fn of_cell(cell: &Cell) -> Self {
        Self { threads: cell.threads, cpus: cell.cpus, params: cell.params.clone() }
    }
}

fn round_line(plan: &Plan, round: &Round) -> RoundLine {
    RoundLine {
        round: round.round,
        label: round.label.clone(),
        point: Point::of(plan, round.cell),
        metrics: round.metrics.clone(),
        attempt: round.attempt,
        surroundings: round.surroundings,
    }
}

fn common_params(rounds: &[Round]) -> Map<String, Value> {
    let Some((first, rest)) = rounds.split_first() else {
        return Map::new();
    };
    let mut common = first.params.clone();
    common.retain(|name, value| rest.iter().all(|round| round.params.get(name) == Some(value)));
    common
}

/// The rounds of one contender in one cell.
fn rounds_of<'a>(
    rounds: &'a [Round],
    cell: usize,
    contender: &'a Contender,
) -> impl Iterator<Item = &'a Round> + Clone {
    rounds.iter().filter(move |round| round.cell == cell && round.label == contender.label)
}

fn summaries(plan: &Plan, rounds: &[Round]) -> Vec<SummaryLine> {
    let mut lines = Vec::new();
    for cell in 0..plan.cells.len() {
        for contender in &plan.contenders {
            let mut metrics: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            for round in rounds_of(rounds, cell, contender) {
                for (name, value) in &round.metrics {
                    metrics.entry(name).or_default().push(*value);
                }
            }
            for (metric, values) in metrics {
                let Some(found) = summary(&values) else {
                    continue;
                };
                lines.push(SummaryLine {
                    label: contender.label.clone(),
                    point: Point::of(plan, cell),
                    metric: metric.to_owned(),
                    median: found.median,
                    min: found.min,
                    max: found.max,
                });
            }
        }
    }
    lines
}

/// One comparison of the family.
struct Pairing<'a> {
    cell: usize,
    judged: &'a Judged,
    base: &'a Contender,
    contender: &'a Contender,
}

/// The figures of one, pair by pair.
struct Paired {
    bases: Vec<f64>,
    others: Vec<f64>,
    comparison: Comparison,
}

/// All comparisons of a plan, with what these rounds say to each.
fn family<'a>(
    plan: &'a Plan,
    rounds: &[Round],
    marks: &mut Vec<String>,
) -> Vec<(Pairing<'a>, Paired)> {
    let (bases, others) = plan.sides();
    let mut family = Vec::new();
    for cell in 0..plan.cells.len() {
        for base in bases {
            for judged in &plan.judged {
                for contender in others {
                    let pairing = Pairing { cell, judged, base, contender };
                    let paired = paired(plan, rounds, &pairing, marks);
                    family.push((pairing, paired));
                }
            }
        }
    }
    family
}

/// The rounds that are judged: without the pilot.
pub(crate) fn judged_rounds(plan: &Plan, rounds: &[Round]) -> Vec<Round> {
    let pilot = plan.until.map_or(0, |until| until.pilot);
    rounds.iter().filter(|round| round.round > pilot).cloned().collect()
}

/// Where a bench may stop that goes on until its intervals are narrow, from its pilot.
pub(crate) fn looks_of(plan: &Plan, rounds: &[Round], until: Until) -> Vec<Look> {
    let pilot: Vec<Round> =
        rounds.iter().filter(|round| round.round <= until.pilot).cloned().collect();
    let family = family(plan, &pilot, &mut Vec::new());
    let pilot: Vec<Vec<f64>> =
        family.into_iter().map(|(_, paired)| paired.comparison.log_ratios).collect();
    looks(&pilot, until.width, plan.rounds - until.pilot)
}

/// The error that all intervals share: [`ALPHA`], or that of the look at which it stopped.
fn error(plan: &Plan, rounds: &[Round]) -> f64 {
    let Some(until) = plan.until else { return ALPHA };
    let last = rounds.iter().map(|round| round.round).max().unwrap_or(0);
    look_at(&looks_of(plan, rounds, until), last.saturating_sub(until.pilot)).alpha
}

fn comparisons(
    plan: &Plan,
    rounds: &[Round],
    error: f64,
    marks: &mut Vec<String>,
) -> Vec<ComparisonLine> {
    let family = family(plan, rounds, marks);
    let figures: Vec<Comparison> = family.iter().map(|(_, it)| it.comparison.clone()).collect();
    let judgements = if plan.deterministic {
        figures.iter().map(|cell| judge_exact(cell, plan.delta)).collect()
    } else {
        judge_at(&figures, plan.delta, error)
    };
    family
        .iter()
        .zip(judgements)
        .filter_map(|((pairing, paired), judgement)| {
            Some(comparison_line(plan, pairing, paired, &judgement?))
        })
        .collect()
}

fn paired(plan: &Plan, rounds: &[Round], pairing: &Pairing<'_>, marks: &mut Vec<String>) -> Paired {
    let Judged { metric, better } = pairing.judged;
    let (mut bases, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in rounds_of(rounds, pairing.cell, pairing.contender) {
        let partner = rounds_of(rounds, pairing.cell, pairing.base)
            .find(|partner| partner.round == round.round);
        let pair =
            partner.and_then(|p| Some((*p.metrics.get(metric)?, *round.metrics.get(metric)?)));
        let Some((base, other)) = pair else { continue };
        match log_ratio(base, other, *better) {
            Ok(ratio) => {
                bases.push(base);
                others.push(other);
                ratios.push(ratio);
            }
            Err(why) => marks.push(format!(
                "round {}, {metric} of {} and {}: {why}; the pair is left out",
                round.round, pairing.base.label, pairing.contender.label
            )),
        }
    }
    let exercised = plan.counts_as_exercised.as_deref().is_none_or(|count| {
        waits::exercised(rounds_of(rounds, pairing.cell, pairing.contender), count)
    });
    Paired { bases, others, comparison: Comparison { log_ratios: ratios, exercised } }
}

fn comparison_line(
    plan: &Plan,
    pairing: &Pairing<'_>,
    paired: &Paired,
    judgement: &Judgement,
) -> ComparisonLine {
    let finite = |value: f64| value.is_finite().then_some(value);
    let interval = judgement.interval;
    let ratios = &paired.comparison.log_ratios;
    let cannot_tell = judgement.verdict == Verdict::CannotTell;
    // Two equal infinite ends have no width.
    let half_width = interval.map(|i| if i.low == i.high { 1.0 } else { (i.high / i.low).sqrt() });
    ComparisonLine {
        metric: pairing.judged.metric.clone(),
        base: pairing.base.label.clone(),
        label: pairing.contender.label.clone(),
        point: Point::of(plan, pairing.cell),
        ratio: finite(judgement.ratio),
        low: interval.and_then(|i| finite(i.low)),
        high: interval.and_then(|i| finite(i.high)),
        level: judgement.level,
        pairs: judgement.pairs,
        p_value: judgement.p_value,
        verdict: judgement.verdict,
        smallest_effect: half_width.and_then(finite),
        rounds_to_find: cannot_tell
            .then(|| rounds_to_find(ratios, plan.delta, ALPHA / plan.comparisons() as f64))
            .flatten(),
        tail: tail(&paired.bases, &paired.others, pairing.judged.better)
            .filter(|_| !plan.deterministic),
        confirmed: None,
    }
}

#[cfg(test)]
mod tests;
