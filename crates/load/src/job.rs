//! One round: what is asked for, and what came out.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::catalogue::{Description, Kind};
use crate::{LoadError, Waits};

/// What one round is to do.
#[derive(Debug, Clone)]
pub struct Job {
    /// The implementation, one of the workload's own.
    pub with: String,
    /// How many threads do the work; at least one.
    pub threads: usize,
    /// All that looks random is derived from it.
    pub seed: u64,
    /// The memory that the implementation may use, in bytes.
    pub memory_bytes: Option<u64>,
    /// A directory for the round's files.
    pub dir: Option<PathBuf>,
    /// The share of its CPU that each timed region wastes on purpose.
    pub plant: f64,
    /// How many CPUs are busy when the machine is idle.
    pub idle_busy: f64,
    /// The workload's own options, those not given at their defaults.
    pub params: Params,
}

impl Job {
    /// A job with everything at its default, as tests want it.
    pub fn new(description: &Description, with: &str, threads: usize) -> Self {
        Self {
            with: with.to_owned(),
            threads,
            seed: 1,
            memory_bytes: None,
            dir: None,
            plant: 0.0,
            idle_busy: 0.0,
            params: Params::defaults(description),
        }
    }

    /// The directory, or a usage error.
    pub fn dir(&self) -> Result<&Path, LoadError> {
        self.dir
            .as_deref()
            .ok_or_else(|| LoadError::usage("this workload writes files: give --dir"))
    }

    /// The memory in bytes, or a usage error.
    pub fn memory_bytes(&self) -> Result<u64, LoadError> {
        match self.memory_bytes {
            Some(0) => Err(LoadError::usage("--memory 0: give the bytes to work in, such as 256M")),
            Some(bytes) => Ok(bytes),
            None => Err(LoadError::usage("this workload is bounded by memory: give --memory")),
        }
    }

    /// The error for an implementation that is none of `description`'s.
    pub fn unknown_impl(&self, description: &Description) -> LoadError {
        let known: Vec<_> = description.impls.iter().map(|known| known.name).collect();
        LoadError::usage(format!(
            "{}: no implementation {:?}; there are: {}",
            description.name,
            self.with,
            known.join(", ")
        ))
    }
}

/// The options of a workload, each with a value.
#[derive(Debug, Clone)]
pub struct Params(Vec<(&'static str, Kind, String)>);

impl Params {
    /// All at their defaults.
    pub fn defaults(description: &Description) -> Self {
        let of = |param: &crate::Param| (param.name, param.kind, param.default.to_owned());
        Self(description.params.iter().map(of).collect())
    }

    /// Sets one. A name or a value that is not known is a usage error.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LoadError> {
        let Some(at) = self.0.iter().position(|(known, ..)| *known == name) else {
            let known: Vec<_> = self.0.iter().map(|(name, ..)| *name).collect();
            return Err(LoadError::usage(format!(
                "no option {name:?}; the workload has: {}",
                known.join(", ")
            )));
        };
        self.0[at].2 = value.to_owned();
        match (self.0[at].1, value) {
            (_, "auto") => Ok(()),
            (Kind::Count | Kind::Size, _) => self.number(name).map(drop),
            (Kind::Flag, "true" | "false") | (Kind::Text, _) => Ok(()),
            (Kind::Flag, _) => Err(LoadError::usage(format!("{name}={value}: give true or false"))),
        }
    }

    /// The text of an option; empty if there is no such option.
    pub fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, ..)| *known == name).map_or("", |(.., value)| value)
    }

    /// A count or a size; `None` for `auto`.
    pub fn number(&self, name: &str) -> Result<Option<u64>, LoadError> {
        match self.text(name) {
            "auto" => Ok(None),
            text => parse_size(text).map(Some).ok_or_else(|| {
                LoadError::usage(format!("{name}={text}: give a whole number, such as 16 or 256M"))
            }),
        }
    }

    /// A number of at least one that has a default other than `auto`.
    pub fn at_least_one(&self, name: &str) -> Result<usize, LoadError> {
        match self.number(name)?.and_then(|number| usize::try_from(number).ok()) {
            Some(number) if number > 0 => Ok(number),
            _ => Err(LoadError::usage(format!("{name}={}: give at least 1", self.text(name)))),
        }
    }

    pub(crate) fn to_json(&self) -> Map<String, Value> {
        self.0.iter().map(|(name, _, value)| ((*name).to_owned(), Value::from(&**value))).collect()
    }
}

/// A whole number with an optional K, M, G or T for powers of 1024.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        b'T' | b't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    // `parse` would also take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Bytes as [`parse_size`] reads them, in the largest unit in which they are a whole number.
pub(crate) fn size_text(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let is_whole = |shift: u32| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let whole = units.into_iter().find(|(shift, _)| is_whole(*shift));
    whole.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// What one round measured.
#[derive(Debug, Clone)]
pub struct Round {
    /// A value that all implementations must agree on.
    pub check: u64,
    /// The figures, in the order of the catalogue.
    pub metrics: Vec<(String, f64)>,
    /// The waits of the process in the timed regions.
    pub waits: Waits,
}

impl Round {
    /// The figure of that name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// The last line of a runner's standard output.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    workload: &'a str,
    #[serde(rename = "impl")]
    with: &'a str,
    threads: usize,
    params: Map<String, Value>,
    seed: u64,
    check: String,
    metrics: Map<String, Value>,
    #[serde(with = "crate::waits")]
    waits: &'a Waits,
}

impl<'a> Report<'a> {
    pub(crate) fn new(workload: &'a str, job: &'a Job, round: &'a Round) -> Self {
        let metrics = round.metrics.iter();
        Self {
            workload,
            with: &job.with,
            threads: job.threads,
            params: job.params.to_json(),
            seed: job.seed,
            check: format!("{:016x}", round.check),
            metrics: metrics.map(|(name, value)| (name.clone(), Value::from(*value))).collect(),
            waits: &round.waits,
        }
    }
}
