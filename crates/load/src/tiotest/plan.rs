//! How much is written and read, and whether there is room for it.

use std::path::PathBuf;

use crate::files::check_space;
use crate::job::size_text;
use crate::random::{Random, mix_all};
use crate::{Job, LoadError};

/// Report 000: `tiobench --threads 512 --size 16384`, with 2000 MB at random.
const REPORT_TOTAL_BYTES: u64 = 16384 << 20;
const REPORT_RANDOM_BYTES: u64 = 2000 << 20;

/// The file set is this many times the memory.
const TIMES_MEMORY: u64 = 5;

/// The threads' blocks may take one part in this many of the memory, whichever side caches: with
/// more, the round would measure how well an implementation does without its cache.
const BLOCKS_PART: u64 = 4;

/// The phases that go over blocks at random; each has a sequence of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sequence {
    Write = 1,
    Read = 2,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) threads: usize,
    pub(super) block_bytes: usize,
    /// Of each file.
    pub(super) blocks: u64,
    /// Of each file in each random phase.
    pub(super) random_blocks: u64,
    pub(super) dir: PathBuf,
}

impl Plan {
    /// The plan for `job`. Looks at the directory and its free space, and writes nothing.
    pub(super) fn of(job: &Job) -> Result<Self, LoadError> {
        let dir = job.dir()?.to_path_buf();
        let memory_bytes = job.memory_bytes()?;
        let block_bytes = job.params.at_least_one("block")?;
        if !block_bytes.is_power_of_two() || !(512..=1 << 24).contains(&block_bytes) {
            return Err(LoadError::usage(format!(
                "block={block_bytes}: give a power of two from 512 to 16M"
            )));
        }
        let buffers_bytes = block_bytes as u64 * job.threads as u64;
        if buffers_bytes > memory_bytes / BLOCKS_PART {
            return Err(LoadError::usage(format!(
                "{} blocks of {block_bytes} bytes, one for each thread, are more than \
                 1/{BLOCKS_PART} of --memory {}; give more --memory, fewer --threads, or a \
                 smaller --block",
                job.threads,
                size_text(memory_bytes)
            )));
        }
        let (total_bytes, random_bytes) = match job.params.text("scale") {
            "memory" => (memory_bytes.saturating_mul(TIMES_MEMORY), None),
            "report" => (REPORT_TOTAL_BYTES, Some(REPORT_RANDOM_BYTES)),
            other => {
                let text = format!("scale={other}: give memory or report");
                return Err(LoadError::usage(text));
            }
        };
        let total_bytes = job.params.number("total")?.unwrap_or(total_bytes);
        let random_bytes = job.params.number("random")?.or(random_bytes).unwrap_or_else(|| {
            let share = u128::from(total_bytes) * u128::from(REPORT_RANDOM_BYTES);
            (share / u128::from(REPORT_TOTAL_BYTES)) as u64
        });
        let blocks = total_bytes / buffers_bytes;
        if blocks == 0 {
            return Err(LoadError::usage(format!(
                "{total_bytes} bytes are less than a block of {block_bytes} for each of {} \
                 threads: give more --memory (or total), or fewer --threads",
                job.threads
            )));
        }
        let plan = Self {
            seed: job.seed,
            threads: job.threads,
            block_bytes,
            blocks,
            random_blocks: (random_bytes / buffers_bytes).max(1),
            dir,
        };
        let data_bytes = plan.file_bytes().saturating_mul(plan.threads as u64);
        check_space(&plan.dir, data_bytes)?;
        Ok(plan)
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.blocks * self.block_bytes as u64
    }

    /// The blocks of `file` that a random phase goes over, in its order; some come twice.
    pub(super) fn random_sequence(
        &self,
        file: usize,
        sequence: Sequence,
    ) -> impl Iterator<Item = u64> + use<> {
        let mut random = Random::new(mix_all(&[self.seed, file as u64, sequence as u64]));
        let blocks = self.blocks as usize;
        (0..self.random_blocks).map(move |_| random.below(blocks) as u64)
    }

    /// Which blocks of `file` the random write phase has written again.
    pub(super) fn rewritten(&self, file: usize) -> Rewritten {
        let mut bits = vec![0_u64; self.blocks.div_ceil(64) as usize];
        for block in self.random_sequence(file, Sequence::Write) {
            bits[(block / 64) as usize] |= 1 << (block % 64);
        }
        Rewritten(bits)
    }
}

/// A set of block numbers.
#[derive(Debug)]
pub(super) struct Rewritten(Vec<u64>);

impl Rewritten {
    /// The version of `block` after the write phases.
    pub(super) fn version(&self, block: u64) -> u64 {
        1 + (self.0[(block / 64) as usize] >> (block % 64) & 1)
    }
}
