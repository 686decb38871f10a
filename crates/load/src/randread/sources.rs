//! The implementations: the kernel's ways, what a cache must do at least, and the page cache of
//! unherd by each of its engines.

use std::io;

use unherd::{File, OpenOptions};
use unherd_sys::primitives::{AtomicUsize, Mutex, Ordering};

use super::plan::Plan;
use super::scene::{self, RandomFile};
use crate::files::{AlignedBytes, CacheIo, KernelFile, PAGE_BYTES, Way, capacity_bytes};
use crate::{Basis, Job, LoadError, Meter, Round, Span};

pub(super) fn run_kernel(job: &Job, plan: &Plan, way: Way) -> Result<Round, LoadError> {
    way.check(&plan.dir)?;
    scene::run(job, plan, |path| {
        let file = KernelFile::open(path, way);
        let file = file.map_err(|source| LoadError::Open { path: path.into(), source })?;
        Ok((file, Span::default()))
    })
}

pub(super) fn run_floor_memory(job: &Job, plan: &Plan) -> Result<Round, LoadError> {
    Way::Direct.check(&plan.dir)?;
    let page_bytes = PAGE_BYTES as usize;
    let capacity_bytes = capacity_bytes(plan.memory_bytes, plan.threads, page_bytes)?;
    let mut memory = AlignedBytes::on_huge_pages(capacity_bytes)?;
    let pages = memory.chunks_exact_mut(page_bytes).map(Mutex::new).collect();
    scene::run(job, plan, |path| {
        let file = KernelFile::open(path, Way::Direct);
        let file = file.map_err(|source| LoadError::Open { path: path.into(), source })?;
        Ok((FloorMemory { file, pages, next: AtomicUsize::new(0) }, Span::default()))
    })
}

/// Reads each page to the memory that was read to the longest ago, and copies it from there: a
/// cache that finds nothing and keeps nothing.
struct FloorMemory<'a> {
    file: KernelFile,
    pages: Vec<Mutex<&'a mut [u8]>>,
    /// Relaxed: the pages have locks.
    next: AtomicUsize,
}

impl RandomFile for FloorMemory<'_> {
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.pages.len();
        let mut kept = self.pages[next].lock();
        self.file.read_at(&mut kept, offset)?;
        page.copy_from_slice(&kept);
        Ok(())
    }

    const COUNTS_WAKEUPS: bool = false;
}

pub(super) fn run_cached(job: &Job, plan: &Plan, io: CacheIo) -> Result<Round, LoadError> {
    let capacity_bytes = capacity_bytes(plan.memory_bytes, plan.threads, PAGE_BYTES as usize)?;
    let setup_error = |error: &dyn std::fmt::Display| LoadError::Setup {
        name: job.with.clone(),
        message: error.to_string(),
    };
    scene::run(job, plan, |path| {
        let meter = Meter::start(Basis::WithKernel { idle_busy: job.idle_busy })?;
        let cache = io
            .builder(job)?
            .capacity(capacity_bytes)
            .page_size(PAGE_BYTES as usize)
            .build()
            .map_err(|error| setup_error(&error))?;
        let setup = meter.stop(job.plant)?;
        let file = cache.open(path, OpenOptions::new()).map_err(|error| setup_error(&error))?;
        Ok((file, setup))
    })
}

impl RandomFile for KernelFile {
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()> {
        KernelFile::read_at(self, page, offset)
    }

    const COUNTS_WAKEUPS: bool = false;
}

impl RandomFile for File {
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()> {
        Ok(self.read_exact_at(page, offset)?)
    }

    const COUNTS_WAKEUPS: bool = true;
}
