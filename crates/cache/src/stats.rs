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

/// Makes [`Stats`] and [`Count`] of one list: what is counted, and the field that tells it.
macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident $field:ident,)*) => {
        /// Counts since the cache was built. With the feature `uncounted`, `hits`, `peeks` and
        /// `copies_out` are 0.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Stats {
            /// The share of the pages asked for that were there, between 0 and 1; none if no page
            /// was asked for. Pages that another call was bringing in just then were not there.
            /// Reads alone: what is written counts in neither.
            #[must_use]
            pub fn hit_ratio(&self) -> Option<f64> {
                let read_misses = self.misses.saturating_sub(self.write_misses);
                let reads = self.hits + read_misses + self.deduplicated_misses;
                (reads > 0).then(|| self.hits as f64 / reads as f64)
            }

            /// What was counted since `before`, which is of the same cache.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($field: self.$field.saturating_sub(before.$field),)* }
            }
        }

        /// What is counted.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Count {
            $($count,)*
        }

        const COUNTS: usize = [$(Count::$count),*].len();

        impl Counters {
            /// What the stripes have counted.
            fn sums(&self) -> Stats {
                Stats { $($field: self.sum(Count::$count),)* }
            }
        }
    };
}

counts! {
    /// Pages read that were there, however they were read. Writes to pages that are there are in
    /// none of these counts.
    Hits hits,
    /// Those of them that were read by `File::peek` without a pin.
    Peeks peeks,
    /// Those of them that `File::read_at` has copied without a pin.
    CopiesOut copies_out,
    /// Looks without a pin that were in vain, as the page was changed meanwhile.
    PeekRetries peek_retries,
    /// Pages read or written that were not there, by the thread that brought them in, or that read
    /// them past the cache.
    Misses misses,
    /// Those of them that were written. A page that is written as a whole is not read for it.
    WriteMisses write_misses,
    /// Pages asked for that were not there, but that another thread, or readahead, was bringing in.
    DeduplicatedMisses deduplicated_misses,
    /// Pages that were given up for others.
    Evictions evictions,
    /// Pages written back.
    WriteBacks write_backs,
    /// Transfers that wrote pages back; one takes several adjacent pages.
    WriteTransfers write_transfers,
    /// Flushes that the device was asked for.
    Flushes flushes,
    /// Pages read from the device. Pages beyond the end of the file need no read.
    Reads reads,
    /// Those of them that were not kept: [`File::read_uncached_at`](crate::File::read_uncached_at).
    UncachedReads uncached_reads,
    /// Pages read that nobody waited for: by readahead, [`File::prefetch`](crate::File::prefetch)
    /// or [`File::stream`](crate::File::stream), or because the same call wants them next; part of
    /// `reads`.
    ReadAhead read_ahead,
    /// Those of them that were used since.
    ReadAheadUsed read_ahead_used,
    /// Those of them that were given up, or could not be read, before they were used: where a scan
    /// stops, and a few in a hundred where many scans share a cache that is full of used pages.
    ReadAheadWasted read_ahead_wasted,
    /// Pages that were copied because they were pinned when they were to be changed, also by a
    /// peek that had to pin.
    Copies copies,
    /// Failed transfers of the device.
    IoErrors io_errors,
    /// Sleeps of threads that waited for a frame that a dirty page had, or for room: until one page
    /// more of a file could be dirty. None begins with fewer than four write-backs under way,
    /// unless no more can be begun: no dirty page can be written, or the cache has no buffer left
    /// (it has one for each 32 frames).
    ThrottleSleeps throttle_sleeps,
    /// Write-backs that were under way as those began, added up.
    ThrottleWriteBacks throttle_write_backs,
    /// Pages that were newer than the device as those began, added up.
    ThrottleDirtyPages throttle_dirty_pages,
    /// Pages that were given up because they lay in the way of contiguous memory
    /// ([`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous)); part of `evictions`.
    ContiguousEvictions contiguous_evictions,
    /// Dirty pages that lay in its way, and whose write-back was begun for it; a page may count
    /// more than once.
    ContiguousWriteBacks contiguous_write_backs,
}

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

    /// Counts one more of what has a place in the rows, for next to nothing. `fork` is of the
    /// cache.
    #[inline]
    pub(crate) fn tick(&self, count: Count, fork: &ForkMark) {
        if !cfg!(feature = "uncounted") && !self.rows.tick(count, fork) {
            self.add(count, 1);
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
        let mut stats = self.sums();
        let ticks = self.rows.read();
        stats.peeks += ticks[Count::Peeks as usize];
        stats.copies_out += ticks[Count::CopiesOut as usize];
        stats.peek_retries += ticks[Count::PeekRetries as usize];
        stats.hits += stats.peeks + stats.copies_out;
        // A missing page that is written is counted once, for speed: as a write.
        stats.misses += stats.write_misses;
        stats
    }
}
