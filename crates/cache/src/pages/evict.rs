//! Frames for missing pages: free ones, or taken from pages that can be read again.
//!
//! Frames lie in a pool (`pool.rs`). Which page is given up, its policy says. It hears of each
//! frame that leaves the free ones, and of each that comes back to them, under the pool's lock: so
//! a frame with a page is known to it, and it is asked about no others for long. A frame that was
//! handed to a waiter is admitted by that waiter. Pages are given up for runs and streams without
//! that lock: their frames are isolated meanwhile, and the policy remembers the pages afterwards. A
//! page that comes back before that counts as new.
//!
//! Nothing is written here, and no file is known: a dirty page that stands in the way is named to
//! the caller, and about a page that no flush has covered its file is asked (`FlushState`).

use std::ops::Range;

use unherd_sync::Token;

use crate::frames::policy::{self, Idle, Look, Search, Uses};
use crate::frames::{Claim, EXTENT, Frames, Notified, Pool, PoolGuard, State, Word};
use crate::page::{FrameId, PageKey, PageNo};
use crate::pages::{Busy, Pages, ShardGuard};
use crate::stats::Count;

/// What a search has found.
#[derive(Debug)]
pub(crate) enum Found {
    Frame {
        claim: Claim,
        /// A dirty page that was met: written by then, it would be clean when it comes round
        /// again.
        dirty: Option<FrameId>,
    },
    /// A page that must be written before its frame can be had.
    ToWrite {
        frame: FrameId,
        /// Whether that was tried before.
        has_failed: bool,
    },
    Nothing,
}

/// What the policy sees in a frame's word.
fn look(word: Word) -> Look {
    let page = match word.state() {
        // What awaits an older write-back cannot be written yet.
        _ if word.pins() > 0 || word.is_awaiting_older_writeback() => return Look::Busy,
        State::Clean | State::Unstable => Idle::Clean,
        State::Dirty => Idle::Dirty,
        State::Failed => Idle::Failed,
        State::Held
        | State::Empty
        | State::Handed
        | State::Reading
        | State::Changing
        | State::Detached
        | State::Superseded
        | State::WriteBack => return Look::Busy,
    };
    Look::Idle { uses: word.uses(), page }
}

/// The frames, as the policy may see them.
struct PolicyView<'a>(&'a Frames);

impl policy::Frames for PolicyView<'_> {
    fn look(&mut self, frame: u32) -> Look {
        look(self.0.word(FrameId(frame)))
    }

    fn forget(&mut self, frame: u32, uses: Uses) {
        match uses {
            Uses::One => self.0.forget_latest_use(FrameId(frame)),
            Uses::All => self.0.forget_uses(FrameId(frame)),
        }
    }
}

impl Pages {
    /// A page can be written that could not, or what a write needs was given back: it may be just
    /// what somebody waits for who wants a frame, or room.
    pub(crate) fn notify_writable(&self) {
        self.notify_frame_waiters(1);
        self.supply.dirty_waiters.notify_of_pages(&self.supply.waits, 1);
    }

    /// A frame that became idle may be just what somebody waits for.
    pub(crate) fn notify_frame_waiters(&self, frames: usize) {
        self.after_notify(self.supply.waiters.notify(&self.supply.waits, frames));
    }

    /// A write-back has ended, and its frames have become idle.
    pub(crate) fn note_write_back_end(&self, frames: usize) {
        self.after_notify(self.supply.waiters.end_write_back(&self.supply.waits, frames));
    }

    fn after_notify(&self, notified: Notified) {
        if notified.has_left {
            self.hand_out_frames();
        }
        // In a simulation no time passes.
        if notified.has_task
            && let Some(alarm) = &self.supply.alarm
            && !cfg!(shuttle)
        {
            alarm.note_notified();
        }
    }

    /// Gives the frames that can be had to those that wait for one, as far as there are both.
    #[cold]
    pub(crate) fn hand_out_frames(&self) {
        let waiting = self.supply.waiters.events.count();
        let claims: Vec<Claim> = (0..waiting).map_while(|_| self.try_take_any_frame()).collect();
        claims.into_iter().for_each(|claim| self.free_frame(claim));
    }

    /// An empty frame, for no page yet, if one can be had without a write-back.
    fn try_take_any_frame(&self) -> Option<Claim> {
        let mut pool = self.supply.pool.lock();
        let mut search = pool.begin_long_search();
        let free = pool.free.pop();
        free.or_else(|| self.evict_one(&mut pool, &mut search))
    }

    /// Gives an empty frame to a waiter, or to the free ones.
    pub(crate) fn free_frame(&self, claim: Claim) {
        let mut claim = claim;
        if !self.supply.waiters.events.is_empty() {
            let frame = self.supply.frames.hand_over(claim);
            let token = Token(u64::from(frame.0) + 1);
            if self.supply.waiters.hand(&self.supply.waits, token) {
                return;
            }
            match self.supply.frames.take_over(frame) {
                Some(back) => claim = back,
                None => return,
            }
        }
        self.supply.pool.lock().push_free(claim);
        self.notify_frame_waiters(1);
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

    /// Looks for a frame once, for the page.
    pub(crate) fn search(&self, key: PageKey) -> Found {
        let mut pool = self.supply.pool.lock();
        let mut search = pool.begin_search();
        let claim = pool.free.pop().or_else(|| self.evict_one(&mut pool, &mut search));
        if let Some(claim) = &claim {
            pool.admit([(claim.id(), key)]);
        }
        let (dirty, candidate) = (search.dirty().map(FrameId), search.candidate().map(FrameId));
        match (claim, candidate) {
            (Some(claim), _) => Found::Frame { claim, dirty },
            (None, Some(frame)) => Found::ToWrite { frame, has_failed: dirty.is_none() },
            (None, None) => Found::Nothing,
        }
    }

    /// Up to `wanted` empty frames, for neighbouring pages from `key` on, if they can be taken
    /// without a write-back, and nobody waits for a frame; neighbours in memory, if there are any.
    ///
    /// Gives a dirty page that was met, too.
    pub(crate) fn try_take_run(
        &self,
        key: PageKey,
        wanted: usize,
    ) -> (Vec<Claim>, Option<FrameId>) {
        self.take_for_pages(key, wanted, |pool| wanted.saturating_sub(pool.free.len()))
    }

    /// As [`Pages::try_take_run`], for pages of a stream: if no extent is free as a whole, one is
    /// given up, unless an eighth of the frames are free.
    pub(crate) fn try_take_next(
        &self,
        key: PageKey,
        wanted: usize,
    ) -> (Vec<Claim>, Option<FrameId>) {
        self.take_for_pages(key, wanted, |pool| {
            let has_few_free = pool.free_soon() + EXTENT <= pool.len() / 8;
            if has_few_free && !pool.free.has_row(wanted) { EXTENT } else { 0 }
        })
    }

    /// Up to `wanted` frames for neighbouring pages, if nobody waits for one: free ones, and those
    /// of as many pages as `to_evict` says.
    fn take_for_pages(
        &self,
        key: PageKey,
        wanted: usize,
        to_evict: impl FnOnce(&mut Pool) -> usize,
    ) -> (Vec<Claim>, Option<FrameId>) {
        if self.supply.waiters.events.count() > 0 {
            return (Vec::new(), None);
        }
        let mut claims = Vec::with_capacity(wanted);
        let mut pool = self.supply.pool.lock();
        let evicted = to_evict(&mut pool);
        let dirty = self.evict_run(pool, evicted, |pool| {
            pool.free.pop_run(wanted, &mut claims);
            let pages = (key.page.0..).map(|page| PageKey { page: PageNo(page), ..key });
            pool.admit(claims.iter().map(Claim::id).zip(pages));
        });
        (claims, dirty)
    }

    /// Up to `wanted` empty frames, for no page, if they can be taken without a write-back: also if
    /// somebody waits for a frame.
    ///
    /// Gives a dirty page that was met, too.
    pub(crate) fn take_from_pool(&self, wanted: usize) -> (Vec<Claim>, Option<FrameId>) {
        let mut claims = Vec::with_capacity(wanted);
        let pool = self.supply.pool.lock();
        let evicted = wanted.saturating_sub(pool.free.len());
        let dirty = self.evict_run(pool, evicted, |pool| {
            pool.free.pop_run(wanted, &mut claims);
        });
        (claims, dirty)
    }

    /// Of the frames of a row, takes those that are free, and those whose pages can be given up
    /// without a write-back, however much they are used; for no page. Gives how many pages were
    /// given up, too.
    pub(crate) fn take_row(&self, row: Range<u32>) -> (Vec<Claim>, usize) {
        let mut claims = Vec::with_capacity(row.len());
        let frames = row.map(FrameId);
        {
            let mut pool = self.supply.pool.lock();
            claims.extend(frames.clone().filter_map(|frame| pool.free.pop_this(frame)));
        }
        let free = claims.len();
        let evictable = frames.filter(|frame| self.frames().word(*frame).is_evictable());
        let pages: Vec<_> = evictable.map(|frame| (frame, self.frames().key(frame))).collect();
        self.try_evict(&pages, &mut |claim| claims.push(claim));
        self.note_evicted(&mut self.supply.pool.lock(), &claims[free..]);
        let evicted = claims.len() - free;
        (claims, evicted)
    }

    /// Frees `wanted` frames or more, as far as that can be done without a write-back,
    /// with their neighbours where those would go soon as well; then lets `take` have them. Gives a
    /// dirty page that was met.
    ///
    /// The pool is not locked while pages are given up: that takes several times as long as to
    /// choose them, and all who want a frame would queue up. The policy proposes them to nobody
    /// else meanwhile; one that `written` names another may try as well, and one of them has it.
    fn evict_run<'a>(
        &'a self,
        mut pool: PoolGuard<'a>,
        wanted: usize,
        take: impl FnOnce(&mut Pool),
    ) -> Option<FrameId> {
        if wanted == 0 {
            take(&mut pool);
            return None;
        }
        let (mut search, mut put_back) = (pool.begin_search(), 0);
        let (mut chosen, mut claims) =
            (Vec::with_capacity(EXTENT), Vec::with_capacity(wanted + EXTENT));
        while claims.len() < wanted {
            // Large runs take whole extents, others no more than they need.
            let most = if wanted < EXTENT { wanted - claims.len() } else { EXTENT };
            self.choose(&mut pool, &mut search, most, &mut chosen);
            if chosen.is_empty() {
                break;
            }
            pool.isolate(&chosen);
            drop(pool);
            #[cfg(all(test, not(any(loom, shuttle))))]
            tests::while_unlocked();
            let before = claims.len();
            self.try_evict(&chosen, &mut |claim| claims.push(claim));
            pool = self.supply.pool.lock();
            self.note_evicted(&mut pool, &claims[before..]);
            let evicted = claims.len() - before;
            pool.end_isolation(&chosen, evicted);
            put_back += chosen.len() - evicted;
            chosen.clear();
        }
        // Not before: others would take them, and leave the run in pieces.
        pool.end_withholding(claims.len());
        pool.free.push_all(claims);
        let dirty = search.dirty().map(FrameId);
        take(&mut pool);
        let free = pool.free.len();
        drop(pool);
        // Who searched meanwhile found none of these pages, be they gone or not.
        self.notify_frame_waiters(free + put_back);
        dirty
    }

    /// Chooses pages to be given up: one, and up to `most` in all of its neighbours in memory, if
    /// those would go soon as well. None at the end of the search.
    fn choose(
        &self,
        pool: &mut Pool,
        search: &mut Search,
        most: usize,
        chosen: &mut Vec<(FrameId, PageKey)>,
    ) {
        let Some(frame) = self.propose(pool, search) else { return };
        if most > 1 {
            pool.neighbours(frame).for_each(|neighbour| self.frames().prefetch_word(neighbour));
        }
        let goes = |neighbour: &FrameId| self.may_go_early(pool, *neighbour);
        let neighbours = pool.neighbours(frame).filter(goes).take(most - 1);
        chosen.extend(std::iter::once(frame).chain(neighbours).map(|frame| {
            let key = self.frames().key(frame);
            self.index.prefetch_slot(key);
            (frame, key)
        }));
    }

    /// Whether the page of the frame may be given up before its turn.
    fn may_go_early(&self, pool: &Pool, frame: FrameId) -> bool {
        let word = self.frames().word(frame);
        word.is_evictable() && !word.is_unread() && pool.policy.may_go_early(frame.0, word.uses())
    }

    /// Gives up those of the pages that are there, are clean, were used, and may go before their
    /// turn; they are not remembered. Their frames are free then.
    ///
    /// Not those that no flush has covered: should that fail, they would be lost for want of
    /// nothing.
    pub(crate) fn give_up_early(&self, pages: impl Iterator<Item = PageKey>) {
        // A frame may be another page's by now: each is looked at again with its shard locked.
        let guess = |key| Some((self.index.lookup(key)?, key));
        let is_clean = |page: &(FrameId, _)| self.frames().word(page.0).state() == State::Clean;
        let pages: Vec<_> = pages.filter_map(guess).filter(is_clean).collect();
        let chosen: Vec<_> = {
            let pool = self.supply.pool.lock();
            pages.into_iter().filter(|(frame, _)| self.may_go_early(&pool, *frame)).collect()
        };
        let mut claims = Vec::with_capacity(chosen.len());
        self.try_evict(&chosen, &mut |claim| claims.push(claim));
        if !claims.is_empty() {
            let freed = claims.len();
            let mut pool = self.supply.pool.lock();
            claims.into_iter().for_each(|claim| pool.push_free(claim));
            drop(pool);
            self.notify_frame_waiters(freed);
        }
    }

    /// Takes a frame from its page.
    fn evict_one(&self, pool: &mut Pool, search: &mut Search) -> Option<Claim> {
        let mut claim = None;
        while claim.is_none() {
            let frame = self.propose(pool, search)?;
            let page = (frame, self.frames().key(frame));
            self.try_evict(&[page], &mut |evicted| claim = Some(evicted));
        }
        if let Some(claim) = &claim {
            self.note_evicted(pool, std::slice::from_ref(claim));
        }
        claim
    }

    /// Tells the policy of frames that were taken from their pages, and have had no others since: a
    /// frame has its key until it gets the next page.
    fn note_evicted(&self, pool: &mut Pool, claims: &[Claim]) {
        let page = |claim: &Claim| {
            debug_assert_eq!(self.frames().word(claim.id()).state(), State::Empty);
            (claim.id(), self.frames().key(claim.id()))
        };
        pool.evicted(claims.iter().map(page));
    }

    /// A frame whose page is to be given up next; none at the end of the search.
    fn propose(&self, pool: &mut Pool, search: &mut Search) -> Option<FrameId> {
        while let Some(frame) = pool.written.pop() {
            let word = self.frames().word(frame);
            if word.is_evictable() && !word.is_referenced() {
                return Some(frame);
            }
        }
        let found = pool.policy.propose(search, &mut PolicyView(self.frames()));
        pool.note_search(search, found.is_some());
        found.map(FrameId)
    }

    /// Takes frames from their pages, where these are still there, can be read again and are used
    /// by nobody.
    fn try_evict(&self, pages: &[(FrameId, PageKey)], evicted: &mut dyn FnMut(Claim)) {
        let frames = self.frames();
        let (mut evictions, mut wasted) = (0, 0);
        let mut count = |claim: Claim| {
            evictions += 1;
            wasted += u64::from(claim.was_unread());
            evicted(claim);
        };
        // At a glance: each is looked at again with its shard locked.
        let file_to_ask = |(frame, key): (FrameId, PageKey)| {
            (frames.word(frame).state() == State::Unstable).then_some(key.file)
        };
        for same in pages.chunk_by(|a, b| file_to_ask(*a) == file_to_ask(*b)) {
            if file_to_ask(same[0]).is_some() {
                self.flush_state.evict_unstable(self, same, &mut count);
                continue;
            }
            let mut locked = None;
            for &(frame, key) in same {
                let shard = self.next_shard(&mut locked, key);
                if frames.word(frame).state() == State::Clean
                    && let Some(claim) = shard.evict(frames, frame)
                {
                    shard.remove();
                    count(claim);
                }
            }
        }
        if evictions > 0 {
            self.counters.add(Count::Evictions, evictions);
        }
        if wasted > 0 {
            self.counters.add(Count::ReadAheadWasted, wasted);
        }
    }

    /// Evicts a page that is written and not flushed, if `may_go` says so; else it is dirty again.
    /// The caller holds the locks of the file, so the answer stays true until the shard is
    /// unlocked.
    pub(crate) fn evict_unstable<'a>(
        &'a self,
        frame: FrameId,
        key: PageKey,
        locked: &mut Option<ShardGuard<'a>>,
        may_go: impl FnOnce(u64) -> bool,
    ) -> Option<Claim> {
        let shard = self.next_shard(locked, key);
        let still_unstable = self.frames().word(frame).state() == State::Unstable;
        // The frame first: a pin may come before that, and then the file lost nothing.
        let claim = shard.evict(self.frames(), frame)?;
        if still_unstable && !may_go(self.frames().period(frame)) {
            self.frames().publish(claim, State::Dirty);
            return None;
        }
        shard.remove();
        Some(claim)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
