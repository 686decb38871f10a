//! `unherd bench`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use unherd_lab::catalogue::{RegisteredWorkload, Registry};
use unherd_lab::{
    BenchResult, Conditions, Dirty, Error, Header, Interrupt, MachineOptions, Plan, Request,
    StoredRecord, bench, summary, trials,
};
use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;

use crate::arguments::{self, Arguments, BenchArgs, Command, Format};
use crate::blocks::BlockRun;
use crate::output::{self, Failure, note};
use crate::progress::Progress;
use crate::reports::ReportFiles;
use crate::runners;

/// Runs a bench, or goes on with one, and prints what it found.
pub(crate) fn run(
    args: &BenchArgs,
    params: Vec<(String, Vec<String>)>,
    words: Vec<String>,
    registry: &Registry,
) -> Result<ExitCode, Failure> {
    match (&args.resume, &args.workload) {
        (Some(directory), _) => resume(directory, registry),
        (None, Some(workload)) => {
            let known = registry.workload(workload)?;
            start(args, known, request(args, params), conditions(args, words)?)
        }
        (None, None) => Err(Failure::usage("no workload is given", "see 'unherd workloads'")),
    }
}

fn start(
    args: &BenchArgs,
    known: &RegisteredWorkload,
    request: Request,
    conditions: Conditions,
) -> Result<ExitCode, Failure> {
    check_cpus(&request)?;
    args.files.check()?;
    let plan = plan(&request, known)?;
    if let (Some(path), None, None) = (&args.blocks.plan, conditions.block, &conditions.resume) {
        return args.blocks.write(path, planned(plan, known, conditions));
    }
    let interrupt = Interrupt::on_signals().map_err(Failure::Output)?;
    let is_quiet = args.files.take_standard_output();
    let is_text = args.format == Format::Text && !is_quiet;
    let progress = Progress::new(is_text && args.repeat.is_none());
    let mut progress = progress.with_warning(plan.warning());
    if let Some(count) = args.repeat {
        let trials = trials(&request, known, &conditions, count, &mut progress, &interrupt)?;
        output::print(&match args.format {
            Format::Text => trials.line(),
            Format::Json => json(&trials),
        })?;
        return Ok(if trials.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let outcome = bench(&plan, known, &conditions, &mut progress, &interrupt)?;
    // Print first: writing may fail. Write all the same when nobody reads the output.
    let printed = match is_quiet {
        true => Ok(()),
        false => print(args.format, &outcome.result, &outcome.tables, Some(known)),
    };
    outcome.keep()?;
    args.files.write_outcome(&outcome)?;
    printed?;
    let record = format!("the record is in {}", outcome.directory().display());
    // An error names it itself.
    outcome.failed.map_or(Ok(()), Err)?;
    note(&record);
    Ok(ExitCode::SUCCESS)
}

fn plan(request: &Request, known: &RegisteredWorkload) -> Result<Plan, Error> {
    Plan::new(request, known)
        .map_err(|error| runners::with_way_to_rivals(error, &known.workload.name))
}

/// Goes on with the record in `directory` by the command line that began it.
fn resume(directory: &Path, registry: &Registry) -> Result<ExitCode, Failure> {
    let header = StoredRecord::load(directory)?.header;
    let words: Vec<OsString> = header.command.iter().map(OsString::from).collect();
    let parsed = arguments::parse(&words, Some(registry))?;
    let Ok(Arguments { command: Command::Bench(args), params, .. }) = parsed else {
        let what = format!("{} was not made by `unherd bench`", directory.display());
        return Err(Failure::usage(&what, "name the record of a bench"));
    };
    run_again(&args, params, registry, &BlockRun::of_record(directory, header))
}

/// Goes on with a record, or measures a block of a plan.
pub(crate) fn run_again(
    args: &BenchArgs,
    params: Vec<(String, Vec<String>)>,
    registry: &Registry,
    again: &BlockRun,
) -> Result<ExitCode, Failure> {
    let Header { plan, command, .. } = &again.header;
    let known = registry.workload(&plan.workload)?;
    let request = Request { seed: plan.seed, ..request(args, params) };
    if self::plan(&request, known)? != *plan {
        return Err(Failure::usage(
            "the command line gives another plan here than where it was planned",
            "use the same version and the same runners, or measure again",
        ));
    }
    let conditions = Conditions {
        out: Some(again.out.clone()),
        resume: again.is_begun.then(|| again.out.clone()),
        block: again.block,
        ..conditions(args, command.clone())?
    };
    start(args, known, request, conditions)
}

/// What a plan's file holds.
fn planned(plan: Plan, known: &RegisteredWorkload, conditions: Conditions) -> Header {
    let description = Some(known.workload.clone());
    Header { description, ..Header::of(plan, conditions.command) }
}

/// `unherd report`: judges a record again.
pub(crate) fn report(
    directory: &Path,
    format: Format,
    files: &ReportFiles,
) -> Result<ExitCode, Failure> {
    files.check()?;
    let kept = StoredRecord::load(directory)?;
    if kept.rounds.is_empty() {
        let what = format!("{} holds no finished round", directory.display());
        return Err(Failure::usage(
            &what,
            "read its tables.txt, if there is one, or measure again",
        ));
    }
    let (result, tables) = kept.report(directory);
    files.write(directory, &kept.header, &result, true)?;
    match (format, kept.header.sides.is_empty()) {
        _ if files.take_standard_output() => {}
        // Its own tables end with the verdict.
        (Format::Text, false) => output::print(&tables)?,
        _ => print(format, &result, &tables, None)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The result; as text, with what was shown in its last lines. `known` says what the
/// implementations are.
fn print(
    format: Format,
    result: &BenchResult,
    tables: &str,
    known: Option<&RegisteredWorkload>,
) -> Result<(), Failure> {
    if format == Format::Json {
        return output::print(&json(result));
    }
    let about = |name: &str| {
        let impls = &known?.workload.impls;
        impls.iter().find(|known| known.name == name).map(|known| &*known.about)
    };
    output::print(&format!("{tables}\n{}", summary(result, about)))
}

fn request(args: &BenchArgs, params: Vec<(String, Vec<String>)>) -> Request {
    // 32 bits are enough to differ from run to run, and short enough to be typed again.
    let seed = args.seed.unwrap_or_else(|| Timestamp::now().as_ns() & u64::from(u32::MAX));
    Request {
        with: args.with.clone(),
        bases: args.base.clone(),
        threads: args.threads.clone(),
        cpus: args.cpus.clone(),
        params,
        metrics: args.metric.clone(),
        rounds: args.rounds,
        quick: args.quick,
        seed,
        delta: args.delta,
        aa: args.aa || args.repeat.is_some(),
        plant: args.plant,
    }
}

fn conditions(args: &BenchArgs, command: Vec<String>) -> Result<Conditions, Failure> {
    Ok(Conditions {
        options: MachineOptions {
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
        resume: None,
        block: None,
        keep_disturbed: args.keep_disturbed,
        profile: args.profile,
        trace: args.trace.then(runners::own_executable).transpose()?,
        timeout: args.timeout,
        command,
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

pub(crate) fn json(value: &impl serde::Serialize) -> String {
    match serde_json::to_string_pretty(value) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": \"{error}\"}}\n"),
    }
}

/// A result that another process printed.
pub(crate) fn read_result(text: &str) -> Result<BenchResult, Error> {
    serde_json::from_str(text).map_err(|error| Error::Malformed {
        path: "the result of the claim's command".into(),
        what: error.to_string(),
    })
}
