//! `unherd trace`.
//!
//! Signals: a terminal's Ctrl-C (SIGINT) or Ctrl-\ (SIGQUIT) reaches the command by itself if it is
//! in the tracer's process group; to one that has left it (setsid, timeout) it is passed on, so
//! that it arrives once. What is sent to the tracer is passed on too. The tracer waits for the
//! command to end, then reports. A second such signal within two seconds means that the command
//! does not listen: the report is printed at once, then the command is killed, with its children.
//! While processes are attached to, the first signal ends tracing, and they go on.
//!
//! The trace of a command ends with the process that was started, as that of perf-record(1) does;
//! children that it leaves in the background go on, and are counted in the report.
//!
//! Exit codes: the command's own, 128 and the signal's number if one killed it; 1 where that would
//! be 0 but a budget was exceeded; 125 where tracing failed; 126 and 127 where the command cannot
//! be run or is not there, as `env` has them.

mod arguments;
mod ending;
mod report;
mod signals;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use unherd_sys::{Deadline, Errno};
use unherd_trace::diff::{Diff, DiffError, Verdict};
use unherd_trace::{Observation, Pause, Session, SessionError, Target, UnprivilegedSession};

pub(crate) use arguments::TraceArgs;
pub(crate) use ending::spawn_advice;

use self::arguments::Compared;
use self::ending::{death, exit_code, failure};
use self::report::Outputs;
use self::signals::{Signals, Told};
use crate::output::{Failure, note, print};

/// Traces, reports, and says how to exit.
pub(crate) fn run(args: &TraceArgs) -> Result<ExitCode, Failure> {
    if let Some(Compared::Diff { before, after }) = &args.compared {
        return compare(before, after);
    }
    args.check()?;
    let outputs = Outputs::open(args)?;
    let has_command = !args.command.is_empty();
    let signals =
        Signals::register(has_command).map_err(|e| Failure::tracing(format!("signals: {e}")))?;
    let target = target(args);
    let tracing = if args.unprivileged {
        let session = UnprivilegedSession::start(target, args.hertz).map_err(failure)?;
        Tracing::Unprivileged(Box::new(session))
    } else {
        let session = Session::start(target, &args.options()).map_err(failure)?;
        Tracing::Full(Box::new(session))
    };
    Round { tracing, signals, has_command }.run(args, outputs)
}

fn compare(before: &Path, after: &Path) -> Result<ExitCode, Failure> {
    let diff = Diff::of_files(before, after).map_err(|error| {
        Failure::tracing(match error {
            DiffError::Unreadable { .. } => {
                format!("{error}; name two reports that 'unherd trace --json FILE' has written")
            }
            error => error.to_string(),
        })
    })?;
    print(&diff.to_string())?;
    Ok(match diff.verdict {
        Verdict::Better | Verdict::Same => ExitCode::SUCCESS,
        Verdict::Worse => ExitCode::FAILURE,
        Verdict::Unknown => {
            let line = "no verdict, see the notes: trace both again in the same way, and fewer \
                        processes where events were lost";
            return Err(Failure::tracing(line.to_owned()));
        }
    })
}

fn target(args: &TraceArgs) -> Target {
    match (args.command.split_first(), &args.cgroup) {
        (Some((program, rest)), _) => {
            let mut command = Command::new(program);
            command.args(rest);
            Target::Command(command)
        }
        (None, Some(path)) => Target::Cgroup(path.clone()),
        (None, None) => Target::Processes(args.pid.clone()),
    }
}

/// A session of either kind.
enum Tracing {
    Full(Box<Session>),
    Unprivileged(Box<UnprivilegedSession>),
}

impl Tracing {
    fn run(
        &mut self,
        deadline: Deadline,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Pause, SessionError> {
        match self {
            Self::Full(session) => session.run(deadline, stop),
            Self::Unprivileged(session) => session.run(deadline, stop),
        }
    }

    fn signal(&self, signal: i32) -> Result<(), Errno> {
        match self {
            Self::Full(session) => session.signal(signal),
            Self::Unprivileged(session) => session.signal(signal),
        }
    }

    fn is_in_own_group(&self) -> bool {
        match self {
            Self::Full(session) => session.is_in_own_group(),
            Self::Unprivileged(session) => session.is_in_own_group(),
        }
    }

    fn kill(&mut self) -> Result<Option<ExitStatus>, Errno> {
        match self {
            Self::Full(session) => session.kill(),
            Self::Unprivileged(session) => session.kill(),
        }
    }

    fn finish(&mut self) -> Result<Observation, SessionError> {
        match self {
            Self::Full(session) => session.finish(),
            Self::Unprivileged(session) => session.finish(),
        }
    }
}

/// One tracing, from the command's start to its end.
struct Round {
    tracing: Tracing,
    signals: Signals,
    has_command: bool,
}

/// Why tracing was over.
enum Over {
    /// All ended by itself.
    Ended(Option<ExitStatus>),
    /// Its time had come.
    Deadline,
    /// Somebody asked for an end, and asked again if there is a command.
    Stopped,
}

impl Round {
    fn run(mut self, args: &TraceArgs, outputs: Outputs) -> Result<ExitCode, Failure> {
        let over = self.wait(args.deadline())?;
        // While the command lives, so that its perf map and its files can be read.
        let seen = self.tracing.finish().map_err(failure)?;
        let is_within = outputs.write(&seen)?;
        let over = match over {
            Over::Deadline if self.has_command => self.wait(Deadline::NEVER)?,
            over => over,
        };
        let status = match over {
            Over::Ended(status) => status,
            Over::Deadline => None,
            Over::Stopped => self.kill()?,
        };
        death(status).iter().for_each(|line| note(line));
        Ok(exit_code(status, is_within))
    }

    fn kill(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.tracing.kill().map_err(|errno| failure(errno.into()))
    }

    /// Traces until the end, and passes signals on meanwhile.
    fn wait(&mut self, deadline: Deadline) -> Result<Over, Failure> {
        loop {
            match self.tracing.run(deadline, Some(self.signals.fd())).map_err(failure)? {
                Pause::Ended(status) => return Ok(Over::Ended(status)),
                Pause::Deadline => return Ok(Over::Deadline),
                Pause::Ready => {}
            }
            for told in self.signals.take() {
                match told {
                    Told::Again => return Ok(Over::Stopped),
                    _ if !self.has_command => return Ok(Over::Stopped),
                    // The tracer got it, so the terminal's foreground group was its own.
                    Told::ByTerminal(_) if self.tracing.is_in_own_group() => {}
                    Told::ByTerminal(signal) | Told::PassOn(signal) => {
                        // Where it is not allowed the command is another user's by now: that
                        // user's own signals reach it.
                        let _ = self.tracing.signal(signal);
                    }
                }
            }
        }
    }
}
