//! The frames, by the NUMA node that their memory is of: a *pool* for each node, with its free
//! frames and a policy of its own.
//!
//! Frames of one pool are neighbours, and so is their memory, which is bound to the node. Who needs
//! a frame asks the pools in this order, each once:
//!
//! 1. one with free frames, that of the node it runs on before others;
//! 2. if none has any: that of its node, and each eighth time another, so that pages which nobody
//!    wants any more leave the nodes too where nothing is missing;
//! 3. the others.
//!
//! A frame goes back to its own pool, or to a thread that waits for a frame, wherever that runs:
//! those wait in one queue. Each pool has a lock; nobody has two of them at a time. Under it one
//! of the locks of the ghosts (what is remembered of evicted pages) may be taken at a time.
//!
//! On a machine of one node there is one pool, and nobody asks where it runs.

use std::ops::{Range, RangeInclusive};

use unherd_sys::primitives::{Arc, AtomicU32, Ordering};
use unherd_sys::{NodeId, Topology, current_cpu};

use crate::frames::free::{FreeCount, FreeFrames, Set};
use crate::frames::policy::{self, Ghost, S3Fifo, Search};
use crate::frames::{Claim, EXTENT};
use crate::page::{FrameId, PageKey};
use crate::ranked::{Ranked, RankedGuard, rank};

/// The least number of pages that a cache has room for.
pub const MIN_FRAMES: usize = 4;

/// Every so often a thread that finds no free frame asks the pool of another node first.
const AWAY_EVERY: u32 = 8;

/// How many idle frames a search looks at for a clean one, once it has met a dirty one. After one
/// in vain the next looks at half as many, else at four times as many, and no fewer than
/// [`WINDOW_FOUND`]: where nearly all are dirty, looks are cache misses for nothing, and all who
/// want a frame wait for the pool.
const WINDOW: RangeInclusive<usize> = 2..=64;

/// The fewest looks after a search that has found a frame.
const WINDOW_FOUND: usize = 8;

/// The frames of one node.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The first of its frames. The policy counts from there.
    first: u32,
    len: u32,
    /// How many of them the cache has for pages now, and which.
    present: u32,
    has: Set,
    pub(crate) free: FreeFrames,
    /// Frames just written back, available before the policy finds them. Hints: each is checked.
    pub(crate) written: Vec<FrameId>,
    pub(crate) policy: S3Fifo,
    /// In [`WINDOW`].
    window: usize,
    /// Frames whose pages are being given up, with the pool unlocked, and those that were taken
    /// from pages so, and are not free yet.
    isolated: usize,
}

impl Pool {
    /// How many frames it has now.
    pub(crate) fn len(&self) -> usize {
        self.present as usize
    }

    /// For a frame whose page is to be given up.
    pub(crate) fn begin_search(&self) -> Search {
        Search::new(self.len as usize, self.window)
    }

    /// As [`Pool::begin_search`], for one that writes nothing and whose caller will not look again.
    pub(crate) fn begin_long_search(&self) -> Search {
        Search::new(self.len as usize, *WINDOW.end())
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
        self.has.set(self.number(frame) as usize, is_present);
        self.policy.set_frames(self.present);
    }

    /// Puts an empty frame to the free ones.
    pub(crate) fn push_free(&mut self, claim: Claim) {
        self.policy.remove(self.number(claim.id()));
        self.free.push(claim);
    }

    /// Whether the cache has the frame for pages now.
    pub(crate) fn has(&self, frame: FrameId) -> bool {
        self.has.has(self.number(frame) as usize)
    }

    /// Its frames in rows of `len` whose numbers begin at multiples of that.
    pub(crate) fn rows(&self, len: u32) -> impl Iterator<Item = Range<u32>> + use<> {
        let rows = self.first.div_ceil(len)..(self.first + self.len) / len;
        rows.map(move |row| row * len..(row + 1) * len)
    }

    /// The extent of memory in which a frame lies.
    fn extent(&self, frame: FrameId) -> u32 {
        self.number(frame) / EXTENT as u32
    }

    /// Pages are about to be given up by the caller: the policy proposes them to nobody else.
    pub(crate) fn isolate(&mut self, pages: &[(FrameId, PageKey)]) {
        pages.iter().for_each(|(frame, _)| self.policy.isolate(self.number(*frame)));
        self.isolated += pages.len();
    }

    /// After [`Pool::isolate`] and [`Pools::evicted`] of those pages that were: the others stay.
    pub(crate) fn end_isolation(&mut self, pages: &[(FrameId, PageKey)], evicted: usize) {
        pages.iter().for_each(|(frame, _)| self.policy.put_back(self.number(*frame)));
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
        let begin = self.first + self.extent(frame) * EXTENT as u32;
        let end = (begin + EXTENT as u32).min(self.first + self.len);
        (begin..end).map(FrameId).filter(move |other| *other != frame)
    }

    /// A frame's number in the pool.
    pub(crate) fn number(&self, frame: FrameId) -> u32 {
        frame.0 - self.first
    }

    /// The frame of that number.
    pub(crate) fn frame(&self, number: u32) -> FrameId {
        FrameId(self.first + number)
    }
}

/// A pool that is locked.
pub(crate) type PoolGuard<'a> = RankedGuard<'a, Pool, { rank::POOL }>;

/// Pages that were given up, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct GhostShard(Ranked<Ghost, { rank::GHOST }>);

/// What is remembered of pages that were given up, one part of it locked at a time.
struct Remembered<'a> {
    parts: &'a [GhostShard],
    locked: Option<(usize, RankedGuard<'a, Ghost, { rank::GHOST }>)>,
}

impl Remembered<'_> {
    /// The part for a page, locked until another is.
    fn of(&mut self, page: u64) -> &mut Ghost {
        let part = match self.parts.len() {
            1 => 0,
            // Neighbours stay together: see `ghost.rs`.
            parts => ((page >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % parts,
        };
        if self.locked.as_ref().is_some_and(|(at, _)| *at != part) {
            self.locked = None;
        }
        &mut self.locked.get_or_insert_with(|| (part, self.parts[part].0.lock())).1
    }
}

/// On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Place {
    pool: Ranked<Pool, { rank::POOL }>,
    free: Arc<FreeCount>,
    /// Relaxed: how often a thread of this node began to look where no pool had a free frame.
    begun: AtomicU32,
}

/// All frames of a cache.
#[derive(Debug)]
pub(crate) struct Pools {
    places: Box<[Place]>,
    /// Frames of each pool; the last may have more.
    frames_each: u32,
    /// The pool of each processor; none where there is one pool.
    of_cpu: Box<[u16]>,
    /// The pages that were given up last, by all pools, as one may come back to another: as many
    /// parts as there are pools, which pages are spread over.
    ghosts: Box<[GhostShard]>,
}

impl Pools {
    /// How `frames` frames are shared out to the nodes: the nodes that get some, and how many each
    /// gets; the last gets what is left as well. If they are too few for all, one pool has them.
    pub(crate) fn share(topology: &Topology, frames: usize) -> (&[NodeId], usize) {
        let nodes = topology.nodes();
        let each = frames / nodes.len();
        if nodes.len() > 1 && each >= MIN_FRAMES { (nodes, each) } else { (&nodes[..1], frames) }
    }

    /// For `frames` frames, none of which is here yet: see [`Pools::add`].
    pub(crate) fn new(frames: usize, topology: &Topology) -> Self {
        let (nodes, each) = Self::share(topology, frames);
        let place = |number: usize| {
            let is_last = number + 1 == nodes.len();
            let len = if is_last { frames - number * each } else { each };
            let (first, free) = ((number * each) as u32, Arc::<FreeCount>::default());
            let pool = Pool {
                first,
                len: len as u32,
                present: 0,
                has: Set::new(len),
                written: Vec::with_capacity(len),
                policy: S3Fifo::new(len as u32),
                free: FreeFrames::new(first, len, free.clone()),
                window: *WINDOW.end(),
                isolated: 0,
            };
            Place { pool: Ranked::new(pool), free, begun: AtomicU32::new(0) }
        };
        let places: Box<[Place]> = (0..nodes.len()).map(place).collect();
        let mut of_cpu = Vec::new();
        if places.len() > 1 {
            for (pool, node) in nodes.iter().enumerate() {
                for &cpu in topology.cpus_of(*node) {
                    let cpu = cpu as usize;
                    of_cpu.resize(of_cpu.len().max(cpu + 1), 0);
                    of_cpu[cpu] = pool as u16;
                }
            }
        }
        let remembered_each = frames.div_ceil(places.len()) as u32;
        let part = |_| GhostShard(Ranked::new(Ghost::new(remembered_each)));
        Self {
            ghosts: (0..places.len()).map(part).collect(),
            places,
            frames_each: each as u32,
            of_cpu: of_cpu.into_boxed_slice(),
        }
    }

    /// How many pools there are.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Pages were brought into frames of the pool, which the caller has locked.
    pub(crate) fn admit(
        &self,
        pool: &mut Pool,
        pages: impl IntoIterator<Item = (FrameId, PageKey)>,
    ) {
        let mut remembered = self.remembered();
        for (frame, key) in pages {
            let page = policy::hash(key.file.0, key.page.0);
            let came_back = remembered.of(page).take(page);
            pool.policy.admit(pool.number(frame), came_back);
        }
    }

    /// The pages that were in frames of the pool, which the caller has locked, were given up.
    pub(crate) fn evicted(
        &self,
        pool: &mut Pool,
        pages: impl IntoIterator<Item = (FrameId, PageKey)>,
    ) {
        let mut remembered = self.remembered();
        for (frame, key) in pages {
            if pool.policy.evicted(pool.number(frame)) {
                let page = policy::hash(key.file.0, key.page.0);
                remembered.of(page).insert(page);
            }
        }
    }

    /// The pages count as new when they come in next.
    pub(crate) fn forget(&self, pages: impl IntoIterator<Item = PageKey>) {
        let mut remembered = self.remembered();
        for key in pages {
            let page = policy::hash(key.file.0, key.page.0);
            remembered.of(page).take(page);
        }
    }

    fn remembered(&self) -> Remembered<'_> {
        Remembered { parts: &self.ghosts, locked: None }
    }

    /// The pool of a frame.
    pub(crate) fn of(&self, frame: FrameId) -> usize {
        match self.places.len() - 1 {
            0 => 0,
            last => last.min((frame.0 / self.frames_each) as usize),
        }
    }

    pub(crate) fn lock(&self, pool: usize) -> PoolGuard<'_> {
        self.places[pool].pool.lock()
    }

    /// Whether another pool has free frames: while one has, none gives pages up.
    pub(crate) fn has_free_beside(&self, pool: usize) -> bool {
        let mut places = self.places.iter().enumerate();
        places.any(|(at, place)| at != pool && place.free.get() > 0)
    }

    /// The pool that the calling thread is to ask first for a frame.
    pub(crate) fn first(&self) -> usize {
        if self.count() == 1 { 0 } else { self.first_for(current_cpu()) }
    }

    /// All pools, in the order in which the calling thread is to ask
    /// them for a frame.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.places.len();
        let first = self.first();
        (0..count).map(move |nth| (first + nth) % count)
    }

    /// Where a thread on that processor begins to look. One that the topology did not name is
    /// taken to be near the first node.
    fn first_for(&self, cpu: usize) -> usize {
        let count = self.places.len();
        let here = usize::from(self.of_cpu.get(cpu).copied().unwrap_or(0));
        let mut ring = (0..count).map(|nth| (here + nth) % count);
        if let Some(pool) = ring.find(|&pool| self.places[pool].free.get() > 0) {
            return pool;
        }
        let begun = self.places[here].begun.fetch_add(1, Ordering::Relaxed);
        if begun % AWAY_EVERY < AWAY_EVERY - 1 {
            return here;
        }
        let away = 1 + (begun / AWAY_EVERY) as usize % (count - 1);
        (here + away) % count
    }

    /// Puts a frame that the cache has got to the free ones of its pool.
    pub(crate) fn add(&self, claim: Claim) {
        let mut pool = self.lock(self.of(claim.id()));
        pool.set_present(claim.id(), true);
        pool.push_free(claim);
    }

    /// The cache gives up a frame, which the caller has taken.
    pub(crate) fn remove(&self, claim: &Claim) {
        let mut pool = self.lock(self.of(claim.id()));
        let number = pool.number(claim.id());
        pool.policy.remove(number);
        pool.set_present(claim.id(), false);
    }

    /// Where a frame lies in its pool.
    pub(crate) fn number_in_pool(&self, frame: FrameId) -> u32 {
        frame.0 - self.of(frame) as u32 * self.frames_each
    }

    /// Puts an empty frame to the free ones of its pool.
    pub(crate) fn push_free(&self, claim: Claim) {
        self.lock(self.of(claim.id())).push_free(claim);
    }
}

#[cfg(test)]
mod tests;
