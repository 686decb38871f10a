//! `unherd` and its variants: the page cache of unherd, direct I/O below.

use std::io;

use unherd::{Advice, File, OpenOptions, PageNo};

use super::plan::Plan;
use super::scene::{self, Reader, SlicedFile};
use crate::files::{AlignedBytes, CacheIo, PAGE_BYTES, capacity_bytes};
use crate::{Basis, Job, LoadError, Meter, Round};

/// How the cache is made and used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    pub(super) io: CacheIo,
    pub(super) page_bytes: usize,
    pub(super) advice: Advice,
    pub(super) reads: Reads,
}

/// How pages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// Copied out.
    Copied,
    InPlace,
    /// Copied out if they are there, and else read past the cache.
    Uncached,
}

impl Reads {
    /// Whether blocks of that size lie on huge pages.
    fn take_huge_pages(self, block_bytes: usize) -> bool {
        self == Self::Uncached && block_bytes >= 1 << 20
    }
}

pub(super) const USUAL: Variant = Variant {
    io: CacheIo::IoUring,
    page_bytes: PAGE_BYTES as usize,
    advice: Advice::Normal,
    reads: Reads::Copied,
};

pub(super) fn run(job: &Job, plan: &Plan, variant: Variant) -> Result<Round, LoadError> {
    let block_bytes = if variant.reads.take_huge_pages(plan.block_bytes) {
        AlignedBytes::huge_bytes(plan.block_bytes)
    } else {
        plan.block_bytes
    };
    let capacity_bytes = capacity_bytes(plan.memory_bytes, plan.threads, block_bytes)?;
    scene::run(job, plan, |path| {
        let setup_error = |error: &dyn std::fmt::Display| LoadError::Setup {
            name: job.with.clone(),
            message: error.to_string(),
        };
        let meter = Meter::start(Basis::WithKernel { idle_busy: job.idle_busy })?;
        let Variant { io, page_bytes, advice, reads } = variant;
        let cache = io
            .builder(job)?
            .capacity(capacity_bytes)
            .page_size(page_bytes)
            .build()
            .map_err(|error| setup_error(&error))?;
        let setup = meter.stop(job.plant)?;
        let file = cache.open(path, OpenOptions::new()).map_err(|error| setup_error(&error))?;
        file.advise(advice);
        Ok((Sliced { file, block_bytes: plan.block_bytes, reads }, setup))
    })
}

struct Sliced {
    file: File,
    block_bytes: usize,
    reads: Reads,
}

impl SlicedFile for Sliced {
    type Reader<'a> = CacheReader<'a>;

    fn reader(&self) -> Result<CacheReader<'_>, LoadError> {
        let block = match self.reads {
            Reads::InPlace => None,
            reads if reads.take_huge_pages(self.block_bytes) => {
                Some(AlignedBytes::on_huge_pages(self.block_bytes)?)
            }
            _ => Some(AlignedBytes::new(self.block_bytes)?),
        };
        Ok(CacheReader { sliced: self, block })
    }
}

struct CacheReader<'a> {
    sliced: &'a Sliced,
    /// None where pages are read in place.
    block: Option<AlignedBytes>,
}

impl Reader for CacheReader<'_> {
    fn read(&mut self, offset: u64, see: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let Sliced { file, block_bytes, reads } = self.sliced;
        if let Some(block) = &mut self.block {
            if *reads != Reads::Uncached {
                file.read_exact_at(block, offset)?;
            } else if file.read_uncached_at(block, offset)? < block.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            see(block);
            return Ok(());
        }
        let first = offset / PAGE_BYTES;
        for page in first..first + *block_bytes as u64 / PAGE_BYTES {
            see(&file.page(PageNo(page))?);
        }
        Ok(())
    }
}
