//! The command line. The options of a workload come from its runner's catalogue, so they are known
//! only once it has been asked; then they are options like all others, in the help too.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use unherd_lab::catalogue::{ParamKind, Registry, Workload};
use unherd_lab::{BlockPlan, Error, Header, MEMORY_MIN_BYTES, parse_share, parse_size};

use crate::compare::CompareArgs;
use crate::output::{self, Failure};
use crate::prove::ProveArgs;
use crate::reports::ReportFiles;
use crate::reproduce::ReproduceArgs;
use crate::trace::TraceArgs;

/// Of the commands that have none of their own.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 what was measured failed, the implementations disagree, or a file was not \
written; 2 the command line is wrong, or the machine does not allow it; 130 interrupted. `trace` \
and `compare` exit with 125 instead of 2: `trace` passes on the code of its command, and \
`git bisect run` takes a 2 of `compare` for a bad commit. The --help of `trace`, `compare` and \
`prove` has all of theirs.";

/// Finds, fixes and proves needless waiting on Linux.
#[derive(Debug, Parser)]
#[command(name = "unherd", version, after_help = EXIT_CODES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    /// With an error, also what caused it.
    #[arg(short, long, global = true)]
    verbose: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run implementations of a workload in alternating rounds, and judge the difference.
    Bench(Box<BenchArgs>),
    /// Judge a kept record again, finished or cut short.
    ///
    /// A record is the directory in which `unherd bench` and `unherd compare` keep a run: each
    /// round as it was measured, the command line, the machine, and what was not as it should be.
    /// They name it when they end; it is out/WORKLOAD-DATE unless --out named another. Nothing is
    /// run again.
    #[command(after_help = "\
Examples:
  unherd report out/compare-20261120-101500
  unherd report out/pagewait-20261120-101500 --html page.html
  unherd report record --markdown - | gh pr comment 17 -F -")]
    Report {
        /// The record's directory.
        directory: PathBuf,
        /// What to print; json has the schema unherd.bench/1.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        #[command(flatten)]
        files: ReportFiles,
    },
    /// What there is to run: workloads, implementations, options, metrics; adapters for `compare`.
    #[command(after_help = "\
Examples:
  unherd workloads
  unherd workloads pagewait
  unherd workloads hackbench >mine.toml")]
    Workloads {
        /// One of them, in full; of an adapter, its file.
        name: Option<String>,
    },
    Compare(Box<CompareArgs>),
    /// Measure one block of a plan that `--plan` has written, on this machine.
    ///
    /// The command line is the plan's. A block that was begun on this machine is gone on with.
    #[command(after_help = "\
Example, with the plan of three blocks on a disk that all machines see:
  unherd compare --plan plan.json --blocks 3 -- ./old -- ./new
  unherd run-block 1 --plan plan.json     on the first machine; 2 and 3 on others
  unherd merge plan-1 plan-2 plan-3")]
    RunBlock {
        /// Which block, from 1.
        number: usize,
        /// The plan's file.
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
        /// Where the block's record goes [default: FILE without its ending, and -NUMBER].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Join the records of a plan's blocks into one, and judge it.
    #[command(after_help = "\
Examples:
  unherd merge plan-1 plan-2 plan-3
  unherd merge plan-* --out joined --html page.html")]
    Merge {
        /// The records that `unherd run-block` has written.
        #[arg(required = true, value_name = "RECORD")]
        blocks: Vec<PathBuf>,
        /// Where the joined record goes [default: out/WORKLOAD-DATE].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// What to print; json has the schema unherd.bench/1.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        #[command(flatten)]
        files: ReportFiles,
    },
    Reproduce(ReproduceArgs),
    Trace(Box<TraceArgs>),
    Prove(ProveArgs),
    /// Measure the published claims again: those of claims.toml in unherd's repository.
    Claims(ClaimsArgs),
}

const NOTES: &str = "\
Examples:
  unherd bench wake --quick
  unherd bench pagewait --with before,unherd --threads 16,512
  unherd bench tiotest --with kernel,unherd --memory 256M --dir /mnt/disk --html page.html
  unherd bench --resume out/tiotest-20261120-101500

A workload has options of its own besides: `unherd workloads WORKLOAD` lists them, and `unherd \
bench WORKLOAD --help` has them below the others.

Marks: what was not as it should be (no cgroup, a disturbed round, too few rounds) stands below \
the tables, under \"Before believing these figures\", and in result.json as \"marks\". A mark \
changes no verdict; read it before you trust one.

Exit codes: 0 done; 1 a process failed, the implementations disagree, or a file was not written; \
2 the command line is wrong, or the machine does not allow it; 130 interrupted.

Runners other than this executable: UNHERD_RUNNERS=PATH[:PATH…]";

/// What groups of options are called.
pub(crate) mod heading {
    pub(crate) const RUN: &str = "What is run";
    pub(crate) const SWEEP: &str = "At which points";
    pub(crate) const JUDGED: &str = "What is judged";
    pub(crate) const OFTEN: &str = "How often";
    pub(crate) const OUTPUT: &str = "Records and output";
}

/// The options of all benches.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct BenchArgs {
    /// What to run; `unherd workloads` lists what there is.
    #[arg(required_unless_present = "resume")]
    pub(crate) workload: Option<String>,
    /// Go on with a bench that was cut short, with the command line of its record.
    #[arg(long, value_name = "DIR", exclusive = true, help_heading = heading::OUTPUT)]
    pub(crate) resume: Option<PathBuf>,
    /// Implementations, with commas between them; the first is the base.
    #[arg(long, value_name = "IMPL", value_delimiter = ',', help_heading = heading::RUN)]
    pub(crate) with: Vec<String>,
    /// What the others are compared with; several, with commas between them, are not compared with
    /// each other.
    #[arg(long, value_name = "IMPL", value_delimiter = ',', help_heading = heading::RUN)]
    pub(crate) base: Vec<String>,
    /// Threads; several, as 1,4,16, make a sweep.
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = heading::RUN)]
    pub(crate) threads: Vec<usize>,
    /// CPUs that each process may use; several, as 1,2, make a sweep.
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = heading::RUN)]
    pub(crate) cpus: Vec<usize>,
    /// How often each implementation runs, each time in a fresh process. The default grows with the
    /// number of comparisons: 12 for one, 14 for two, 16 for four, 18 for eight.
    #[arg(long, value_name = "R", help_heading = heading::OFTEN)]
    pub(crate) rounds: Option<usize>,
    /// The fewest rounds that can decide at all; a mark says so.
    #[arg(long, conflicts_with = "rounds", help_heading = heading::OFTEN)]
    pub(crate) quick: bool,
    /// Where all randomness starts; printed.
    #[arg(long, value_name = "S", help_heading = heading::OFTEN)]
    pub(crate) seed: Option<u64>,
    /// Memory of each implementation, as 256M or 1G, and at least 1M; both sides get the same, in a
    /// cgroup.
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = heading::RUN)]
    pub(crate) memory: Option<u64>,
    /// Run without a cgroup where none can be made; a mark says so.
    #[arg(long, help_heading = heading::RUN)]
    pub(crate) without_cgroup: bool,
    /// Scale vm.dirty_bytes and vm.dirty_background_bytes with the memory while the rounds run, and
    /// fail where that is not allowed. Without this it is done where cgroups do not throttle
    /// dirtying (v1) and it is allowed.
    #[arg(long, conflicts_with = "keep_dirty", help_heading = heading::RUN)]
    pub(crate) set_dirty: bool,
    /// Leave vm.dirty_bytes alone; a mark says so where that matters.
    #[arg(long, help_heading = heading::RUN)]
    pub(crate) keep_dirty: bool,
    /// Do not run a round again in which other programs used more than 5 % of the processors; a
    /// mark says so.
    #[arg(long, help_heading = heading::OFTEN)]
    pub(crate) keep_disturbed: bool,
    /// Where files are made [default: the current directory].
    #[arg(long, value_name = "DIR", help_heading = heading::RUN)]
    pub(crate) dir: Option<PathBuf>,
    /// Where the record goes [default: out/WORKLOAD-DATE].
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten, next_help_heading = heading::OUTPUT)]
    pub(crate) blocks: PlanArgs,
    /// What to print; json has the schema unherd.bench/1.
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = heading::OUTPUT)]
    pub(crate) format: Format,
    #[command(flatten, next_help_heading = heading::OUTPUT)]
    pub(crate) files: ReportFiles,
    /// How many seconds one process may take.
    #[arg(
        long, value_name = "SECONDS", default_value = "600", value_parser = seconds,
        help_heading = heading::RUN
    )]
    pub(crate) timeout: Duration,
    /// Changes within this share are the same.
    #[arg(
        long, value_name = "SHARE", default_value = "2%", value_parser = share,
        help_heading = heading::JUDGED
    )]
    pub(crate) delta: f64,
    /// Judge by these metrics, with commas between them, instead of those that `unherd workloads
    /// WORKLOAD` calls primary.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = heading::JUDGED)]
    pub(crate) metric: Vec<String>,
    /// After the rounds, run each implementation once more and sample which functions use the CPU.
    #[arg(long, help_heading = heading::RUN)]
    pub(crate) profile: bool,
    /// After the rounds, run each implementation once more under `unherd trace`.
    #[arg(long, help_heading = heading::RUN)]
    pub(crate) trace: bool,
    /// Run one implementation against itself: a test of the bench, which should find no
    /// difference.
    #[arg(long, help_heading = heading::OFTEN)]
    pub(crate) aa: bool,
    /// With --aa: let the second side burn this share more CPU, as 5%. A test of the bench, which
    /// should find it.
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = heading::OFTEN)]
    pub(crate) plant: Option<f64>,
    /// With --aa: run the whole bench N times, and count how often it finds a difference. Exit with
    /// 1 where that is too often, or with --plant too rarely.
    #[arg(long, value_name = "N", value_parser = repeats, help_heading = heading::OFTEN)]
    pub(crate) repeat: Option<usize>,
}

/// Measuring on several machines.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlanArgs {
    /// Measure nothing here: write the plan, in blocks of rounds for `unherd run-block`, into this
    /// file.
    #[arg(long, value_name = "FILE", requires = "blocks", conflicts_with_all = [
        "out", "html", "markdown", "csv", "otava", "repeat"
    ])]
    pub(crate) plan: Option<PathBuf>,
    /// How many blocks.
    #[arg(long, value_name = "N", requires = "plan")]
    pub(crate) blocks: Option<usize>,
}

impl PlanArgs {
    /// Writes the plan and says what to do with it.
    pub(crate) fn write(&self, path: &Path, header: Header) -> Result<ExitCode, Failure> {
        let plan = BlockPlan::new(header, self.blocks.unwrap_or(1))?;
        plan.write(path)?;
        let (shown, blocks, rounds) = (path.display(), plan.blocks, plan.header.plan.rounds);
        output::print(&format!(
            "{rounds} rounds in {blocks} blocks. On each machine: unherd run-block NUMBER --plan \
             {shown}\nThen: unherd merge RECORD…\n"
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What to do with the claims.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 all are met; 1 one is not met, is worse than before, or its command failed; 2 the \
command line or the file of claims is wrong; 130 interrupted.

Examples:
  unherd claims --list
  unherd claims --quick wake-nobody
  unherd claims --update --commit $(git rev-parse --short HEAD)")]
pub(crate) struct ClaimsArgs {
    /// Only these.
    pub(crate) names: Vec<String>,
    /// The file of claims.
    #[arg(long, value_name = "FILE", default_value = "claims.toml")]
    pub(crate) file: PathBuf,
    /// Run nothing, and write the table of results into the page, or print it where there is none.
    #[arg(long)]
    pub(crate) table: bool,
    /// The page of results; `--update` writes its table, too.
    #[arg(long, value_name = "FILE", default_value = "docs/results.md")]
    pub(crate) page: PathBuf,
    /// Print the names, with targets and how long they took, and run nothing.
    #[arg(long, conflicts_with = "table")]
    pub(crate) list: bool,
    /// With the fewest rounds that can decide at all; nothing is kept.
    #[arg(long, conflicts_with = "update")]
    pub(crate) quick: bool,
    /// Write what was found into the file, after each command.
    #[arg(long, requires = "commit")]
    pub(crate) update: bool,
    /// The commit that was measured.
    #[arg(long, value_name = "HASH")]
    pub(crate) commit: Option<String>,
}

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables.
    Text,
    /// One object.
    Json,
}

/// What the command line says.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) command: Command,
    /// The workload's own options, each with its values.
    pub(crate) params: Vec<(String, Vec<String>)>,
    /// The line itself, for a record: not always that of this process.
    pub(crate) words: Vec<String>,
}

/// The first word that is no option names what to do; those behind it may be another command's.
pub(crate) fn subcommand(args: &[OsString]) -> Option<&OsString> {
    args.iter().skip(1).find(|arg| !arg.as_encoded_bytes().starts_with(b"-"))
}

/// Whether the runners must be asked before the command line can be understood.
pub(crate) fn needs_catalogue(args: &[OsString]) -> bool {
    subcommand(args).is_some_and(|name| name == "bench" || name == "workloads")
}

/// Understands the command line: `Err` within `Ok` is a help text.
pub(crate) fn parse(
    args: &[OsString],
    registry: Option<&Registry>,
) -> Result<Result<Arguments, String>, Failure> {
    let workload = match registry {
        Some(registry) => workload_meant(args, registry)?,
        None => None,
    };
    let mut command = <CommandLine as clap::CommandFactory>::command();
    if let Some(workload) = workload {
        check_params(command.clone(), workload)?;
        command = command.mut_subcommand("bench", |bench| with_params(bench, workload));
    }
    let matches = match command.try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => return help_or_failure(&error, args, workload),
    };
    let parsed = match CommandLine::from_arg_matches(&matches) {
        Ok(parsed) => parsed,
        Err(error) => return help_or_failure(&error, args, workload),
    };
    let bench = matches.subcommand_matches("bench");
    let mut params = Vec::new();
    for param in workload.iter().flat_map(|workload| &workload.params) {
        let given = bench.and_then(|bench| bench.get_many::<String>(&param.name));
        if let Some(values) = given {
            params.push((param.name.clone(), values.cloned().collect()));
        }
    }
    let words = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    Ok(Ok(Arguments { command: parsed.command, params, words }))
}

/// The first word after `bench` that is no option names the workload: options come after it.
fn workload_meant<'a>(
    args: &[OsString],
    registry: &'a Registry,
) -> Result<Option<&'a Workload>, Error> {
    let mut words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    if !words.any(|word| word == "bench") {
        return Ok(None);
    }
    let rest: Vec<&str> = words.collect();
    if let Some(known) = rest.iter().find_map(|word| registry.workload(word).ok()) {
        return Ok(Some(&known.workload));
    }
    match rest.first() {
        Some(word) if !word.starts_with('-') => {
            registry.workload(word).map(|known| Some(&known.workload))
        }
        _ => Ok(None),
    }
}

/// A runner may be anybody's, and clap ends the process where two options have one name.
fn check_params(mut command: clap::Command, workload: &Workload) -> Result<(), Failure> {
    command.build();
    let known = || command.find_subcommand("bench").into_iter().flat_map(|it| it.get_arguments());
    let is_known =
        |name: &str| known().any(|arg| arg.get_id() == name || arg.get_long() == Some(name));
    match workload.params.iter().find(|param| is_known(&param.name)) {
        Some(param) => {
            let what = format!("{} has an option --{}, as bench has", workload.name, param.name);
            Err(Failure::usage(&what, "give it another name in the runner"))
        }
        None => Ok(()),
    }
}

fn with_params(mut bench: clap::Command, workload: &Workload) -> clap::Command {
    for param in &workload.params {
        let about = format!("{} [default: {}]", param.about.trim_end_matches('.'), param.default);
        let mut arg = Arg::new(param.name.clone())
            .long(param.name.clone())
            .help(about)
            .help_heading(format!("Options of {}", workload.name))
            .value_delimiter(',');
        arg = match param.kind {
            ParamKind::Count => arg.value_name("N"),
            ParamKind::Size => arg.value_name("SIZE"),
            ParamKind::Text => arg.value_name("WORD"),
            ParamKind::Flag => {
                arg.value_name("true|false").num_args(0..=1).default_missing_value("true")
            }
        };
        bench = bench.arg(arg);
    }
    bench
}

/// A help text is a result; anything else becomes one line.
fn help_or_failure(
    error: &clap::Error,
    args: &[OsString],
    workload: Option<&Workload>,
) -> Result<Result<Arguments, String>, Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Ok(Err(error.to_string()));
    }
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return Err(Failure::usage("no command is given", "see 'unherd --help'"));
    }
    let text = error.to_string();
    // Clap puts what is missing on lines of their own, up to an empty one.
    let what: Vec<&str> =
        text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let what = what.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let mut known = <CommandLine as clap::CommandFactory>::command();
    known.build();
    if let (ErrorKind::InvalidSubcommand, Some(name)) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    {
        let names = known.get_subcommands().map(clap::Command::get_name);
        return Err(Error::unknown("command", &name.to_string(), names).into());
    }
    let command = subcommand(args).and_then(|name| known.find_subcommand(name));
    let subcommand = command.map_or("", clap::Command::get_name);
    if let Some((given, advice)) = missing(subcommand, error.kind(), what) {
        return Err(Failure::usage(given, advice));
    }
    if let Some(line) = number_hint(command, error, what) {
        return Err(Failure::Usage(line));
    }
    if let Some(line) = hint(subcommand, error.kind(), what) {
        return Err(Failure::Usage(line));
    }
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let help = format!("see 'unherd {subcommand} --help'").replace("  ", " ");
    let mut advice = tip.filter(|tip| is_near(what, tip)).unwrap_or(&help).to_owned();
    if let (ErrorKind::UnknownArgument, Some(workload)) = (error.kind(), workload) {
        let name = &workload.name;
        advice.push_str(&format!("; 'unherd workloads {name}' lists the options of {name}"));
    }
    Err(Failure::usage(what, &advice))
}

/// What is not given, and how it is given: clap's own words name an argument alone.
fn missing(subcommand: &str, kind: ErrorKind, what: &str) -> Option<(&'static str, &'static str)> {
    if kind != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let (argument, given, advice) = match subcommand {
        "bench" => (
            "<WORKLOAD>",
            "no workload is given",
            "write unherd bench WORKLOAD; 'unherd workloads' lists them",
        ),
        "report" => (
            "<DIRECTORY>",
            "no record is given",
            "write unherd report DIR with the directory that a bench named, as out/WORKLOAD-DATE",
        ),
        "compare" if what.contains("<COMMAND>") => ("<COMMAND>", "no command is given", COMMANDS),
        "run-block" => {
            ("<", "a block and its plan are needed", "write unherd run-block NUMBER --plan FILE")
        }
        "merge" => ("<RECORD>", "no record is given", "write unherd merge RECORD…, one a block"),
        "reproduce" => (
            "<REPORT>",
            "no report is given",
            "write unherd reproduce REPORT, which is 000, 001, 002, 003 or 004",
        ),
        "compare" => ("<RECORD>", "a second record is needed", COMMANDS),
        "trace" if what.contains("<AFTER>") => {
            ("<AFTER>", "two reports are needed", "name two: unherd trace diff BEFORE AFTER")
        }
        "trace" => (
            "<CMD|",
            "nothing to trace is given",
            "write unherd trace -- CMD…, or give --pid PID or --cgroup PATH",
        ),
        "prove" => ("<CMD>", "no command is given", "write unherd prove -- CMD…"),
        _ => return None,
    };
    what.contains(argument).then_some((given, advice))
}

/// How commands are given to `unherd compare`.
const COMMANDS: &str = "write unherd compare -- A… -- B…, or name two records";

/// What to give in place of what is no number: the words of Rust's own parser do not tell.
fn number_hint(command: Option<&clap::Command>, error: &clap::Error, what: &str) -> Option<String> {
    let refused = error.source()?.downcast_ref::<ParseIntError>()?;
    let what = what.strip_suffix(&format!(": {refused}"))?;
    let option = error.get(ContextKind::InvalidArg)?.to_string();
    let takes_several =
        |arg: &Arg| arg.get_value_delimiter().is_some() && arg.to_string() == option;
    let advice = match refused.kind() {
        IntErrorKind::PosOverflow => "give a smaller number",
        _ if command?.get_arguments().any(takes_several) => "give a number, or several as 1,4,16",
        _ => "give a whole number",
    };
    Some(format!("{what}; {advice}"))
}

/// What is meant, where clap's own words lead astray.
fn hint(subcommand: &str, kind: ErrorKind, what: &str) -> Option<String> {
    let unknown = match kind {
        ErrorKind::UnknownArgument => what.split('\'').nth(1),
        _ => None,
    };
    let option = unknown.filter(|word| word.starts_with('-'));
    let is_number = |word: &str| word.starts_with(|digit: char| digit.is_ascii_digit());
    let advice = match (subcommand, unknown) {
        (_, Some(word)) if word.strip_prefix('-').is_some_and(is_number) => {
            "no option takes a number below 0"
        }
        _ if kind == ErrorKind::ArgumentConflict && what.contains("'--resume") => {
            "it goes on by its record's command line, so give it alone; pages: unherd report DIR \
             --html FILE"
        }
        ("compare", Some("--warmup" | "-w")) => "each command runs once before the rounds anyway",
        ("compare", Some("--runs" | "-r" | "-n" | "-m" | "-M")) => "--rounds says how often",
        ("compare", Some("--threads" | "-j")) => {
            "write it into the commands, or give --sweep threads=1,2,4 and {threads} there"
        }
        ("compare", Some("-N")) => "there is no shell unless --shell asks for it",
        ("compare", _) if what.contains("COMMAND]") || what.contains("<COMMAND>") => COMMANDS,
        ("compare", Some(_)) if option.is_none() => COMMANDS,
        ("trace", Some(_)) if option.is_none() => {
            "the command stands behind --: unherd trace -- CMD…"
        }
        ("prove", Some(_)) if option.is_none() => {
            "the command stands behind --: unherd prove -- CMD…"
        }
        ("bench", Some(_)) if option.is_none() => {
            "several values have commas between them: --with A,B"
        }
        _ => return None,
    };
    Some(format!("{what}; {advice}"))
}

/// Whether a tip of clap names an option that may be meant: none but one with the same first
/// letter, and never that the word is to be passed on as a value.
fn is_near(what: &str, tip: &str) -> bool {
    let first = |text: &str| text.split_once("'-")?.1.trim_start_matches('-').chars().next();
    !tip.contains("as a value") && first(what) == first(tip)
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "give bytes, or a number with K, M, G or T".to_owned())
}

/// A size that a program may be bounded to.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < MEMORY_MIN_BYTES => {
            Err(format!("give at least {}M", MEMORY_MIN_BYTES >> 20))
        }
        bytes => Ok(bytes),
    }
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    parse_share(text).ok_or_else(|| "give a share such as 5% or 0.05".to_owned())
}

/// How often something is repeated: not at all would show nothing.
pub(crate) fn repeats(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "give a whole number, 1 or more".to_owned())
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give seconds, more than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn runner_cannot_have_an_option_of_bench() {
        let refused = |name: &str| {
            let described = serde_json::json!({
                "schema": "unherd.catalogue/1",
                "workloads": [{
                    "name": "replay", "about": "Replays.", "primary": ["hits"], "impls": [],
                    "default_impls": [], "default_threads": 1,
                    "params": [{"name": name, "about": "A file.", "default": "", "kind": "text"}],
                    "metrics": [{"name": "hits", "about": "Hits.", "better": "higher"}]
                }]
            });
            let mut registry = Registry::default();
            registry.add(std::path::Path::new("runner"), &described.to_string()).unwrap();
            let args = ["unherd", "bench", "replay"].map(OsString::from);
            matches!(parse(&args, Some(&registry)), Err(Failure::Usage(_)))
        };
        assert!(refused("trace") && refused("set-dirty") && refused("help"));
        assert!(!refused("requests-from"));
    }

    #[test]
    fn the_command_of_a_trace_is_not_ours() {
        let args = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        assert!(needs_catalogue(&args("unherd -v bench pagewait")));
        assert!(!needs_catalogue(&args("unherd trace -- unherd bench pagewait")));
        assert!(!needs_catalogue(&args("unherd")));
    }

    #[test]
    fn values_are_parsed_as_people_write_them() {
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("0").is_err() && seconds("-1").is_err() && seconds("1e400").is_err());
    }
}
