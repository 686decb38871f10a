//! The implementations: the kernel's ways, and the page cache of unherd by each of its engines.

use std::io;

use unherd::{File, OpenOptions};

use super::plan::Plan;
use super::scene::{self, RandomFile};
use crate::files::{CacheIo, KernelFile, PAGE_BYTES, Way, capacity_bytes};
use crate::{Basis, Job, LoadError, Meter, Round, Span};

pub(super) fn run_kernel(job: &Job, plan: &Plan, way: Way) -> Result<Round, LoadError> {
    way.check(&plan.dir)?;
    scene::run(job, plan, |path| {
        let file = KernelFile::open(path, way);
        let file = file.map_err(|source| LoadError::Open { path: path.into(), source })?;
        Ok((file, Span::default()))
    })
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
