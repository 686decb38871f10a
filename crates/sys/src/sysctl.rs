//! The kernel's limits on dirty memory, changed for a while and restored whatever happens.
//!
//! Each of the two limits (`vm.dirty_…`, `vm.dirty_background_…`) is held in bytes or as a ratio of
//! memory; setting one form makes the other read 0. Restoring must therefore write the form that
//! was in use. Before a limit is changed, the values in use are on disk in a *journal* in a
//! directory that survives the process:
//!
//! | found at the next start | [`DirtyLimits::sweep`] |
//! |---|---|
//! | no journal | has nothing to do |
//! | a journal of a living process | leaves it: its limits are in force |
//! | a journal of a dead process | restores, removes the journal |
//!
//! The journal has one name per directory, and appears whole or not at all: so of two processes
//! with the same directory one gets to change the limits, and nobody restores changed values.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::ProcessMark;

const JOURNAL: &str = "dirty-limits.journal";
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
        /// That process.
        pid: u32,
    },
    /// The journal cannot be understood.
    #[error("{} is damaged: set vm.dirty_* by hand (sysctl), then remove the file", .0.display())]
    DamagedJournal(PathBuf),
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
    /// Nothing was left behind.
    Nothing,
    /// A dead process had changed the limits; they are as before.
    Restored,
    /// A living process has changed them.
    InUse {
        /// That process.
        pid: u32,
    },
}

/// Changed limits; drop restores what was there before.
#[derive(Debug)]
pub struct DirtyLimits {
    vm: PathBuf,
    journal: PathBuf,
    before: Limits,
    restore_tried: bool,
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
        if let SweptLimits::InUse { pid } = Self::sweep_in(vm, state_dir)? {
            return Err(SysctlError::InUse { pid });
        }
        let before = Limits::read(vm)?;
        let journal = state_dir.join(JOURNAL);
        write_journal(&journal, before)?;
        // From here on drop restores.
        let limits = Self { vm: vm.to_path_buf(), journal, before, restore_tried: false };
        write(&vm.join("dirty_background_bytes"), background_bytes)?;
        write(&vm.join("dirty_bytes"), dirty_bytes)?;
        Ok(limits)
    }

    /// Restores the limits that a dead process changed, by its journal in `state_dir`.
    pub fn sweep(state_dir: &Path) -> Result<SweptLimits, SysctlError> {
        Self::sweep_in(Path::new(VM), state_dir)
    }

    fn sweep_in(vm: &Path, state_dir: &Path) -> Result<SweptLimits, SysctlError> {
        let journal = state_dir.join(JOURNAL);
        let text = match fs::read_to_string(&journal) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(SweptLimits::Nothing),
            Err(error) => return Err(SysctlError::File { path: journal, error }),
        };
        let Some((maker, before)) = parse_journal(&text) else {
            return Err(SysctlError::DamagedJournal(journal));
        };
        if maker.is_alive() {
            return Ok(SweptLimits::InUse { pid: maker.pid() });
        }
        before.restore(vm)?;
        fs::remove_file(&journal).map_err(file_error(&journal))?;
        Ok(SweptLimits::Restored)
    }

    /// Restores now; what drop does, with the error told.
    pub fn restore(mut self) -> Result<(), SysctlError> {
        self.restore_tried = true;
        self.restore_now()
    }

    /// The journal goes last: if restoring fails, the next sweep tries again.
    fn restore_now(&self) -> Result<(), SysctlError> {
        self.before.restore(&self.vm)?;
        fs::remove_file(&self.journal).map_err(file_error(&self.journal))
    }
}

impl Drop for DirtyLimits {
    fn drop(&mut self) {
        if !self.restore_tried {
            // What fails here is left to the next start's sweep, as the journal is still there.
            let _ = self.restore_now();
        }
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

    /// Writes what differs. Nothing does when changing was not permitted, and then restoring is
    /// not either.
    fn restore(self, vm: &Path) -> Result<(), SysctlError> {
        if Self::read(vm)? == self {
            return Ok(());
        }
        for (bytes_name, bytes, ratio_name, ratio) in [
            ("dirty_bytes", self.dirty_bytes, "dirty_ratio", self.dirty_ratio),
            (
                "dirty_background_bytes",
                self.background_bytes,
                "dirty_background_ratio",
                self.background_ratio,
            ),
        ] {
            if bytes != 0 {
                write(&vm.join(bytes_name), bytes)?;
                continue;
            }
            if ratio == 0 {
                // The kernel leaves the bytes alone unless the ratio changes, and it reads 0 now.
                write(&vm.join(ratio_name), 1)?;
            }
            write(&vm.join(ratio_name), ratio)?;
        }
        Ok(())
    }
}

/// Puts the journal there whole: written and synced under another name, then linked to its own,
/// which fails if somebody else's is there.
fn write_journal(journal: &Path, before: Limits) -> Result<(), SysctlError> {
    let Limits { dirty_bytes, dirty_ratio, background_bytes, background_ratio } = before;
    let me = ProcessMark::current();
    let draft = journal.with_extension(format!("draft-{me}"));
    let text =
        format!("{me} {dirty_bytes} {dirty_ratio} {background_bytes} {background_ratio} end\n");
    let written = File::create(&draft).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let linked = written.map_err(file_error(&draft)).and_then(|()| {
        fs::hard_link(&draft, journal).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => SysctlError::InUse { pid: maker_in(journal) },
            _ => file_error(journal)(error),
        })
    });
    let _ = fs::remove_file(&draft);
    linked?;
    let dir = journal.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(file_error(dir))
}

fn maker_in(journal: &Path) -> u32 {
    let text = fs::read_to_string(journal).unwrap_or_default();
    parse_journal(&text).map_or(0, |(maker, _)| maker.pid())
}

fn parse_journal(text: &str) -> Option<(ProcessMark, Limits)> {
    let mut fields = text.split_ascii_whitespace();
    let maker = fields.next()?.parse().ok()?;
    let mut number = || fields.next()?.parse().ok();
    let limits = Limits {
        dirty_bytes: number()?,
        dirty_ratio: number()?,
        background_bytes: number()?,
        background_ratio: number()?,
    };
    (fields.next() == Some("end")).then_some((maker, limits))
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

    #[test]
    fn a_killed_maker_is_cleaned_up_after() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        let limits = DirtyLimits::set_in(vm.path(), state.path(), 9000, 8000).unwrap();
        assert_eq!(value(&vm, "dirty_bytes"), "9000");
        assert_eq!(value(&vm, "dirty_background_bytes"), "8000");
        let pid = std::process::id();
        let found = DirtyLimits::sweep_in(vm.path(), state.path()).unwrap();
        assert_eq!(found, SweptLimits::InUse { pid });
        let second = DirtyLimits::set_in(vm.path(), state.path(), 1, 1).unwrap_err();
        assert!(matches!(second, SysctlError::InUse { .. }), "{second}");
        // As after a kill: no drop has run, and the maker is dead.
        std::mem::forget(limits);
        let journal = state.path().join(JOURNAL);
        let text = fs::read_to_string(&journal).unwrap();
        let (_, rest) = text.split_once(' ').unwrap();
        fs::write(&journal, format!("{pid}-1 {rest}")).unwrap();
        // What the kernel does when the bytes are set.
        fs::write(vm.path().join("dirty_ratio"), "0").unwrap();
        let found = DirtyLimits::sweep_in(vm.path(), state.path()).unwrap();
        assert_eq!(found, SweptLimits::Restored);
        assert_eq!(value(&vm, "dirty_ratio"), "20");
        assert_eq!(value(&vm, "dirty_background_ratio"), "10");
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
        let found = DirtyLimits::sweep_in(vm.path(), state.path()).unwrap();
        assert_eq!(found, SweptLimits::Nothing);
    }

    #[test]
    fn a_damaged_journal_is_told() {
        let (vm, state) = (ratio_mode(), tempfile::tempdir().unwrap());
        fs::write(state.path().join(JOURNAL), "1-1 0 20 0").unwrap();
        let error = DirtyLimits::set_in(vm.path(), state.path(), 9000, 8000).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert_eq!(value(&vm, "dirty_bytes"), "0");
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
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }
}
