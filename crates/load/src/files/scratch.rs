//! A place for a round's files, and whether it has room for them.

use std::path::{Path, PathBuf};

use unherd_host::Directory;

use crate::LoadError;

/// Finds out whether `dir` can be written and has room for `data_bytes`. Writes nothing.
pub(crate) fn check_space(dir: &Path, data_bytes: u64) -> Result<(), LoadError> {
    let refused = |source| LoadError::Directory { dir: dir.into(), source };
    let described =
        Directory::describe(dir).map_err(|errno| refused(std::io::Error::from(errno)))?;
    if !described.writable {
        return Err(refused(std::io::ErrorKind::PermissionDenied.into()));
    }
    let free_bytes = described.free_bytes;
    // The file system's own blocks, generously.
    let needed_bytes = data_bytes.saturating_add(data_bytes / 64).saturating_add(1 << 20);
    if free_bytes < needed_bytes {
        return Err(LoadError::Space { dir: dir.into(), needed_bytes, free_bytes });
    }
    Ok(())
}

/// A directory of the round's own, removed with all that is in it when the round ends.
#[derive(Debug)]
pub(crate) struct ScratchDir(PathBuf);

impl ScratchDir {
    pub(crate) fn create(below: &Path, workload: &str) -> Result<Self, LoadError> {
        let process = std::process::id();
        let mut number = 0;
        loop {
            let dir = below.join(format!("unherd-{workload}-{process}-{number}"));
            match std::fs::create_dir(&dir) {
                Ok(()) => return Ok(Self(dir)),
                // Left by a killed process that had this number, or another round of this one.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => {
                    return Err(LoadError::Directory { dir: below.into(), source });
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, number: usize) -> PathBuf {
        self.0.join(format!("file-{number}"))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // What cannot be removed now is removed with the directory around it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
