//! `kernel`, `kernel-dontcache`, `kernel-direct` and `floor`: plain system calls.

use std::io;

use super::plan::Plan;
use super::scene::{self, Reader, SlicedFile};
use crate::files::{AlignedBytes, KernelFile, Way};
use crate::{Job, LoadError, Round, Span};

/// What stands behind a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A system call for each block.
    Blocks(Way),
    /// Large direct reads, out of which blocks are copied.
    LargeDirect,
}

/// The least size of those; larger ones gain little here.
const LARGE_BYTES: usize = 1 << 20;

pub(super) fn run(job: &Job, plan: &Plan, source: Source) -> Result<Round, LoadError> {
    let way = match source {
        Source::Blocks(way) => way,
        Source::LargeDirect => Way::Direct,
    };
    way.check(&plan.dir)?;
    scene::run(job, plan, |path| {
        let file = KernelFile::open(path, way);
        let file = file.map_err(|source| LoadError::Open { path: path.into(), source })?;
        let (block_bytes, file_bytes) = (plan.block_bytes, plan.file_bytes());
        Ok((Sliced { file, source, block_bytes, file_bytes }, Span::default()))
    })
}

struct Sliced {
    file: KernelFile,
    source: Source,
    block_bytes: usize,
    file_bytes: u64,
}

impl SlicedFile for Sliced {
    type Reader<'a> = BlockReader<'a>;

    fn reader(&self) -> Result<BlockReader<'_>, LoadError> {
        let (block, large) = match self.source {
            Source::Blocks(Way::Direct) => (AlignedBytes::on_huge_pages(self.block_bytes)?, None),
            Source::Blocks(_) => (AlignedBytes::new(self.block_bytes)?, None),
            Source::LargeDirect => {
                let large = Large::new(self.block_bytes.max(LARGE_BYTES))?;
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

/// What a large read has brought.
struct Large {
    bytes: AlignedBytes,
    offset: u64,
    len: usize,
}

impl Large {
    fn new(bytes: usize) -> Result<Self, LoadError> {
        Ok(Self { bytes: AlignedBytes::on_huge_pages(bytes)?, offset: 0, len: 0 })
    }

    /// Where the bytes from `offset` on stand.
    fn position(&self, offset: u64) -> Option<usize> {
        let at = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        (at < self.len).then_some(at)
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
                        let rest_bytes = (file_bytes - offset).min(large.bytes.len() as u64);
                        let len = rest_bytes as usize;
                        // Nothing is there if it fails.
                        large.len = 0;
                        file.read_at(&mut large.bytes[..len], offset)?;
                        (large.offset, large.len) = (offset, len);
                        0
                    }
                };
                self.block.copy_from_slice(&large.bytes[at..at + block_bytes]);
            }
        }
        see(&self.block);
        Ok(())
    }
}
