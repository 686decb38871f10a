//! The kernel's limits on dirty memory, changed for a while and restored whatever happens.
//!
//! Each of the two limits (`vm.dirty_…`, `vm.dirty_background_…`) is held in bytes or as a ratio of
//! memory; setting one form makes the other read 0. Restoring must therefore write the form that
//! was in use. Before a limit is changed, the values in use are on disk in a *journal* in a
//! directory that survives the process. Beside it stands a *lock file*. The process that
//! has changed the limits holds it locked (flock(2)) until they are restored, and a sweep while it
//! works. The kernel drops the lock when its holder ends, by SIGKILL too, so:
//!
//! | lock | journal | [`DirtyLimits::sweep`] |
//! |---|---|---|
//! | held by another | any | leaves all: its limits are in force |
//! | free | none | has nothing to do |
//! | free | of this boot | restores, removes the journal |
//! | free | of an earlier boot | removes the journal: the limits went with that kernel |
//!
//! The journal appears whole or not at all: written and synced as a *draft*, then renamed. A draft
//! that is found while the lock is held is a dead process's, and is removed or written over.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

const JOURNAL: &str = "dirty-limits.journal";
const DRAFT: &str = "dirty-limits.draft";
const LOCK: &str = "dirty-limits.lock";
const VM: &str = "/proc/sys/vm";

/// Why the limits could not be changed or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SysctlError {
    /// This user may not change them.
    #[error(
        "no permission to change {}: run as root, or leave the limits as they are",
        .0.display()
    )]
    PermissionDenied(PathBuf),
    /// Another process has changed them and still runs.
    #[error("process {pid} has changed the dirty limits: let it end first")]
    InUse {
        /// That process, by the number in its own PID namespace; 0 if it is only about to.
        pid: u32,
    },
    /// The journal cannot be understood.
    #[error("{} is damaged: set vm.dirty_* by hand (sysctl), then remove the file", .0.display())]
    DamagedJournal(PathBuf),
    /// The limits are still changed.
    #[error("vm.dirty_* could not be restored ({error}); run as root: {commands}")]
    NotRestored {
        /// The lines of sh(1) that restore them.
        commands: String,
        /// What the system said.
        error: io::Error,
    },
    /// Anything else, by file.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// What [`DirtyLimits::sweep`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweptLimits {
    /// Nothing that is in force was left behind.
    Nothing,
    /// A dead process had changed the limits; they are as before.
    Restored,
    /// A living process has changed them.
    InUse {
        /// That process, by the number in its own PID namespace; 0 if it is only about to.
        pid: u32,
    },
}

/// Changed limits; drop restores what was there before.
#[derive(Debug)]
pub struct DirtyLimits {
    vm: PathBuf,
    journal: PathBuf,
    /// Until they are restored.
    before: Option<Limits>,
    /// Held until the journal is gone.
    _lock: OwnedFd,
}

impl DirtyLimits {
    /// Lets at most `dirty_bytes` of memory be dirty, and starts the kernel's background write-back
    /// at `background_bytes`. The journal is kept in `state_dir`, which should be on a disk.
    ///
    /// Sweeps first. The kernel refuses less than two pages (`EINVAL`).
    pub fn set(
        state_dir: &Path,
        dirty_bytes: u64,
        background_bytes: u64,
    ) -> Result<Self, SysctlError> {
        Self::set_in(Path::new(VM), state_dir, dirty_bytes, background_bytes)
    }

    fn set_in(
        vm: &Path,
        state_dir: &Path,
        dirty_bytes: u64,
        background_bytes: u64,
    ) -> Result<Self, SysctlError> {
        let journal = state_dir.join(JOURNAL);
        let Some(lock) = lock(state_dir)? else {
            return Err(SysctlError::InUse { pid: maker_in(&journal) });
        };
        sweep_locked(vm, state_dir)?;
        let before = Limits::read(vm)?;
        write_journal(state_dir, before)?;
        // From here on drop restores.
        let vm = vm.to_path_buf();
        let limits = Self { vm, journal, before: Some(before), _lock: lock };
        write(&limits.vm.join("dirty_background_bytes"), background_bytes)?;
        write(&limits.vm.join("dirty_bytes"), dirty_bytes)?;
        Ok(limits)
    }

    /// Restores the limits that a dead process changed, by its journal in `state_dir`.
    pub fn sweep(state_dir: &Path) -> Result<SweptLimits, SysctlError> {
        Self::sweep_in(Path::new(VM), state_dir)
    }

    fn sweep_in(vm: &Path, state_dir: &Path) -> Result<SweptLimits, SysctlError> {
        // Who never changed anything here need not be able to make a lock file here.
        let left = [JOURNAL, DRAFT].map(|name| state_dir.join(name).exists());
        if left == [false, false] {
            return Ok(SweptLimits::Nothing);
        }
        match lock(state_dir)? {
            Some(_held) => sweep_locked(vm, state_dir),
            None => Ok(SweptLimits::InUse { pid: maker_in(&state_dir.join(JOURNAL)) }),
        }
    }

    /// Restores now; what drop does, with the error told.
    pub fn restore(mut self) -> Result<(), SysctlError> {
        self.restore_now()
    }

    /// The journal goes last: if restoring fails, the next sweep tries again.
    fn restore_now(&mut self) -> Result<(), SysctlError> {
        let Some(before) = self.before.take() else { return Ok(()) };
        before.restore(&self.vm)?;
        fs::remove_file(&self.journal).map_err(file_error(&self.journal))
    }
}

impl Drop for DirtyLimits {
    fn drop(&mut self) {
        // What fails here is left to the next start's sweep, as the journal is still there.
        let _ = self.restore_now();
    }
}

/// The values of both limits in both forms; of each limit, the form not in use is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    dirty_bytes: u64,
    dirty_ratio: u64,
    background_bytes: u64,
    background_ratio: u64,
}

impl Limits {
    fn read(vm: &Path) -> Result<Self, SysctlError> {
        let read = |name| {
            let path = vm.join(name);
            let text = fs::read_to_string(&path).map_err(file_error(&path))?;
            text.trim().parse().map_err(|_| SysctlError::File {
                path,
                error: io::Error::new(ErrorKind::InvalidData, "not a number"),
            })
        };
        Ok(Self {
            dirty_bytes: read("dirty_bytes")?,
            dirty_ratio: read("dirty_ratio")?,
            background_bytes: read("dirty_background_bytes")?,
            background_ratio: read("dirty_background_ratio")?,
        })
    }

    /// Writes the forms in use, unless nothing differs: so it is where changing was not permitted,
    /// and then restoring is not either.
    fn restore(self, vm: &Path) -> Result<(), SysctlError> {
        if Self::read(vm).is_ok_and(|now| now == self) {
            return Ok(());
        }
        let mut writes = Vec::new();
        for (bytes_name, bytes, ratio_name, ratio) in [
            ("dirty_bytes", self.dirty_bytes, "dirty_ratio", self.dirty_ratio),
            (
                "dirty_background_bytes",
                self.background_bytes,
                "dirty_background_ratio",
                self.background_ratio,
            ),
        ] {
            match (bytes, ratio) {
                // The kernel leaves the bytes alone unless the ratio changes, and it reads 0 now.
                (0, 0) => writes.extend([(vm.join(ratio_name), 1), (vm.join(ratio_name), 0)]),
                (0, ratio) => writes.push((vm.join(ratio_name), ratio)),
                (bytes, _) => writes.push((vm.join(bytes_name), bytes)),
            }
        }
        // One that fails does not keep the others.
        let mut written = Ok(());
        for (path, value) in &writes {
            written = written.and(fs::write(path, value.to_string()));
        }
        written.map_err(|error| {
            let command =
                |(path, value): &(PathBuf, _)| format!("echo {value} > {}", path.display());
            let commands = writes.iter().map(command).collect::<Vec<_>>().join("; ");
            SysctlError::NotRestored { commands, error }
        })
    }
}

/// The lock of the directory, held until it is dropped; `None` while another has it.
fn lock(state_dir: &Path) -> Result<Option<OwnedFd>, SysctlError> {
    let path = state_dir.join(LOCK);
    // Readable by all: so every user's sweep can tell whether the maker lives.
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let opened = open(&path, flags, Mode::from_raw_mode(0o644));
    let held =
        opened.and_then(|lock| match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        });
    held.map_err(|errno| file_error(&path)(errno.into()))
}

/// Sweeps with the lock held: the process that made what is here has ended.
fn sweep_locked(vm: &Path, state_dir: &Path) -> Result<SweptLimits, SysctlError> {
    remove_if_there(&state_dir.join(DRAFT))?;
    let journal = state_dir.join(JOURNAL);
    let text = match fs::read_to_string(&journal) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(SweptLimits::Nothing),
        Err(error) => return Err(file_error(&journal)(error)),
    };
    let Some(Journal { boot, before, .. }) = Journal::parse(&text) else {
        return Err(SysctlError::DamagedJournal(journal));
    };
    let of_this_boot = boot == this_boot()?;
    if of_this_boot {
        before.restore(vm)?;
    }
    remove_if_there(&journal)?;
    Ok(if of_this_boot { SweptLimits::Restored } else { SweptLimits::Nothing })
}

fn remove_if_there(path: &Path) -> Result<(), SysctlError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

/// What the kernel drew by lot when it started.
fn this_boot() -> Result<String, SysctlError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(file_error(path))?;
    Ok(text.trim().to_owned())
}

/// Puts the journal there whole and for good, or leaves none. Only with the lock held.
fn write_journal(state_dir: &Path, before: Limits) -> Result<(), SysctlError> {
    let (draft, journal) = (state_dir.join(DRAFT), state_dir.join(JOURNAL));
    let text = Journal { pid: std::process::id(), boot: this_boot()?, before }.to_string();
    let written = File::create(&draft)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&draft, &journal))
        .map_err(file_error(&draft));
    let synced = written.and_then(|()| sync_dir(state_dir));
    if synced.is_err() {
        // Nothing has been changed: the next sweep must find nothing to restore.
        let _ = fs::remove_file(&draft);
        let _ = fs::remove_file(&journal);
    }
    synced
}

fn sync_dir(dir: &Path) -> Result<(), SysctlError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(file_error(dir))
}

/// What the journal says.
#[derive(Debug, PartialEq, Eq)]
struct Journal {
    pid: u32,
    boot: String,
    before: Limits,
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, boot, before } = self;
        let Limits { dirty_bytes, dirty_ratio, background_bytes, background_ratio } = before;
        write!(f, "{pid} {boot} {dirty_bytes} {dirty_ratio} ")?;
        writeln!(f, "{background_bytes} {background_ratio} end")
    }
}

impl Journal {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        let pid = fields.next()?.parse().ok()?;
        let boot = fields.next()?.to_owned();
        let mut number = || fields.next()?.parse().ok();
        let before = Limits {
            dirty_bytes: number()?,
            dirty_ratio: number()?,
            background_bytes: number()?,
            background_ratio: number()?,
        };
        (fields.next() == Some("end")).then_some(Self { pid, boot, before })
    }
}

fn maker_in(journal: &Path) -> u32 {
    let text = fs::read_to_string(journal).unwrap_or_default();
    Journal::parse(&text).map_or(0, |journal| journal.pid)
}

fn write(path: &Path, value: u64) -> Result<(), SysctlError> {
    fs::write(path, value.to_string()).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            SysctlError::PermissionDenied(path.to_path_buf())
        }
        _ => file_error(path)(error),
    })
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> SysctlError {
    move |error| SysctlError::File { path: path.to_path_buf(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that stands in for `/proc/sys/vm`, in ratio mode.
    fn ratio_mode() -> tempfile::TempDir {
        let vm = tempfile::tempdir().unwrap();
        for (name, value) in [
            ("dirty_bytes", 0),
            ("dirty_ratio", 20),
            ("dirty_background_bytes", 0),
            ("dirty_background_ratio", 10),
        ] {
            fs::write(vm.path().join(name), format!("{value}\n")).unwrap();
        }
        vm
    }

    fn value(vm: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(vm.path().join(name)).unwrap().trim().to_owned()
    }

    fn names_in(state: &tempfile::TempDir) -> Vec<std::ffi::OsString> {
        fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    /// As after SIGKILL: no drop runs, and the kernel closes the lock.
    fn kill(limits: DirtyLimits) {
        let mut limits = std::mem::ManuallyDrop::new(limits);
        // Another file's descriptor takes the place of the lock's, which is closed.
        limits._lock = File::open("/dev/null").unwrap().into();
    }

    #[test]
    fn a_killed_maker_is_cleaned_up_after() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        let sweep = || DirtyLimits::sweep_in(vm.path(), state.path()).unwrap();
        let limits = DirtyLimits::set_in(vm.path(), state.path(), 9000, 8000).unwrap();
        assert_eq!(value(&vm, "dirty_bytes"), "9000");
        assert_eq!(value(&vm, "dirty_background_bytes"), "8000");
        let pid = std::process::id();
        assert_eq!(sweep(), SweptLimits::InUse { pid });
        let second = DirtyLimits::set_in(vm.path(), state.path(), 1, 1).unwrap_err();
        assert!(matches!(second, SysctlError::InUse { .. }), "{second}");
        kill(limits);
        // What the kernel does when the bytes are set.
        fs::write(vm.path().join("dirty_ratio"), "0").unwrap();
        fs::write(state.path().join(DRAFT), "half a jour").unwrap();
        assert_eq!(sweep(), SweptLimits::Restored);
        assert_eq!(value(&vm, "dirty_ratio"), "20");
        assert_eq!(value(&vm, "dirty_background_ratio"), "10");
        assert_eq!(names_in(&state), [LOCK]);
        assert_eq!(sweep(), SweptLimits::Nothing);
    }

    /// A lock that is held keeps others out even before there is a journal, so that of two
    /// processes neither takes the other's limits for the ones to restore.
    #[test]
    fn two_cannot_be_at_it() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        let held = lock(state.path()).unwrap().unwrap();
        let error = DirtyLimits::set_in(vm.path(), state.path(), 9000, 8000).unwrap_err();
        assert!(matches!(error, SysctlError::InUse { pid: 0 }), "{error}");
        assert_eq!(value(&vm, "dirty_bytes"), "0");
        drop(held);
        DirtyLimits::set_in(vm.path(), state.path(), 9000, 8000).unwrap();
    }

    #[test]
    fn an_earlier_boots_limits_are_not_restored() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        fs::write(state.path().join(JOURNAL), "7 another-boot 1 0 2 0 end\n").unwrap();
        let found = DirtyLimits::sweep_in(vm.path(), state.path()).unwrap();
        assert_eq!(found, SweptLimits::Nothing);
        assert_eq!(
            (value(&vm, "dirty_bytes"), value(&vm, "dirty_ratio")),
            ("0".into(), "20".into())
        );
        assert_eq!(names_in(&state), [LOCK]);
    }

    #[test]
    fn unwritable_journal_leaves_nothing() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        // A directory in the place of the draft: making it fails.
        let draft = state.path().join(DRAFT);
        fs::create_dir(&draft).unwrap();
        let before = Limits::read(vm.path()).unwrap();
        write_journal(state.path(), before).unwrap_err();
        assert!(!state.path().join(JOURNAL).exists());
        fs::remove_dir(&draft).unwrap();
        // A directory in the place of the journal: the renaming fails.
        fs::create_dir(state.path().join(JOURNAL)).unwrap();
        write_journal(state.path(), before).unwrap_err();
        assert!(!draft.exists());
    }

    #[test]
    fn a_damaged_journal_is_told() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        fs::write(state.path().join(JOURNAL), "1 boot 0 20 0").unwrap();
        let error = DirtyLimits::set_in(vm.path(), state.path(), 9000, 8000).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert_eq!(value(&vm, "dirty_bytes"), "0");
    }

    #[test]
    fn failed_restore_says_what_to_write() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        let limits = DirtyLimits::set_in(vm.path(), state.path(), 9000, 8000).unwrap();
        // Nobody can write a directory.
        let ratio = vm.path().join("dirty_ratio");
        fs::remove_file(&ratio).unwrap();
        fs::create_dir(&ratio).unwrap();
        let background = vm.path().join("dirty_background_ratio");
        fs::write(&background, "0").unwrap();
        let error = limits.restore().unwrap_err();
        assert_eq!(value(&vm, "dirty_background_ratio"), "10");
        let expected = format!(
            "vm.dirty_* could not be restored (Is a directory (os error 21)); run as root: echo 20 \
             > {}; echo 10 > {}",
            ratio.display(),
            background.display()
        );
        assert_eq!(error.to_string(), expected);
        // The next bench's sweep tries again.
        fs::remove_dir(&ratio).unwrap();
        fs::write(&ratio, "0").unwrap();
        let swept = DirtyLimits::sweep_in(vm.path(), state.path()).unwrap();
        assert_eq!((swept, value(&vm, "dirty_ratio")), (SweptLimits::Restored, "20".to_owned()));
    }

    #[test]
    fn root_the_kernels_limits_come_back() {
        let state = tempfile::tempdir().unwrap();
        let before = Limits::read(Path::new(VM)).unwrap();
        match DirtyLimits::set(state.path(), 4 << 30, 2 << 30) {
            Ok(limits) => {
                let set = Limits::read(Path::new(VM)).unwrap();
                assert_eq!((set.dirty_bytes, set.dirty_ratio), (4 << 30, 0));
                assert_eq!(set.background_bytes, 2 << 30);
                limits.restore().unwrap();
            }
            Err(error @ SysctlError::PermissionDenied(_)) => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(Limits::read(Path::new(VM)).unwrap(), before);
        assert!(!state.path().join(JOURNAL).exists());
    }
}
