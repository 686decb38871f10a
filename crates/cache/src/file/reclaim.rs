//! Where frames come from: free ones, evicted ones, and, if there are none, a wait.
//!
//! A thread that finds no frame writes an idle dirty page back (or lets the I/O thread do it), and
//! waits. A frame that becomes free is handed to one waiter; one that becomes idle (it can be
//! evicted or written) makes one waiter look again.
//!
//! How neither misses the other stands in `frame_waiters.rs`.
//!
//! Frames lie in a pool for each NUMA node (`pools.rs`). Which page is given up, the pool's policy
//! says. It hears of each frame that leaves the free ones, and of each that comes back to them,
//! under the pool's lock: so a frame with a page is known to it, and it is asked about no others
//! for long. A frame that was handed to a waiter is admitted by that waiter.
//!
//! A thread that leaves with an error wakes another, in case the wake was meant for a frame that it
//! did not take.

use std::time::Duration;

use unherd_sync::{Outcome, Token, Wait};
use unherd_sys::primitives::{Arc, Mutex};
use unherd_sys::{Deadline, Timestamp};

use crate::Error;
use crate::file::core::Core;
use crate::file::durability::Eviction;
use crate::file::files::FileState;
use crate::file::unwritten::RETRY_AFTER;
use crate::frames::frame::{Claim, Frames, Held, Pin, State, Word};
use crate::frames::free::EXTENT;
use crate::frames::policy::{self, Idle, Look, Search, Uses};
use crate::frames::pools::{Pool, Pools};
use crate::frames::usage::FrameUsage;
use crate::frames::waiters::{FrameWaiters, LOOK};
use crate::page::{FrameId, PageKey, PageNo};
use crate::pages::index::ShardGuard;
use crate::stats::Count;

/// Idle frames that the policy looks at for a clean one, once it has met a dirty one.
const WINDOW: usize = 64;

#[derive(Debug)]
pub(crate) struct Reclaim {
    pub(crate) pools: Pools,
    pub(crate) waiters: FrameWaiters,
    frame_usage: FrameUsage,
    /// The latest write-back that failed, to be named where frames are missing.
    write_error: Mutex<Option<Arc<Error>>>,
}

/// What a search has found.
#[derive(Debug)]
enum Found {
    Frame(Claim),
    /// A page that must be written before its frame can be had.
    ToWrite {
        frame: FrameId,
        /// Whether that was tried before.
        has_failed: bool,
    },
    Nothing,
}

impl Found {
    /// The higher, the rather is it what a search over several pools has found.
    fn rank(&self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::ToWrite { has_failed: true, .. } => 1,
            Self::ToWrite { has_failed: false, .. } => 2,
            Self::Frame(_) => 3,
        }
    }
}

/// What one that has entered the waiters has tried, between its waits.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// The page that wants the frame.
    key: PageKey,
    end: Timestamp,
    /// Whether it was woken, and has found nothing since.
    pub(crate) woken: bool,
}

/// What came of an attempt to have a frame.
#[derive(Debug)]
pub(crate) enum Attempt {
    Frame(Claim),
    /// There is none; a wait for one is to be told what was `seen` of the waiters before.
    Wait {
        seen: u32,
        /// The deadline, or when to look again before that.
        until: Timestamp,
    },
}

impl Reclaim {
    pub(crate) fn new(pools: Pools, frames: usize) -> Self {
        Self {
            pools,
            waiters: FrameWaiters::new(frames),
            frame_usage: FrameUsage::default(),
            write_error: Mutex::default(),
        }
    }

    /// Bytes of what the policies keep, and of the pages given up.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pools.memory_bytes()
    }

    /// The copy of a page takes the place of the page. The caller has both: the copy by a claim,
    /// and the page, which is out of the index, by a pin, so its frame has no other page yet. In
    /// the pool of another node the copy is a new page.
    pub(crate) fn note_copied(&self, from: &Pin, to: &Claim) {
        let at = self.pools.of(from.id());
        if at == self.pools.of(to.id()) {
            let mut pool = self.pools.lock(at);
            let (from, to) = (pool.number(from.id()), pool.number(to.id()));
            pool.policy.transfer(from, to);
        }
    }

    /// Frames that were just written back and could be evicted.
    pub(crate) fn note_written(&self, frames: &[FrameId]) {
        for same in frames.chunk_by(|a, b| self.pools.of(*a) == self.pools.of(*b)) {
            let mut pool = self.pools.lock(self.pools.of(same[0]));
            let room = pool.written.capacity() - pool.written.len();
            pool.written.extend(same.iter().take(room));
        }
    }

    pub(crate) fn note_write_error(&self, error: &Error) {
        *self.write_error.lock() = Some(Arc::new(error.clone()));
    }

    /// Whether a thread may wait for a frame. The caller has just changed a frame's word by a
    /// read-modify-write.
    #[inline]
    pub(crate) fn is_waited_for_after_rmw(&self) -> bool {
        !self.waiters.is_empty_after_rmw()
    }
}

/// What one keeps who gives several pages up, from one to the next: they may be neighbours.
#[derive(Default)]
struct Kept<'a> {
    shard: Option<ShardGuard<'a>>,
    file: Option<Arc<FileState>>,
}

/// What the policy sees in a frame's word.
fn look(word: Word) -> Look {
    let page = match word.state() {
        // What is behind an older version cannot be written yet.
        _ if word.pins() > 0 || word.is_awaiting_older_writeback() => return Look::Busy,
        State::Clean | State::Unstable => Idle::Clean,
        State::Dirty => Idle::Dirty,
        State::Failed => Idle::Failed,
        State::Empty
        | State::Handed
        | State::Reading
        | State::Changing
        | State::Detached
        | State::Superseded
        | State::WriteBack => return Look::Busy,
    };
    Look::Idle { uses: word.uses(), page }
}

/// The page's name for the policy. Where two have the same, one may be taken for one that came
/// back, which harms nobody.
fn policy_hash(key: PageKey) -> u64 {
    key.page.0 ^ u64::from(key.file.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The frames of a pool, as its policy may see them.
struct Seen<'a> {
    frames: &'a Frames,
    first: FrameId,
}

impl Seen<'_> {
    fn frame(&self, number: u32) -> FrameId {
        FrameId(self.first.0 + number)
    }
}

impl policy::Frames for Seen<'_> {
    fn look(&mut self, frame: u32) -> Look {
        look(self.frames.word(self.frame(frame)))
    }

    fn forget(&mut self, frame: u32, uses: Uses) {
        match uses {
            Uses::One => self.frames.forget_latest_use(self.frame(frame)),
            Uses::All => self.frames.forget_uses(self.frame(frame)),
        }
    }
}

impl Core {
    /// A frame that became idle may be just what somebody waits for.
    pub(crate) fn notify_idle(&self, frames: usize) {
        if self.reclaim.waiters.tell(&self.waits, frames) {
            self.hand_out_frames();
        }
    }

    /// A write-back has ended, and its frames have become idle.
    pub(crate) fn end_write(&self, frames: usize) {
        if self.reclaim.waiters.end_write(&self.waits, frames) {
            self.hand_out_frames();
        }
    }

    /// Gives the frames that can be had to those that wait for one, as far as there are both.
    #[cold]
    fn hand_out_frames(&self) {
        let waiting = self.reclaim.waiters.count();
        let claims: Vec<Claim> = (0..waiting).map_while(|_| self.try_take_any_frame()).collect();
        claims.into_iter().for_each(|claim| self.free_frame(claim));
    }

    /// An empty frame, for no page yet, if one can be had without a write-back.
    fn try_take_any_frame(&self) -> Option<Claim> {
        let pools = &self.reclaim.pools;
        (0..pools.count()).find_map(|at| {
            let mut pool = pools.lock(at);
            let mut search = Search::new(pool.len(), WINDOW);
            let free = pools.pop_free(at, &mut pool);
            free.or_else(|| self.evict_one(&mut pool, &mut search, &mut Kept::default()))
        })
    }

    /// Gives an empty frame to a waiter, or to the free ones.
    pub(crate) fn free_frame(&self, claim: Claim) {
        let mut claim = claim;
        if !self.reclaim.waiters.is_empty() {
            let frame = self.frames.hand_over(claim);
            let token = Token(u64::from(frame.0) + 1);
            if self.reclaim.waiters.hand(&self.waits, token) {
                return;
            }
            match self.frames.take_over(frame) {
                Some(back) => claim = back,
                None => return,
            }
        }
        self.reclaim.pools.push_free(claim);
        self.notify_idle(1);
    }

    /// An empty frame for the page, if there is one or one can be had without a write-back.
    pub(crate) fn try_take_frame(&self, key: PageKey) -> Option<Claim> {
        match self.search(key) {
            Found::Frame(claim) => Some(claim),
            Found::ToWrite { .. } | Found::Nothing => None,
        }
    }

    /// An empty frame for the page. Blocks under `frame` while there is none, and under the device
    /// while it writes a page back; gives up at the cache's frame deadline, counted from when the
    /// caller `began` to wait for a frame, if it did before.
    pub(crate) fn take_frame(
        &self,
        key: PageKey,
        began: Option<Timestamp>,
    ) -> Result<Claim, Error> {
        match self.search(key) {
            Found::Frame(claim) => Ok(claim),
            Found::ToWrite { .. } | Found::Nothing => self.take_slow(key, began),
        }
    }

    #[cold]
    fn take_slow(&self, key: PageKey, began: Option<Timestamp>) -> Result<Claim, Error> {
        let began = began.unwrap_or_else(Timestamp::now);
        let end = began.after(self.frame_wait);
        let taken = self.take_before(key, end);
        taken.ok_or_else(|| {
            self.notify_idle(1);
            self.no_frames(Timestamp::now().since(began))
        })
    }

    fn take_before(&self, key: PageKey, end: Timestamp) -> Option<Claim> {
        let _entered = self.reclaim.waiters.enter();
        let mut attempts = self.begin_attempts(key, end);
        loop {
            let (seen, until) = match self.attempt(&mut attempts) {
                Attempt::Frame(claim) => return Some(claim),
                Attempt::Wait { seen, until } => (seen, until),
            };
            let wait = Wait::new(self.reasons.frame).deadline(Deadline::at(until));
            match self.reclaim.waiters.wait(&self.waits, seen, wait) {
                Outcome::Woken(LOOK) => attempts.woken = true,
                Outcome::Woken(Token(frame)) => {
                    let handed = self.frames.take_over(FrameId((frame - 1) as u32));
                    if let Some(claim) = handed {
                        let pools = &self.reclaim.pools;
                        let mut pool = pools.lock(pools.of(claim.id()));
                        pools.admit(&mut pool, &claim, policy_hash(key));
                        return Some(claim);
                    }
                    attempts.woken = true;
                }
                Outcome::Invalid => attempts.woken = false,
                Outcome::TimedOut if until < end => attempts.woken = false,
                // A frame may be there: a task that nobody polls may have been notified.
                Outcome::TimedOut => return self.try_take_frame(key),
            }
        }
    }

    pub(crate) fn begin_attempts(&self, key: PageKey, end: Timestamp) -> Attempts {
        Attempts { key, end, woken: false }
    }

    /// Looks for a frame, and writes pages back as long as that can be done and none is found. The
    /// caller has entered the waiters.
    pub(crate) fn attempt(&self, attempts: &mut Attempts) -> Attempt {
        let reclaim = &self.reclaim;
        loop {
            let seen = reclaim.waiters.idled();
            let mut until = attempts.end;
            match self.search(attempts.key) {
                Found::Frame(claim) => return Attempt::Frame(claim),
                Found::ToWrite { frame, has_failed } if Timestamp::now() < attempts.end => {
                    attempts.woken = false;
                    if self.write_back_frame(frame) {
                        continue;
                    }
                    // Nobody is told when its file's writes may be tried again.
                    if has_failed && cfg!(not(shuttle)) {
                        until = until.min(Timestamp::now().after(RETRY_AFTER));
                    }
                }
                Found::ToWrite { .. } | Found::Nothing => {}
            }
            if attempts.woken {
                self.waits.note_needless(self.reasons.frame);
            }
            return Attempt::Wait { seen, until };
        }
    }

    /// Looks for a frame once, for the page, in all pools.
    fn search(&self, key: PageKey) -> Found {
        if self.reclaim.pools.count() == 1 {
            return self.search_pool(0, key);
        }
        let mut best = Found::Nothing;
        for at in self.reclaim.pools.in_order() {
            let found = self.search_pool(at, key);
            if matches!(found, Found::Frame(_)) {
                return found;
            }
            if found.rank() > best.rank() {
                best = found;
            }
        }
        best
    }

    /// Up to `wanted` empty frames, for neighbouring pages from `key` on, if they can be taken
    /// without a write-back, and nobody waits for a frame; neighbours in memory, if there are any.
    pub(crate) fn try_take_run(&self, key: PageKey, wanted: usize) -> Vec<Claim> {
        if wanted == 1 {
            return self.try_take_frame(key).into_iter().collect();
        }
        let mut claims = Vec::with_capacity(wanted);
        if self.reclaim.waiters.count() > 0 {
            return claims;
        }
        let pools = &self.reclaim.pools;
        let at = pools.first();
        let mut pool = pools.lock(at);
        let missing = wanted.saturating_sub(pool.free_len());
        let dirty = if missing > 0 { self.evict_run(at, &mut pool, missing) } else { None };
        pools.pop_free_run(at, &mut pool, wanted, &mut claims);
        for (nth, claim) in claims.iter().enumerate() {
            let page = PageNo(key.page.0 + nth as u64);
            pools.admit(&mut pool, claim, policy_hash(PageKey { page, ..key }));
        }
        drop(pool);
        if let Some(dirty) = dirty {
            self.write_ahead(dirty);
        }
        claims
    }

    /// Frees `wanted` frames of the pool or more, as far as that can be done without a write-back,
    /// with their neighbours where those would go soon as well. Gives a dirty page that was met.
    fn evict_run(&self, at: usize, pool: &mut Pool, wanted: usize) -> Option<FrameId> {
        let (mut search, mut kept) = (Search::new(pool.len(), WINDOW), Kept::default());
        let mut left = wanted;
        while left > 0
            && let Some(claim) = self.evict_one(pool, &mut search, &mut kept)
        {
            let frame = claim.id();
            self.reclaim.pools.push_free_locked(at, pool, claim);
            left -= 1;
            for neighbour in pool.neighbours(frame) {
                // Large runs take whole extents, others no more than they need.
                if left == 0 && wanted < EXTENT {
                    break;
                }
                let word = self.frames.word(neighbour);
                let goes = word.is_evictable()
                    && !word.is_unread()
                    && pool.policy.may_go_early(pool.number(neighbour), word.uses());
                if goes && let Some(claim) = self.try_evict(neighbour, &mut kept) {
                    self.reclaim.pools.evicted(pool, neighbour);
                    self.reclaim.pools.push_free_locked(at, pool, claim);
                    left = left.saturating_sub(1);
                }
            }
        }
        search.dirty().map(|number| pool.frame(number))
    }

    fn search_pool(&self, at: usize, key: PageKey) -> Found {
        let mut pool = self.reclaim.pools.lock(at);
        let mut search = Search::new(pool.len(), WINDOW);
        let claim = match self.reclaim.pools.pop_free(at, &mut pool) {
            Some(claim) => Some(claim),
            None => self.evict_one(&mut pool, &mut search, &mut Kept::default()),
        };
        if let Some(claim) = &claim {
            self.reclaim.pools.admit(&mut pool, claim, policy_hash(key));
        }
        let candidate = |number: Option<u32>| number.map(|number| pool.frame(number));
        let (dirty, candidate) = (candidate(search.dirty()), candidate(search.candidate()));
        drop(pool);
        match (claim, candidate) {
            (Some(claim), _) => {
                if let Some(dirty) = dirty {
                    self.write_ahead(dirty);
                }
                Found::Frame(claim)
            }
            (None, Some(frame)) => Found::ToWrite { frame, has_failed: dirty.is_none() },
            (None, None) => Found::Nothing,
        }
    }

    /// Takes a frame of the pool from its page.
    fn evict_one<'a>(
        &'a self,
        pool: &mut Pool,
        search: &mut Search,
        kept: &mut Kept<'a>,
    ) -> Option<Claim> {
        while let Some(frame) = pool.written.pop() {
            let word = self.frames.word(frame);
            if word.is_evictable()
                && !word.is_referenced()
                && let Some(claim) = self.try_evict(frame, kept)
            {
                self.reclaim.pools.evicted(pool, frame);
                return Some(claim);
            }
        }
        let mut seen = Seen { frames: &self.frames, first: pool.frame(0) };
        while let Some(number) = pool.policy.propose(search, &mut seen) {
            let frame = pool.frame(number);
            if let Some(claim) = self.try_evict(frame, kept) {
                self.reclaim.pools.evicted(pool, frame);
                return Some(claim);
            }
        }
        None
    }

    /// Takes the frame from its page, if that can be read again and nobody uses it.
    fn try_evict<'a>(&'a self, frame: FrameId, kept: &mut Kept<'a>) -> Option<Claim> {
        let key = self.frames.key(frame);
        let claim = if self.frames.word(frame).state() == State::Unstable {
            self.evict_unstable(frame, key, kept)?
        } else {
            let locked = kept.shard.take();
            let shard = kept.shard.insert(self.next_shard(locked, key));
            if self.frames.word(frame).state() != State::Clean {
                return None;
            }
            let claim = shard.evict(&self.frames, frame)?;
            shard.remove();
            claim
        };
        self.counters.add(Count::Evictions, 1);
        if claim.was_unread() {
            self.counters.add(Count::ReadAheadWasted, 1);
        }
        Some(claim)
    }

    /// As [`Core::try_evict`], of a page that no flush has covered. What the file promises and
    /// whether the page is there must change together.
    fn evict_unstable(&self, frame: FrameId, key: PageKey, kept: &mut Kept<'_>) -> Option<Claim> {
        kept.shard = None;
        if kept.file.as_ref().is_none_or(|file| file.id != key.file) {
            kept.file = self.files.get(key.file);
        }
        let file = kept.file.as_ref()?;
        let mut durability = file.durability.lock();
        let mut unclean = file.unclean.lock();
        let mut shard = self.shard(key);
        let still_unstable = self.frames.word(frame).state() == State::Unstable;
        // The frame first: a pin may come before that, and then the file lost nothing.
        let claim = shard.evict(&self.frames, frame)?;
        if still_unstable && durability.evict(self.frames.period(frame)) == Eviction::Redirty {
            self.add_unwritten(file, 1);
            self.frames.publish(claim, State::Dirty);
            return None;
        }
        shard.remove();
        unclean.remove(key.page);
        Some(claim)
    }

    /// There is no frame. Looks at all of them, to say why.
    pub(crate) fn no_frames(&self, waited: Duration) -> Error {
        let frame_usage = &self.reclaim.frame_usage;
        let held = frame_usage.answer(frame_usage.ask(), || self.frames.held());
        self.no_frames_as(held, waited)
    }

    /// As [`Core::no_frames`], for one that is told so by another, who has looked.
    pub(crate) fn no_frames_as_told(&self, waited: Duration) -> Error {
        self.no_frames_as(self.reclaim.frame_usage.latest(), waited)
    }

    fn no_frames_as(&self, held: Held, waited: Duration) -> Error {
        let Held { pinned, threads, unwritten } = held;
        let write_error =
            if unwritten > 0 { self.reclaim.write_error.lock().clone() } else { None };
        let capacity = self.frames.len();
        Error::NoFrames { pinned, threads, unwritten, capacity, waited, write_error }
    }
}

#[cfg(test)]
mod tests;
