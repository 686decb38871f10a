//! Which pages are read, and whether there is room for the file.

use std::path::PathBuf;

use crate::files::{PAGE_BYTES, check_space};
use crate::random::{Random, mix_all};
use crate::{Job, LoadError};

/// The file is this many times the memory.
const TIMES_MEMORY: u64 = 5;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) threads: usize,
    /// Of the file.
    pub(super) pages: u64,
    /// Of each thread.
    pub(super) reads: u64,
    pub(super) memory_bytes: u64,
    pub(super) dir: PathBuf,
}

impl Plan {
    /// The plan for `job`. Looks at the directory and its free space, and writes nothing.
    pub(super) fn of(job: &Job) -> Result<Self, LoadError> {
        let dir = job.dir()?.to_path_buf();
        let memory_bytes = job.memory_bytes()?;
        let file_bytes = job.params.number("file")?;
        let file_bytes = file_bytes.unwrap_or(memory_bytes.saturating_mul(TIMES_MEMORY));
        let pages = file_bytes / PAGE_BYTES;
        if pages == 0 {
            return Err(LoadError::usage(format!(
                "file={file_bytes}: give at least a page of {PAGE_BYTES}"
            )));
        }
        let reads = job.params.at_least_one("reads")? as u64;
        check_space(&dir, file_bytes)?;
        Ok(Self {
            seed: job.seed,
            threads: job.threads,
            pages,
            reads: reads.div_ceil(job.threads as u64),
            memory_bytes,
            dir,
        })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.pages * PAGE_BYTES
    }

    /// The pages that a thread reads, in its order; some come twice.
    pub(super) fn sequence(&self, thread: usize) -> impl Iterator<Item = u64> + use<> {
        let mut random = Random::new(mix_all(&[self.seed, thread as u64]));
        let pages = self.pages as usize;
        (0..self.reads).map(move |_| random.below(pages) as u64)
    }
}
