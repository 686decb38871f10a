//! What the cache counts about itself.
//!
//! Counters are split over cache lines by thread, and summed when read. All are Relaxed: they
//! publish nothing.

use unherd_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 16;

/// Counts since the cache was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Pages asked for that were there.
    pub hits: u64,
    /// Pages asked for that were not there, by the thread that brought them in.
    pub misses: u64,
    /// Pages asked for that were not there, but that another thread was bringing in.
    pub deduplicated_misses: u64,
    /// Pages that were given up for others.
    pub evictions: u64,
    /// Pages written back.
    pub write_backs: u64,
    /// Transfers that wrote pages back; one takes several adjacent pages.
    pub write_transfers: u64,
    /// Pages read from the device. Pages beyond the end of the file need no read.
    pub reads: u64,
    /// Pages that were copied because they were pinned when they were to be changed.
    pub copies: u64,
    /// Failed transfers of the device.
    pub io_errors: u64,
}

/// What is counted; the order of [`Stats`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Hits,
    Misses,
    DeduplicatedMisses,
    Evictions,
    WriteBacks,
    WriteTransfers,
    Reads,
    Copies,
    IoErrors,
}

const COUNTS: usize = Count::IoErrors as usize + 1;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTS]);

#[derive(Debug, Default)]
pub(crate) struct Counters([Shard; SHARDS]);

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT_THREAD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

impl Counters {
    pub(crate) fn add(&self, count: Count, n: u64) {
        // While a thread's locals are torn down, its counts go to the first shard.
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        self.0[shard].0[count as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Stats {
        let sum = |count: Count| {
            self.0.iter().map(|shard| shard.0[count as usize].load(Ordering::Relaxed)).sum()
        };
        Stats {
            hits: sum(Count::Hits),
            misses: sum(Count::Misses),
            deduplicated_misses: sum(Count::DeduplicatedMisses),
            evictions: sum(Count::Evictions),
            write_backs: sum(Count::WriteBacks),
            write_transfers: sum(Count::WriteTransfers),
            reads: sum(Count::Reads),
            copies: sum(Count::Copies),
            io_errors: sum(Count::IoErrors),
        }
    }
}
