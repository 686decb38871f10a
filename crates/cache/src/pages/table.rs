//! The pages of a cache: the index over the frames, and the waits for pages.

use std::fmt;

use unherd_sync::{WaitKey, WaitTable};
use unherd_sys::ForkMark;
use unherd_sys::primitives::Arc;

use crate::frames::{Claim, FrameMemory, Frames, State, Supply, Word};
use crate::page::{FrameId, PageKey};
use crate::pages::{FillReservation, Index, ShardGuard};
use crate::reasons::Reasons;
use crate::stats::{Counters, Stats};

/// What the flushes of files have covered, and what they have promised about it.
pub(crate) trait FlushState: fmt::Debug + Send + Sync {
    /// Takes pages that no flush has covered from their frames, if they are still there, by
    /// [`Pages::evict_unstable`]: the state of a file's flushes and whether a page is there must
    /// change together. No shard is locked. Those of another file than the first's are left alone.
    fn evict_unstable(
        &self,
        pages: &Pages,
        of_file: &[(FrameId, PageKey)],
        evicted: &mut dyn FnMut(Claim),
    );
}

/// All pages of a cache, of whichever files.
pub(crate) struct Pages {
    pub(crate) supply: Supply,
    pub(crate) index: Index,
    /// Waits for a page, by file and number. Its wakes may be told not to filter.
    pub(crate) waits: WaitTable<WaitKey>,
    /// What the files of these pages have promised.
    pub(crate) flush_state: Arc<dyn FlushState>,
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

    /// Puts a claimed frame in the place of its page's announcement.
    pub(crate) fn install(&self, announced: FillReservation, claim: &Claim, state: State) {
        self.shard(announced.key).install(self.frames(), announced, claim, state);
    }

    /// The word of the page's frame, if it is there.
    pub(crate) fn word_of(&self, key: PageKey) -> Option<Word> {
        let shard = self.shard(key);
        shard.frame().map(|frame| self.frames().word(frame))
    }

    /// As [`Pages::shard`], by one that has just used the shard of another page, or the same.
    pub(crate) fn next_shard<'a, 'b>(
        &'a self,
        locked: &'b mut Option<ShardGuard<'a>>,
        key: PageKey,
    ) -> &'b mut ShardGuard<'a> {
        self.index.lock_next(locked, key, |frame| self.frames().key(frame))
    }

    /// The pages are there, and are used soon: brings their slots and frames into the processor's
    /// cache, many at a time, as no lock stands between.
    pub(crate) fn prefetch_words(&self, keys: impl Iterator<Item = PageKey>) {
        for key in keys {
            if let Some(frame) = self.index.lookup(key) {
                self.frames().prefetch_word(frame);
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
