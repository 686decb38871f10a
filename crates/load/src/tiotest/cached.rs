//! `unherd`, `unherd-aio` and `unherd-nofilter`: the page cache of unherd, direct I/O below.

use std::io;
use std::path::Path;

use unherd::{Cache, File, OpenOptions};

use super::phases::{self, TestFile};
use super::plan::Plan;
use crate::files::{CacheIo, PAGE_BYTES, capacity_bytes};
use crate::{Basis, Job, LoadError, Meter, Round};

/// Whether the wakes of pages look at the key. The other waits of the cache always do: for frames
/// and buffers, and for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    ByKey,
    Nothing,
}

pub(super) fn run(job: &Job, plan: &Plan, filter: Filter, io: CacheIo) -> Result<Round, LoadError> {
    let memory_bytes = job.memory_bytes()?;
    let capacity_bytes = capacity_bytes(memory_bytes, plan.threads, plan.block_bytes)?;
    let queues = match job.params.number("wait-queues")? {
        None => wait_queues_of_linux_2_6(memory_bytes),
        Some(_) => job.params.at_least_one("wait-queues")?,
    };
    // The cache takes all its memory from the kernel while it is made, once, and the kernel's own
    // in the phases, again and again: so this is timed by itself.
    let meter = Meter::start(Basis::WithKernel { idle_busy: job.idle_busy })?;
    let cache = io
        .builder(job)?
        .capacity(capacity_bytes)
        .page_size(job.params.at_least_one("page")?)
        .queues(queues)
        .filtered(filter == Filter::ByKey)
        .build()
        .map_err(|error| LoadError::Setup { name: job.with.clone(), message: error.to_string() })?;
    let setup = meter.stop(job.plant)?;
    phases::run(job, plan, setup, |path| create(&cache, path))
}

fn create(cache: &Cache, path: &Path) -> io::Result<File> {
    let options = OpenOptions::new().write(true).create(true);
    cache.open(path, options).map_err(io::Error::other)
}

/// Linux 2.6's wait table of a zone: a queue for each 256 pages, a power of two from 4 to 4096.
fn wait_queues_of_linux_2_6(memory_bytes: u64) -> usize {
    let pages = memory_bytes / PAGE_BYTES;
    (pages / 256).clamp(4, 4096).next_power_of_two() as usize
}

impl TestFile for File {
    fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        let read = File::read_at(self, block, offset).map_err(io::Error::other)?;
        if read == block.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()> {
        let written = File::write_at(self, block, offset).map_err(io::Error::other)?;
        if written == block.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all().map_err(io::Error::other)
    }

    const COUNTS_WAKEUPS: bool = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_follow_the_rule() {
        let of_mib = |mib: u64| wait_queues_of_linux_2_6(mib << 20);
        assert_eq!([1, 4, 5, 6, 256, 3584, 16384].map(of_mib), [4, 4, 8, 8, 256, 4096, 4096]);
    }
}
