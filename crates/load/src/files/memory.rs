//! How much of a round's memory a cache of ours may hold.

use crate::LoadError;

/// Pages of the caches, as the reports had them.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// What the process needs beside the cache and its threads: code, libraries, the plan.
const PROCESS_BYTES: u64 = 8 << 20;

/// What a thread needs beside its block buffer: the stack pages that it touches (up to 32 KiB), the
/// kernel's stack and structures for it (about 28 KiB).
const THREAD_BYTES: u64 = 60 << 10;

/// One part in this many of the rest is left for the cache's own tables and I/O queues.
const TABLES_PART: u64 = 32;

/// What the cache may hold, so that the whole process stays within `memory_bytes` with `threads`
/// threads that have a block of `block_bytes` each.
pub(crate) fn capacity_bytes(
    memory_bytes: u64,
    threads: usize,
    block_bytes: usize,
) -> Result<usize, LoadError> {
    let threads = threads as u64;
    let overhead_bytes = PROCESS_BYTES + threads * (THREAD_BYTES + block_bytes as u64);
    let rest_bytes = memory_bytes.saturating_sub(overhead_bytes);
    let capacity_bytes = (rest_bytes - rest_bytes / TABLES_PART) / PAGE_BYTES * PAGE_BYTES;
    // Each thread may hold a page, and as many must be there to be written back meanwhile.
    let least_bytes = 2 * threads * PAGE_BYTES;
    if capacity_bytes < least_bytes {
        let needed_bytes = overhead_bytes + least_bytes * 2;
        return Err(LoadError::usage(format!(
            "--memory {memory_bytes}: {threads} threads with blocks of {block_bytes} and a cache \
             need at least {needed_bytes} bytes; give more, fewer --threads, or a smaller block"
        )));
    }
    usize::try_from(capacity_bytes).map_err(|_| {
        LoadError::usage(format!("--memory {memory_bytes} is more than can be mapped"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gets_what_the_threads_leave() {
        let of = |mib: u64, threads, block_bytes| capacity_bytes(mib << 20, threads, block_bytes);
        assert_eq!(of(256, 512, 4096).unwrap() >> 20, (256 - 8 - 32) * 31 / 32);
        // 508 KiB a thread more for its block.
        assert_eq!(of(512, 512, 512 << 10).unwrap() >> 20, (512 - 8 - 32 - 254) * 31 / 32);
        assert!(of(40, 64, 4096).unwrap() < 28 << 20);
        assert_eq!(of(256, 512, 512 << 10).unwrap_err().exit_code(), 2);
        assert_eq!(of(40, 512, 4096).unwrap_err().exit_code(), 2);
        assert_eq!(of(0, 1, 4096).unwrap_err().exit_code(), 2);
    }
}
