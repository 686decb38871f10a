//! The options of `unherd compare`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use unherd_lab::statistics::Verdict;
use unherd_lab::{self as lab, ComparisonLine, Read, parse_share};

use crate::arguments::{self, Format, PlanArgs, heading, repeats, seconds, share};
use crate::reports::ReportFiles;

/// Compare any commands in alternating rounds, and judge the difference.
///
/// The commands stand behind `--`, with `--` between them; the others are compared with the first.
/// Each runs once before the rounds, and that run is not judged. They get no input and no terminal.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 done; 1 something is surely worse (--fail-on), or --repeat found the comparison at \
fault, and nothing else; 125 not measured, or not written: a command failed, the command line is \
wrong, a record is damaged; 130 interrupted. `git bisect run` passes over 125.

Examples:
  unherd compare -- ./old input -- ./new input
  unherd compare --until 1% --fail-on slower=2% -- ./old -- ./new
  git bisect run unherd compare --fail-on slower=5% --build-b make -- ./good -- ./tool
  unherd compare --metric 'p99_us=p99: ([0-9.]+)' --judge p99_us -- ./old -- ./new
  unherd compare --adapter hackbench -- -- --pipe
  unherd compare out/compare-MONDAY out/compare-TUESDAY
  unherd compare --git v1.0 HEAD --build 'cargo build -r' -- target/release/tool input
  unherd compare --sweep jobs=1,2,4,8 -- ./old -j{jobs} -- ./new -j{jobs}
  unherd compare --confirm --build 'make LAYOUT=$UNHERD_LAYOUT' -- ./old -- ./new
  unherd compare --between ::: -- cargo bench -- decode ::: cargo bench -- encode")]
pub(crate) struct CompareArgs {
    /// Instead of commands, two kept records to compare: this is the earlier one.
    #[arg(value_name = "RECORD", requires = "second", conflicts_with_all = [
        "commands", "adapter", "git", "aa", "rounds", "until", "repeat", "metric", "json", "judge",
        "check", "fail_on", "seed", "out", "html", "markdown", "csv", "plan", "confirm",
    ])]
    pub(crate) first: Option<PathBuf>,
    /// The later one.
    #[arg(value_name = "RECORD")]
    pub(crate) second: Option<PathBuf>,
    /// The commands, with `--` between them.
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present_any = ["first", "resume", "adapter"]
    )]
    pub(crate) commands: Vec<String>,
    /// The commands are runs of this benchmark, which `unherd workloads` lists or a file describes:
    /// its metrics are judged. A command that is empty or begins with an option stands for the
    /// benchmark's own, with these options added.
    #[arg(long, value_name = "NAME|FILE", help_heading = heading::RUN)]
    pub(crate) adapter: Option<String>,
    /// Go on with a comparison that was cut short, with the command line of its record.
    #[arg(long, value_name = "DIR", exclusive = true, help_heading = heading::OUTPUT)]
    pub(crate) resume: Option<PathBuf>,
    /// The word between the commands, where they have a `--` of their own.
    #[arg(long, value_name = "WORD", default_value = "--", help_heading = heading::RUN)]
    pub(crate) between: String,
    /// What tables call the commands, with commas between them [default: A,B,C…].
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "git",
        help_heading = heading::RUN
    )]
    pub(crate) names: Vec<String>,
    /// Each command is one argument, which sh(1) runs.
    #[arg(long, help_heading = heading::RUN)]
    pub(crate) shell: bool,
    /// Run one command against itself: a test of the comparison, which should find no difference.
    #[arg(long, conflicts_with = "git", help_heading = heading::RUN)]
    pub(crate) aa: bool,
    /// How often each command runs [default: as often as fits into 3 s, but at least 12 times, 14
    /// for two judged metrics, 16 for four].
    #[arg(long, value_name = "R", help_heading = heading::OFTEN)]
    pub(crate) rounds: Option<usize>,
    /// Instead of a number of rounds: go on until all intervals are within this share of their
    /// middle, such as 1%; 500 rounds at most.
    #[arg(
        long, value_name = "SHARE", value_parser = plus_minus, conflicts_with = "plan",
        help_heading = heading::OFTEN
    )]
    pub(crate) until: Option<f64>,
    /// A metric in the commands' output: the pattern's first group, or all that it matches. It must
    /// match once. Repeatable. Less is better, unless the name is a rate's: it
    /// ends in _per_s or /s, or says throughput, bandwidth, iops, qps, rps or tps.
    #[arg(long, value_name = "NAME=REGEX", help_heading = heading::JUDGED)]
    pub(crate) metric: Vec<String>,
    /// A metric in the JSON that the commands print: fields and indexes with dots between them.
    /// Repeatable.
    #[arg(long, value_name = "[NAME=]PATH", help_heading = heading::JUDGED)]
    pub(crate) json: Vec<String>,
    /// Read figures as this program prints them: criterion, go, google-benchmark, hyperfine;
    /// detect, or none.
    #[arg(
        long, value_name = "FORMAT", default_value = "detect", value_parser = read,
        help_heading = heading::JUDGED
    )]
    pub(crate) read: Read,
    /// Of these metrics, with commas between them, more is better.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = heading::JUDGED)]
    pub(crate) more_is_better: Vec<String>,
    /// Judge these metrics, with commas between them [default: those that are printed, or else
    /// wall_s,cpu_s].
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = heading::JUDGED)]
    pub(crate) judge: Vec<String>,
    /// A line of sh(1) before each process, not measured; UNHERD_SIDE names the side.
    #[arg(long, value_name = "LINE", help_heading = heading::RUN)]
    pub(crate) prepare: Option<String>,
    /// A line of sh(1) after each process, not measured.
    #[arg(long, value_name = "LINE", help_heading = heading::RUN)]
    pub(crate) cleanup: Option<String>,
    /// A line of sh(1) for each side, before all else; UNHERD_SIDE names the side.
    #[arg(long, value_name = "LINE", help_heading = heading::RUN)]
    pub(crate) build: Option<String>,
    /// A line of sh(1) that builds the first command.
    #[arg(long, value_name = "LINE", help_heading = heading::RUN)]
    pub(crate) build_a: Option<String>,
    /// A line of sh(1) that builds the second.
    #[arg(long, value_name = "LINE", help_heading = heading::RUN)]
    pub(crate) build_b: Option<String>,
    /// Compare two commits: each is checked out and built in a work tree of its own, in which the
    /// one command runs.
    #[arg(long, value_names = ["REV_A", "REV_B"], num_args = 2, help_heading = heading::RUN)]
    pub(crate) git: Vec<String>,
    /// Where work trees and files of adapters are made [default: the directory for temporary
    /// files].
    #[arg(long, value_name = "DIR", help_heading = heading::RUN)]
    pub(crate) dir: Option<PathBuf>,
    /// Fail where the commands of a round print different standard outputs.
    #[arg(long, help_heading = heading::RUN)]
    pub(crate) check: bool,
    /// The code that the commands must end with.
    #[arg(
        long, value_name = "N", default_value_t = 0, help_heading = heading::RUN,
        value_parser = clap::value_parser!(i32).range(0..=255)
    )]
    pub(crate) exit_code: i32,
    /// Compare at each of these values, which stand for {NAME} in the commands; several --sweep
    /// make every combination. Where NAME is threads, clients, jobs, processes, workers or
    /// connections, how throughput grows with it is shown, too.
    #[arg(long, value_name = "NAME=VALUE,…", help_heading = heading::SWEEP)]
    pub(crate) sweep: Vec<String>,
    /// The first N CPUs only; several, as 1,2, make a sweep.
    #[arg(
        long, value_name = "N", value_delimiter = ',', value_parser = cpus,
        help_heading = heading::SWEEP
    )]
    pub(crate) cpus: Vec<usize>,
    /// A memory cgroup for each process, memory=512M, of at least 1M; several sizes make a sweep.
    #[arg(long, value_name = "memory=SIZE,…", value_parser = memory, help_heading = heading::SWEEP)]
    pub(crate) cgroup: Option<Memory>,
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
    /// Exit with 1 where a command is surely worse than the first: slower, or slower=5% for worse
    /// by at least that.
    #[arg(
        long, value_name = "slower[=SHARE]", value_parser = fail_on,
        help_heading = heading::JUDGED
    )]
    pub(crate) fail_on: Option<FailOn>,
    /// Measure what was found different once more, with other layouts: each process gets an
    /// environment of another length, and --build, --build-a and --build-b run again with
    /// UNHERD_LAYOUT=1, by which they can link in another order. --fail-on then asks for both.
    #[arg(long, conflicts_with_all = ["plan", "repeat"], help_heading = heading::OFTEN)]
    pub(crate) confirm: bool,
    /// Do not run a round again in which other programs used more than 5 % of the processors; a
    /// line below the table says so.
    #[arg(long, help_heading = heading::OFTEN)]
    pub(crate) keep_disturbed: bool,
    /// Repeat the whole comparison N times, and count how often a difference is found. Exit with 1
    /// where one command against itself is called different too often, or another command slower
    /// too rarely: a test of the comparison.
    #[arg(
        long, value_name = "N", value_parser = repeats,
        conflicts_with_all = ["fail_on", "html", "markdown", "csv"],
        help_heading = heading::OFTEN
    )]
    pub(crate) repeat: Option<usize>,
    /// Where all randomness starts; printed.
    #[arg(long, value_name = "S", help_heading = heading::OFTEN)]
    pub(crate) seed: Option<u64>,
    /// Where the record goes [default: out/compare-DATE].
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten, next_help_heading = heading::OUTPUT)]
    pub(crate) blocks: PlanArgs,
    /// What to print; json has the schema unherd.bench/1.
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = heading::OUTPUT)]
    pub(crate) format: Format,
    #[command(flatten, next_help_heading = heading::OUTPUT)]
    pub(crate) files: ReportFiles,
}

/// When a comparison has failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FailOn {
    /// Surely worse by at least this share.
    share: f64,
}

impl FailOn {
    /// Why it has, if so.
    pub(crate) fn exceeded<'a>(
        self,
        lines: impl IntoIterator<Item = &'a ComparisonLine>,
    ) -> Option<String> {
        let bound = 1.0 / (1.0 + self.share);
        let is_over = |line: &&ComparisonLine| {
            line.verdict == Verdict::Slower && line.high.is_some_and(|high| high <= bound)
        };
        let over: Vec<&ComparisonLine> = lines.into_iter().filter(is_over).collect();
        let first = over.first()?;
        let more = match over.len() {
            1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let least = match self.share {
            0.0 => String::new(),
            share => format!(" by at least {:.4} %", 100.0 * share).replace(".0000", ""),
        };
        Some(format!(
            "{} of {} is surely worse than that of {}{least}{more} (--fail-on slower)",
            first.metric, first.label, first.base
        ))
    }
}

fn fail_on(text: &str) -> Result<FailOn, String> {
    let share = match text.strip_prefix("slower") {
        Some("") => Some(0.0),
        Some(rest) => rest.strip_prefix('=').and_then(parse_share),
        None => None,
    };
    match share {
        Some(share) if share < 1.0 => Ok(FailOn { share }),
        Some(share) => Err(format!("that is {} %: give slower=5% or slower=0.05", 100.0 * share)),
        None => Err("give slower, or slower=5%".to_owned()),
    }
}

fn plus_minus(text: &str) -> Result<f64, String> {
    share(text.trim_start_matches('±'))
}

/// Sizes of cgroups, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Memory(pub(crate) Vec<u64>);

fn memory(text: &str) -> Result<Memory, String> {
    let given = text.strip_prefix("memory=").ok_or_else(|| "give memory=512M".to_owned())?;
    given.split(',').map(arguments::memory).collect::<Result<_, _>>().map(Memory)
}

fn cpus(text: &str) -> Result<usize, String> {
    let available = unherd_sys::primitives::thread::available_parallelism().map_or(1, usize::from);
    match text.parse() {
        Ok(cpus) if (1..=available).contains(&cpus) => Ok(cpus),
        _ => Err(format!("give 1 to {available}")),
    }
}

fn read(text: &str) -> Result<Read, String> {
    let format = lab::Format::ALL.into_iter().find(|format| format.name() == text);
    match (text, format) {
        (_, Some(format)) => Ok(Read::As(format)),
        ("detect", None) => Ok(Read::Detect),
        ("none", None) => Ok(Read::Nothing),
        _ => {
            let names = lab::Format::ALL.map(lab::Format::name).join(", ");
            Err(format!("there are: {names}, detect, none"))
        }
    }
}
