//! Memory in one piece, out of the frames.
//!
//! A *row* is 2^order neighbouring frames, the first at a multiple of their number. The cache looks
//! at all rows, and empties the one that costs least: free frames cost nothing, a page that must be
//! written costs more than one that was used twice. Used pages are given up as others are: to move
//! one takes a frame, for which another page is given up.
//!
//! | in the way is | then |
//! |---|---|
//! | nothing (the frame is free), or a page that can be read again | the frame is taken |
//! | a dirty page | its write-back is begun |
//! | a page that is being read or written back | the caller waits for that, until its deadline |
//! | a page that is pinned, being changed, held back or failed; a frame that another call has taken | the row is left alone, unless that ends within a few looks |
//!
//! The owner of a guard may keep it for ever, so nobody waits for that. The waits are those for a
//! page (`pages/wait.rs`), and a frame is taken by its [`Claim`]: there is no protocol of its own.
//!
//! # Invariants
//!
//! 1. What is taken of a row is not in the pool, so nobody else gets it, and what is missing only
//!    becomes less.
//! 2. Frames are taken by one thread at a time, and not while the capacity changes (the latch
//!    `resizing`); they come back at any time.
//! 3. At most an eighth of the frames are taken so, and [`MIN_FRAMES`] are left. A file
//!    whose writes fail has three quarters at most (`unwritten.rs`), which it may have had before;
//!    so an eighth is left for the pages of others.

use std::fmt;
use std::ops::{Deref, Range};

use unherd_sys::primitives::{Arc, thread};
use unherd_sys::{Deadline, Timestamp};

use crate::Error;
use crate::file::Core;
use crate::frames::{Claim, MIN_FRAMES, State, Supply};
use crate::latch::ExclusiveGuard;
use crate::page::{FrameId, PageKey};
use crate::pages::{Busy, Pages, Want, Work};
use crate::stats::Count;

/// The largest piece.
const BYTES_MAX: usize = 2 << 20;

/// How often all rows are looked at, and how often a row whose last frames cannot be had: most pins
/// are short.
const LOOKS: usize = if cfg!(shuttle) { 2 } else { 16 };

/// What a page costs that must be written, or is being read or written. One that can be read again
/// costs from 1 to 3, by its marks of use.
const UNCLEAN_COST: usize = 4;

/// How many of that many frames may be given out.
pub(crate) fn share(capacity: usize) -> usize {
    capacity / 8
}

/// How many rows are tried after each look at all of them, the cheapest first.
const TRIED: usize = 4;

/// A row that nothing stands in the way of.
struct Row {
    frames: Range<u32>,
    cost: usize,
}

/// What a look at all rows has found.
#[derive(Default)]
struct Looked {
    rows: usize,
    obstacles: Obstacles,
    /// The cheapest rows without obstacles, in this order.
    clear: Vec<Row>,
}

impl Looked {
    /// Looks at all rows of `len` frames that the cache has for pages, no further than to one that
    /// costs nothing.
    fn at_rows(supply: &Supply, len: usize) -> Self {
        let mut looked = Self::default();
        let rows = {
            let pool = supply.pool.lock();
            (pool.len() >= len + MIN_FRAMES).then(|| pool.rows(len as u32))
        };
        for frames in rows.into_iter().flatten() {
            let Some((cost, obstacles)) = look_at_row(supply, frames.clone()) else {
                continue;
            };
            looked.rows += 1;
            looked.obstacles.add(&obstacles);
            if obstacles.is_none() {
                looked.clear.push(Row { frames, cost });
                if cost == 0 {
                    break;
                }
                if looked.clear.len() == 2 * TRIED {
                    looked.keep_cheapest();
                }
            }
        }
        looked.keep_cheapest();
        looked
    }

    fn keep_cheapest(&mut self) {
        self.clear.sort_by_key(|row| row.cost);
        self.clear.truncate(TRIED);
    }
}

/// Frames that cannot be had, of one row or of several.
#[derive(Debug, Clone, Copy, Default)]
struct Obstacles {
    pinned: usize,
    changing: usize,
    unwritten: usize,
    taken: usize,
    /// The page in one of them.
    page: Option<PageKey>,
}

impl Obstacles {
    fn is_none(&self) -> bool {
        self.pinned + self.changing + self.unwritten + self.taken == 0
    }

    fn add(&mut self, other: &Self) {
        self.pinned += other.pinned;
        self.changing += other.changing;
        self.unwritten += other.unwritten;
        self.taken += other.taken;
        self.page = self.page.or(other.page);
    }
}

/// What a row costs, and what stands in the way; `None` if not all its frames are there for
/// pages.
fn look_at_row(supply: &Supply, frames: Range<u32>) -> Option<(usize, Obstacles)> {
    let (mut cost, mut empty, mut obstacles) = (0, 0_usize, Obstacles::default());
    let ids = frames.map(FrameId);
    for frame in ids.clone() {
        let word = supply.frames.word(frame);
        let count = match word.state() {
            State::Empty | State::Handed => {
                empty += 1;
                continue;
            }
            _ if word.pins() > 0 => &mut obstacles.pinned,
            State::Changing => &mut obstacles.changing,
            State::Held | State::Failed => &mut obstacles.unwritten,
            State::Clean | State::Unstable => {
                cost += 1 + word.uses() as usize;
                continue;
            }
            State::Dirty
            | State::WriteBack
            | State::Reading
            | State::Detached
            | State::Superseded => {
                cost += UNCLEAN_COST;
                continue;
            }
        };
        *count += 1;
        obstacles.page = Some(supply.frames.key(frame));
    }
    if empty > 0 {
        let pool = supply.pool.lock();
        if !ids.clone().all(|frame| pool.has(frame)) {
            return None;
        }
        let free = ids.filter(|frame| pool.free.has(*frame)).count();
        obstacles.taken = empty.saturating_sub(free);
    }
    Some((cost, obstacles))
}

impl Row {
    /// Empties a row; `None` if that cannot be done, or not before `end`.
    fn take(&self, core: &Arc<Core>, end: Timestamp) -> Option<ContiguousFrames> {
        let mut memory = ContiguousFrames { core: core.clone(), claims: Vec::new() };
        let mut looks_left = LOOKS;
        while looks_left > 0 && Timestamp::now() < end {
            let (claims, evicted) = core.pages.take_row(self.frames.clone());
            core.counters().add(Count::ContiguousEvictions, evicted as u64);
            // At once, so that nobody who looks for a frame counts on them.
            core.supply().give_out(&claims);
            memory.claims.extend(claims);
            if memory.claims.len() == self.frames.len() {
                memory.claims.sort_unstable_by_key(|claim| claim.id().0);
                return Some(memory);
            }
            if !self.clear(core, end) {
                looks_left -= 1;
                thread::yield_now();
            }
        }
        None
    }

    /// Begins to write back what is dirty in a row, and waits for a page that is being written or
    /// read, or for a buffer. Whether there was anything to do.
    fn clear(&self, core: &Core, end: Timestamp) -> bool {
        let missing: Vec<FrameId> = {
            let pool = core.supply().pool.lock();
            self.frames.clone().map(FrameId).filter(|frame| pool.has(*frame)).collect()
        };
        let is_dirty = |frame: &&FrameId| core.frames().word(**frame).state() == State::Dirty;
        let dirty = missing.iter().filter(is_dirty);
        let begun = dirty.filter(|frame| core.write_back_frame(**frame)).count();
        core.counters().add(Count::ContiguousWriteBacks, begun as u64);
        if let Some((key, busy)) = missing.iter().find_map(|frame| busy_in(&core.pages, *frame)) {
            let how = core.pages.how_to_wait(busy, Want::Read).deadline(Deadline::at(end));
            let still = || core.pages.is_still(key, busy);
            let outcome = core.pages.waits.wait(&key.into(), still, how);
            let _ = core.pages.told(key, busy, outcome);
            return true;
        }
        let lacks_buffer = missing.iter().any(|frame| is_dirty(&frame)) && !core.io.runs.has_free();
        if lacks_buffer {
            let mut buffers = Vec::new();
            if core.io.runs.take(1, &mut buffers) {
                core.pages.notify_writable();
            }
            core.put_buffers(buffers);
        }
        begun > 0 || lacks_buffer
    }
}

/// What to wait for, if the page in a frame is being read or written back, or was when it was
/// replaced.
fn busy_in(pages: &Pages, frame: FrameId) -> Option<(PageKey, Busy)> {
    let (key, word) = (pages.frames().key(frame), pages.frames().word(frame));
    let busy = match word.state() {
        state if state == State::Superseded || word.is_awaiting_older_writeback() => {
            pages.busy_awaiting_older_writeback(key)
        }
        State::Reading | State::WriteBack => pages.busy(key),
        _ => None,
    };
    Some((key, busy.filter(|busy| busy.work != Work::Changing)?))
}

/// Memory in one piece, by [`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous). When it is
/// dropped, the cache has the frames for pages again, and wakes as many that wait for one.
///
/// It may be sent to another thread, and outlives the cache if need be. Read it as a slice. It
/// cannot be written as one, since a thread that looks at a page without a pin may still look at
/// the frame that this page had: it will throw away what it reads, but reads it.
pub struct ContiguousFrames {
    core: Arc<Core>,
    /// Of frames in a row, in their order; of fewer while the row is being emptied.
    claims: Vec<Claim>,
}

impl fmt::Debug for ContiguousFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContiguousFrames").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for ContiguousFrames {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.core.memory().claimed_row(&self.claims)
    }
}

impl ContiguousFrames {
    /// See [`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous).
    pub(crate) fn take(core: &Arc<Core>, order: u32) -> Result<Self, Error> {
        core.check_not_forked()?;
        let _held = ExclusiveGuard::new(&core.resizing, core.waits(), core.reasons().frame);
        let page_bytes = core.memory().page_bytes();
        let most = share(core.supply().capacity());
        let len_max = most.min(BYTES_MAX / page_bytes);
        let len = 1_usize.checked_shl(order).unwrap_or(usize::MAX);
        let bytes = len.saturating_mul(page_bytes);
        if len > len_max {
            let bytes_max = len_max.checked_ilog2().map_or(0, |order| page_bytes << order);
            return Err(Error::ContiguousTooLarge { bytes, bytes_max });
        }
        let began = Timestamp::now();
        let end = began.after(core.frame_wait);
        let mut looked = Looked::default();
        if core.supply().given_out() + len <= most {
            for _ in 0..LOOKS {
                core.take_back_preallocated();
                looked = Looked::at_rows(core.supply(), len);
                let mut clear = looked.clear.iter();
                if let Some(memory) = clear.find_map(|row| row.take(core, end)) {
                    return Ok(memory);
                }
                if Timestamp::now() >= end {
                    break;
                }
                thread::yield_now();
            }
        }
        let Looked { rows, obstacles, .. } = looked;
        let Obstacles { pinned, changing, unwritten, taken, page } = obstacles;
        let file = |key: PageKey| Some((core.files.get(key.file)?.path.clone(), key.page.0));
        Err(Error::NoContiguousFrames {
            bytes,
            rows,
            pinned,
            changing,
            unwritten,
            taken,
            page: page.and_then(file),
            given_out_bytes: core.supply().given_out() * page_bytes,
            given_out_bytes_max: most * page_bytes,
            waited: Timestamp::now().since(began),
        })
    }

    /// How many bytes there are. Looks at none of them.
    #[expect(clippy::len_without_is_empty, reason = "there is at least a page")]
    pub fn len(&self) -> usize {
        self.claims.len() * self.core.memory().page_bytes()
    }

    /// Writes `bytes` at `at`.
    ///
    /// # Panics
    /// If they do not fit, as a slice would.
    #[track_caller]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let len = self.len();
        let fits = at <= len && bytes.len() <= len - at;
        assert!(fits, "a write of {} bytes at {at} of {len} bytes", bytes.len());
        self.core.memory().write_row(&mut self.claims, at, bytes);
    }

    /// Where the memory begins, for the kernel or a device to write: as the buffer of a read, for
    /// instance.
    ///
    /// Ordinary writes through the pointer are undefined behaviour, as they would meet the reads of
    /// a look: use [`ContiguousFrames::write`]. What the kernel or a device writes may not be read
    /// as a slice meanwhile, and the guard must live until they are done.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.core.memory().row_to_write(&mut self.claims).as_ptr()
    }
}

impl Drop for ContiguousFrames {
    fn drop(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        let count = claims.len();
        if count == 0 || self.core.fork().is_forked() {
            return;
        }
        self.core.supply().take_back(claims);
        self.core.pages.notify_frame_waiters(count);
        self.core.files.hand_out_reservations(self.core.supply(), usize::MAX);
    }
}
