//! One session of tracing: a command, running processes or a control group, from start to report.
//!
//! A session has three sources: the eBPF programs, which count what threads waited for; the
//! sampler, which looks where the processors are; and `/proc`, which knows what programs a process
//! is made of. They meet in one [`Observation`].
//!
//! ```no_run
//! use std::process::Command;
//! use unherd_sys::Deadline;
//! use unherd_trace::{Session, SessionOptions, Target};
//!
//! # fn main() -> Result<(), unherd_trace::SessionError> {
//! let mut command = Command::new("make");
//! command.arg("-j8");
//! let mut session = Session::start(Target::Command(command), &SessionOptions::default())?;
//! session.run(Deadline::NEVER, None)?;
//! let observation = session.finish()?;
//! println!("{} sleeps", observation.totals.sleeps);
//! # Ok(())
//! # }
//! ```

mod merge;
mod target;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::io::Errno;
use unherd_host::{
    BusyTime, ChainOptions, ChainSampler, ChildProcess, SampleKind, SampleScope, SamplerError,
    SpawnHow,
};
use unherd_sys::{Deadline, Timestamp};

use crate::maps::CodeMaps;
use crate::observation::{Missing, Observation};
use crate::{Follow, Notice, TraceError, TraceOptions, Tracer};

pub(crate) use merge::samples;
pub(crate) use target::{Running, Woken};

/// A control group is looked at again so often; so are mappings where no records tell of them.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Whom to trace.
#[derive(Debug)]
pub enum Target {
    /// A command, which the session starts: all its threads and children, from its first
    /// instruction on. It is killed when the thread that started the session ends, for whatever
    /// reason, or the session is dropped.
    Command(Command),
    /// Processes that run, by their numbers: all their threads, and the children that they make
    /// from now on.
    Processes(Vec<u32>),
    /// The processes of a control group (version 1 or 2) and of those below it, given as its
    /// directory. Who enters it later is noticed within 100 ms.
    Cgroup(PathBuf),
}

/// How to trace.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// CPU samples a second on each processor; 0 takes none.
    pub hertz: u32,
    /// What the eBPF programs keep.
    pub trace: TraceOptions,
}

impl Default for SessionOptions {
    /// 99 samples a second: off the beat of timers that run at round numbers, and too few to be
    /// felt.
    fn default() -> Self {
        Self { hertz: 99, trace: TraceOptions::default() }
    }
}

/// Why [`Session::run`] has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The command has ended, or every process that was named.
    Ended(Option<ExitStatus>),
    /// The deadline has passed.
    Deadline,
    /// There is something to read at the descriptor that was given.
    Ready,
}

/// Why there is no session, or no more of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The eBPF programs.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The sampler, where there can be no session without it.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The command cannot be started.
    #[error("cannot run '{program}': {source}")]
    Spawn {
        /// The command's name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A process that was named is not there.
    #[error("there is no process {pid}; it may have ended: see 'ps -p {pid}'")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// The number is a thread's.
    #[error("{tid} is a thread of process {pid}; give -p {pid}")]
    NotAProcess {
        /// The number that was given.
        tid: u32,
        /// The process's.
        pid: u32,
    },
    /// A process belongs to somebody else.
    #[error("process {pid} is another user's; trace it as that user or as root")]
    Foreign {
        /// Its number.
        pid: u32,
    },
    /// The control group cannot be read.
    #[error("'{path}' is no control group ({source}); give its directory below /sys/fs/cgroup")]
    Cgroup {
        /// Its directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Without privilege nobody can be followed who comes later.
    #[error(
        "a control group can be traced with privilege only; give -p for processes of one's own"
    )]
    GroupUnprivileged,
    /// The kernel refused what sessions need.
    #[error("tracing failed: {0}")]
    System(#[from] Errno),
}

/// A session that runs. Dropped, it ends without an observation; its command is killed.
#[derive(Debug)]
pub struct Session {
    tracer: Option<Tracer>,
    sampler: Result<ChainSampler, SamplerError>,
    hertz: u32,
    idle: BusyTime,
    maps: CodeMaps,
    running: Running,
    ended: BTreeSet<u32>,
    reused_pids: u64,
}

impl Session {
    /// Loads the eBPF programs, starts the sampler, then the command if there is one. The command
    /// is a child of the calling thread, which must not start another meanwhile.
    ///
    /// Where sampling is not possible but tracing is, the observation has no samples and says why.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; nothing is left running or loaded then.
    pub fn start(target: Target, options: &SessionOptions) -> Result<Self, SessionError> {
        let running = Running::find(&target)?;
        let follow = match target {
            Target::Command(_) => Follow::NextChild,
            Target::Processes(_) => Follow::Processes(running.pids()),
            // Those that are found may be gone by then, which is no fault there.
            Target::Cgroup(_) => Follow::Processes(Vec::new()),
        };
        // The sampler first: its mappings must miss nothing, and it starts a thread, which the
        // programs might take for the child.
        let sampler = sampler(options.hertz);
        let tracer = Tracer::start(follow, &options.trace)?;
        let idle = BusyTime::now()?;
        let mut session = Self {
            tracer: Some(tracer),
            sampler,
            hertz: options.hertz,
            idle,
            maps: CodeMaps::new(),
            running,
            ended: BTreeSet::new(),
            reused_pids: 0,
        };
        match target {
            Target::Command(command) => session.running = Running::Command(spawn(command)?),
            Target::Processes(_) => {
                session.running.pids().into_iter().for_each(|pid| session.maps.attach(pid));
            }
            Target::Cgroup(_) => session.follow_new()?,
        }
        Ok(session)
    }

    /// The command's process number, if there is a command.
    pub fn command_pid(&self) -> Option<u32> {
        match &self.running {
            Running::Command(child) => Some(child.pid()),
            _ => None,
        }
    }

    /// Sends the command a signal; nothing happens if there is none or it has ended.
    ///
    /// # Errors
    ///
    /// The kernel's: the command may have become another user's.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.running.signal(signal)
    }

    /// Whether the command is in the calling program's process group, so that what a terminal sends
    /// to the one it has sent to the other. Not if it has left it, as setsid(1) and timeout(1) do.
    #[must_use]
    pub fn is_in_own_group(&self) -> bool {
        self.running.is_in_own_group()
    }

    /// Kills the command if it still runs, with its descendants, and says how it has ended.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn kill(&mut self) -> Result<Option<ExitStatus>, Errno> {
        self.running.kill()
    }

    /// Traces until all has ended, the deadline, or until `stop` can be read. May be called again.
    /// Blocks. After [`Session::finish`] it goes on waiting for the command.
    ///
    /// # Errors
    ///
    /// Where the programs or the kernel fail.
    pub fn run(
        &mut self,
        deadline: Deadline,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Pause, SessionError> {
        loop {
            // The order matters: what is ready stays so, and the end comes before all else.
            if let Some(ended) = self.running.ended()? {
                self.take_notices()?;
                return Ok(Pause::Ended(ended));
            }
            let now = Timestamp::now();
            if deadline.has_passed(now) {
                return Ok(Pause::Deadline);
            }
            let looks_again = self.running.is_cgroup() || self.sampler.is_err();
            let at_most = looks_again.then_some(LOOK_AGAIN);
            let rings: Vec<_> = self.tracer.iter().flat_map(Tracer::rings).collect();
            if self.running.wait(deadline, now, at_most, stop, &rings)? == Woken::Stop {
                return Ok(Pause::Ready);
            }
            self.take_notices()?;
            self.follow_new()?;
        }
    }

    /// What the programs say of processes: a new program may be in another mount namespace.
    fn take_notices(&mut self) -> Result<(), SessionError> {
        let Some(tracer) = &mut self.tracer else { return Ok(()) };
        for notice in tracer.poll(Duration::ZERO)? {
            match notice {
                Notice::Began { pid, parent } => self.maps.began(pid, parent),
                Notice::Exec { pid, .. } => {
                    self.reused_pids += u64::from(self.ended.remove(&pid));
                    self.maps.executed(pid);
                }
                Notice::Ended { pid } => {
                    self.ended.insert(pid);
                    self.maps.ended(pid);
                }
            }
        }
        if self.sampler.is_err() {
            self.maps.read_again();
        }
        Ok(())
    }

    /// Follows who has entered the control group.
    fn follow_new(&mut self) -> Result<(), SessionError> {
        let Some(tracer) = &mut self.tracer else { return Ok(()) };
        for pid in self.running.entered() {
            match tracer.follow_process(pid) {
                // It has ended meanwhile, or there is no room for it, which the losses tell.
                Err(
                    TraceError::NoProcess(_)
                    | TraceError::NotFollowed(_)
                    | TraceError::InNamespace(_),
                ) => {}
                followed => {
                    followed?;
                    self.maps.attach(pid);
                }
            }
        }
        Ok(())
    }

    /// Ends tracing and puts together what was seen. The command runs on if it has not ended; the
    /// session must live for as long as files are opened by [`Mapping::open_path`].
    ///
    /// [`Mapping::open_path`]: crate::observation::Mapping::open_path
    ///
    /// # Errors
    ///
    /// Where the programs' counts cannot be read, or it was called before.
    pub fn finish(&mut self) -> Result<Observation, SessionError> {
        let tracer = self.tracer.take().ok_or(Errno::CANCELED)?;
        let idle = BusyTime::now()?.since(self.idle);
        let over = Err(SamplerError::System(Errno::CANCELED));
        let sampler = std::mem::replace(&mut self.sampler, over);
        let (mut chains, maps) = (Err(SamplerError::System(Errno::CANCELED)), &self.maps);
        let mut seen = tracer.finish_with(|processes| {
            chains = sampler.and_then(ChainSampler::finish);
            maps.give(processes, chains.as_ref().ok());
        })?;
        seen.totals.machine_idle_ns = idle.idle_ns + idle.iowait_ns;
        seen.losses.reused_pids = self.reused_pids;
        match chains {
            Ok(chains) => {
                // What is lost there may be code without a name or samples, but no count.
                seen.losses.notices += chains.mappings_lost;
                seen.losses.sampler_records = chains.lost;
                seen.losses.samples_without_room = chains.overflowed;
                if self.hertz > 0 {
                    samples(&mut seen, &chains, self.hertz);
                }
            }
            Err(error) => seen.missing.push(Missing {
                tracepoint: "cpu-clock samples for this user".to_owned(),
                consequence: format!("no CPU samples, and code may stay unnamed: {error}"),
            }),
        }
        Ok(seen)
    }
}

/// Whole machine, so that mappings miss no process and idle time is seen; what belongs to others is
/// dropped at the end. Where no samples are wanted it runs as slowly as it can: the records of
/// mappings come with it.
fn sampler(hertz: u32) -> Result<ChainSampler, SamplerError> {
    let kind = SampleKind::CpuClock { hertz: hertz.max(1) };
    ChainSampler::start(&ChainOptions::new(kind, SampleScope::WholeMachine))
}

/// Starts the command, which has this program's input and outputs and is in its process group.
pub(crate) fn spawn(command: Command) -> Result<ChildProcess, SessionError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let how = SpawnHow { die_with_parent: true, ..SpawnHow::default() };
    ChildProcess::spawn(command, how).map_err(|source| SessionError::Spawn { program, source })
}

#[cfg(test)]
mod tests;
