//! Directories that a bench works in, and what an earlier one may have left behind.
//!
//! Everything that a bench makes below `--dir` stands in one directory named after its process mark
//! (`unherd-PID-START-NAMESPACE`). It is removed at the end, whatever that is, except SIGKILL and
//! power loss; so each start first removes those whose process is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use unherd_host::ProcessMark;

use crate::error::Error;

const PREFIX: &str = "unherd-";

/// A bench's own directory below `--dir`; removed on drop.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    path: PathBuf,
}

/// A round's own directory within it; removed on drop, so that every round begins with nothing.
#[derive(Debug)]
pub(crate) struct RoundDirectory {
    path: PathBuf,
}

impl WorkDirectory {
    /// Makes the directory below `parent`, after removing those of ended processes there.
    pub(crate) fn create(parent: &Path) -> Result<Self, Error> {
        let shown = parent.display();
        match fs::metadata(parent) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(Error::usage(
                    format!("{shown} is not a directory"),
                    "name a directory by --dir",
                ));
            }
            Err(source) => {
                return Err(Error::machine(
                    format!("cannot use directory {shown}"),
                    "make it, or name another by --dir",
                    source,
                ));
            }
        }
        sweep(parent);
        let path = parent.join(format!("{PREFIX}{}", ProcessMark::current()));
        let made = fs::create_dir(&path).or_else(|error| match error.kind() {
            // Left by an earlier bench of this very process that could not remove all of it.
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        });
        made.map_err(|source| {
            let what = format!("cannot write in directory {shown}");
            Error::machine(what, "make it writable, or name another by --dir", source)
        })?;
        let path = fs::canonicalize(&path).unwrap_or(path);
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory for one round.
    pub(crate) fn for_round(&self) -> Result<RoundDirectory, Error> {
        let path = self.path.join("round");
        let made = match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir(&path),
        };
        made.map_err(|source| {
            let what = format!("cannot write in directory {}", self.path.display());
            Error::machine(what, "make room, or name another by --dir", source)
        })?;
        Ok(RoundDirectory { path })
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // What cannot be removed now, the next start tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl RoundDirectory {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RoundDirectory {
    fn drop(&mut self) {
        // Should this fail, the next round's directory cannot be made, which is reported.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what ended processes have left below `parent`. Another user's is left alone, because it
/// cannot be removed; that is no reason not to run.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let mark = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(Ok(mark)) = mark.map(str::parse::<ProcessMark>) else {
            continue;
        };
        if !mark.is_alive() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_have_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
            path
        };
        // No process has this number: it is above the kernel's limit of 2^22.
        let mark = ProcessMark::current().to_string();
        let namespace = mark.rsplit('-').next().unwrap();
        let dead = make(&format!("unherd-4194305-1-{namespace}"));
        // This one has it, but started at another time.
        let reused = make(&format!("unherd-{}-1-{namespace}", std::process::id()));
        // Whether this one's process lives cannot be seen from here.
        let elsewhere = make("unherd-4194305-1-1");
        let (other, near) = (make("unherd-notes"), make("other-4194305-1"));
        let work = WorkDirectory::create(place.path()).unwrap();
        assert!(!dead.exists() && !reused.exists());
        assert!(other.exists() && near.exists() && elsewhere.exists());
        let round = work.for_round().unwrap();
        fs::write(round.path().join("data"), "x").unwrap();
        let path = round.path().to_owned();
        drop(round);
        assert!(!path.exists());
        let own = work.path.clone();
        assert!(own.exists());
        drop(work);
        assert!(!own.exists());
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let absent = WorkDirectory::create(&place.path().join("absent")).unwrap_err();
        assert!(absent.to_string().contains("cannot use directory"), "{absent}");
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = WorkDirectory::create(&file).unwrap_err();
        assert!(error.to_string().contains("is not a directory"), "{error}");
        assert_eq!((absent.exit_code(), error.exit_code()), (2, 2));
    }

    #[test]
    fn a_directory_that_is_not_writable_is_refused() {
        // Nobody, root included, makes directories in /proc.
        let error = WorkDirectory::create(Path::new("/proc")).unwrap_err();
        assert!(error.to_string().contains("cannot write in directory /proc"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
