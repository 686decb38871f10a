//! `kernel` and `kernel-dontcache`: plain system calls, the kernel's page cache below.

use std::io;

use super::phases::{self, TestFile};
use super::plan::Plan;
use crate::files::{KernelFile, Way};
use crate::{Job, LoadError, Round, Span};

pub(super) fn run(job: &Job, plan: &Plan, way: Way) -> Result<Round, LoadError> {
    way.check(&plan.dir)?;
    phases::run(job, plan, Span::default(), |path| KernelFile::create(path, way))
}

impl TestFile for KernelFile {
    fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        KernelFile::read_at(self, block, offset)
    }

    fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()> {
        KernelFile::write_at(self, block, offset)
    }

    fn sync(&self) -> io::Result<()> {
        KernelFile::sync(self)
    }

    const COUNTS_WAKEUPS: bool = false;
}
