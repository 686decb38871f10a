//! `unherd` and `unherd-nofilter`: the page cache of unherd, direct I/O below.

use std::io;
use std::path::Path;

use unherd::{Cache, File, Io, OpenOptions};

use super::phases::{self, TestFile};
use super::plan::Plan;
use crate::{Basis, Job, LoadError, Meter, Round};

/// Pages of the cache, as report 000 had them.
const PAGE_BYTES: u64 = 4096;

/// What the process needs beside the cache and its threads: code, libraries, the plan.
const PROCESS_BYTES: u64 = 8 << 20;

/// What a thread needs beside its block buffer: the stack pages that it touches (up to 32 KiB), the
/// kernel's stack and structures for it (about 28 KiB).
const THREAD_BYTES: u64 = 60 << 10;

/// One part in this many of the rest is left for the cache's own tables and I/O queues.
const TABLES_PART: u64 = 32;

/// Whether the wakes of pages look at the key. The other waits of the cache always do: for frames
/// and buffers, and for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    ByKey,
    Nothing,
}

pub(super) fn run(job: &Job, plan: &Plan, filter: Filter) -> Result<Round, LoadError> {
    let memory_bytes = job.memory_bytes()?;
    let capacity_bytes = capacity_bytes(memory_bytes, plan)?;
    let queues = match job.params.number("wait-queues")? {
        None => wait_queues_of_linux_2_6(memory_bytes),
        Some(_) => job.params.at_least_one("wait-queues")?,
    };
    // The cache takes all its memory from the kernel while it is made, once, and the kernel's own
    // in the phases, again and again: so this is timed by itself.
    let meter = Meter::start(Basis::WithKernel { idle_busy: job.idle_busy })?;
    let cache = Cache::builder()
        .capacity(capacity_bytes)
        .page_size(PAGE_BYTES as usize)
        // A thread sleeps on the page that it has missed, as a reader in the kernel does.
        .io(Io::Ring)
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

/// What the cache may hold, so that the whole process stays within `memory_bytes`.
fn capacity_bytes(memory_bytes: u64, plan: &Plan) -> Result<usize, LoadError> {
    let threads = plan.threads as u64;
    let overhead_bytes = PROCESS_BYTES + threads * (THREAD_BYTES + plan.block_bytes as u64);
    let rest_bytes = memory_bytes.saturating_sub(overhead_bytes);
    let capacity_bytes = (rest_bytes - rest_bytes / TABLES_PART) / PAGE_BYTES * PAGE_BYTES;
    // Each thread may hold a page, and as many must be there to be written back meanwhile.
    let least_bytes = 2 * threads * PAGE_BYTES;
    if capacity_bytes < least_bytes {
        let needed_bytes = overhead_bytes + least_bytes * 2;
        return Err(LoadError::usage(format!(
            "--memory {memory_bytes}: {threads} threads with blocks of {} and a cache need at \
             least {needed_bytes} bytes; give more, fewer --threads, or a smaller block",
            plan.block_bytes
        )));
    }
    usize::try_from(capacity_bytes).map_err(|_| {
        LoadError::usage(format!("--memory {memory_bytes} is more than can be mapped"))
    })
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

    #[test]
    fn the_cache_gets_what_the_threads_leave() {
        let of = |mib: u64, threads, block_bytes| {
            let mut plan = Plan::default();
            (plan.threads, plan.block_bytes) = (threads, block_bytes);
            capacity_bytes(mib << 20, &plan)
        };
        assert_eq!(of(256, 512, 4096).unwrap() >> 20, (256 - 8 - 32) * 31 / 32);
        // 508 KiB a thread more for its block.
        assert_eq!(of(512, 512, 512 << 10).unwrap() >> 20, (512 - 8 - 32 - 254) * 31 / 32);
        assert!(of(40, 64, 4096).unwrap() < 28 << 20);
        assert_eq!(of(256, 512, 512 << 10).unwrap_err().exit_code(), 2);
        assert_eq!(of(40, 512, 4096).unwrap_err().exit_code(), 2);
        assert_eq!(of(0, 1, 4096).unwrap_err().exit_code(), 2);
    }
}
