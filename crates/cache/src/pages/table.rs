//! The pages of a cache: the index over the frames, and the waits for pages.

use unherd_sync::{WaitKey, WaitTable};
use unherd_sys::ForkMark;
use unherd_sys::primitives::Arc;

use crate::frames::{FrameMemory, Frames, Supply, Word};
use crate::page::PageKey;
use crate::pages::{Busy, Index, Promises, ShardGuard};
use crate::reasons::Reasons;
use crate::stats::{Count, Counters, Stats};

/// All pages of a cache, of whichever files.
pub(crate) struct Pages {
    pub(crate) supply: Supply,
    pub(crate) index: Index,
    /// Waits for a page, by file and number. Its wakes may be told not to filter.
    pub(crate) waits: WaitTable<WaitKey>,
    /// What the files of these pages have promised.
    pub(crate) promises: Arc<dyn Promises>,
    pub(crate) reasons: Reasons,
    pub(crate) counters: Counters,
    /// Of the process that built the cache. A child of it has the memory, but neither the threads
    /// nor what they were about to do; locks that they held stay locked there.
    pub(crate) fork: ForkMark,
}

impl Pages {
    #[inline]
    pub(crate) fn frames(&self) -> &Frames {
        &self.supply.frames
    }

    #[inline]
    pub(crate) fn memory(&self) -> &FrameMemory {
        &self.supply.memory
    }

    /// Locks the index's shard of a page.
    pub(crate) fn shard(&self, key: PageKey) -> ShardGuard<'_> {
        self.index.lock(key, |frame| self.frames().key(frame))
    }

    /// As [`Pages::shard`], by one that has just used the shard of another page, or the same.
    pub(crate) fn next_shard<'a, 'b>(
        &'a self,
        locked: &'b mut Option<ShardGuard<'a>>,
        key: PageKey,
    ) -> &'b mut ShardGuard<'a> {
        self.index.lock_next(locked, key, |frame| self.frames().key(frame))
    }

    /// Drops the page of the shard, if it is there, whatever it holds; gives its word before.
    /// Pinned ones live on for those who have them. Not of a page that is not at rest.
    pub(crate) fn detach(&self, shard: ShardGuard<'_>) -> Result<Word, Busy> {
        let (before, claim) = shard.detach(self.frames())?;
        if before.is_unread() {
            self.counters.add(Count::ReadAheadWasted, 1);
        }
        claim.into_iter().for_each(|claim| self.free_frame(claim));
        Ok(before)
    }

    /// The pages are there, and are used soon: brings their slots and frames into the processor's
    /// cache, many at a time, as no lock stands between.
    pub(crate) fn prefetch(&self, keys: impl Iterator<Item = PageKey>) {
        for key in keys {
            if let Some(frame) = self.index.lookup(key) {
                self.frames().prefetch(frame);
            }
        }
    }

    /// What was counted so far.
    pub(crate) fn stats(&self) -> Stats {
        let counted = self.counters.read();
        Stats {
            hits: counted.hits.wrapping_add(self.frames().hits()),
            read_ahead_used: counted.read_ahead_used + self.frames().ahead_pinned(),
            ..counted
        }
    }
}
