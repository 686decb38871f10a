//! What will be run, in which order, decided before anything is: pure.
//!
//! A *round* measures every cell of the sweep once with every contender. Cells come in random
//! order; within a cell the contenders follow each other directly, again in random order, so that
//! what drifts hits both sides of a pair alike (AB or BA, by the toss of the printed seed).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalogue::{ParamKind, RegisteredWorkload};
use crate::error::Error;
use crate::random::{Random, derived_seed};
use crate::size::parse_size;
use crate::statistics::{Better, pairs_advised, pairs_needed};

/// The schema of a kept plan.
pub const PLAN_SCHEMA: &str = "unherd.plan/1";

/// More rounds than this say nothing that fewer do not, and the exact distribution gets long.
pub const ROUNDS_MAX: usize = 500;

/// What somebody asked for. `None` and empty mean "not said".
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Implementations; the first is the base unless `base` names another.
    pub with: Vec<String>,
    /// The implementations that the others are compared with; empty for the first.
    pub bases: Vec<String>,
    /// Thread counts to sweep.
    pub threads: Vec<usize>,
    /// CPU counts to sweep.
    pub cpus: Vec<usize>,
    /// The workload's own options, each with the values to sweep.
    pub params: Vec<(String, Vec<String>)>,
    /// Metrics to judge instead of the primary ones.
    pub metrics: Vec<String>,
    /// How many rounds; [`pairs_advised`] unless told.
    pub rounds: Option<usize>,
    /// The fewest rounds that can decide at all, whatever `rounds` says.
    pub quick: bool,
    /// Where all randomness starts.
    pub seed: u64,
    /// Changes within this share are the same.
    pub delta: f64,
    /// The one implementation against itself.
    pub aa: bool,
    /// Slow the other side of it by this share.
    pub plant: Option<f64>,
}

/// One side of the comparisons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contender {
    /// What tables call it.
    pub label: String,
    /// The implementation.
    pub implementation: String,
    /// The share of CPU that it burns on top, to see whether that is found.
    pub plant: Option<f64>,
}

/// One point of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Threads.
    pub threads: usize,
    /// CPUs that the process may use; all of them if `None`.
    pub cpus: Option<usize>,
    /// The workload's options that were given.
    pub params: BTreeMap<String, String>,
}

/// A metric that verdicts are about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its name.
    pub metric: String,
    /// Which way it is better.
    pub better: Better,
}

/// What will be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// The workload.
    pub workload: String,
    /// Who takes part; the first ones are the bases.
    pub contenders: Vec<Contender>,
    /// How many of them the others are compared with.
    #[serde(default = "one")]
    pub bases: usize,
    /// The sweep.
    pub cells: Vec<Cell>,
    /// What is judged.
    pub judged: Vec<Judged>,
    /// How many rounds.
    pub rounds: usize,
    /// Where all randomness starts.
    pub seed: u64,
    /// Changes within this share are the same.
    pub delta: f64,
    /// The count of the wait account that must not be 0.
    pub counts_as_exercised: Option<String>,
    /// Whether a round gives the same figures each time.
    #[serde(default)]
    pub deterministic: bool,
    /// It goes on until all intervals are within this share of their middle; `rounds` is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
}

/// When a bench stops that goes on until its intervals are narrow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Until {
    /// How narrow: 0.01 is ±1 %.
    pub width: f64,
    /// How many rounds come first, which are not judged, and say how many it takes.
    pub pilot: usize,
}

/// The bases of plans that were written before there could be several.
const fn one() -> usize {
    1
}

/// One process to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index of the cell.
    pub cell: usize,
    /// Index of the contender.
    pub contender: usize,
    /// The seed of its work: the same for all contenders of one cell in one round.
    pub seed: u64,
}

impl Plan {
    /// Decides what to run.
    ///
    /// # Errors
    ///
    /// Names that nothing has, values that are none, and fewer rounds than the comparisons need.
    pub fn new(request: &Request, known: &RegisteredWorkload) -> Result<Self, Error> {
        let contenders = contenders(request, known)?;
        let judged = judged(request, known)?;
        let cells = cells(request, known)?;
        let bases = if request.aa { 1 } else { request.bases.len().max(1) };
        let comparisons = cells.len() * judged.len() * bases * (contenders.len() - bases);
        let deterministic = known.workload.deterministic;
        let needed = if deterministic { 1 } else { pairs_needed(comparisons) };
        let advised = if deterministic { 1 } else { pairs_advised(comparisons) };
        let rounds = if request.quick { needed } else { request.rounds.unwrap_or(advised) };
        if rounds < needed && comparisons > 0 {
            return Err(Error::TooFewRounds { rounds, cells: comparisons, needed });
        }
        if rounds == 0 || rounds > ROUNDS_MAX {
            return Err(Error::usage(
                format!("--rounds {rounds} is out of range"),
                format!("give 1 to {ROUNDS_MAX}"),
            ));
        }
        if !(request.delta > 0.0 && request.delta < 1.0) {
            return Err(Error::share_out_of_range("--delta", request.delta, "2%"));
        }
        Ok(Self {
            schema: PLAN_SCHEMA.to_owned(),
            workload: known.workload.name.clone(),
            contenders,
            bases,
            cells,
            judged,
            rounds,
            seed: request.seed,
            delta: request.delta,
            counts_as_exercised: known.workload.counts_as_exercised.clone(),
            deterministic,
            until: None,
        })
    }

    /// How many comparisons are judged together.
    pub fn comparisons(&self) -> usize {
        let (bases, others) = self.sides();
        self.cells.len() * self.judged.len() * bases.len() * others.len()
    }

    /// The bases, and the implementations that are compared with each of them.
    pub fn sides(&self) -> (&[Contender], &[Contender]) {
        self.contenders.split_at(self.bases.min(self.contenders.len()))
    }

    /// What to say of fewer rounds than are advised.
    pub fn warning(&self) -> Option<String> {
        let advised = pairs_advised(self.comparisons());
        if self.deterministic || self.comparisons() == 0 || self.rounds >= advised {
            return None;
        }
        let Self { rounds, .. } = self;
        Some(format!(
            "{rounds} rounds are few: one disturbed round can hide a difference; {advised} or more \
             are advised"
        ))
    }

    /// The order of one round, counted from 1.
    pub fn round(&self, round: usize) -> Vec<Step> {
        let mut random = Random::new(derived_seed(self.seed, round as u64));
        let mut cells: Vec<usize> = (0..self.cells.len()).collect();
        random.shuffle(&mut cells);
        let mut steps = Vec::with_capacity(cells.len() * self.contenders.len());
        for cell in cells {
            // 53 bits: readers of JSON that know only floating point keep every one of them.
            let seed = random.next_u64() >> 11;
            let mut order: Vec<usize> = (0..self.contenders.len()).collect();
            random.shuffle(&mut order);
            steps.extend(order.into_iter().map(|contender| Step { cell, contender, seed }));
        }
        steps
    }
}

fn contenders(request: &Request, known: &RegisteredWorkload) -> Result<Vec<Contender>, Error> {
    let workload = &known.workload;
    let known_names = || workload.impls.iter().map(|i| &*i.name);
    let mut names = request.with.clone();
    if names.is_empty() {
        names.clone_from(&workload.default_impls);
    }
    for name in names.iter().chain(&request.bases) {
        if known.runner_of(name).is_none() {
            return Err(Error::unknown("implementation", name, known_names()));
        }
    }
    if request.aa {
        return against_itself(request, &names);
    }
    if request.plant.is_some() {
        return Err(Error::usage("--plant slows one side of an A/A run", "add --aa"));
    }
    names.retain(|name| !request.bases.contains(name));
    names.splice(0..0, request.bases.iter().cloned());
    if request.bases.len() > 1 && names.len() <= request.bases.len() {
        return Err(Error::usage(
            "all implementations are bases, so nothing is left to compare with them",
            "name more by --with, or fewer by --base",
        ));
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(Error::usage(
                format!("'{name}' is given twice"),
                "name it once, or use --aa to run it against itself",
            ));
        }
    }
    Ok(names
        .into_iter()
        .map(|name| Contender { label: name.clone(), implementation: name, plant: None })
        .collect())
}

fn against_itself(request: &Request, names: &[String]) -> Result<Vec<Contender>, Error> {
    let [name] = names else {
        return Err(Error::usage(
            "--aa runs one implementation against itself",
            "name exactly one by --with",
        ));
    };
    if let Some(plant) = request.plant.filter(|plant| !(*plant > 0.0 && *plant <= 10.0)) {
        return Err(Error::share_out_of_range("--plant", plant, "5%"));
    }
    let side = |number: u32, plant| Contender {
        label: format!("{name}#{number}"),
        implementation: name.clone(),
        plant,
    };
    Ok(vec![side(1, None), side(2, request.plant)])
}

fn judged(request: &Request, known: &RegisteredWorkload) -> Result<Vec<Judged>, Error> {
    let names = if request.metrics.is_empty() { &known.workload.primary } else { &request.metrics };
    names
        .iter()
        .map(|name| {
            let metric = known.metric(name)?;
            if metric.better == Better::Neither {
                return Err(Error::usage(
                    format!("{name} has no better side, so there is no verdict about it"),
                    "its median is in the tables; choose another by --metric",
                ));
            }
            Ok(Judged { metric: name.clone(), better: metric.better })
        })
        .collect()
}

/// Every combination of the swept values.
fn cells(request: &Request, known: &RegisteredWorkload) -> Result<Vec<Cell>, Error> {
    let threads = match &*request.threads {
        [] => vec![known.workload.default_threads],
        given => given.to_vec(),
    };
    let cpus = match &*request.cpus {
        [] => vec![None],
        given => given.iter().copied().map(Some).collect(),
    };
    for (option, values) in [("--threads", &threads), ("--cpus", &request.cpus)] {
        if values.contains(&0) {
            return Err(Error::usage(format!("{option} 0 runs nothing"), "give 1 or more"));
        }
    }
    let mut points = vec![BTreeMap::new()];
    for (name, values) in &request.params {
        let values = param_values(known, name, values)?;
        points = points
            .iter()
            .flat_map(|point| {
                values.iter().map(move |value| {
                    let mut point: BTreeMap<String, String> = point.clone();
                    point.insert(name.clone(), value.clone());
                    point
                })
            })
            .collect();
    }
    let mut cells = Vec::new();
    for params in &points {
        for &cpus in &cpus {
            for &threads in &threads {
                let cell = Cell { threads, cpus, params: params.clone() };
                if cells.contains(&cell) {
                    return Err(Error::usage("a swept value is given twice", "name each once"));
                }
                cells.push(cell);
            }
        }
    }
    Ok(cells)
}

fn param_values(
    known: &RegisteredWorkload,
    name: &str,
    values: &[String],
) -> Result<Vec<String>, Error> {
    let params = &known.workload.params;
    let param = params
        .iter()
        .find(|param| param.name == name)
        .ok_or_else(|| Error::unknown("option", name, params.iter().map(|p| &*p.name)))?;
    values
        .iter()
        .map(|value| {
            let wrong = |advice: &str| {
                Error::usage(format!("--{name} '{value}' is no {}", kind_word(param.kind)), advice)
            };
            // A default of `auto` is the workload's own choice, which may be asked for by name.
            if param.default == "auto" && value == "auto" {
                return Ok(value.clone());
            }
            match param.kind {
                ParamKind::Text => Ok(value.clone()),
                ParamKind::Count | ParamKind::Size => parse_size(value)
                    .map(|count| count.to_string())
                    .ok_or_else(|| wrong("give a whole number, or one with K, M, G or T")),
                ParamKind::Flag => match &**value {
                    "" | "true" => Ok("true".to_owned()),
                    "false" => Ok("false".to_owned()),
                    _ => Err(wrong("give true or false")),
                },
            }
        })
        .collect()
}

const fn kind_word(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Count => "count",
        ParamKind::Size => "size",
        ParamKind::Text => "text",
        ParamKind::Flag => "switch",
    }
}

#[cfg(test)]
mod tests;
