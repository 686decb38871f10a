//! What the cache counts about itself.
//!
//! Counters are split over cache lines by thread, and summed when read. All are Relaxed: they
//! publish nothing. What a hit would feel is counted otherwise: pins in the frames' words, and
//! looks without a pin in rows that one thread alone writes (`stats/rows.rs`).

use unherd_sys::ForkMark;
use unherd_sys::primitives::{AtomicU64, Ordering};

mod rows;

use crate::stripe::{self, STRIPES};
use rows::Rows;
pub(crate) use rows::Tick;

/// Counts since the cache was built. With the feature `uncounted`, `hits`, `peeks` and `copies_out`
/// are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Pages read that were there, however they were read. Writes to pages that are there are in
    /// none of these counts.
    pub hits: u64,
    /// Those of them that were read by `File::peek` without a pin.
    pub peeks: u64,
    /// Those of them that `File::read_at` has copied without a pin.
    pub copies_out: u64,
    /// Looks without a pin that were in vain, as the page was changed meanwhile.
    pub peek_retries: u64,
    /// Pages read or written that were not there, by the thread that brought them in.
    pub misses: u64,
    /// Pages asked for that were not there, but that another thread was bringing in.
    pub deduplicated_misses: u64,
    /// Pages that were given up for others.
    pub evictions: u64,
    /// Pages written back.
    pub write_backs: u64,
    /// Transfers that wrote pages back; one takes several adjacent pages.
    pub write_transfers: u64,
    /// Flushes that the device was asked for.
    pub flushes: u64,
    /// Pages read from the device. Pages beyond the end of the file need no read.
    pub reads: u64,
    /// Pages read that nobody waited for: by readahead, [`File::prefetch`](crate::File::prefetch)
    /// or [`File::stream`](crate::File::stream), or because the same call wants them next; part of
    /// `reads`.
    pub read_ahead: u64,
    /// Those of them that were used since.
    pub read_ahead_used: u64,
    /// Those of them that were given up, or could not be read, before they were used.
    pub read_ahead_wasted: u64,
    /// Pages that were copied because they were pinned when they were to be changed, also by a
    /// peek that had to pin.
    pub copies: u64,
    /// Failed transfers of the device.
    pub io_errors: u64,
    /// Sleeps of threads that waited for a frame that a dirty page had, or for room: until one page
    /// more of a file could be dirty. None begins with fewer than four write-backs under way,
    /// unless no more can be begun: no dirty page can be written, or the cache has no buffer left
    /// (it has one for each 32 frames).
    pub throttle_sleeps: u64,
    /// Write-backs that were under way as those began, added up.
    pub throttle_write_backs: u64,
    /// Pages that were newer than the device as those began, added up.
    pub throttle_dirty_pages: u64,
    /// Pages that were given up because they lay in the way of contiguous memory
    /// ([`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous)); part of `evictions`.
    pub contiguous_evictions: u64,
    /// Dirty pages that lay in its way, and whose write-back was begun for it; a page may count
    /// more than once.
    pub contiguous_write_backs: u64,
}

impl Stats {
    /// What was counted since `before`, which is of the same cache.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            hits: less(self.hits, before.hits),
            peeks: less(self.peeks, before.peeks),
            copies_out: less(self.copies_out, before.copies_out),
            peek_retries: less(self.peek_retries, before.peek_retries),
            misses: less(self.misses, before.misses),
            deduplicated_misses: less(self.deduplicated_misses, before.deduplicated_misses),
            evictions: less(self.evictions, before.evictions),
            write_backs: less(self.write_backs, before.write_backs),
            write_transfers: less(self.write_transfers, before.write_transfers),
            flushes: less(self.flushes, before.flushes),
            reads: less(self.reads, before.reads),
            read_ahead: less(self.read_ahead, before.read_ahead),
            read_ahead_used: less(self.read_ahead_used, before.read_ahead_used),
            read_ahead_wasted: less(self.read_ahead_wasted, before.read_ahead_wasted),
            copies: less(self.copies, before.copies),
            io_errors: less(self.io_errors, before.io_errors),
            throttle_sleeps: less(self.throttle_sleeps, before.throttle_sleeps),
            throttle_write_backs: less(self.throttle_write_backs, before.throttle_write_backs),
            throttle_dirty_pages: less(self.throttle_dirty_pages, before.throttle_dirty_pages),
            contiguous_evictions: less(self.contiguous_evictions, before.contiguous_evictions),
            contiguous_write_backs: less(
                self.contiguous_write_backs,
                before.contiguous_write_backs,
            ),
        }
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Hits,
    Misses,
    DeduplicatedMisses,
    Evictions,
    WriteBacks,
    WriteTransfers,
    Flushes,
    Reads,
    ReadAhead,
    ReadAheadUsed,
    ReadAheadWasted,
    Copies,
    IoErrors,
    ThrottleSleeps,
    ThrottleWriteBacks,
    ThrottleDirtyPages,
    ContiguousEvictions,
    ContiguousWriteBacks,
    /// What has no row of its own: see `rows.rs`.
    Peeks,
    PeekRetries,
    CopiesOut,
}

const COUNTS: usize = Count::CopiesOut as usize + 1;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; COUNTS]);

#[derive(Debug)]
pub(crate) struct Counters {
    stripes: [Stripe; STRIPES],
    rows: Rows,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self { stripes: Default::default(), rows: Rows::new() }
    }

    /// Counts one more, for next to nothing. `fork` is of the cache.
    #[inline]
    pub(crate) fn tick(&self, tick: Tick, fork: &ForkMark) {
        if !cfg!(feature = "uncounted") && !self.rows.tick(tick, fork) {
            self.add(
                match tick {
                    Tick::Peeks => Count::Peeks,
                    Tick::PeekRetries => Count::PeekRetries,
                    Tick::CopiesOut => Count::CopiesOut,
                },
                1,
            );
        }
    }

    pub(crate) fn add(&self, count: Count, n: u64) {
        self.stripes[stripe::mine()].0[count as usize].fetch_add(n, Ordering::Relaxed);
    }

    fn sum(&self, count: Count) -> u64 {
        let of_stripe = |stripe: &Stripe| stripe.0[count as usize].load(Ordering::Relaxed);
        self.stripes.iter().map(of_stripe).sum()
    }

    /// Pages that were read ahead, and are still there, and unread; about.
    pub(crate) fn unread_ahead(&self) -> u64 {
        let gone = self.sum(Count::ReadAheadUsed) + self.sum(Count::ReadAheadWasted);
        self.sum(Count::ReadAhead).saturating_sub(gone)
    }

    /// Without the hits that the frames count.
    pub(crate) fn read(&self) -> Stats {
        let sum = |count: Count| self.sum(count);
        let [peeks, peek_retries, copies_out] = self.rows.read();
        let peeks = peeks + sum(Count::Peeks);
        let copies_out = copies_out + sum(Count::CopiesOut);
        Stats {
            hits: sum(Count::Hits) + peeks + copies_out,
            peeks,
            copies_out,
            peek_retries: peek_retries + sum(Count::PeekRetries),
            misses: sum(Count::Misses),
            deduplicated_misses: sum(Count::DeduplicatedMisses),
            evictions: sum(Count::Evictions),
            write_backs: sum(Count::WriteBacks),
            write_transfers: sum(Count::WriteTransfers),
            flushes: sum(Count::Flushes),
            reads: sum(Count::Reads),
            read_ahead: sum(Count::ReadAhead),
            read_ahead_used: sum(Count::ReadAheadUsed),
            read_ahead_wasted: sum(Count::ReadAheadWasted),
            copies: sum(Count::Copies),
            io_errors: sum(Count::IoErrors),
            throttle_sleeps: sum(Count::ThrottleSleeps),
            throttle_write_backs: sum(Count::ThrottleWriteBacks),
            throttle_dirty_pages: sum(Count::ThrottleDirtyPages),
            contiguous_evictions: sum(Count::ContiguousEvictions),
            contiguous_write_backs: sum(Count::ContiguousWriteBacks),
        }
    }
}
