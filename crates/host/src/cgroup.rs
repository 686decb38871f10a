//! Memory cgroups: a limit on what a child may use, page cache included.
//!
//! Both versions serve: the one whose hierarchy has the memory controller is taken (of a hybrid
//! system that may be v1). A cgroup is made below the root of the hierarchy, or where that is not
//! allowed below the nearest ancestor of this process's own cgroup where it is. Its name carries
//! the maker's [`ProcessMark`], so that [`Cgroup::sweep`] can remove what a killed maker left.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use unherd_sys::poll_until;
use unherd_sys::primitives::{AtomicU32, Ordering};
use unherd_sys::{Deadline, Timestamp};

use crate::ProcessMark;

/// Which interface the memory controller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// `memory.limit_in_bytes`. Does not throttle the dirtying of pages.
    V1,
    /// `memory.max`.
    V2,
}

/// Why there is no cgroup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// No mounted hierarchy has the memory controller.
    #[error(
        "no memory cgroup: mount cgroup2 at /sys/fs/cgroup with the memory controller (it may need \
         cgroup_enable=memory on the kernel's command line)"
    )]
    NoController,
    /// No directory of the hierarchy lets this user make a cgroup.
    #[error(
        "no permission for a memory cgroup below {}: run as root, or in a delegated scope \
         (systemd-run --user --scope -p Delegate=yes)",
        .0.display()
    )]
    PermissionDenied(PathBuf),
    /// The kernel did not take the limit.
    #[error("the memory limit of {bytes} bytes was refused ({errno}): ask for more")]
    LimitRefused {
        /// The limit asked for.
        bytes: u64,
        /// What the kernel said.
        errno: Errno,
    },
    /// The cgroup stayed busy.
    #[error("{} stays busy: end what runs in it, then rmdir it", .0.display())]
    Busy(PathBuf),
    /// Anything else, by file.
    #[error("{}: {errno}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
}

/// A memory cgroup of this process. On drop, everything in it is killed and it is removed.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::process::Command;
///
/// use unherd_host::{Cgroup, ChildProcess, SpawnHow};
/// use unherd_sys::Deadline;
///
/// Cgroup::sweep()?;
/// let cgroup = Cgroup::create(256 << 20)?;
/// let how = SpawnHow { cgroup: Some(cgroup.procs()), ..SpawnHow::default() };
/// let mut child = ChildProcess::spawn(Command::new("true"), how)?;
/// child.wait(Deadline::NEVER)?;
/// println!("out of memory: {:?}", cgroup.has_run_out());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
    version: CgroupVersion,
    procs: OwnedFd,
}

/// Names of one process must differ. Relaxed: only the number counts.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// How long a killed process or a cgroup without any may stay before removal is given up.
const REMOVAL_MAX: Duration = Duration::from_secs(5);

impl Cgroup {
    /// Makes a cgroup in which `limit_bytes` of memory may be used, and no swap.
    pub fn create(limit_bytes: u64) -> Result<Self, CgroupError> {
        let hierarchy = Hierarchy::of_this_process()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("unherd-{}-{number}", ProcessMark::current());
        let mut refused = CgroupError::PermissionDenied(hierarchy.mount.clone());
        for parent in hierarchy.parents() {
            let dir = parent.join(&name);
            match fs::create_dir(&dir) {
                Ok(()) => {}
                Err(error) if may_be_allowed_elsewhere(&error) => continue,
                Err(error) => {
                    refused = file_error(&dir)(error);
                    continue;
                }
            }
            let procs = dir.join("cgroup.procs");
            let opened = open(&procs, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            let limited = limit(&dir, hierarchy.version, limit_bytes);
            match (opened, limited) {
                (Ok(procs), Ok(())) => {
                    return Ok(Self { dir, version: hierarchy.version, procs });
                }
                (opened, limited) => {
                    let _ = fs::remove_dir(&dir);
                    limited?;
                    opened.map_err(|errno| CgroupError::File { path: procs, errno })?;
                }
            }
        }
        Err(refused)
    }

    /// Which interface it has.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `cgroup.procs`, open for writing: for [`crate::SpawnHow::cgroup`].
    pub fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// Whether the kernel has killed a process in it for want of memory; `None` where it does not
    /// tell (v1 before 4.13).
    pub fn has_run_out(&self) -> Option<bool> {
        let events = self.dir.join(match self.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        });
        let text = fs::read_to_string(events).ok()?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        kills.trim().parse().ok().map(|kills: u64| kills > 0)
    }

    /// Removes the cgroups of processes that have ended without removing them, and tells which. One
    /// that cannot be removed does not keep the others; the first error is returned at the end.
    pub fn sweep() -> Result<Vec<PathBuf>, CgroupError> {
        let hierarchy = match Hierarchy::of_this_process() {
            Err(CgroupError::NoController) => return Ok(Vec::new()),
            hierarchy => hierarchy?,
        };
        sweep_below(&hierarchy.parents(), hierarchy.version)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What fails here is left to the next start's sweep.
        let _ = remove(&self.dir, self.version);
    }
}

fn sweep_below(parents: &[PathBuf], version: CgroupVersion) -> Result<Vec<PathBuf>, CgroupError> {
    let mut removed = Vec::new();
    let mut refused = Ok(());
    for parent in parents {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        for entry in entries.flatten() {
            let maker = entry.file_name().to_str().and_then(maker_of);
            if maker.is_some_and(|maker| !maker.is_alive()) {
                match remove(&entry.path(), version) {
                    Ok(()) => removed.push(entry.path()),
                    Err(error) => refused = refused.and(Err(error)),
                }
            }
        }
    }
    refused.map(|()| removed)
}

/// `unherd-PID-START-NAMESPACE-N`.
fn maker_of(name: &str) -> Option<ProcessMark> {
    let (mark, number) = name.strip_prefix("unherd-")?.rsplit_once('-')?;
    number.parse::<u32>().ok()?;
    mark.parse().ok()
}

fn limit(dir: &Path, version: CgroupVersion, bytes: u64) -> Result<(), CgroupError> {
    // With v1 the second limit is that of memory and swap together, and cannot be below the first.
    let (memory, swap, swap_bytes) = match version {
        CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
        CgroupVersion::V2 => ("memory.max", "memory.swap.max", 0),
    };
    let refused = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        CgroupError::LimitRefused { bytes, errno }
    };
    fs::write(dir.join(memory), bytes.to_string()).map_err(refused)?;
    let swap = dir.join(swap);
    match fs::write(&swap, swap_bytes.to_string()) {
        // Swap is not accounted for here: then this kernel has no such file.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // A limit that lets the rest be swapped out is not the one that was asked for.
        Err(error) if is_denied(&error) => Err(file_error(&swap)(error)),
        swapless => swapless.map_err(refused),
    }
}

/// Kills every process in `dir`, but not in cgroups below it, and waits until they have ended.
fn kill_all(dir: &Path) -> Result<(), CgroupError> {
    let errno_to_error = |errno| CgroupError::File { path: dir.join("cgroup.procs"), errno };
    // Killed processes may have forked while the list was read, but each round kills all it sees.
    for _round in 0..100 {
        let listed = processes_in(dir)?;
        if listed.is_empty() {
            return Ok(());
        }
        let ending = pinned(&listed, || processes_in(dir))?;
        for process in &ending {
            match pidfd_send_signal(process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno_to_error(errno)),
            }
        }
        for process in &ending {
            let mut ended = [PollFd::new(process, PollFlags::IN)];
            if poll_until(&mut ended, Deadline::after(REMOVAL_MAX)).map_err(errno_to_error)? == 0 {
                // Killed, but stuck in the kernel, most likely on a device.
                return Err(CgroupError::Busy(dir.to_path_buf()));
            }
        }
    }
    Err(CgroupError::Busy(dir.to_path_buf()))
}

/// The processes in the cgroup itself; none if it is gone.
fn processes_in(dir: &Path) -> Result<Vec<Pid>, CgroupError> {
    let path = dir.join("cgroup.procs");
    match fs::read_to_string(&path) {
        Ok(list) => Ok(list.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()),
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        Err(error) => Err(file_error(&path)(error)),
    }
}

/// Descriptors of the listed processes. Between the list and the opening a process may end and its
/// number become another's, so only those count that `list_again` still lists afterwards: then
/// either the number was that process's all the time, or the descriptor is of one that has ended.
fn pinned(
    listed: &[Pid],
    list_again: impl FnOnce() -> Result<Vec<Pid>, CgroupError>,
) -> Result<Vec<OwnedFd>, CgroupError> {
    let opened: Vec<_> =
        listed.iter().map(|pid| (*pid, pidfd_open(*pid, PidfdFlags::empty()))).collect();
    let still_listed = list_again()?;
    let mut pinned = Vec::new();
    for (pid, process) in opened.into_iter().filter(|(pid, _)| still_listed.contains(pid)) {
        match process {
            Ok(process) => pinned.push(process),
            // It has ended, though the list does not know yet.
            Err(Errno::SRCH) => {}
            Err(errno) => {
                let path = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
                return Err(CgroupError::File { path, errno });
            }
        }
    }
    Ok(pinned)
}

/// Kills what is in the cgroup and in those below it, and removes them all.
fn remove(dir: &Path, version: CgroupVersion) -> Result<(), CgroupError> {
    let deadline = Deadline::after(REMOVAL_MAX);
    loop {
        kill_all(dir)?;
        // What ran in it may have made cgroups of its own.
        let below = fs::read_dir(dir).into_iter().flatten().flatten();
        for child in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove(&child.path(), version)?;
        }
        if version == CgroupVersion::V1 {
            // Gives pages back now that would hold the kernel's structures for long.
            let _ = fs::write(dir.join("memory.force_empty"), "0");
        }
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::ResourceBusy => {
                return Err(file_error(dir)(error));
            }
            Err(_) if deadline.has_passed(Timestamp::now()) => {
                return Err(CgroupError::Busy(dir.to_path_buf()));
            }
            // The last process has ended but is not off its processor yet. Nothing signals that.
            Err(_) => {
                let _ = poll_until(&mut [], Deadline::after(Duration::from_millis(2)));
            }
        }
    }
}

/// Another process's sweep may have removed the cgroup already.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn is_denied(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

fn may_be_allowed_elsewhere(error: &std::io::Error) -> bool {
    is_denied(error) || error.kind() == ErrorKind::NotFound
}

fn file_error(path: &Path) -> impl Fn(std::io::Error) -> CgroupError {
    move |error| CgroupError::File {
        path: path.to_path_buf(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    }
}

/// The mounted hierarchy that has the memory controller.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: CgroupVersion,
    mount: PathBuf,
    /// This process's own cgroup, below `mount`.
    own: PathBuf,
}

impl Hierarchy {
    fn of_this_process() -> Result<Self, CgroupError> {
        let read = |path: &str| fs::read_to_string(path).map_err(|_| CgroupError::NoController);
        let has_memory = |mount: &Path| lists_memory(&mount.join("cgroup.controllers"));
        Self::find(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?, has_memory)
            .ok_or(CgroupError::NoController)
    }

    /// From the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`; `has_memory` tells of a v2
    /// mount whether the controller is there rather than in a v1 hierarchy.
    fn find(mounts: &str, cgroups: &str, has_memory: impl Fn(&Path) -> bool) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, mount) = (place.next()?, PathBuf::from(place.next()?));
            let mut kind = kind.split(' ');
            let version = match kind.next()? {
                "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => {
                    CgroupVersion::V1
                }
                "cgroup2" if has_memory(&mount) => CgroupVersion::V2,
                _ => return None,
            };
            let own = cgroups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                let is_it = match version {
                    CgroupVersion::V1 => controllers.split(',').any(|name| name == "memory"),
                    CgroupVersion::V2 => controllers.is_empty(),
                };
                // In a container the mount may show a part of the hierarchy.
                is_it.then(|| path.strip_prefix(root).unwrap_or(path))
            })?;
            let own = mount.join(own.trim_start_matches('/'));
            Some(Self { version, mount, own })
        })
    }

    /// Where a cgroup may be made, best first: the root, then from the own cgroup upwards.
    fn parents(&self) -> Vec<PathBuf> {
        let mut parents = vec![self.mount.clone()];
        let upwards = self.own.ancestors().take_while(|dir| *dir != self.mount);
        parents.extend(upwards.filter(|dir| dir.starts_with(&self.mount)).map(Path::to_path_buf));
        if self.version == CgroupVersion::V2 {
            parents.retain(|dir| lists_memory(&dir.join("cgroup.subtree_control")));
        }
        parents
    }
}

fn lists_memory(path: &Path) -> bool {
    fs::read_to_string(path)
        .is_ok_and(|text| text.split_ascii_whitespace().any(|name| name == "memory"))
}

#[cfg(test)]
mod tests;
