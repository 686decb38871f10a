//! `unherd` and its variants: the page cache of unherd, direct I/O below.

use std::io;

use unherd::{Advice, File, OpenOptions, PageNo};

use super::plan::Plan;
use super::scene::{self, Reader, SlicedFile};
use crate::files::{AlignedBytes, CacheIo, PAGE_BYTES, capacity_bytes};
use crate::{Basis, Job, LoadError, Meter, Round};

/// A way of use, or a mechanism that is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Ring,
    Aio,
    Blocking,
    NoCopy,
    NoReadahead,
    NoReuse,
    LargePages,
    LargePagesNoReuse,
}

/// Bytes of a large page.
const LARGE_PAGE: usize = 64 << 10;

pub(super) fn run(job: &Job, plan: &Plan, mode: Mode) -> Result<Round, LoadError> {
    let capacity_bytes = capacity_bytes(plan.memory_bytes, plan.threads, plan.block_bytes)?;
    scene::run(job, plan, |path| {
        let setup_error = |error: &dyn std::fmt::Display| LoadError::Setup {
            name: job.with.clone(),
            message: error.to_string(),
        };
        let meter = Meter::start(Basis::WithKernel { idle_busy: job.idle_busy })?;
        let io = match mode {
            Mode::Blocking => CacheIo::Blocking,
            Mode::Aio => CacheIo::Aio,
            _ => CacheIo::IoUring,
        };
        let page_bytes = match mode {
            Mode::LargePages | Mode::LargePagesNoReuse => LARGE_PAGE,
            _ => PAGE_BYTES as usize,
        };
        let cache = io
            .builder(job)?
            .capacity(capacity_bytes)
            .page_size(page_bytes)
            .build()
            .map_err(|error| setup_error(&error))?;
        let setup = meter.stop(job.plant)?;
        let file = cache.open(path, OpenOptions::new()).map_err(|error| setup_error(&error))?;
        file.advise(match mode {
            Mode::NoReadahead => Advice::Random,
            Mode::NoReuse | Mode::LargePagesNoReuse => Advice::NoReuse,
            _ => Advice::Normal,
        });
        Ok((Sliced { file, block_bytes: plan.block_bytes, copies: mode != Mode::NoCopy }, setup))
    })
}

struct Sliced {
    file: File,
    block_bytes: usize,
    copies: bool,
}

impl SlicedFile for Sliced {
    type Reader<'a> = CacheReader<'a>;

    fn reader(&self) -> Result<CacheReader<'_>, LoadError> {
        let block = self.copies.then(|| AlignedBytes::new(self.block_bytes)).transpose()?;
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
        let Sliced { file, block_bytes, .. } = self.sliced;
        if let Some(block) = &mut self.block {
            file.read_exact_at(block, offset)?;
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
