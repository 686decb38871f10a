//! One child process from start to end: its outputs, its status, and what it used.
//!
//! The child has a process group of its own (a terminal's Ctrl-C reaches the lab alone, which then
//! stops it), is killed by the kernel when the lab dies in whatever way, and is waited for by
//! wait4, whose account of CPU, context switches and memory is the kernel's own. When it ends, so
//! does whatever it has started and left behind, also what made a session of its own: nothing of
//! one process runs beside the next.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use unherd_host::{
    Cgroup, ChildProcess, IoBytes, Program, SpawnHow, Usage, adopt_orphans, end_orphans,
};
use unherd_sys::{Deadline, Timestamp, poll_until};

use crate::error::Error;
use crate::interrupt::Interrupt;

/// What is said of a time that an option has set.
pub(crate) const BY_TIMEOUT: &str = " (--timeout)";
/// The result is the last line; of what comes before, this much is kept.
const STDOUT_KEPT_BYTES: usize = 4 << 20;
/// Of what a child says before it fails, the end matters.
const STDERR_KEPT_BYTES: usize = 64 << 10;
/// How long the outputs are read on after the child and its descendants have ended: somebody else
/// may hold them.
const AFTER_END: Duration = Duration::from_secs(1);

/// What to start.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: Vec<OsString>,
    /// The first N CPUs, or all.
    pub(crate) cpus: Option<usize>,
    /// The `cgroup.procs` to enter.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    pub(crate) timeout: Duration,
    /// Where it runs, if not here.
    pub(crate) directory: Option<&'a Path>,
    /// Added to its environment.
    pub(crate) environment: Vec<(&'a str, &'a str)>,
    /// Without a terminal, even if the lab has one.
    pub(crate) own_session: bool,
}

/// How it went.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Of all of its standard output, also what was not kept.
    pub(crate) digest: u64,
    pub(crate) usage: Usage,
    pub(crate) io: Option<IoBytes>,
    pub(crate) elapsed: Duration,
    /// Whether its cgroup has run out of memory.
    pub(crate) out_of_memory: bool,
}

impl Finished {
    /// With what the cgroup says that it ran in, if any.
    pub(crate) fn in_cgroup(self, cgroup: Option<&Cgroup>) -> Self {
        let out_of_memory = cgroup.and_then(Cgroup::has_run_out).unwrap_or(false);
        Self { out_of_memory, ..self }
    }

    /// The code that it ended with, or in words what ended it. `timeout` is how long it was given,
    /// with what is said of that, and `bound` the option that bounds its memory.
    pub(crate) fn exit_code(&self, timeout: (Duration, &str), bound: &str) -> Result<i32, String> {
        match self.ending {
            Ending::Exited(status) => status.code().ok_or_else(|| {
                let signal = status.signal().unwrap_or_default();
                format!("it was killed by signal {signal}{}", self.memory_hint(bound))
            }),
            Ending::TimedOut => {
                let (seconds, by) = (timeout.0.as_secs_f64(), timeout.1);
                Err(format!("it had not ended after {seconds} s{by} and was killed"))
            }
            Ending::Interrupted => Err("interrupted".to_owned()),
        }
    }

    /// What is said after how it failed, where memory is why; `option` is what gave it so little.
    pub(crate) fn memory_hint(&self, option: &str) -> String {
        match self.out_of_memory {
            true => format!("; it needs more memory than {option} gives, so the kernel killed it"),
            false => String::new(),
        }
    }
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself.
    Exited(ExitStatus),
    /// The lab killed it: it took too long.
    TimedOut,
    /// The lab killed it: somebody asked for an end.
    Interrupted,
}

impl<'a> Launch<'a> {
    /// A program with its arguments, and nothing special.
    pub(crate) const fn new(program: &'a Path, args: Vec<OsString>, timeout: Duration) -> Self {
        Self {
            program,
            args,
            cpus: None,
            cgroup: None,
            timeout,
            directory: None,
            environment: Vec::new(),
            own_session: false,
        }
    }

    /// Runs the child to its end. Blocks until then, the timeout or the interrupt; no child of this
    /// call is left when it returns.
    ///
    /// # Errors
    ///
    /// Where the child cannot be started or waited for.
    pub(crate) fn run(self, interrupt: &Interrupt) -> io::Result<Finished> {
        let program = Program {
            path: self.program,
            args: &self.args,
            environment: &self.environment,
            directory: self.directory,
        };
        let how = SpawnHow {
            die_with_parent: true,
            own_group: true,
            own_session: self.own_session,
            cgroup: self.cgroup,
            cpus: self.cpus,
        };
        adopt_orphans()?;
        let started = Timestamp::now();
        let deadline = Deadline::at(started.after(self.timeout));
        let mut child = ChildProcess::start(&program, how)?;
        let mut outputs = [
            Output::new(child.take_stdout().map(OwnedFd::from), STDOUT_KEPT_BYTES),
            Output::new(child.take_stderr().map(OwnedFd::from), STDERR_KEPT_BYTES),
        ];
        let killed = read_until_end(&child, &mut outputs, deadline, interrupt)?;
        let elapsed = Timestamp::now().since(started);
        if killed.is_some() {
            child.kill()?;
        }
        let ended = child.wait(Deadline::NEVER)?.ok_or(io::ErrorKind::TimedOut)?;
        end_orphans();
        read_rest(&mut outputs, Deadline::after(AFTER_END), interrupt)?;
        let [stdout, stderr] = outputs.map(|output| output.tail);
        Ok(Finished {
            ending: killed.unwrap_or(Ending::Exited(ended.status)),
            digest: stdout.digest.finish(),
            stdout: stdout.text(),
            stderr: stderr.text(),
            usage: ended.usage,
            io: ended.io,
            elapsed,
            out_of_memory: false,
        })
    }
}

/// Why a program did not start. `bound` is the option that bounds its memory, where one does: the
/// kernel starts nothing in a cgroup that is too small for that. `advice` is for other errors.
pub(crate) fn not_started(
    program: &Path,
    bound: Option<&str>,
    advice: &str,
    source: io::Error,
) -> Error {
    let what = format!("cannot run {}", program.display());
    match bound.filter(|_| source.raw_os_error() == Some(Errno::NOMEM.raw_os_error())) {
        Some(option) => {
            Error::machine(format!("{what} in the memory of {option}"), "give more there", source)
        }
        None => Error::machine(what, advice, source),
    }
}

/// Reads the outputs until the child itself ends: it may close them long before, and others may
/// hold them open long after. Says why it is to be killed, if so.
fn read_until_end(
    child: &ChildProcess,
    outputs: &mut [Output; 2],
    deadline: Deadline,
    interrupt: &Interrupt,
) -> io::Result<Option<Ending>> {
    loop {
        let pidfd = child.pidfd();
        let Some(ready) = ready_of(outputs, &[pidfd, interrupt.as_fd()], deadline)? else {
            return Ok(Some(Ending::TimedOut));
        };
        match ready[..] {
            [_, true] => return Ok(Some(Ending::Interrupted)),
            [true, _] => return Ok(None),
            _ => {}
        }
    }
}

/// Reads what is left, until both outputs are closed.
fn read_rest(
    outputs: &mut [Output; 2],
    deadline: Deadline,
    interrupt: &Interrupt,
) -> io::Result<()> {
    while outputs.iter().any(|output| output.pipe.is_some()) {
        match ready_of(outputs, &[interrupt.as_fd()], deadline)?.as_deref() {
            Some([false]) => {}
            _ => break,
        }
    }
    Ok(())
}

/// Waits until an output or one of `others` is ready, and reads the outputs that are. Says which of
/// the others are ready, or `None` after the deadline, also where an output never ends.
fn ready_of(
    outputs: &mut [Output; 2],
    others: &[BorrowedFd<'_>],
    deadline: Deadline,
) -> io::Result<Option<Vec<bool>>> {
    let open = outputs.iter().filter_map(|output| output.pipe.as_ref().map(AsFd::as_fd));
    let waited = others.iter().copied().chain(open);
    let mut fds: Vec<_> = waited.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    if deadline.has_passed(Timestamp::now()) || poll_until(&mut fds, deadline)? == 0 {
        return Ok(None);
    }
    let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let (others, of_outputs) = ready.split_at(others.len());
    let open = outputs.iter_mut().filter(|output| output.pipe.is_some());
    for (output, _) in open.zip(of_outputs).filter(|(_, is_ready)| **is_ready) {
        output.read();
    }
    Ok(Some(others.to_vec()))
}

/// An output of the child, of which the last is kept.
#[derive(Debug)]
struct Output {
    /// Until it is closed.
    pipe: Option<OwnedFd>,
    tail: Tail,
}

impl Output {
    fn new(pipe: Option<OwnedFd>, limit: usize) -> Self {
        Self { pipe, tail: Tail::new(limit) }
    }

    /// Reads once; blocks where nothing is there.
    fn read(&mut self) {
        let mut chunk = [0; 16 << 10];
        let Some(pipe) = &self.pipe else { return };
        match rustix::io::read(pipe, &mut chunk) {
            Ok(count) if count > 0 => self.tail.push(&chunk[..count]),
            Err(Errno::INTR) => {}
            _ => self.pipe = None,
        }
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    /// Of all bytes.
    digest: DefaultHasher,
}

impl Tail {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, digest: DefaultHasher::new() }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.digest.write(chunk);
        self.bytes.extend_from_slice(chunk);
        // Dropped in halves, so that each byte is moved at most once.
        if self.bytes.len() > 2 * self.limit {
            self.bytes.drain(..self.bytes.len() - self.limit);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use unherd_sys::primitives::thread;

    use super::*;

    fn shell(script: &str, timeout: Duration) -> Finished {
        let launch = Launch::new(Path::new("sh"), vec!["-c".into(), script.into()], timeout);
        launch.run(&Interrupt::new().unwrap()).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn outputs_status_and_usage_come_back() {
        let finished = shell("echo out; echo err >&2; exit 3", LONG);
        assert_eq!((&*finished.stdout, &*finished.stderr), ("out\n", "err\n"));
        let Ending::Exited(status) = finished.ending else { panic!("{finished:?}") };
        assert_eq!(status.code(), Some(3));
        assert!(finished.usage.max_rss_bytes > 0);
    }

    #[test]
    fn too_small_bound_is_named() {
        let said = |bound, errno: Errno| {
            not_started(Path::new("a"), bound, "build it", errno.into()).to_string()
        };
        let bounded = said(Some("--memory"), Errno::NOMEM);
        assert!(bounded.starts_with("cannot run a in the memory of --memory: "), "{bounded}");
        assert!(bounded.ends_with("; give more there"), "{bounded}");
        for other in [said(None, Errno::NOMEM), said(Some("--memory"), Errno::NOENT)] {
            assert!(
                other.starts_with("cannot run a: ") && other.ends_with("; build it"),
                "{other}"
            );
        }
    }

    #[test]
    fn hanging_child_is_killed_with_descendants() {
        let finished = shell("echo begun; sleep 1000 & sleep 1000", Duration::from_millis(100));
        assert_eq!(finished.ending, Ending::TimedOut);
        assert_eq!(finished.stdout, "begun\n");
        let said = finished.exit_code((Duration::from_millis(100), BY_TIMEOUT), "").unwrap_err();
        assert_eq!(said, "it had not ended after 0.1 s (--timeout) and was killed");
    }

    #[test]
    fn endless_output_is_cut_off() {
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let mut outputs = [Output::new(Some(zeros.into()), 4), Output::new(None, 4)];
        let deadline = Deadline::at(Timestamp::default());
        assert_eq!(ready_of(&mut outputs, &[], deadline).unwrap(), None);
    }

    #[test]
    fn child_with_closed_outputs_is_awaited() {
        let finished = shell("exec >&- 2>&-; sleep 0.3; exit 4", LONG);
        assert!(matches!(finished.ending, Ending::Exited(status) if status.code() == Some(4)));
        let hanging = shell("exec >&- 2>&-; sleep 1000", Duration::from_millis(100));
        assert_eq!(hanging.ending, Ending::TimedOut);
    }

    #[test]
    fn descendant_with_open_pipe_is_ended() {
        // Neither in the group nor in the session of the child, and with both outputs open.
        let finished = shell("setsid sh -c 'sleep 4321 & sleep 4322' & echo done", LONG);
        assert!(matches!(finished.ending, Ending::Exited(status) if status.success()));
        assert_eq!(finished.stdout, "done\n");
    }

    #[test]
    fn descendant_in_own_session_is_ended() {
        let script = "setsid sh -c 'echo $$; exec sleep 4323' & exec sleep 4324";
        let finished = shell(script, Duration::from_secs(2));
        assert_eq!(finished.ending, Ending::TimedOut);
        let pid: u32 = finished.stdout.trim().parse().unwrap();
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs");
    }

    #[test]
    fn an_interrupt_ends_the_wait_and_the_child() {
        let interrupt = Interrupt::new().unwrap();
        let raiser = interrupt.clone();
        let launch = Launch::new(Path::new("sleep"), vec!["1000".into()], LONG);
        let raising = thread::spawn(move || raiser.raise());
        assert_eq!(launch.run(&interrupt).unwrap().ending, Ending::Interrupted);
        raising.join().unwrap();
    }

    #[test]
    fn only_the_end_of_a_flood_is_kept() {
        let mut tail = Tail::new(4);
        for chunk in ["abc", "def", "ghi"] {
            tail.push(chunk.as_bytes());
        }
        assert_eq!(tail.text(), "fghi");
    }
}
