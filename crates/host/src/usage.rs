//! What processes used, by the kernel's own account, and children that cannot be left behind.
//!
//! A [`ChildProcess`] is waited for by wait4(2), which gives its resource usage with its status.
//! Dropped early, it is killed and waited for. With [`SpawnHow::die_with_parent`] the kernel kills
//! it when the spawning *thread* ends for whatever reason, SIGKILL included.
#![expect(unsafe_code, reason = "wait4, getrusage and the step between fork and exec")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process_group, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setsid,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use unherd_sys::{Deadline, poll_until};

use crate::orphans::children;
use crate::start::{Program, Started, start};

/// What was used: CPU time, context switches, memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel on behalf of the process.
    pub system: Duration,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because somebody else was to run.
    pub involuntary_switches: u64,
    /// The largest resident size ever, in bytes. A child's is at least its parent's size when it
    /// was forked: the kernel carries the peak over exec(2).
    pub max_rss_bytes: u64,
    /// Page faults for which nothing had to be read.
    pub minor_faults: u64,
    /// Page faults for which storage had to be read.
    pub major_faults: u64,
}

impl Usage {
    /// What all threads of this process have used so far, the ended ones too.
    pub fn of_this_process() -> Self {
        let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a writable `rusage`.
        let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, raw.as_mut_ptr()) };
        debug_assert_eq!(result, 0, "getrusage of oneself cannot fail");
        // SAFETY: a `rusage` is plain numbers, zeroed at least.
        Self::from_raw(&unsafe { raw.assume_init() })
    }

    /// What was used since `earlier`; the memory is the peak of the whole time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
            max_rss_bytes: self.max_rss_bytes,
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }

    /// User and system time together.
    pub fn cpu(self) -> Duration {
        self.user + self.system
    }

    fn from_raw(raw: &libc::rusage) -> Self {
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        Self {
            user: time(raw.ru_utime),
            system: time(raw.ru_stime),
            voluntary_switches: raw.ru_nvcsw as u64,
            involuntary_switches: raw.ru_nivcsw as u64,
            max_rss_bytes: raw.ru_maxrss as u64 * 1024,
            minor_faults: raw.ru_minflt as u64,
            major_faults: raw.ru_majflt as u64,
        }
    }
}

/// The end of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildUsage {
    /// What it and the descendants that it waited for have used.
    pub usage: Usage,
    /// What they have read and written through system calls; `None` where the kernel does not tell.
    pub io: Option<IoBytes>,
    /// How it ended.
    pub status: ExitStatus,
}

/// Bytes that went through read(2), write(2) and their kin, from caches, pipes and devices alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoBytes {
    /// Read.
    pub read: u64,
    /// Written.
    pub written: u64,
}

impl IoBytes {
    /// From `/proc/PID/io`, which is there until the process is waited for.
    fn of(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        Some(Self { read: field("rchar:")?, written: field("wchar:")? })
    }
}

/// How to start a child.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpawnHow<'a> {
    /// SIGKILL for the child when the thread that spawns it ends. A child that changes its user on
    /// exec (set-user-ID) loses this.
    pub die_with_parent: bool,
    /// A process group of its own: a terminal's interrupt does not reach it, and its descendants
    /// end with it, killed or not, except those that have left the group (setsid(2), setpgid(2)).
    pub own_group: bool,
    /// A session of its own, and with it such a group: it has no terminal, so that one which asks
    /// for it fails rather than stops.
    pub own_session: bool,
    /// An open `cgroup.procs`: the child enters that cgroup before it begins.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The child may run on the first n processors only, numbers 0 and up.
    pub cpus: Option<usize>,
}

/// A child that runs, or has ended and has not been waited for.
#[derive(Debug)]
pub struct ChildProcess {
    pid: Pid,
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    own_group: bool,
    ended: Option<ChildUsage>,
}

impl ChildProcess {
    /// Starts a program without a copy of this process's page tables, which is what
    /// [`ChildProcess::spawn`] spends most of its time on. The calling thread stands still until
    /// the program is executed.
    ///
    /// # Errors
    ///
    /// What the kernel says to any step up to the program's execution; a NUL in a text.
    pub fn start(program: &Program<'_>, how: SpawnHow<'_>) -> io::Result<Self> {
        let mut known = children();
        let Started { pid, pidfd, stdout, stderr } = start(program, how)?;
        known.insert(pid.as_raw_pid() as u32);
        Ok(Self {
            pid,
            pidfd,
            stdin: None,
            stdout: Some(ChildStdout::from(stdout)),
            stderr: Some(stderr.into()),
            own_group: how.own_group || how.own_session,
            ended: None,
        })
    }

    /// Starts `command`. Errors are those of [`Command::spawn`], which reports a failing exec and
    /// a failing entry into the cgroup alike.
    pub fn spawn(mut command: Command, how: SpawnHow<'_>) -> io::Result<Self> {
        if how.own_group && !how.own_session {
            command.process_group(0);
        }
        let own_group = how.own_group || how.own_session;
        let cgroup = how.cgroup.map(|procs| procs.try_clone_to_owned()).transpose()?;
        let parent = getpid();
        let mut started = children();
        let how = SpawnHow { cgroup: None, ..how };
        let prepare = move || {
            let how = SpawnHow { cgroup: cgroup.as_ref().map(AsFd::as_fd), ..how };
            settle(how, parent).map_err(io::Error::from)
        };
        // SAFETY: between fork and exec the closure makes system calls and nothing else: it takes
        // no lock and no memory.
        unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn()?;
        started.insert(child.id());
        drop(started);
        let pid = Pid::from_child(&child);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self {
                pid,
                pidfd,
                stdin: child.stdin.take(),
                stdout: child.stdout.take(),
                stderr: child.stderr.take(),
                own_group,
                ended: None,
            }),
            Err(errno) => {
                child.kill()?;
                child.wait()?;
                children().remove(&child.id());
                Err(errno.into())
            }
        }
    }

    /// The process number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid() as u32
    }

    /// The writing end of its standard input, if that is a pipe and was not taken before.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The reading end of its standard output, if that is a pipe and was not taken before.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The reading end of its standard error, if that is a pipe and was not taken before.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.stderr.take()
    }

    /// Something that waits for the child's end on another thread.
    pub fn end(&self) -> io::Result<ChildEnd> {
        self.pidfd.try_clone().map(ChildEnd)
    }

    /// Readable once the child has ended: for callers that wait for several things at once.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits for the child's end: its usage and status, or `None` when the deadline came first.
    /// Signal handlers do not end the wait. After the end, says the same again. What a child with a
    /// group of its own has left running there is killed.
    pub fn wait(&mut self, deadline: Deadline) -> Result<Option<ChildUsage>, Errno> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let mut ready = [PollFd::new(&self.pidfd, PollFlags::IN)];
        if poll_until(&mut ready, deadline)? == 0 {
            return Ok(None);
        }
        if self.own_group {
            // The zombie pins its number, and so that of the group, which may be empty otherwise.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        // The zombie still has its accounts.
        let io = IoBytes::of(self.pid);
        let ended = ChildUsage { io, ..wait4(self.pid)? };
        children().remove(&self.pid());
        self.ended = Some(ended);
        Ok(self.ended)
    }

    /// Sends SIGKILL to the child, and to its whole group if it has one of its own. Nothing happens
    /// if it has been waited for.
    pub fn kill(&self) -> Result<(), Errno> {
        if self.ended.is_some() {
            return Ok(());
        }
        // Until it is waited for, its number cannot become another's, nor that of its group.
        if self.own_group && kill_process_group(self.pid, Signal::KILL).is_ok() {
            return Ok(());
        }
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Err(Errno::SRCH) => Ok(()),
            result => result,
        }
    }
}

/// The end of a [`ChildProcess`], to be waited for beside other things.
#[derive(Debug)]
pub struct ChildEnd(OwnedFd);

impl ChildEnd {
    /// Blocks until the child has ended. Its status and usage are still available from
    /// [`ChildProcess::wait`].
    pub fn wait(self) -> Result<(), Errno> {
        poll_until(&mut [PollFd::new(&self.0, PollFlags::IN)], Deadline::NEVER).map(drop)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if self.ended.is_none() && self.kill().is_ok() {
            // A killed child ends; should the wait fail, init takes it.
            let _ = self.wait(Deadline::NEVER);
        }
    }
}

/// What a child does for `how`, between its beginning and the program: system calls and nothing
/// else, no lock and no memory. The group is the caller's business.
pub(crate) fn settle(how: SpawnHow<'_>, parent: Pid) -> Result<(), Errno> {
    if let Some(procs) = how.cgroup {
        rustix::io::write(procs, b"0")?;
    }
    if let Some(cpus) = how.cpus {
        let mut set = CpuSet::new();
        (0..cpus.min(CpuSet::MAX_CPU)).for_each(|cpu| set.set(cpu));
        sched_setaffinity(None, &set)?;
    }
    if how.own_session {
        setsid()?;
    }
    if how.die_with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that ended before the line above sends no signal any more.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH);
        }
    }
    Ok(())
}

pub(crate) fn wait4(pid: Pid) -> Result<ChildUsage, Errno> {
    let mut status = 0;
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to writable memory of their types.
        let waited =
            unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, 0, raw.as_mut_ptr()) };
        if waited >= 0 {
            break;
        }
        let errno = Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO);
        if errno != Errno::INTR {
            return Err(errno);
        }
    }
    // SAFETY: a `rusage` is plain numbers, zeroed at least and filled in by the kernel.
    let raw = unsafe { raw.assume_init() };
    Ok(ChildUsage { usage: Usage::from_raw(&raw), io: None, status: ExitStatus::from_raw(status) })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Stdio;

    use super::*;
    use crate::ProcessMark;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Not through a shell: that may keep a child of its own, which a kill would leave behind.
    fn sleep() -> Command {
        let mut command = Command::new("sleep");
        command.arg("1000");
        command
    }

    fn spawn(script: &str) -> ChildProcess {
        ChildProcess::spawn(shell(script), SpawnHow::default()).unwrap()
    }

    #[test]
    fn a_child_is_accounted_for() {
        let mut child = spawn("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 7");
        let ended = child.wait(Deadline::NEVER).unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(7));
        assert!(ended.usage.user > Duration::from_millis(1));
        assert!(ended.usage.max_rss_bytes > 1 << 16);
        assert_eq!(child.wait(Deadline::NEVER), Ok(Some(ended)));
        assert_eq!(child.kill(), Ok(()));
    }

    #[test]
    fn bytes_of_descendants_are_counted() {
        let mut child = spawn("head -c 3000000 /dev/zero | cat >/dev/null");
        let ended = child.wait(Deadline::NEVER).unwrap().unwrap();
        // Where the kernel keeps no such account there is nothing to count.
        let Some(io) = ended.io else { return };
        assert!(io.read >= 6_000_000 && io.written >= 6_000_000, "{io:?}");
        assert!(ended.usage.minor_faults > 0);
    }

    #[test]
    fn own_session_has_no_terminal() {
        let how = SpawnHow { own_session: true, ..SpawnHow::default() };
        let mut child = ChildProcess::spawn(shell("exec 2>&-; : </dev/tty"), how).unwrap();
        assert!(!child.wait(Deadline::NEVER).unwrap().unwrap().status.success());
    }

    #[test]
    fn deadline_ends_wait_and_kill_child() {
        let mut child = ChildProcess::spawn(sleep(), SpawnHow::default()).unwrap();
        assert_eq!(child.wait(Deadline::after(Duration::from_millis(5))), Ok(None));
        child.kill().unwrap();
        let ended = child.wait(Deadline::NEVER).unwrap().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_dropped_child_takes_its_group_along() {
        let mut command = shell("sleep 1000 & echo $!; wait");
        command.stdout(Stdio::piped());
        let how = SpawnHow { own_group: true, ..SpawnHow::default() };
        let mut child = ChildProcess::spawn(command, how).unwrap();
        let mut stdout = child.take_stdout().unwrap();
        let mut pid = String::new();
        let mut byte = [0];
        while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            pid.push(char::from(byte[0]));
        }
        let me = ProcessMark::current().to_string();
        let (_, namespace) = me.rsplit_once('-').unwrap();
        let descendant: ProcessMark = format!("{pid}-0-{namespace}").parse().unwrap();
        assert!(descendant.is_alive());
        drop(child);
        // The pipe's end is closed once the descendant is gone.
        assert_eq!(stdout.read(&mut byte).unwrap(), 0);
        while descendant.is_alive() {
            unherd_sys::primitives::thread::yield_now();
        }
    }

    #[test]
    fn ended_child_leaves_nothing_running() {
        let mut command = shell("sleep 4321 & exit 0");
        command.stdout(Stdio::piped());
        let how = SpawnHow { own_group: true, ..SpawnHow::default() };
        let mut child = ChildProcess::spawn(command, how).unwrap();
        let stdout = child.take_stdout().unwrap();
        let ended = child.wait(Deadline::NEVER).unwrap().unwrap();
        assert!(ended.status.success());
        // The pipe hangs up when the descendant, which holds its other end, is gone.
        let mut hung_up = [PollFd::new(&stdout, PollFlags::IN)];
        let gone = poll_until(&mut hung_up, Deadline::after(Duration::from_secs(10)));
        if gone != Ok(1) {
            kill_process_group(child.pid, Signal::KILL).unwrap();
        }
        assert_eq!(gone, Ok(1), "the descendant still runs");
    }

    #[test]
    fn child_dies_with_its_spawning_thread() {
        let mut child = unherd_sys::primitives::thread::spawn(|| {
            let how = SpawnHow { die_with_parent: true, ..SpawnHow::default() };
            ChildProcess::spawn(sleep(), how).unwrap()
        })
        .join()
        .unwrap();
        let ended = child.wait(Deadline::NEVER).unwrap().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_child_keeps_to_its_processors() {
        let mut command = shell("grep Cpus_allowed_list /proc/self/status");
        command.stdout(Stdio::piped());
        let how = SpawnHow { cpus: Some(1), ..SpawnHow::default() };
        let mut child = ChildProcess::spawn(command, how).unwrap();
        let mut allowed = String::new();
        child.take_stdout().unwrap().read_to_string(&mut allowed).unwrap();
        assert_eq!(allowed.split_whitespace().last(), Some("0"), "{allowed}");
    }

    #[test]
    fn what_cannot_start_is_an_error() {
        let absent = Command::new("/nonexistent/program");
        let error = ChildProcess::spawn(absent, SpawnHow::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn own_usage_grows() {
        let before = Usage::of_this_process();
        while Usage::of_this_process().since(before).cpu() < Duration::from_millis(5) {}
        assert!(Usage::of_this_process().max_rss_bytes > 0);
    }
}
