//! `unherd bench`.

use std::process::ExitCode;

use unherd_lab::catalogue::Registry;
use unherd_lab::{Conditions, Dirty, Error, Interrupt, Means, Plan, Request, bench, trials};
use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;

use crate::arguments::{BenchArgs, Format};
use crate::output::{self, Failure, note};
use crate::progress::Progress;
use crate::runners;

/// Runs a bench and prints what it found.
pub(crate) fn run(
    args: &BenchArgs,
    params: Vec<(String, Vec<String>)>,
    registry: &Registry,
) -> Result<ExitCode, Failure> {
    let known = registry.workload(&args.workload)?;
    let request = request(args, params);
    check_cpus(&request)?;
    let plan = Plan::new(&request, known)?;
    let conditions = conditions(args)?;
    let interrupt = Interrupt::on_signals().map_err(Failure::Output)?;
    let mut progress = Progress::new(args.format == Format::Text && args.repeat.is_none());
    if let Some(count) = args.repeat {
        let trials = trials(&request, known, &conditions, count, &mut progress, &interrupt)?;
        output::print(&match args.format {
            Format::Text => trials.line(),
            Format::Json => json(&trials),
        })?;
        return Ok(if trials.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let outcome = bench(&plan, known, &conditions, &mut progress, &interrupt)?;
    match args.format {
        Format::Text => {
            output::print(&outcome.tables)?;
            note(&format!("the record is in {}", outcome.record.display()));
        }
        Format::Json => output::print(&json(&outcome.result))?,
    }
    // The judged rounds are whole; what came after them is not.
    outcome.failed.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.into()))
}

fn request(args: &BenchArgs, params: Vec<(String, Vec<String>)>) -> Request {
    // 32 bits are enough to differ from run to run, and short enough to be typed again.
    let seed = args.seed.unwrap_or_else(|| Timestamp::now().as_ns() & u64::from(u32::MAX));
    Request {
        with: args.with.clone(),
        base: args.base.clone(),
        threads: args.threads.clone(),
        cpus: args.cpus.clone(),
        params,
        metrics: args.metric.clone(),
        rounds: args.rounds,
        seed,
        delta: args.delta,
        aa: args.aa || args.repeat.is_some(),
        plant: args.plant,
    }
}

fn conditions(args: &BenchArgs) -> Result<Conditions, Failure> {
    Ok(Conditions {
        means: Means {
            dir: args.dir.clone(),
            memory_bytes: args.memory,
            without_cgroup: args.without_cgroup,
            dirty: match (args.set_dirty, args.keep_dirty) {
                (true, _) => Dirty::Set,
                (false, true) => Dirty::Keep,
                (false, false) => Dirty::Auto,
            },
        },
        out: args.out.clone(),
        profile: args.profile,
        trace: args.trace.then(runners::own_executable).transpose()?,
        timeout: args.timeout,
        command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
    })
}

fn check_cpus(request: &Request) -> Result<(), Failure> {
    let available = thread::available_parallelism().map_or(1, usize::from);
    match request.cpus.iter().find(|&&cpus| cpus > available) {
        Some(cpus) => Err(Failure::usage(
            &format!("--cpus {cpus} is more than this process may use"),
            &format!("give at most {available}"),
        )),
        None => Ok(()),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    match serde_json::to_string_pretty(value) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": \"{error}\"}}\n"),
    }
}

/// A result that another process printed.
pub(crate) fn read_result(text: &str) -> Result<unherd_lab::BenchResult, Error> {
    serde_json::from_str(text).map_err(|error| Error::Malformed {
        path: "the result of the claim's command".into(),
        what: error.to_string(),
    })
}
