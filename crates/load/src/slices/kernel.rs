//! `kernel`, `kernel-dontcache`, `kernel-direct`, `floor` and `floor-memory`: plain system calls.

use std::io;

use super::plan::Plan;
use super::scene::{self, Reader, SlicedFile};
use crate::files::{AlignedBytes, KernelFile, Way, capacity_bytes};
use crate::{Job, LoadError, Round, Span};

/// What stands behind a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A system call for each block.
    Blocks(Way),
    /// Large direct reads, out of which blocks are copied.
    LargeDirect(Buffers),
}

/// Where large reads go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffers {
    /// To the same memory each time, which the processor's caches have yet.
    One,
    /// Round through about as much memory as a cache has that gives up what it read first.
    OfAllMemory,
}

/// The least size of those; larger ones gain little here.
const LARGE_BYTES: usize = 1 << 20;

pub(super) fn run(job: &Job, plan: &Plan, source: Source) -> Result<Round, LoadError> {
    let way = match source {
        Source::Blocks(way) => way,
        Source::LargeDirect(_) => Way::Direct,
    };
    way.check(&plan.dir)?;
    scene::run(job, plan, |path| {
        let file = KernelFile::open(path, way);
        let file = file.map_err(|source| LoadError::Open { path: path.into(), source })?;
        let (block_bytes, file_bytes) = (plan.block_bytes, plan.file_bytes());
        let large_bytes = block_bytes.max(LARGE_BYTES);
        let buffers = match source {
            Source::LargeDirect(Buffers::OfAllMemory) => {
                let bytes = capacity_bytes(plan.memory_bytes, plan.threads, block_bytes)?;
                match AlignedBytes::in_huge_pages(bytes / plan.threads) / large_bytes {
                    0 | 1 => return Err(too_little_memory(job, 2 * large_bytes)),
                    buffers => buffers,
                }
            }
            _ => 1,
        };
        Ok((
            Sliced { file, source, block_bytes, file_bytes, large_bytes, buffers },
            Span::default(),
        ))
    })
}

/// Its large reads would go to one buffer each, as those of `floor`.
fn too_little_memory(job: &Job, bytes: usize) -> LoadError {
    let (with, threads) = (&job.with, job.threads);
    LoadError::usage(format!(
        "{with} needs {bytes} bytes for each of {threads} threads, beside what they need to run: \
         give more --memory, or fewer --threads"
    ))
}

struct Sliced {
    file: KernelFile,
    source: Source,
    block_bytes: usize,
    file_bytes: u64,
    large_bytes: usize,
    /// Of each reader, for large reads.
    buffers: usize,
}

impl SlicedFile for Sliced {
    type Reader<'a> = BlockReader<'a>;

    fn reader(&self) -> Result<BlockReader<'_>, LoadError> {
        let (block, large) = match self.source {
            Source::Blocks(Way::Direct) => (AlignedBytes::on_huge_pages(self.block_bytes)?, None),
            Source::Blocks(_) => (AlignedBytes::new(self.block_bytes)?, None),
            Source::LargeDirect(_) => {
                let large = Large::new(self.large_bytes, self.buffers)?;
                (AlignedBytes::new(self.block_bytes)?, Some(large))
            }
        };
        Ok(BlockReader { sliced: self, block, large })
    }
}

struct BlockReader<'a> {
    sliced: &'a Sliced,
    block: AlignedBytes,
    large: Option<Large>,
}

/// What a large read has brought, in one of several buffers that are used in turn.
pub(super) struct Large {
    pub(super) bytes: AlignedBytes,
    /// Of each buffer.
    buffer_bytes: usize,
    /// Where the buffer of the last read begins.
    begin: usize,
    offset: u64,
    len: usize,
}

impl Large {
    pub(super) fn new(buffer_bytes: usize, buffers: usize) -> Result<Self, LoadError> {
        let bytes = AlignedBytes::on_huge_pages(buffer_bytes * buffers)?;
        Ok(Self { bytes, buffer_bytes, begin: 0, offset: 0, len: 0 })
    }

    /// Reads up to `most` bytes from `offset` on into the next buffer. Nothing is there if it
    /// fails.
    pub(super) fn read(&mut self, file: &KernelFile, offset: u64, most: u64) -> io::Result<()> {
        let next = self.begin + self.buffer_bytes;
        self.begin = if next < self.bytes.len() { next } else { 0 };
        let len = most.min(self.buffer_bytes as u64) as usize;
        self.len = 0;
        file.read_at(&mut self.bytes[self.begin..][..len], offset)?;
        (self.offset, self.len) = (offset, len);
        Ok(())
    }

    /// Where the bytes from `offset` on stand.
    pub(super) fn position(&self, offset: u64) -> Option<usize> {
        let at = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        (at < self.len).then_some(self.begin + at)
    }
}

impl Reader for BlockReader<'_> {
    fn read(&mut self, offset: u64, see: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let Sliced { file, block_bytes, file_bytes, .. } = self.sliced;
        match &mut self.large {
            None => file.read_at(&mut self.block, offset)?,
            Some(large) => {
                let at = match large.position(offset) {
                    Some(at) => at,
                    None => {
                        large.read(file, offset, file_bytes - offset)?;
                        large.begin
                    }
                };
                self.block.copy_from_slice(&large.bytes[at..at + block_bytes]);
            }
        }
        see(&self.block);
        Ok(())
    }
}
