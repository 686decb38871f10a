//! The index: the shards, and the locked shard of one page.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;
use unherd_sys::primitives::AtomicU64;
use unherd_sys::{Errno, MapSlice};

use super::segment::{self, Segment, SegmentSize};
use crate::page::{BusyGeneration, FileId, FrameId, PageKey, PageNo, PageRange};
use crate::ranked::{Ranked, RankedGuard, rank};

/// Pages for which there is a shard each time. Enough that the number of those that fall to one
/// varies little.
const PAGES_PER_SHARD: usize = 1024;
const SLOTS_MIN: usize = 16;
/// Neighbouring pages that have their homes side by side.
const ROWS: u64 = segment::ROWS as u64;
/// Slots on a cache line. If they follow each other, they are looked through in the time of a
/// lookup.
const SLOTS_PER_LINE: usize = 8;
/// Announcements for which a shard has room at once; with more, the map grows.
const ANNOUNCED: usize = 8;

/// What the index knows of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A thread has undertaken to bring the page in, and has no frame for it yet; or it reads the
    /// page, and keeps nothing (`pages/announced.rs`).
    Announced(BusyGeneration),
    /// The frame that holds the page, or will.
    Frame(FrameId),
}

/// That the caller brings a page in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillReservation {
    pub(crate) key: PageKey,
    pub(crate) generation: BusyGeneration,
}

#[derive(Debug, Default)]
struct Shard {
    /// Announced pages, and those that found the segment too full: they are found under the lock
    /// only, until they leave.
    rest: HashMap<PageKey, Entry, FixedState>,
    /// Entries in the segment.
    used: usize,
    /// How many busy generations have begun; wraps around.
    generations: u32,
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lock(Ranked<Shard, { rank::SHARD }>);

#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Lock]>,
    /// The shards' segments, one after the other, of equal length.
    slots: MapSlice<AtomicU64>,
    segment: SegmentSize,
}

/// Where a page may be.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Where its shard's segment begins.
    begin: usize,
    tag: u32,
}

/// What the lock's holder has found of its page, and where.
#[derive(Debug, Clone, Copy)]
enum At {
    /// Nothing; the empty slot for it, if it comes.
    Nowhere(usize),
    /// In the map; the empty slot as well.
    Rest(Entry, usize),
    Slot(usize, FrameId),
}

/// The locked shard of one page.
#[derive(Debug)]
pub(crate) struct ShardGuard<'a> {
    shard: RankedGuard<'a, Shard, { rank::SHARD }>,
    segment: Segment<'a>,
    key: PageKey,
    tag: u32,
    at: At,
}

/// Multiplies and folds, as foldhash and wyhash do: each bit of `value` reaches all others.
#[inline]
fn mix(file: FileId, value: u64) -> u64 {
    // Odd numbers without a pattern: digits of pi.
    const OF_FILE: u64 = 0x243f_6a88_85a3_08d3;
    const SEED: u64 = 0x1319_8a2e_0370_7344;
    const FACTOR: u64 = 0xa409_3822_299f_31d1;
    let seed = u64::from(file.0).wrapping_mul(OF_FILE) ^ SEED;
    let product = u128::from(value ^ seed) * u128::from(FACTOR);
    (product >> 64) as u64 ^ product as u64
}

impl Index {
    /// An index with room for `frames` pages.
    pub(crate) fn new(frames: usize) -> Result<Self, Errno> {
        let (shards, slots_per_shard) = Self::shape(frames);
        Self::with_shards(shards, slots_per_shard)
    }

    /// How many shards there are for this many frames, and how many slots each has.
    fn shape(frames: usize) -> (usize, usize) {
        let shards = (frames / PAGES_PER_SHARD).max(1).next_power_of_two();
        // About 30 to 60 % are used, so that a search takes 1.2 to 1.7 looks, each at another cache
        // line; and the smaller the table is, the more of it stays in the processor's caches.
        let slots = (frames + frames / 4 * 3).next_power_of_two();
        (shards, (slots / shards).max(SLOTS_MIN))
    }

    /// Bytes that are mapped for the slots of this many frames.
    #[cfg(not(loom))]
    pub(crate) fn bytes_for(frames: usize) -> usize {
        let (shards, slots_per_shard) = Self::shape(frames);
        shards * slots_per_shard * size_of::<AtomicU64>()
    }

    /// Both are powers of two.
    pub(crate) fn with_shards(shards: usize, slots_per_shard: usize) -> Result<Self, Errno> {
        let shard = || {
            let rest = HashMap::with_capacity_and_hasher(ANNOUNCED, FixedState::default());
            Lock(Ranked::new(Shard { rest, ..Shard::default() }))
        };
        let slots = shards * slots_per_shard;
        Ok(Self {
            shards: (0..shards).map(|_| shard()).collect(),
            slots: MapSlice::new(slots, |_| AtomicU64::new(0))?,
            segment: SegmentSize::new(slots_per_shard, slots),
        })
    }

    #[inline(always)]
    fn place(&self, key: PageKey) -> Place {
        // Neighbours share a shard: who brings in or drops a range locks few. They have a row each.
        let mixed = mix(key.file, key.page.0 / ROWS);
        let begin = self.segment.begin_of((mixed >> 32) as u32);
        // Strided pages leave patterns in the lower half.
        let tag = (mixed ^ mixed >> 9) as u32 ^ self.segment.of_row(key.page.0);
        Place { begin, tag }
    }

    #[inline(always)]
    fn segment(&self, begin: usize) -> Segment<'_> {
        Segment::new(&self.slots, begin, self.segment)
    }

    /// A frame that may hold the page. Takes no lock, and writes nothing.
    ///
    /// The caller pins the frame, and compares its key. If that differs, or if there is none, the
    /// page may be there all the same: only [`Index::lock`] tells.
    #[inline(always)]
    pub(crate) fn lookup(&self, key: PageKey) -> Option<FrameId> {
        let Place { begin, tag } = self.place(key);
        self.segment(begin).lookup(tag)
    }

    /// The page will be looked up soon: begins to bring its slot into the processor's cache.
    #[inline]
    pub(crate) fn prefetch_slot(&self, key: PageKey) {
        let Place { begin, tag } = self.place(key);
        self.segment(begin).prefetch_slot(tag);
    }

    /// As [`Index::prefetch_slot`], of many pages of a file.
    pub(crate) fn prefetch_slots(&self, file: FileId, pages: Range<u64>) {
        for page in pages.step_by(SLOTS_PER_LINE).map(PageNo) {
            self.prefetch_slot(PageKey { file, page });
        }
    }

    /// Locks the shard of `key`. `key_of` tells the page of a frame that is in the index.
    pub(crate) fn lock(&self, key: PageKey, key_of: impl Fn(FrameId) -> PageKey) -> ShardGuard<'_> {
        self.lock_at(self.place(key), key, key_of)
    }

    fn lock_at(
        &self,
        Place { begin, tag }: Place,
        key: PageKey,
        key_of: impl Fn(FrameId) -> PageKey,
    ) -> ShardGuard<'_> {
        let shard = self.shards[begin >> self.segment.slots().trailing_zeros()].0.lock();
        let segment = self.segment(begin);
        let at = ShardGuard::find(&shard, segment, key, tag, key_of);
        ShardGuard { shard, segment, key, tag, at }
    }

    /// As [`Index::lock`], by one that may have locked another shard, or the same.
    pub(crate) fn lock_next<'a, 'b>(
        &'a self,
        locked: &'b mut Option<ShardGuard<'a>>,
        key: PageKey,
        key_of: impl Fn(FrameId) -> PageKey,
    ) -> &'b mut ShardGuard<'a> {
        let is_neighbour =
            |other: PageKey| other.file == key.file && other.page.0 / ROWS == key.page.0 / ROWS;
        let place = match locked {
            Some(last) if is_neighbour(last.key) => {
                let tag = last.tag ^ self.segment.of_row(key.page.0 ^ last.key.page.0);
                Place { begin: last.segment.begin(), tag }
            }
            _ => self.place(key),
        };
        if let Some(same) = locked
            && same.segment.begin() == place.begin
        {
            (same.key, same.tag) = (key, place.tag);
            same.at = ShardGuard::find(&same.shard, same.segment, key, place.tag, &key_of);
        } else {
            *locked = None;
        }
        locked.get_or_insert_with(|| self.lock_at(place, key, key_of))
    }

    /// Those of `pages` of `file` that are in the index at the moment. Looks each of them up, or
    /// through all of the index, whichever is less.
    pub(crate) fn pages_in(
        &self,
        file: FileId,
        pages: PageRange,
        key_of: impl Fn(FrameId) -> PageKey,
    ) -> Vec<PageNo> {
        let count = pages.end.saturating_sub(pages.start);
        if count <= (self.slots.len() / SLOTS_PER_LINE) as u64 {
            let mut locked = None;
            let mut is_there = |page: &PageNo| {
                let key = PageKey { file, page: *page };
                self.lock_next(&mut locked, key, &key_of).get().is_some()
            };
            return pages.map(PageNo).filter(|page| is_there(page)).collect();
        }
        let mut found = Vec::new();
        for (number, lock) in self.shards.iter().enumerate() {
            let shard = lock.0.lock();
            let in_frames = self.segment(number * self.segment.slots()).frames().map(&key_of);
            let keys = in_frames.chain(shard.rest.keys().copied());
            let of_file = keys.filter(|key| key.file == file && pages.contains(&key.page.0));
            found.extend(of_file.map(|key| key.page));
        }
        found
    }
}

impl ShardGuard<'_> {
    /// Looks for a page of the shard.
    fn find(
        shard: &Shard,
        segment: Segment<'_>,
        key: PageKey,
        tag: u32,
        key_of: impl Fn(FrameId) -> PageKey,
    ) -> At {
        match segment.find(tag, |frame| key_of(frame) == key) {
            Ok((at, frame)) => At::Slot(at, frame),
            Err(empty) => match shard.rest.get(&key) {
                None => At::Nowhere(empty),
                Some(&entry) => At::Rest(entry, empty),
            },
        }
    }

    /// Whose shard it is.
    pub(crate) fn key(&self) -> PageKey {
        self.key
    }

    pub(crate) fn get(&self) -> Option<Entry> {
        match self.at {
            At::Nowhere(_) => None,
            At::Rest(entry, _) => Some(entry),
            At::Slot(_, frame) => Some(Entry::Frame(frame)),
        }
    }

    pub(crate) fn frame(&self) -> Option<FrameId> {
        match self.get() {
            Some(Entry::Frame(id)) => Some(id),
            Some(Entry::Announced(_)) | None => None,
        }
    }

    /// The page becomes busy again.
    pub(crate) fn begin_busy(&mut self) -> BusyGeneration {
        self.shard.generations = self.shard.generations.wrapping_add(1);
        BusyGeneration(self.shard.generations)
    }

    /// Announces that the caller brings the page in, which is not in the index.
    pub(crate) fn announce(&mut self) -> FillReservation {
        debug_assert_eq!(self.get(), None);
        let generation = self.begin_busy();
        self.put_in_rest(Entry::Announced(generation));
        FillReservation { key: self.key, generation }
    }

    fn put_in_rest(&mut self, entry: Entry) {
        if let At::Nowhere(empty) | At::Rest(_, empty) = self.at {
            self.shard.rest.insert(self.key, entry);
            self.at = At::Rest(entry, empty);
        }
    }

    /// The page is in this frame, from now on.
    pub(crate) fn set_frame(&mut self, frame: FrameId) {
        match self.at {
            At::Slot(at, _) => {
                self.segment.replace(at, frame);
                self.at = At::Slot(at, frame);
            }
            At::Nowhere(empty) | At::Rest(_, empty)
                if self.shard.used < self.segment.entries_max() =>
            {
                self.remove();
                self.shard.used += 1;
                self.segment.insert(empty, self.tag, frame);
                self.at = At::Slot(empty, frame);
            }
            At::Nowhere(_) | At::Rest(..) => self.put_in_rest(Entry::Frame(frame)),
        }
    }

    pub(crate) fn remove(&mut self) {
        self.at = match self.at {
            At::Nowhere(empty) => At::Nowhere(empty),
            At::Rest(_, empty) => {
                self.shard.rest.remove(&self.key);
                At::Nowhere(empty)
            }
            At::Slot(at, _) => {
                self.shard.used -= 1;
                At::Nowhere(self.segment.remove(at))
            }
        };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
