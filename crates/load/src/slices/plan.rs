//! How much is read, by whom, and whether there is room for it.

use std::ops::Range;
use std::path::PathBuf;

use crate::files::{PAGE_BYTES, check_space};
use crate::{Job, LoadError};

/// The file is this many times the memory.
const TIMES_MEMORY: u64 = 5;

/// The threads' blocks may take one part in this many of the memory, as in `tiotest`.
const BLOCKS_PART: u64 = 4;

/// The part of the file that is read again and again is one part in this many of the memory.
const HOT_PART: u64 = 2;

/// How much of a page is compared with what must stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    Stamp,
    Full,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) threads: usize,
    pub(super) block_bytes: usize,
    /// Of the file, all threads' slices together.
    pub(super) blocks: u64,
    /// Of them, those that fit in memory, from the first one on.
    pub(super) hot_blocks: u64,
    /// How often the hot part is read, to read about as much as in the cold pass.
    pub(super) hot_turns: u64,
    pub(super) verify: Verify,
    pub(super) memory_bytes: u64,
    pub(super) dir: PathBuf,
}

impl Plan {
    /// The plan for `job`. Looks at the directory and its free space, and writes nothing.
    pub(super) fn of(job: &Job) -> Result<Self, LoadError> {
        let dir = job.dir()?.to_path_buf();
        let memory_bytes = job.memory_bytes()?;
        let block_bytes = job.params.at_least_one("block")?;
        if !block_bytes.is_power_of_two() || !(PAGE_BYTES as usize..=1 << 24).contains(&block_bytes)
        {
            return Err(LoadError::usage(format!(
                "block={block_bytes}: give a power of two from 4K to 16M"
            )));
        }
        let round_bytes = block_bytes as u64 * job.threads as u64;
        if round_bytes > memory_bytes / BLOCKS_PART {
            return Err(LoadError::usage(format!(
                "block={block_bytes}: a block for each of {} threads is more than 1/{BLOCKS_PART} \
                 of --memory {memory_bytes}; give more, fewer --threads, or a smaller block",
                job.threads
            )));
        }
        let verify = match job.params.text("verify") {
            "stamp" => Verify::Stamp,
            "full" => Verify::Full,
            other => return Err(LoadError::usage(format!("verify={other}: give stamp or full"))),
        };
        let file_bytes = job.params.number("file")?;
        let file_bytes = file_bytes.unwrap_or(memory_bytes.saturating_mul(TIMES_MEMORY));
        // All slices have the same number of blocks.
        let rounds = file_bytes / round_bytes;
        if rounds == 0 {
            return Err(LoadError::usage(format!(
                "{file_bytes} bytes are less than a block of {block_bytes} for each of {} threads: \
                 give a larger --file or more --memory, or fewer --threads",
                job.threads
            )));
        }
        let hot_rounds = (memory_bytes / HOT_PART / round_bytes).clamp(1, rounds);
        check_space(&dir, rounds * round_bytes)?;
        Ok(Self {
            seed: job.seed,
            threads: job.threads,
            block_bytes,
            blocks: rounds * job.threads as u64,
            hot_blocks: hot_rounds * job.threads as u64,
            hot_turns: rounds.div_ceil(hot_rounds),
            verify,
            memory_bytes,
            dir,
        })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.blocks * self.block_bytes as u64
    }

    /// A thread's slice of the first `blocks` blocks of the file.
    pub(super) fn slice(&self, thread: usize, blocks: u64) -> Range<u64> {
        let each = blocks / self.threads as u64;
        let begin = each * thread as u64;
        begin..begin + each
    }
}
