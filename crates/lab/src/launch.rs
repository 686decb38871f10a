//! One child process from start to end: its outputs, its status, and what it used.
//!
//! The child has a process group of its own (a terminal's Ctrl-C reaches the lab alone, which then
//! stops it), is killed by the kernel when the lab dies in whatever way, and is waited for by
//! wait4, whose account of CPU, context switches and memory is the kernel's own. When it ends, so
//! does whatever it has started and left behind, also what made a session of its own: nothing of
//! one process runs beside the next.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use unherd_host::{ChildProcess, ChildUsage, IoBytes, SpawnHow, Usage, adopt_orphans, end_orphans};
use unherd_sys::primitives::{Arc, Mutex, thread};
use unherd_sys::{Deadline, Timestamp};

use crate::interrupt::{Interrupt, Waited};

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
    /// Whether its standard output is discarded by the kernel rather than read.
    pub(crate) discard_output: bool,
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
            discard_output: false,
        }
    }

    /// Runs the child to its end. Blocks until then, the timeout or the interrupt; no child of this
    /// call is left when it returns.
    ///
    /// # Errors
    ///
    /// Where the child cannot be started or waited for.
    pub(crate) fn run(self, interrupt: &Interrupt) -> io::Result<Finished> {
        let mut command = self.command();
        let stdout = if self.discard_output { Stdio::null() } else { Stdio::piped() };
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
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
        let mut child = ChildProcess::spawn(command, how)?;
        let number = interrupt.watch_child(if self.discard_output { 1 } else { 2 });
        let keep = |output, limit| keep(output, limit, interrupt, number);
        let stdout = child.take_stdout().map(|out| keep(Box::new(out), STDOUT_KEPT_BYTES));
        let stderr = child.take_stderr().map(|out| keep(Box::new(out), STDERR_KEPT_BYTES));
        let (ended, killed) = wait(&mut child, deadline, interrupt, number)?;
        let elapsed = Timestamp::now().since(started);
        end_orphans();
        interrupt.wait_for_outputs(Deadline::after(AFTER_END));
        let digest = stdout.as_ref().map_or(0, |kept| kept.lock().digest.finish());
        let text =
            |kept: Option<SharedTail>| kept.map_or_else(String::new, |kept| kept.lock().text());
        Ok(Finished {
            ending: killed.unwrap_or(Ending::Exited(ended.status)),
            stdout: text(stdout),
            stderr: text(stderr),
            digest,
            usage: ended.usage,
            io: ended.io,
            elapsed,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(&self.args).envs(self.environment.iter().copied());
        if let Some(directory) = self.directory {
            command.current_dir(directory);
        }
        command
    }
}

/// Waits for the child itself: its outputs may be closed long before it ends, or held open by
/// others long after.
fn wait(
    child: &mut ChildProcess,
    deadline: Deadline,
    interrupt: &Interrupt,
    number: u64,
) -> io::Result<(ChildUsage, Option<Ending>)> {
    let (end, watcher) = (child.end()?, interrupt.clone());
    thread::spawn(move || {
        // Should the wait fail, the deadline ends it.
        if end.wait().is_ok() {
            watcher.child_ended(number);
        }
    });
    let killed = match interrupt.wait_for_end(deadline) {
        Waited::Done => None,
        Waited::Interrupted => Some(Ending::Interrupted),
        Waited::TimedOut => Some(Ending::TimedOut),
    };
    if killed.is_some() {
        child.kill()?;
    }
    let ended = child.wait(Deadline::NEVER)?.ok_or(io::ErrorKind::TimedOut)?;
    Ok((ended, killed))
}

type SharedTail = Arc<Mutex<Tail>>;

/// Reads an output to its end on a thread of its own, and keeps the last of it.
fn keep(
    mut output: Box<dyn Read + Send>,
    limit: usize,
    interrupt: &Interrupt,
    number: u64,
) -> SharedTail {
    let kept: SharedTail = Arc::new(Mutex::new(Tail::new(limit)));
    let (into, interrupt) = (Arc::clone(&kept), interrupt.clone());
    thread::spawn(move || {
        let mut chunk = [0; 8192];
        loop {
            match output.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => into.lock().push(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        interrupt.output_closed(number);
    });
    kept
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
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Finished {
        let launch = Launch::new(Path::new("sh"), vec!["-c".into(), script.into()], timeout);
        launch.run(&Interrupt::new()).unwrap()
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
    fn hanging_child_is_killed_with_descendants() {
        let finished = shell("echo begun; sleep 1000 & sleep 1000", Duration::from_millis(100));
        assert_eq!(finished.ending, Ending::TimedOut);
        assert_eq!(finished.stdout, "begun\n");
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
        let interrupt = Interrupt::new();
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
