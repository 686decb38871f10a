//! `unherd prove`.
//!
//! Before is the program as it is, after is the program with the cure; the lab runs and judges both
//! as `unherd compare` does. The first runs of both show whether the cure acts, and whether the
//! program does the same with it.

mod cure;
mod preload;

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use unherd_lab::statistics::Verdict;
use unherd_lab::{
    BenchObserver, CompareRequest, Error, Interrupt, Read, Side, check_place, compare,
    plan_comparison,
};
use unherd_sys::{Deadline, Timestamp};
use unherd_trace::advice::Waste;
use unherd_trace::report::{Finding, LITTLE_PERCENT};
use unherd_trace::{Pause, Report, Session, SessionError, SessionOptions, Symbols, Target};

use self::cure::Cure;
use self::preload::Preload;
use crate::arguments::seconds;
use crate::output::{self, Failure, note};
use crate::progress::Progress;
use crate::trace::spawn_advice;

const BEFORE: &str = "before";

/// What is judged, with its name for people.
const JUDGED: [(&str, &str); 3] =
    [("wall_s", "wall time"), ("cpu_s", "CPU time"), ("context_switches", "context switches")];

/// How often, at most, the program runs twice without the cure after it failed with it.
const MAX_CHECKS: usize = 20;

const CAUTION_OF_WAKE_ONE: &str = "\
That shows no lost event, and is no proof that none can be lost: wake-one is safe only where all \
waiters of a condition wait for the same thing.\n";

/// No cure is known for what was found.
const NO_CURE: u8 = 3;
/// The cure cannot be applied to the program, or found nothing to act on.
const NOT_APPLIED: u8 = 4;
/// 128 and SIGINT's number.
const INTERRUPTED: u8 = 130;

/// Apply a cure to a program, unmodified, and measure what it gains.
///
/// The program runs as it is and with the cure, in alternating rounds, without input or terminal;
/// wall time, CPU time and context switches are judged. Its standard output must be the same in all
/// runs. Without --cure it is traced once, as root, and gets the cure for the first finding.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 measured, whatever came of it; 1 with the cure the program prints something else, \
ends otherwise or not at all; 2 the command line is wrong; 3 no cure is known for the first \
finding; 4 the cure cannot be applied, or had nothing to act on; 125 not measured: the program \
fails as it is, or must not be traced; 130 interrupted.

Examples:
  unherd prove -- ./server --selftest
  unherd prove --cure epoll-exclusive -- ./server --selftest
  unherd prove --cure wake-one --timeout 10 -- sh -c './jobs | grep -v seconds'")]
pub(crate) struct ProveArgs {
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
    /// The cure [default: the one for the first finding of a trace].
    #[arg(long, value_enum)]
    cure: Option<Cure>,
    /// How often it runs, each time once without and once with the cure [default: as often as fits
    /// into 3 s, but at least 14 times].
    #[arg(long, value_name = "R")]
    rounds: Option<usize>,
    /// How many seconds one run may take; one that loses an event may never end.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// The code that each run must end with.
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(i32).range(0..=255))]
    exit_code: i32,
    /// Where the record goes [default: out/compare-DATE].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Applies the cure, measures, and prints what it gains.
pub(crate) fn run(args: &ProveArgs) -> Result<ExitCode, Failure> {
    check_place(args.out.as_deref())?;
    let interrupt = Interrupt::on_signals().map_err(Failure::Output)?;
    let (cure, cured) = match args.cure {
        Some(cure) => (cure, None),
        None => advised(args, &interrupt).map(|(cure, of)| (cure, Some(of)))?,
    };
    let preload = match cure.timer_slack_ns() {
        Some(_) => None,
        None => Some(Preload::new(&cure.name()).map_err(no_library)?),
    };
    let request = request(args, cure, preload.as_ref());
    let explain = |error| explained(error, &request, cure, &interrupt);
    let began = Timestamp::now();
    let plan = plan_comparison(&request, &interrupt).map_err(explain)?.plan;
    let round = Timestamp::now().since(began);
    preload.iter().try_for_each(|preload| check_acts(preload, cure))?;
    let mut progress = Progress::new(false);
    progress.expects(&plan, plan.rounds, round * plan.rounds as u32);
    let planned = CompareRequest { plan: Some(plan), ..request.clone() };
    let outcome = compare(&planned, &mut progress, &interrupt).map_err(explain)?;
    outcome.keep()?;
    let record = format!("the record is in {}", outcome.directory().display());
    if let Some(error) = outcome.failed {
        note(&record);
        return Err(explain(error));
    }
    let acted = match &preload {
        Some(preload) => {
            let counts = preload.counts().map_err(no_library)?;
            let full = match counts.full {
                0 => String::new(),
                full => format!("It left {full} waits alone, as there are too many conditions. "),
            };
            format!("{cure} acted {} times. {full}", counts.acted)
        }
        None => String::new(),
    };
    let same = "Standard output and exit code were the same in all runs.";
    let caution = match cure {
        Cure::WakeOne => CAUTION_OF_WAKE_ONE,
        _ => "",
    };
    let lines = &outcome.result.comparisons;
    let verdicts: Vec<_> = lines.iter().map(|line| (&*line.metric, line.verdict)).collect();
    let cured = cured.map_or_else(String::new, |of| conclusion(cure, &of, &verdicts) + "\n");
    let tables = without_last_verdict(&outcome.tables);
    output::print(&format!("{tables}\n{cured}{acted}{same}\n{caution}"))?;
    note(&record);
    Ok(ExitCode::SUCCESS)
}

/// The tables without the verdict at their end, which is their first line, too.
fn without_last_verdict(tables: &str) -> &str {
    let verdict = tables.split("\n\n").next().unwrap_or_default();
    tables.strip_suffix(&format!("\n{verdict}\n")).unwrap_or(tables)
}

/// What the measurement says of the cure that was taken for the finding.
fn conclusion(cure: Cure, finding: &str, verdicts: &[(&str, Verdict)]) -> String {
    let names = |wanted| -> Option<String> {
        let of_verdict = |it: &(&str, _)| verdicts.contains(&(it.0, wanted));
        let names: Vec<_> = JUDGED.into_iter().filter(of_verdict).map(|(_, name)| name).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    let here = match (names(Verdict::Faster), names(Verdict::Slower)) {
        (Some(_), None) => return format!("{cure} is the cure for {finding}."),
        (Some(better), Some(worse)) => format!("it makes {worse} worse, and {better} better"),
        (None, Some(worse)) => format!("it makes {worse} worse"),
        (None, None) if verdicts.iter().all(|(_, of)| *of == Verdict::Same) => {
            "it changes nothing".to_owned()
        }
        (None, None) => "no gain can be told from chance".to_owned(),
    };
    format!("{cure} is meant for {finding}; here {here}.")
}

/// The cure for the first finding of a trace, and what that finding is, and where.
fn advised(args: &ProveArgs, interrupt: &Interrupt) -> Result<(Cure, String), Failure> {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0);
    let failed = |how: String| {
        Failure::tracing(format!("{how}; name a cure without a trace: --cure {}", Cure::names()))
    };
    let mut session = Session::start(Target::Command(command), &SessionOptions::default())
        .map_err(|error| match error {
            // No cure helps there.
            SessionError::Spawn { ref program, ref source } => {
                Failure::usage(&error.to_string(), spawn_advice(program, source))
            }
            error => failed(error.to_string()),
        })?;
    let deadline = Deadline::after(args.timeout);
    let pause = session.run(deadline, Some(interrupt.as_fd()));
    // What it has left running must not run beside the measurement, nor after an error.
    let group = session.command_pid().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    group.map(|group| kill_process_group(group, Signal::KILL));
    let pause = pause.map_err(|it| failed(it.to_string()))?;
    match pause {
        Pause::Ended(Some(status)) if status.code() != Some(args.exit_code) => {
            let expected = args.exit_code;
            let how = format!("traced, it ended with {status}, not {expected}");
            return Err(match status.code() {
                Some(code) => {
                    let advice = format!("if that is right, give --exit-code {code}");
                    Failure::tracing(format!("{how}; {advice}"))
                }
                None => failed(how),
            });
        }
        Pause::Ended(_) | Pause::Ready => {}
        Pause::Deadline => return Err(failed("traced, it did not end (--timeout)".to_owned())),
    }
    let seen = session.finish().map_err(|error| failed(error.to_string()))?;
    let report = Report::new(&seen, &mut Symbols::new());
    if matches!(pause, Pause::Ready) {
        let line =
            format!("the traced run was interrupted; until then: {}", report.verdict.join(" "));
        return Err(Failure::WithCode { line, code: INTERRUPTED });
    }
    // To wait for a processor is a consequence, which never leads.
    let first = report.findings.iter().find(|finding| finding.waste != Waste::NoProcessor);
    let pattern = first.and_then(|finding| finding.advice).map(|advice| advice.pattern);
    if let Some((cure, first)) = pattern.and_then(Cure::of_pattern).zip(first) {
        report.verdict.iter().take(2).for_each(|line| note(line));
        note(&format!("cure: {cure}"));
        return Ok((cure, format!("{}: {}", first.waste_text(), first.site_text())));
    }
    let costs = |of: &&Finding| of.cost.is_none_or(|cost| cost.percent_high >= LITTLE_PERCENT);
    let what = match (first.filter(costs), pattern) {
        (None, _) => "the trace found nothing to cure".to_owned(),
        (Some(first), pattern) => {
            let pattern = pattern.map_or_else(String::new, |pattern| format!(" ({pattern})"));
            let (what, site) = (first.waste_text(), first.site_text());
            format!("no cure is known for the first finding{pattern}, {what}: {site}")
        }
    };
    let line = format!("{what}; name one to try it all the same: --cure {}", Cure::names());
    Err(Failure::WithCode { line, code: NO_CURE })
}

fn request(args: &ProveArgs, cure: Cure, preload: Option<&Preload>) -> CompareRequest {
    let before = Side::new(BEFORE.to_owned(), args.command.clone());
    let after = Side {
        environment: preload.map_or_else(Vec::new, Preload::environment),
        timer_slack_ns: cure.timer_slack_ns(),
        ..Side::new(cure.name(), args.command.clone())
    };
    CompareRequest {
        sides: vec![before, after],
        directory: std::env::temp_dir(),
        read: Read::Nothing,
        judge: JUDGED.map(|(metric, _)| metric.to_owned()).to_vec(),
        rounds: args.rounds,
        seed: Timestamp::now().as_ns() & u64::from(u32::MAX),
        delta: 0.02,
        check: true,
        exit_code: args.exit_code,
        timeout: args.timeout,
        out: args.out.clone(),
        command: crate::compare::this_command(),
        ..CompareRequest::default()
    }
}

/// Why there is no library, or none of its counts.
fn no_library(error: std::io::Error) -> Failure {
    Failure::tracing(format!("the library of the cure: {error}"))
}

/// An error where the cure has changed nothing in its first run.
fn check_acts(preload: &Preload, cure: Cure) -> Result<(), Failure> {
    let counts = preload.counts().map_err(no_library)?;
    let line = if counts.acted > 0 {
        return Ok(());
    } else if counts.loaded == 0 && !Preload::is_readable() {
        format!(
            "{cure} cannot be applied: unherd has file capabilities, so that programs cannot load \
             its library; run it as root, or a copy of it, which has none"
        )
    } else if counts.loaded == 0 {
        format!(
            "{cure} cannot be applied: the program loads no library by LD_PRELOAD; it is static, \
             set-user-ID, or of another processor"
        )
    } else if counts.unfit > 0 {
        format!(
            "{cure} cannot be applied: a listener's events are more than EPOLLIN (EPOLLONESHOT, \
             EPOLLRDNORM)"
        )
    } else {
        format!("{cure} never acted: {}", cure.acts_on())
    };
    Err(Failure::WithCode { line, code: NOT_APPLIED })
}

/// What an error of the lab means here.
fn explained(error: Error, request: &CompareRequest, cure: Cure, interrupt: &Interrupt) -> Failure {
    // The run with the cure that failed: rounds count from 0, after the first runs.
    let (how, run) = match error {
        Error::FirstRun { label, how, .. } if label == cure.name() => (how, 1),
        Error::Round { label, what, round, .. } if label == cure.name() => (what, round + 2),
        Error::DifferentOutputs { .. } => ("it prints something else".to_owned(), 1),
        Error::Disagreement { round, .. } => ("it prints something else".to_owned(), round + 2),
        Error::Interrupted { .. } => {
            return Error::InterruptedStep { what: "prove".to_owned() }.into();
        }
        // Nothing goes on with what prove has run.
        Error::EndedEarly { error, .. } => return explained(*error, request, cure, interrupt),
        error => return of_program(error),
    };
    // The fault may be the program's own, and rare: as many runs without the cure.
    let again = Side { label: "again".to_owned(), ..request.sides[0].clone() };
    let sides = vec![request.sides[0].clone(), again];
    let uncured = CompareRequest { sides, ..request.clone() };
    let pairs = run.clamp(1, MAX_CHECKS);
    for _ in 0..pairs {
        match plan_comparison(&uncured, interrupt) {
            Ok(_) => {}
            Err(Error::DifferentOutputs { .. }) => {
                return Failure::tracing(
                    "as it is, the program prints something else in each run; filter what \
                     differs, as sh -c 'CMD | grep -v …' does"
                        .to_owned(),
                );
            }
            Err(error) => return of_program(error),
        }
    }
    let runs = 2 * pairs;
    let other = match cure {
        Cure::WakeOne => "; wake-in-turn suits waiters for different things",
        _ => "",
    };
    Failure::Unmet(format!(
        "{cure} breaks the program or loses an event: {how}, in 1 of {run} runs, as it is in 0 \
         of {runs}{other}"
    ))
}

/// What an error of the program without the cure means.
fn of_program(error: Error) -> Failure {
    match error {
        Error::FirstRun { how, output, .. } | Error::Round { what: how, stderr: output, .. } => {
            Error::Step { what: "the program as it is".to_owned(), how, output }.into()
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conclusion_follows_the_verdicts() {
        let says = |[wall, cpu, switches]: &[Verdict; 3]| {
            let verdicts = [("wall_s", *wall), ("cpu_s", *cpu), ("context_switches", *switches)];
            conclusion(Cure::TimerSlack, "polling", &verdicts)
        };
        let (better, worse) = (Verdict::Faster, Verdict::Slower);
        let (same, open) = (Verdict::Same, Verdict::CannotTell);
        assert_eq!(says(&[same, open, better]), "timer-slack is the cure for polling.");
        for (verdicts, end) in [
            (&[worse, open, same], "polling; here it makes wall time worse."),
            (&[worse, worse, better], "wall time and CPU time worse, and context switches better."),
            (&[same, same, same], "; here it changes nothing."),
            (&[same, open, same], "; here no gain can be told from chance."),
        ] {
            let said = says(verdicts);
            assert!(said.starts_with("timer-slack is meant for polling; here "), "{said}");
            assert!(said.ends_with(end), "{said}");
        }
    }
}
