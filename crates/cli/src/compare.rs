//! `unherd compare`.

mod arguments;

use std::path::Path;
use std::process::ExitCode;

use unherd_lab::{
    Adapter, BenchResult, CONFIRM, CompareRequest, ComparisonLine, Error, Interrupt, Outcome, Side,
    Source, StoredRecord, Sweep, WorkTrees, build, check_place, compare, compare_records,
    compare_trials, plan_comparison, to_confirm,
};
use unherd_sys::Timestamp;

pub(crate) use arguments::CompareArgs;

use crate::arguments::{Arguments, Command, Format, parse};
use crate::bench::json;
use crate::blocks::BlockRun;
use crate::output::{self, Failure, note};
use crate::progress::Progress;

/// Compares commands, or goes on with that, and prints what it found.
pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    match (&args.resume, (&args.first, &args.second)) {
        (Some(directory), _) => resume(directory),
        (None, (Some(first), Some(second))) => {
            let compared = compare_records(first, second)?;
            output::print(&match args.format {
                Format::Text => compared.text,
                Format::Json => json(&compared),
            })?;
            Ok(ExitCode::SUCCESS)
        }
        (None, _) => start(args, None),
    }
}

/// Goes on with a record, or measures a block of a plan.
pub(crate) fn run_again(args: &CompareArgs, run: &BlockRun) -> Result<ExitCode, Failure> {
    start(args, Some(run))
}

fn start(args: &CompareArgs, again: Option<&BlockRun>) -> Result<ExitCode, Failure> {
    args.files.check()?;
    let request = request(args, again)?;
    if args.blocks.plan.is_none() || again.is_some() {
        // Here for the builds, which may take minutes.
        check_place(request.out.as_deref())?;
    }
    let interrupt = Interrupt::on_signals().map_err(Failure::Output)?;
    let (request, trees) = checked_out(args, request, &interrupt)?;
    build_sides(args, &request, 0, &interrupt)?;
    if let (Some(path), None) = (&args.blocks.plan, again) {
        return args.blocks.write(path, plan_comparison(&request, &interrupt)?);
    }
    let mut progress = Progress::new(false);
    if let Some(count) = args.repeat {
        let trials = compare_trials(&request, count, &mut progress, &interrupt)?;
        output::print(&match args.format {
            Format::Text => trials.line(),
            Format::Json => json(&trials),
        })?;
        return Ok(if trials.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut outcome = compare(&request, &mut progress, &interrupt)?;
    let is_text = args.format == Format::Text && !args.files.take_standard_output();
    // Print first: writing may fail. Write all the same when nobody reads the output.
    let mut printed = if is_text { output::print(&outcome.tables) } else { Ok(()) };
    outcome.keep()?;
    let confirmed = match args.confirm && outcome.failed.is_none() {
        true => confirm(args, &request, &mut outcome, &mut progress, &interrupt),
        false => Ok(()),
    };
    if args.format == Format::Json && !args.files.take_standard_output() {
        printed = output::print(&json(&outcome.result));
    }
    args.files.write_outcome(&outcome)?;
    printed?;
    // An error names it itself.
    if outcome.failed.is_none() {
        note(&format!("the record is in {}", outcome.directory().display()));
    }
    confirmed?;
    if let Some(error) = outcome.failed {
        return Err(error.into());
    }
    let mut found = outcome.result.comparisons.clone();
    found.retain(|line| !args.confirm || line.confirmed == Some(true));
    drop(trees);
    let limit = args.fail_on.as_ref();
    match limit.and_then(|limit| limit.exceeded(&found)) {
        Some(line) => Err(Failure::Unmet(line)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Measures what was found different again, with other layouts, and notes what became of it.
fn confirm(
    args: &CompareArgs,
    request: &CompareRequest,
    first: &mut Outcome,
    progress: &mut Progress,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let is_text = args.format == Format::Text && !args.files.take_standard_output();
    let out = first.directory().join(CONFIRM);
    let Some(again) = to_confirm(request, &first.result, out)? else {
        if is_text {
            output::print("\nNothing differs, so nothing is to be confirmed.\n")?;
        }
        return Ok(());
    };
    build_sides(args, &again, 1, interrupt)?;
    let second = compare(&again, progress, interrupt)?;
    if second.failed.is_none() {
        first.confirm(&second.result);
    }
    let sentences = confirmations(&first.result);
    let printed = match is_text {
        true => output::print(&format!(
            "\nOnce more, with other layouts:\n{}\n{sentences}",
            second.tables
        )),
        false => {
            note(sentences.trim_end());
            Ok(())
        }
    };
    second.keep()?;
    first.keep()?;
    printed?;
    second.failed.map_or(Ok(()), |error| Err(error.into()))
}

/// A sentence for each difference that was measured again.
fn confirmations(result: &BenchResult) -> String {
    let sentence = |line: &ComparisonLine| {
        let ComparisonLine { metric, label, base, point, .. } = line;
        let what = format!("{metric} of {label} against {base}{}", point.suffix());
        line.confirmed.map(|is_confirmed| match is_confirmed {
            true => format!("confirmed: {what}.\n"),
            false => {
                format!("not confirmed: {what} may differ by the layout of this build alone.\n")
            }
        })
    };
    result.comparisons.iter().filter_map(sentence).collect()
}

/// Goes on with the record in `directory` by the command line that began it.
fn resume(directory: &Path) -> Result<ExitCode, Failure> {
    let header = StoredRecord::load(directory)?.header;
    let words: Vec<_> = header.command.iter().map(Into::into).collect();
    let parsed = parse(&words, None)?;
    let Ok(Arguments { command: Command::Compare(args), .. }) = parsed else {
        let what = format!("{} was not made by `unherd compare`", directory.display());
        return Err(Failure::usage(&what, "go on with a bench by `unherd bench --resume`"));
    };
    run_again(&args, &BlockRun::of_record(directory, header))
}

fn request(args: &CompareArgs, again: Option<&BlockRun>) -> Result<CompareRequest, Failure> {
    let sources = args.metric.iter().map(|text| Source::pattern(text));
    let json = args.json.iter().map(|path| Ok(Source::json(path)));
    let seed = args.seed.unwrap_or_else(|| Timestamp::now().as_ns() & u64::from(u32::MAX));
    let adapter = args.adapter.as_deref().map(Adapter::load).transpose()?;
    Ok(CompareRequest {
        sides: sides(args, adapter.as_ref())?,
        adapter,
        directory: args.dir.clone().unwrap_or_else(std::env::temp_dir),
        sources: sources.chain(json).collect::<Result<_, Error>>()?,
        read: args.read,
        more_is_better: args.more_is_better.clone(),
        judge: args.judge.clone(),
        rounds: args.rounds,
        until: args.until,
        seed: again.map_or(seed, |it| it.header.plan.seed),
        delta: args.delta,
        prepare: args.prepare.clone(),
        cleanup: args.cleanup.clone(),
        check: args.check,
        exit_code: args.exit_code,
        sweep: Sweep {
            values: args.sweep.iter().map(|text| Sweep::values(text)).collect::<Result<_, _>>()?,
            cpus: args.cpus.clone(),
            memory_bytes: args.cgroup.clone().map_or_else(Vec::new, |sizes| sizes.0),
            only: Vec::new(),
        },
        moves_layout: false,
        timeout: args.timeout,
        out: again.map_or_else(|| args.out.clone(), |it| Some(it.out.clone())),
        resume: again.filter(|it| it.is_begun).map(|it| it.out.clone()),
        plan: again.map(|it| it.header.plan.clone()),
        block: again.and_then(|it| it.block),
        keep_disturbed: args.keep_disturbed,
        command: again.map_or_else(this_command, |it| it.header.command.clone()),
    })
}

pub(crate) fn this_command() -> Vec<String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

fn sides(args: &CompareArgs, adapter: Option<&Adapter>) -> Result<Vec<Side>, Failure> {
    let sides = Side::parse(&args.commands, &args.between, &args.names, args.shell, adapter)?;
    let (is_git, is_aa) = (!args.git.is_empty(), args.aa);
    if let ([only], true) = (&*sides, is_git || is_aa) {
        let labels: Vec<String> = match (is_git, &*args.names) {
            (true, _) => args.git.clone(),
            (false, _) => ["A", "A again"].map(str::to_owned).to_vec(),
        };
        let side = |label: String| Side { label, ..only.clone() };
        return Ok(labels.into_iter().map(side).collect());
    }
    if is_git || is_aa {
        let what = if is_git { "--git builds" } else { "--aa runs" };
        return Err(Failure::usage(
            &format!("{what} one command twice, and {} are given", sides.len()),
            "give one",
        ));
    }
    if sides.len() < 2 {
        return Err(Failure::usage(
            "one command is not enough to compare",
            "write them as: unherd compare -- A… -- B…, or give --aa",
        ));
    }
    Ok(sides)
}

/// Checks out what is to be compared; the work trees are there until they are dropped.
fn checked_out(
    args: &CompareArgs,
    mut request: CompareRequest,
    interrupt: &Interrupt,
) -> Result<(CompareRequest, Option<WorkTrees>), Failure> {
    let [base, other] = &*args.git else { return Ok((request, None)) };
    if base == other {
        return Err(Failure::usage(&format!("both revisions are {base}"), "name two"));
    }
    let trees = WorkTrees::check_out(Path::new("."), &args.git, &request.directory, interrupt)?;
    trees.enter(&mut request.sides);
    Ok((request, Some(trees)))
}

/// Builds what is to be built, with `layout` for the lines to link by.
fn build_sides(
    args: &CompareArgs,
    request: &CompareRequest,
    layout: u32,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let of_first = args.build_a.as_ref().or(args.build.as_ref());
    let of_second = args.build_b.as_ref().or(args.build.as_ref());
    for (side, line) in request.sides.iter().zip([of_first, of_second]) {
        if let Some(line) = line {
            note(&format!("building {}", side.label));
            build(&side.label, line, side.directory.as_deref(), layout, interrupt)?;
        }
    }
    Ok(())
}
