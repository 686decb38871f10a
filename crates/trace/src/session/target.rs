//! Who is traced, while they run: the command, named processes, a control group.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use unherd_host::{ChildProcess, Usage};
use unherd_sys::{Deadline, Timestamp};

use super::{SessionError, Target};

/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC`.
const CGROUP_MAGIC: i64 = 0x0027_e0eb;
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// Those whose end is waited for.
#[derive(Debug)]
pub(crate) enum Running {
    /// A command that is still to be started.
    Nothing,
    Command(ChildProcess),
    /// Their numbers, and what tells of their ends.
    Processes(Vec<(u32, OwnedFd)>),
    Cgroup {
        path: PathBuf,
        known: BTreeSet<u32>,
    },
}

/// Why [`Running::wait`] has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is something to read at `stop`.
    Stop,
    /// Somebody has ended, something else can be read, or a signal came.
    Other,
    /// The time has passed.
    Time,
}

impl Running {
    /// Those of a target that are there now.
    pub(crate) fn find(target: &Target) -> Result<Self, SessionError> {
        match target {
            Target::Command(_) => Ok(Self::Nothing),
            Target::Processes(pids) => {
                let pids: BTreeSet<u32> = pids.iter().copied().collect();
                let found = pids.into_iter().map(|pid| Ok((pid, process(pid)?)));
                Ok(Self::Processes(found.collect::<Result<_, SessionError>>()?))
            }
            Target::Cgroup(path) => {
                let path = directory(path);
                match check_group(&path).and_then(|()| members(&path)) {
                    // All of them enter at the first look.
                    Ok(_) => Ok(Self::Cgroup { path, known: BTreeSet::new() }),
                    Err(source) => Err(SessionError::Cgroup { path, source }),
                }
            }
        }
    }

    /// Their numbers. A command's is none of them: it is followed from its beginning.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match self {
            Self::Nothing | Self::Command(_) => Vec::new(),
            Self::Processes(processes) => processes.iter().map(|(pid, _)| *pid).collect(),
            Self::Cgroup { known, .. } => known.iter().copied().collect(),
        }
    }

    /// Whose descendants are traced too.
    pub(crate) fn roots(&self) -> Vec<u32> {
        match self {
            Self::Command(child) => vec![child.pid()],
            others => others.pids(),
        }
    }

    /// Sends the command a signal; nothing happens if there is none or it has ended.
    pub(crate) fn signal(&self, signal: i32) -> Result<(), Errno> {
        let (Self::Command(child), Some(signal)) = (self, Signal::from_named_raw(signal)) else {
            return Ok(());
        };
        match pidfd_send_signal(child.pidfd(), signal) {
            Err(Errno::SRCH) => Ok(()),
            result => result,
        }
    }

    /// See [`crate::Session::is_in_own_group`].
    pub(crate) fn is_in_own_group(&self) -> bool {
        let Self::Command(child) = self else { return false };
        let pid = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| getpgid(Some(pid)) == getpgid(None))
    }

    /// Kills the command if it still runs, with its descendants, and says how it has ended.
    pub(crate) fn kill(&mut self) -> Result<Option<ExitStatus>, Errno> {
        let Self::Command(child) = self else { return Ok(None) };
        // Before they get another parent.
        let descendants = descendants(child.pid());
        child.kill()?;
        for descendant in descendants {
            // It may have ended, or be another user's by now.
            let _ = pidfd_send_signal(descendant, Signal::KILL);
        }
        Ok(child.wait(Deadline::NEVER)?.map(|ended| ended.status))
    }

    /// What the command has used, once it has ended.
    pub(crate) fn usage(&mut self) -> Option<Usage> {
        let Self::Command(child) = self else { return None };
        let ended = child.wait(Deadline::at(Timestamp::from_ns(0))).ok()??;
        Some(ended.usage)
    }

    pub(crate) fn is_cgroup(&self) -> bool {
        matches!(self, Self::Cgroup { .. })
    }

    /// Readable when somebody has ended.
    pub(crate) fn pidfds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Nothing | Self::Cgroup { .. } => Vec::new(),
            Self::Command(child) => vec![child.pidfd()],
            Self::Processes(processes) => processes.iter().map(|(_, end)| end.as_fd()).collect(),
        }
    }

    /// Waits for somebody's end, for `stop` or one of `also` to be readable, or for the time to
    /// pass: the deadline, or `at_most`.
    pub(crate) fn wait(
        &self,
        deadline: Deadline,
        now: Timestamp,
        at_most: Option<Duration>,
        stop: Option<BorrowedFd<'_>>,
        also: &[BorrowedFd<'_>],
    ) -> Result<Woken, Errno> {
        let left = deadline.timestamp().map(|at| at.since(now));
        let left = left.into_iter().chain(at_most).min();
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let all = stop.into_iter().chain(also.iter().copied()).chain(self.pidfds());
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Ok(Woken::Time),
            Ok(_) if stop.is_some() && !fds[0].revents().is_empty() => Ok(Woken::Stop),
            Ok(_) | Err(Errno::INTR) => Ok(Woken::Other),
            Err(errno) => Err(errno),
        }
    }

    /// Whether all have ended, and how the command has. A group ends when it is removed.
    pub(crate) fn ended(&mut self) -> Result<Option<Option<ExitStatus>>, Errno> {
        match self {
            Self::Nothing => Ok(Some(None)),
            Self::Command(child) => {
                let ended = child.wait(Deadline::at(Timestamp::from_ns(0)))?;
                Ok(ended.map(|ended| Some(ended.status)))
            }
            Self::Processes(processes) => {
                let mut first_error = Ok(());
                processes.retain(|(_, end)| match has_ended(end) {
                    Ok(ended) => !ended,
                    Err(errno) => {
                        first_error = Err(errno);
                        true
                    }
                });
                first_error?;
                Ok(processes.is_empty().then_some(None))
            }
            Self::Cgroup { path, .. } => Ok((!path.is_dir()).then_some(None)),
        }
    }

    /// Who has entered the control group since the last look.
    pub(crate) fn entered(&mut self) -> Vec<u32> {
        let Self::Cgroup { path, known } = self else { return Vec::new() };
        // It may be removed at any moment, which `ended` tells.
        let now = members(path).unwrap_or_default();
        let entered = now.difference(known).copied().collect();
        *known = now;
        entered
    }
}

/// The children of a process, and theirs, as far as they are known now.
fn descendants(pid: u32) -> Vec<OwnedFd> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut family = BTreeSet::from([pid]);
    let mut found = Vec::new();
    while let Some((child, _)) =
        parents.iter().find(|(pid, parent)| family.contains(parent) && !family.contains(pid))
    {
        family.insert(*child);
        let number = i32::try_from(*child).ok().and_then(Pid::from_raw);
        let end = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Its number may have been given away since.
        found.extend(end.filter(|_| parent(*child).is_some_and(|of| family.contains(&of))));
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn has_ended(end: &OwnedFd) -> Result<bool, Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&now)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// A descriptor of the process `pid`, which must be there, a process, and not dead already.
fn process(pid: u32) -> Result<OwnedFd, SessionError> {
    let gone = || SessionError::NoProcess { pid };
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    match group {
        None => return Err(gone()),
        Some(group) if group != pid => {
            return Err(SessionError::NotAProcess { tid: pid, pid: group });
        }
        Some(_) => {}
    }
    match pidfd_open(number, PidfdFlags::empty()) {
        Ok(end) if has_ended(&end)? => Err(gone()),
        Ok(end) => Ok(end),
        Err(Errno::SRCH) => Err(gone()),
        Err(errno) => Err(errno.into()),
    }
}

/// The group's directory; a path that is not there is tried below the usual place.
fn directory(path: &Path) -> PathBuf {
    let below = Path::new("/sys/fs/cgroup").join(path.strip_prefix("/").unwrap_or(path));
    if !path.exists() && below.exists() { below } else { path.to_owned() }
}

/// A file of that name may lie anywhere.
fn check_group(path: &Path) -> io::Result<()> {
    match statfs(path)?.f_type {
        CGROUP_MAGIC | CGROUP2_MAGIC => Ok(()),
        _ => Err(io::Error::other("it is on another file system")),
    }
}

/// The processes of a control group and of all below it.
fn members(group: &Path) -> io::Result<BTreeSet<u32>> {
    let mut found: BTreeSet<u32> = numbers(&fs::read_to_string(group.join("cgroup.procs"))?);
    let mut below = vec![group.to_owned()];
    while let Some(directory) = below.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let path = entry.path();
                // A group may go while it is looked at.
                let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
                found.extend(numbers(&text));
                below.push(path);
            }
        }
    }
    Ok(found)
}

fn numbers(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use unherd_host::SpawnHow;

    use super::*;

    #[test]
    fn absent_process_differs_from_thread() {
        let gone = process(u32::MAX).unwrap_err();
        assert!(matches!(gone, SessionError::NoProcess { pid: u32::MAX }), "{gone}");
        assert!(matches!(process(0), Err(SessionError::NoProcess { .. })));
        let me = std::process::id();
        assert!(process(me).is_ok());
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
        // The test's own thread is one of the process's, and not the first.
        let other = threads.filter(|tid| *tid != me).max().unwrap();
        match process(other) {
            Err(SessionError::NotAProcess { tid, pid }) => assert_eq!((tid, pid), (other, me)),
            result => panic!("{result:?}"),
        }
    }

    #[test]
    fn last_process_is_the_end() {
        let sleep = |seconds: &str| {
            let mut command = Command::new("sleep");
            command.arg(seconds);
            ChildProcess::spawn(command, SpawnHow::default()).unwrap()
        };
        let (mut first, second) = (sleep("0"), sleep("1000"));
        let target = Target::Processes(vec![second.pid()]);
        let mut running = Running::find(&target).unwrap();
        assert_eq!(running.pids(), [second.pid()]);
        first.wait(Deadline::NEVER).unwrap();
        assert_eq!(running.ended(), Ok(None));
        second.kill().unwrap();
        poll(&mut [PollFd::from_borrowed_fd(second.pidfd(), PollFlags::IN)], None).unwrap();
        assert_eq!(running.ended(), Ok(Some(None)));
        // It is not waited for yet: a zombie is gone as well.
        let gone = Running::find(&target).unwrap_err();
        assert!(matches!(gone, SessionError::NoProcess { .. }), "{gone}");
    }

    #[test]
    fn killed_command_takes_its_children_along() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & wait"]);
        let child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
        let children = loop {
            let children = descendants(child.pid());
            if !children.is_empty() {
                break children;
            }
        };
        Running::Command(child).kill().unwrap();
        let a_while = Timespec { tv_sec: 20, tv_nsec: 0 };
        let end = &mut [PollFd::new(&children[0], PollFlags::IN)];
        assert_eq!(poll(end, Some(&a_while)), Ok(1), "it lives on");
    }

    #[test]
    fn group_includes_members_of_subgroups() {
        let group = tempfile::tempdir().unwrap();
        fs::create_dir_all(group.path().join("a/b")).unwrap();
        for (path, text) in [("", "1\n2\n"), ("a", ""), ("a/b", "30\n2\n")] {
            fs::write(group.path().join(path).join("cgroup.procs"), text).unwrap();
        }
        let path = group.path().to_owned();
        let mut running = Running::Cgroup { path: path.clone(), known: BTreeSet::new() };
        assert_eq!(running.entered(), [1, 2, 30]);
        assert_eq!(running.entered(), [0; 0]);
        fs::write(group.path().join("a/cgroup.procs"), "7\n").unwrap();
        assert_eq!(running.entered(), [7]);
        assert_eq!(running.ended(), Ok(None));
        let elsewhere = Running::find(&Target::Cgroup(path)).unwrap_err().to_string();
        assert!(elsewhere.contains("is no control group (it is on another file"), "{elsewhere}");
        drop(group);
        assert_eq!(running.ended(), Ok(Some(None)));
        let none = Running::find(&Target::Cgroup("/nonexistent".into())).unwrap_err();
        assert!(none.to_string().contains("'/nonexistent' is no control group"), "{none}");
    }
}
