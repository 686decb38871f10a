//! What there is to run: the catalogue that `load --describe` prints (`unherd.catalogue/1`).

use serde::Serialize;

/// What the program in `rivals/` has: its workloads, each with its implementations. Errors name it
/// where that program is not built; a test there compares.
pub const RIVALS: &[(&str, &[&str])] = &[
    ("pagewait", &["parking_lot_core", "event-listener"]),
    ("wake", &["parking_lot_core"]),
    ("hit", &["quick_cache", "moka", "foyer"]),
    ("hit-cost", &["quick_cache", "moka", "foyer"]),
    ("mutex", &["parking_lot"]),
    ("rwlock", &["std", "parking_lot"]),
];

/// All workloads of one runner.
#[derive(Debug, Serialize)]
pub struct Catalogue {
    schema: &'static str,
    workloads: Vec<Description>,
}

impl Catalogue {
    /// The catalogue of these workloads.
    pub fn new(workloads: impl IntoIterator<Item = Description>) -> Self {
        Self { schema: "unherd.catalogue/1", workloads: workloads.into_iter().collect() }
    }
}

/// One workload: what it does, with which implementations, and what it reports.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Description {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// The metrics that verdicts are about; several where the workload has phases.
    pub primary: Vec<String>,
    /// The implementations of this runner.
    pub impls: Vec<Impl>,
    /// What is compared unless the user says otherwise.
    pub default_impls: Vec<&'static str>,
    /// The workload's own options.
    pub params: Vec<Param>,
    /// What it reports.
    pub metrics: Vec<Metric>,
    /// Whether it writes files below `--dir`.
    pub uses_dir: bool,
    /// Whether it does so only if `--dir` is given.
    pub takes_dir: bool,
    /// Whether `--memory` bounds it.
    pub uses_memory: bool,
    /// Whether the kernel works for it in threads of its own, so that the CPU used is to be read
    /// from the machine's busy time.
    pub kernel_work: bool,
    /// Whether a round gives the same figures each time, so that one says all.
    pub deterministic: bool,
    /// How many threads it has unless the user says otherwise.
    pub default_threads: usize,
    /// The count of the wait account that is zero where the mechanism was not used at all.
    pub counts_as_exercised: Option<&'static str>,
}

/// One implementation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Impl {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
}

/// One option of a workload.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Param {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Its value unless the user says otherwise.
    pub default: &'static str,
    /// What its value looks like.
    pub kind: Kind,
}

/// What the value of a [`Param`] looks like. `auto` is legal where it is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A whole number.
    Count,
    /// Bytes, with an optional K, M, G or T (powers of 1024).
    Size,
    /// A word.
    Text,
    /// `true` or `false`.
    Flag,
}

/// One figure that a round reports.
#[derive(Debug, Clone, Serialize)]
pub struct Metric {
    /// Its name, unit last.
    pub name: String,
    /// One sentence.
    pub about: &'static str,
    /// Which way is good.
    pub better: Better,
}

impl Metric {
    /// A metric.
    pub fn new(name: impl Into<String>, better: Better, about: &'static str) -> Self {
        Self { name: name.into(), about, better }
    }
}

/// Which way of a [`Metric`] is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// It is reported to explain the others.
    Neither,
}
