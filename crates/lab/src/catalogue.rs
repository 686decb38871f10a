//! What there is to run: the catalogues of all runners, merged.
//!
//! A runner is an executable that prints its catalogue (schema `unherd.catalogue/1`) when it is
//! called as `RUNNER load --describe`. Several runners may have implementations of one workload:
//! the first that knows the workload describes it, the others add implementations.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::statistics::Better;

/// The schema of a catalogue.
pub const CATALOGUE_SCHEMA: &str = "unherd.catalogue/1";

/// What one runner offers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Catalogue {
    /// [`CATALOGUE_SCHEMA`].
    pub schema: String,
    /// Its workloads.
    pub workloads: Vec<Workload>,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// As the command line names it.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// The metrics that verdicts are about, one a phase.
    pub primary: Vec<String>,
    /// What can run it.
    pub impls: Vec<Implementation>,
    /// What runs it unless told; the first is the base.
    pub default_impls: Vec<String>,
    /// Its own options.
    pub params: Vec<Param>,
    /// What it measures.
    pub metrics: Vec<Metric>,
    /// Whether it works on files below `--dir`.
    #[serde(default)]
    pub uses_dir: bool,
    /// Whether it does so only if `--dir` is given.
    #[serde(default)]
    pub takes_dir: bool,
    /// Whether it runs with limited memory.
    #[serde(default)]
    pub uses_memory: bool,
    /// Whether kernel threads do part of its work, so that CPU is the machine's busy time.
    #[serde(default)]
    pub kernel_work: bool,
    /// Whether a round gives the same figures each time, so that one says all.
    #[serde(default)]
    pub deterministic: bool,
    /// Threads unless told.
    pub default_threads: usize,
    /// The count in the wait account whose being 0 means that the mechanism was not used.
    #[serde(default)]
    pub counts_as_exercised: Option<String>,
}

/// One way to run a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Implementation {
    /// As `--with` names it.
    pub name: String,
    /// One sentence.
    pub about: String,
}

/// One option of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    /// As `--NAME` gives it.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// Its value unless told.
    pub default: String,
    /// What values it takes.
    pub kind: ParamKind,
}

/// What values an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParamKind {
    /// A whole number.
    Count,
    /// Bytes: a whole number, or one with K, M, G or T.
    Size,
    /// Anything.
    Text,
    /// `true` or `false`; alone it means `true`.
    Flag,
}

/// One thing that is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// With its unit last.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// Which way it is better.
    pub better: Better,
}

/// A workload and who runs which of its implementations.
#[derive(Debug, Clone)]
pub struct RegisteredWorkload {
    /// The workload, with the implementations of all runners and the lab's own metrics.
    pub workload: Workload,
    runners: Vec<PathBuf>,
}

impl RegisteredWorkload {
    /// The executable that has this implementation.
    pub fn runner_of(&self, implementation: &str) -> Option<&Path> {
        let index = self.workload.impls.iter().position(|i| i.name == implementation)?;
        Some(&self.runners[index])
    }

    /// The metric of this name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] with the nearest.
    pub fn metric(&self, name: &str) -> Result<&Metric, Error> {
        let metrics = &self.workload.metrics;
        metrics
            .iter()
            .find(|metric| metric.name == name)
            .ok_or_else(|| Error::unknown("metric", name, metrics.iter().map(|m| &*m.name)))
    }
}

/// All that there is to run.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    known: Vec<RegisteredWorkload>,
}

impl Registry {
    /// Adds what `runner` offers, as it printed it.
    ///
    /// # Errors
    ///
    /// [`Error::Catalogue`] where the text is no catalogue that this lab reads.
    pub fn add(&mut self, runner: &Path, described: &str) -> Result<(), Error> {
        let broken = |what: String| Error::Catalogue { runner: runner.to_owned(), what };
        let catalogue: Catalogue =
            serde_json::from_str(described.trim()).map_err(|e| broken(e.to_string()))?;
        if catalogue.schema != CATALOGUE_SCHEMA {
            return Err(broken(format!("its schema is '{}'", catalogue.schema)));
        }
        for workload in catalogue.workloads {
            check_primary(&workload).map_err(broken)?;
            self.merge(runner, workload);
        }
        Ok(())
    }

    fn merge(&mut self, runner: &Path, mut workload: Workload) {
        if let Some(known) = self.known.iter_mut().find(|k| k.workload.name == workload.name) {
            for implementation in workload.impls {
                if known.workload.impls.iter().all(|i| i.name != implementation.name) {
                    known.workload.impls.push(implementation);
                    known.runners.push(runner.to_owned());
                }
            }
            return;
        }
        workload.metrics.extend(lab_metrics());
        let runners = vec![runner.to_owned(); workload.impls.len()];
        self.known.push(RegisteredWorkload { workload, runners });
    }

    /// Every workload, in the runners' order.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.known.iter().map(|known| &known.workload)
    }

    /// The workload of this name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] with the nearest.
    pub fn workload(&self, name: &str) -> Result<&RegisteredWorkload, Error> {
        self.known
            .iter()
            .find(|known| known.workload.name == name)
            .ok_or_else(|| Error::unknown("workload", name, self.workloads().map(|w| &*w.name)))
    }
}

/// A primary metric must be among the metrics, and have a better side, or no verdict is possible.
fn check_primary(workload: &Workload) -> Result<(), String> {
    let name = &workload.name;
    if workload.primary.is_empty() {
        return Err(format!("{name} has no primary metric"));
    }
    for primary in &workload.primary {
        match workload.metrics.iter().find(|metric| metric.name == *primary) {
            None => return Err(format!("{name} does not describe its metric {primary}")),
            Some(metric) if metric.better == Better::Neither => {
                return Err(format!("{name} judges by {primary}, which has no better side"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What the lab adds to every round from the kernel's accounting of the process.
fn lab_metrics() -> Vec<Metric> {
    let metric = |name: &str, about: &str| Metric {
        name: name.to_owned(),
        about: about.to_owned(),
        better: Better::Lower,
    };
    vec![
        metric("process_user_s", "user CPU of the whole process, set-up included"),
        metric("process_sys_s", "system CPU of the whole process, set-up included"),
        metric("process_context_switches", "voluntary context switches of the whole process"),
        metric("process_preemptions", "involuntary context switches of the whole process"),
        metric("process_peak_bytes", "largest resident size of the process"),
        metric("process_elapsed_s", "from the start of the process to its end"),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A catalogue of one workload, `wait`, for tests.
    pub(crate) fn described(impls: &[&str]) -> String {
        let impls: Vec<_> =
            impls.iter().map(|name| serde_json::json!({"name": name, "about": "one"})).collect();
        serde_json::json!({
            "schema": CATALOGUE_SCHEMA,
            "workloads": [{
                "name": "wait", "about": "Waits.", "primary": ["cost_us"], "impls": impls,
                "default_impls": ["before", "unherd"],
                "params": [
                    {"name": "buckets", "about": "Buckets.", "default": "16", "kind": "count"},
                    {"name": "span", "about": "Bytes.", "default": "4096", "kind": "size"},
                    {"name": "loud", "about": "Noise.", "default": "false", "kind": "flag"}
                ],
                "metrics": [
                    {"name": "cost_us", "about": "Cost.", "better": "lower"},
                    {"name": "work_per_s", "about": "Work.", "better": "higher"},
                    {"name": "size_bytes", "about": "Size.", "better": "neither"}
                ],
                "default_threads": 4, "counts_as_exercised": "wakeups"
            }]
        })
        .to_string()
    }

    pub(crate) fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.add(Path::new("own"), &described(&["before", "unherd"])).unwrap();
        registry.add(Path::new("rivals"), &described(&["rival", "unherd"])).unwrap();
        registry
    }

    #[test]
    fn first_runner_keeps_an_implementation_name() {
        let registry = registry();
        assert_eq!(registry.workloads().count(), 1);
        let known = registry.workload("wait").unwrap();
        assert_eq!(known.runner_of("unherd"), Some(Path::new("own")));
        assert_eq!(known.runner_of("rival"), Some(Path::new("rivals")));
        assert_eq!(known.runner_of("none"), None);
        assert!(known.metric("process_peak_bytes").is_ok());
    }

    #[test]
    fn catalogue_without_usable_primary_is_refused() {
        let mut registry = Registry::default();
        let mut broken = |from: &str, to: &str| {
            let text = described(&["before"]).replace(from, to);
            registry.add(Path::new("r"), &text).unwrap_err().to_string()
        };
        assert!(broken("\"primary\":[\"cost_us\"]", "\"primary\":[]").contains("no primary"));
        assert!(
            broken("\"primary\":[\"cost_us\"]", "\"primary\":[\"nix\"]")
                .contains("not describe its metric nix")
        );
        assert!(
            broken("\"primary\":[\"cost_us\"]", "\"primary\":[\"size_bytes\"]")
                .contains("no better side")
        );
        assert!(broken("catalogue/1", "catalogue/9").contains("unherd.catalogue/9"));
        assert!(registry.add(Path::new("r"), "nonsense").is_err());
    }
}
