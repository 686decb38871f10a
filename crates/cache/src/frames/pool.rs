//! The pool of frames: which are free, which page is given up next, and what is remembered of pages
//! that were given up.
//!
//! One lock guards it, on a machine with several NUMA nodes as well.

use std::ops::{Range, RangeInclusive};

use crate::frames::free::{FreeFrames, Set};
use crate::frames::policy::{self, Ghost, S3Fifo, Search};
use crate::frames::{Claim, EXTENT};
use crate::page::{FrameId, PageKey};
use crate::ranked::{Ranked, RankedGuard, rank};

/// The least number of pages that a cache has room for.
pub const MIN_FRAMES: usize = 4;

/// How many idle frames a search looks at for a clean one, once it has met a dirty one. After one
/// in vain the next looks at half as many, else at four times as many, and no fewer than
/// [`WINDOW_FOUND`]: where nearly all are dirty, looks are cache misses for nothing, and all who
/// want a frame wait for the pool.
const WINDOW: RangeInclusive<usize> = 2..=64;

/// The fewest looks after a search that has found a frame.
const WINDOW_FOUND: usize = 8;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Pool {
    /// How many frames there are at most.
    frames: usize,
    /// How many of them the cache has for pages now, and which.
    present: usize,
    has: Set,
    pub(crate) free: FreeFrames,
    /// Frames just written back, available before the policy finds them. Hints: each is checked.
    pub(crate) written: Vec<FrameId>,
    pub(crate) policy: S3Fifo,
    /// The pages that were given up last.
    ghost: Ghost,
    /// In [`WINDOW`].
    window: usize,
    /// Frames whose pages are being given up, with the pool unlocked, and those that were taken
    /// from pages so, and are not free yet.
    isolated: usize,
}

impl Pool {
    /// For `frames` frames, none of which is here yet: see [`Pool::add`].
    pub(crate) fn new(frames: usize) -> Self {
        Self {
            frames,
            present: 0,
            has: Set::new(frames),
            free: FreeFrames::new(frames),
            written: Vec::with_capacity(frames),
            policy: S3Fifo::new(frames as u32),
            ghost: Ghost::new(frames as u32),
            window: *WINDOW.end(),
            isolated: 0,
        }
    }

    /// How many frames it has now.
    pub(crate) fn len(&self) -> usize {
        self.present
    }

    /// For a frame whose page is to be given up.
    pub(crate) fn begin_search(&self) -> Search {
        Search::new(self.frames, self.window)
    }

    /// As [`Pool::begin_search`], for one that writes nothing and whose caller will not look again.
    pub(crate) fn begin_long_search(&self) -> Search {
        Search::new(self.frames, *WINDOW.end())
    }

    /// Of a search that the policy went on with, whether it `found` a frame.
    pub(crate) fn note_search(&mut self, search: &Search, found: bool) {
        if search.dirty().is_some() {
            let window = if found { (self.window * 4).max(WINDOW_FOUND) } else { self.window / 2 };
            self.window = window.clamp(*WINDOW.start(), *WINDOW.end());
        }
    }

    fn set_present(&mut self, frame: FrameId, is_present: bool) {
        self.present = if is_present { self.present + 1 } else { self.present - 1 };
        self.has.set(frame.index(), is_present);
        self.policy.set_frames(self.present as u32);
    }

    /// Puts a frame that the cache has got to the free ones.
    pub(crate) fn add(&mut self, claim: Claim) {
        self.set_present(claim.id(), true);
        self.push_free(claim);
    }

    /// The cache gives up a frame, which the caller has taken.
    pub(crate) fn remove(&mut self, claim: &Claim) {
        self.policy.remove(claim.id().0);
        self.set_present(claim.id(), false);
    }

    /// Puts an empty frame to the free ones.
    pub(crate) fn push_free(&mut self, claim: Claim) {
        self.policy.remove(claim.id().0);
        self.free.push(claim);
    }

    /// Pages were brought into frames.
    pub(crate) fn admit(&mut self, pages: impl IntoIterator<Item = (FrameId, PageKey)>) {
        for (frame, key) in pages {
            let came_back = self.ghost.take(policy::hash(key.file.0, key.page.0));
            self.policy.admit(frame.0, came_back);
        }
    }

    /// The pages count as new when they come in next.
    pub(crate) fn forget(&mut self, pages: impl IntoIterator<Item = PageKey>) {
        for key in pages {
            self.ghost.take(policy::hash(key.file.0, key.page.0));
        }
    }

    /// The pages that were in these frames were given up.
    pub(crate) fn evicted(&mut self, pages: impl IntoIterator<Item = (FrameId, PageKey)>) {
        for (frame, key) in pages {
            if self.policy.evicted(frame.0) {
                self.ghost.insert(policy::hash(key.file.0, key.page.0));
            }
        }
    }

    /// Whether the cache has the frame for pages now.
    pub(crate) fn has(&self, frame: FrameId) -> bool {
        self.has.has(frame.index())
    }

    /// Its frames in rows of `len` whose numbers begin at multiples of that.
    pub(crate) fn rows(&self, len: u32) -> impl Iterator<Item = Range<u32>> + use<> {
        (0..self.frames as u32 / len).map(move |row| row * len..(row + 1) * len)
    }

    /// Pages are about to be given up by the caller: the policy proposes them to nobody else.
    pub(crate) fn isolate(&mut self, pages: &[(FrameId, PageKey)]) {
        pages.iter().for_each(|(frame, _)| self.policy.isolate(frame.0));
        self.isolated += pages.len();
    }

    /// After [`Pool::isolate`] and [`Pool::evicted`] of those pages that were: the others stay.
    pub(crate) fn end_isolation(&mut self, pages: &[(FrameId, PageKey)], evicted: usize) {
        pages.iter().for_each(|(frame, _)| self.policy.put_back(frame.0));
        self.isolated -= pages.len() - evicted;
    }

    /// That many frames that were taken from pages so are free now.
    pub(crate) fn end_withholding(&mut self, frames: usize) {
        self.isolated -= frames;
    }

    /// At most how many frames will be free once those are that are being taken from pages.
    pub(crate) fn free_soon(&self) -> usize {
        self.free.len() + self.isolated
    }

    /// The other frames of the extent of memory in which a frame lies.
    pub(crate) fn neighbours(&self, frame: FrameId) -> impl Iterator<Item = FrameId> + use<> {
        let begin = frame.0 - frame.0 % EXTENT as u32;
        let end = (begin + EXTENT as u32).min(self.frames as u32);
        (begin..end).map(FrameId).filter(move |other| *other != frame)
    }
}

/// The pool with its lock, on cache lines of their own: hits read what lies beside them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LockedPool(Ranked<Pool, { rank::POOL }>);

/// The pool while it is locked.
pub(crate) type PoolGuard<'a> = RankedGuard<'a, Pool, { rank::POOL }>;

impl LockedPool {
    pub(crate) fn new(pool: Pool) -> Self {
        Self(Ranked::new(pool))
    }

    pub(crate) fn lock(&self) -> PoolGuard<'_> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests;
