//! `unherd workloads`: what there is to run, here and of others.

use std::fmt::Write as _;
use std::process::ExitCode;

use unherd_lab::catalogue::{Registry, Workload};
use unherd_lab::statistics::Better;
use unherd_lab::{Adapter, Error, printable};

use crate::output::{self, Failure};

/// Prints all workloads and adapters in short, or one in full.
pub(crate) fn run(name: Option<&str>, registry: &Registry) -> Result<ExitCode, Failure> {
    let adapters = Adapter::shipped()?;
    let adapter = adapters.iter().find(|adapter| name == Some(&adapter.name));
    let text = match (name, adapter) {
        // The file itself, to begin one's own with.
        (Some(_), Some(adapter)) => adapter.text.clone(),
        (Some(name), None) => {
            let found = registry.workloads().find(|workload| workload.name == name);
            let workloads = registry.workloads().map(|workload| &*workload.name);
            let known = workloads.chain(adapters.iter().map(|adapter| &*adapter.name));
            in_full(found.ok_or_else(|| Error::unknown("workload or adapter", name, known))?)
        }
        (None, _) => {
            let own = registry.workloads().map(in_short).collect::<Vec<_>>().join("\n");
            format!("{own}\n{}", of_others(&adapters))
        }
    };
    output::print(&printable(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn in_short(workload: &Workload) -> String {
    let impls: Vec<&str> = workload.impls.iter().map(|i| &*i.name).collect();
    format!(
        "{}: {}\n  implementations: {}\n  judged by: {}\n",
        workload.name,
        workload.about,
        impls.join(", "),
        workload.primary.join(", ")
    )
}

fn of_others(adapters: &[Adapter]) -> String {
    let mut text = "Benchmarks of others, for unherd compare --adapter NAME:\n".to_owned();
    for adapter in adapters {
        let name = &adapter.name;
        let _ = match adapter.is_installed() {
            true => writeln!(text, "  {name}: {}", adapter.about),
            false => writeln!(text, "  {name}: {} ({})", adapter.about, adapter.install),
        };
    }
    text
}

fn in_full(workload: &Workload) -> String {
    let mut text = format!("{}: {}\n", workload.name, workload.about);
    let mut section = |title: &str, rows: Vec<(String, String)>| {
        let _ = writeln!(text, "\n{title}:");
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, about) in rows {
            let _ = writeln!(text, "  {name:<width$}  {about}");
        }
    };
    let is_default = |name: &String| workload.default_impls.contains(name);
    let of_default = |name: &String| {
        if is_default(name) { " (by default)" } else { "" }
    };
    section(
        "Implementations",
        workload
            .impls
            .iter()
            .map(|i| (i.name.clone(), format!("{}{}", i.about, of_default(&i.name))))
            .collect(),
    );
    section(
        "Options",
        workload
            .params
            .iter()
            .map(|p| (format!("--{}", p.name), format!("{} [default: {}]", p.about, p.default)))
            .collect(),
    );
    section(
        "Metrics",
        workload
            .metrics
            .iter()
            .map(|metric| {
                let better = match metric.better {
                    Better::Lower => "less is better",
                    Better::Higher => "more is better",
                    Better::Neither => "not judged",
                };
                let primary = workload.primary.contains(&metric.name);
                let judged = if primary { ", primary" } else { "" };
                (metric.name.clone(), format!("{} ({better}{judged})", metric.about))
            })
            .collect(),
    );
    let _ = writeln!(text, "\nThreads unless told: {}", workload.default_threads);
    text
}
