//! The options of `unherd trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use unherd_sys::Deadline;
use unherd_trace::{Budget, Count, SessionOptions, TraceOptions};

use crate::arguments::Format;
use crate::output::Failure;

/// How long processes are traced unless told.
const ATTACHED: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
The report opens with a verdict and a summary; --full adds the tables. Counts of needless wakeups \
are intervals: [proven, possible].

Exit codes: the command's own; 128 and the signal's number if one killed it; 1 if it ended well \
but a budget of --max was exceeded; 125 if tracing failed; 126 or 127 if the command cannot be run \
or is not there.

Signals: Ctrl-C reaches the command, and the report follows when it has ended. A second one within \
two seconds prints the report at once and kills the command with its children. SIGTERM, SIGHUP and \
SIGQUIT are passed on. In the background of a script shells have SIGINT ignored, for the command \
too: send SIGTERM there. If the tracer itself is killed, so is the command; processes that were \
attached to go on, and nothing stays in the kernel.

End: tracing ends with CMD itself; children that it leaves behind go on without it. For a server \
that goes to the background give its option to stay in the foreground, or attach with -p.

Privilege: root, or CAP_BPF and CAP_PERFMON. Without, --unprivileged tells what it can.

Examples:
  unherd trace -- make -j8
  unherd trace --full -p 4711 --duration 30
  unherd trace -p $(pgrep -d, nginx)
  unherd trace diff before.json after.json
  unherd trace --max needless_wakeups.proven=0 --max timer_polls=10 -- ./server --selftest";

/// Watch any program, and report its needless wakeups, locks and sleeps by call site.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group(ArgGroup::new("target").required(true).args(["command", "pid", "cgroup"])))]
#[command(group(ArgGroup::new("timeline").multiple(true).args(["perfetto", "firefox"])))]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(crate) compared: Option<Compared>,
    /// The command to run and follow, with all its threads and children.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// Running processes, several with commas: all their threads, and the children that they make
    /// from now on.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = pid)]
    pub(crate) pid: Vec<u32>,
    /// The processes of a control group and of those below it; who enters it later, too.
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// How long to trace, or 'forever': until Ctrl-C or the end of all [default: 10 with -p and
    /// --cgroup, forever with a command, which goes on when its time is over].
    #[arg(long, value_name = "SECONDS", value_parser = duration)]
    pub(crate) duration: Option<Span>,
    /// Write the report to FILE instead of standard error.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How to write the report; json has the schema unherd.trace/1.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Write the report to FILE as JSON, beside the other one.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the stacks of needless CPU time to FILE, as flame graphs take them.
    #[arg(long, value_name = "FILE", conflicts_with = "unprivileged")]
    pub(crate) folded: Option<PathBuf>,
    /// Write the waits to FILE for pprof: needless wakeups, their CPU time, time asleep, by stack.
    #[arg(long, value_name = "FILE", conflicts_with = "unprivileged")]
    pub(crate) pprof: Option<PathBuf>,
    /// Write the first waits one by one to FILE for Perfetto: a track for each thread, with the
    /// wakes between them.
    #[arg(long, value_name = "FILE", conflicts_with = "unprivileged")]
    pub(crate) perfetto: Option<PathBuf>,
    /// Write the same to FILE for the Firefox Profiler, and the time asleep by stack.
    #[arg(long, value_name = "FILE", conflicts_with = "unprivileged")]
    pub(crate) firefox: Option<PathBuf>,
    /// How many waits are in the files of --perfetto and --firefox: the first of all threads. Each
    /// takes 700 bytes of memory at most.
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "timeline",
        value_parser = clap::value_parser!(u32).range(1..=TraceOptions::EPISODES_MAX.into()))]
    pub(crate) episodes: u32,
    /// Write the report to FILE as a page for a browser, with a flame graph of the waits.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// With all tables and both stacks of each finding.
    #[arg(long)]
    pub(crate) full: bool,
    #[arg(long, value_name = "NAME=N", value_parser = budget, help = budget_help())]
    pub(crate) max: Vec<Budget>,
    /// Without privilege: sleeps, preemptions and CPU of one's own processes. Who woke whom, and
    /// whether needlessly, is unknown then.
    #[arg(long)]
    pub(crate) unprivileged: bool,
    /// CPU samples a second on each processor; 0 takes none.
    #[arg(long, value_name = "N", default_value_t = 99,
        value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) hertz: u32,
    /// Leave system calls alone: costs less, but no wakeup is judged and no futex call counted
    ///
    /// While anybody listens to system calls, the kernel takes the slow way with every call of
    /// every program: some 0.1 to 0.2 µs each. Without it the report has who sleeps where and for
    /// how long, kernel locks, stalls and CPU time; herds, polls and ledgers of programs that
    /// start are unknown.
    #[arg(long)]
    pub(crate) no_calls: bool,
    /// Frames of the stacks that are kept of waits and wakes.
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=127))]
    pub(crate) stack_depth: u32,
    /// Take a tracepoint for absent, to see what the report says then.
    #[arg(long, value_name = "TRACEPOINT", hide = true)]
    pub(crate) pretend_missing: Vec<String>,
}

/// What is done with reports that are there.
#[derive(Debug, Subcommand)]
pub(crate) enum Compared {
    /// Compare two reports: which findings came, grew, shrank or went, and what that costs
    ///
    /// Counts are those of a run if all processes of both reports have ended, else of a second.
    ///
    /// Exit code: 0; 1 if all that changed costs more than before, by a tenth and by 1 % of CPU
    /// and threads' time, in a run or second as well as in proportion to what the program takes;
    /// 125 if one of the files is no such report, lost events could turn the verdict, or wakeups
    /// were judged in one of them only.
    Diff {
        /// The report before, as --json writes it.
        before: PathBuf,
        /// The report after.
        after: PathBuf,
    },
}

/// A time to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// Until the end of all, or a signal.
    Forever,
    /// At most so long.
    For(Duration),
}

impl TraceArgs {
    /// What the session keeps.
    pub(crate) fn options(&self) -> SessionOptions {
        let mut trace = TraceOptions::default();
        trace.stack_depth = self.stack_depth;
        trace.calls = !self.no_calls;
        if self.perfetto.is_some() || self.firefox.is_some() {
            trace.episodes = self.episodes;
        }
        trace.pretend_missing.clone_from(&self.pretend_missing);
        SessionOptions { hertz: self.hertz, trace }
    }

    /// Refuses what could only fail when the trace is over: a budget of a count that is not made.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refused = |option, is_unknown: fn(Count) -> bool| {
            let unknown = self.max.iter().map(|budget| budget.count).find(|of| is_unknown(*of));
            unknown.map_or(Ok(()), |count| {
                let what = format!("--max {}: with {option} this is not counted", count.name());
                Err(Failure::usage(&what, &format!("leave out {option}, or the budget")))
            })
        };
        if self.unprivileged {
            refused("--unprivileged", Count::needs_privilege)?;
        }
        if self.no_calls { refused("--no-calls", Count::needs_calls) } else { Ok(()) }
    }

    /// When tracing that begins now ends.
    pub(crate) fn deadline(&self) -> Deadline {
        let unless_told = if self.command.is_empty() { Span::For(ATTACHED) } else { Span::Forever };
        match self.duration.unwrap_or(unless_told) {
            Span::Forever => Deadline::NEVER,
            Span::For(duration) => Deadline::after(duration),
        }
    }
}

fn duration(text: &str) -> Result<Span, String> {
    if text == "forever" {
        return Ok(Span::Forever);
    }
    let seconds: Option<f64> = text.parse().ok();
    let span = seconds.filter(|seconds| *seconds > 0.0).map(Duration::try_from_secs_f64);
    match span {
        Some(Ok(span)) => Ok(Span::For(span)),
        _ => Err("give seconds, more than 0, or 'forever'".to_owned()),
    }
}

fn pid(text: &str) -> Result<u32, String> {
    let advice = || format!("give a process's number, which pgrep '{text}' may tell");
    text.parse().map_err(|_| advice())
}

fn budget_help() -> String {
    let names = Count::ALL.map(Count::name).join(", ");
    format!(
        "Exit 1 if the count NAME is more than N or cannot be told, and name the worst site; \
         repeatable. Names: {names}"
    )
}

fn budget(text: &str) -> Result<Budget, String> {
    Budget::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_forever() {
        assert_eq!(duration("forever"), Ok(Span::Forever));
        assert_eq!(duration("0.5"), Ok(Span::For(Duration::from_millis(500))));
        for senseless in ["0", "-1", "1e300", "NaN", "ever", ""] {
            assert!(duration(senseless).is_err(), "{senseless}");
        }
    }
}
