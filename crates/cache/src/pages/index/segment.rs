//! A part of the hash table: words, probed in a fixed order from the home of a page.
//!
//! | bits of a slot | meaning |
//! |---|---|
//! | 0..32 | the frame's number, plus 1; a slot without an entry is 0 |
//! | 32..64 | tag: half of the page's hash, whose upper bits say where the home is; the other half chooses the shard |
//!
//! The slots are probed in sixteen rows: a step leads sixteen slots on, and from the end of a row
//! to the beginning of the next. Sixteen neighbouring pages have their homes side by side, on two
//! cache lines, one in each row; and as all of them meet with the same neighbours of others, their
//! steps end side by side as well.
//!
//! There are no tombstones: who takes an entry out moves those that lie beyond it nearer to their
//! homes. As the home is in the slot, it need not look at any frame for that. Who looks without the
//! lock meanwhile may find an entry twice, or miss it:
//!
//! ```text
//!  takes out the entry in slot 5 (lock)       looks for E (no lock)
//!  ------------------------------------       -----------------------------
//!                                             slot 5: another tag
//!  slot 5 = E, which lay in slot 7
//!  slot 7 = 0
//!                                             slot 7: empty, so "nothing"
//! ```
//!
//! It may also find an entry that has been taken out since. Neither is forbidden (see `index.rs`),
//! so there is nothing to order: all accesses are Relaxed, and stores are made under the lock only.
//!
//! # Invariants
//!
//! 1. Between an entry's home and its slot no slot is empty. So one who holds the lock finds it.
//! 2. At least one slot is empty. So a search ends, and so does the moving.

use unherd_sys::prefetch;
use unherd_sys::primitives::{AtomicU64, Ordering};

use crate::page::FrameId;

/// Rows of a segment; one with fewer slots has as many rows of one.
pub(crate) const ROWS: usize = 16;

/// What is in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(u64);

impl Slot {
    const EMPTY: Self = Self(0);

    fn new(tag: u32, frame: FrameId) -> Self {
        Self(u64::from(tag) << 32 | (u64::from(frame.0) + 1))
    }

    fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Of a slot that is not empty.
    fn frame(self) -> FrameId {
        FrameId((self.0 as u32).wrapping_sub(1))
    }
}

/// One shard's part of the table. One who calls a method that changes it, or [`Segment::find`],
/// holds the shard's lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// The slots of all shards.
    table: &'a [AtomicU64],
    /// Where those of this one begin: at a multiple of their number.
    begin: usize,
    size: SegmentSize,
}

/// How many slots a segment has: a power of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentSize {
    /// The number, less 1.
    mask: usize,
    /// Bits of a hash below those that choose a slot of the whole table.
    table_shift: u32,
    /// Bits of a tag below those that choose a slot of the segment.
    shift: u32,
}

impl SegmentSize {
    /// `slots` of `table_slots`; both are powers of two, from 2 to 2^32.
    pub(crate) fn new(slots: usize, table_slots: usize) -> Self {
        debug_assert!(slots.is_power_of_two() && slots > 1 && table_slots.is_power_of_two());
        let shift = |slots: usize| u32::BITS - slots.trailing_zeros();
        Self { mask: slots - 1, table_shift: shift(table_slots), shift: shift(slots) }
    }

    #[inline]
    pub(crate) fn slots(self) -> usize {
        self.mask + 1
    }

    /// Where the segment begins that a hash chooses.
    #[inline]
    pub(crate) fn begin_of(self, hash: u32) -> usize {
        (hash >> self.table_shift) as usize & !self.mask
    }

    /// Where the home of a tag is in the segment.
    #[inline]
    fn home(self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }

    /// In a tag, what tells a page from its neighbours: the row of its home.
    #[inline]
    pub(crate) fn of_row(self, page: u64) -> u32 {
        (page as u32 % ROWS as u32) << self.shift
    }
}

impl<'a> Segment<'a> {
    #[inline]
    pub(crate) fn new(table: &'a [AtomicU64], begin: usize, size: SegmentSize) -> Self {
        debug_assert_eq!(begin & size.mask, 0);
        Self { table, begin, size }
    }

    /// Where it begins in the table.
    pub(crate) fn begin(self) -> usize {
        self.begin
    }

    /// How many entries it takes. Fewer than slots: searches become long before it is full.
    pub(crate) fn entries_max(self) -> usize {
        self.size.slots() / 8 * 7
    }

    /// Where the slot is that is one step after another.
    #[inline]
    fn after(self, at: usize) -> usize {
        if at + ROWS <= self.size.mask { at + ROWS } else { ((at + 1) % ROWS) & self.size.mask }
    }

    #[inline]
    fn load(self, at: usize) -> Slot {
        Slot(self.table[self.begin | at].load(Ordering::Relaxed))
    }

    fn store(self, at: usize, slot: Slot) {
        self.table[self.begin | at].store(slot.0, Ordering::Relaxed);
    }

    /// Begins to bring in what [`Segment::lookup`] reads first.
    #[inline(always)]
    pub(crate) fn prefetch_slot(self, tag: u32) {
        prefetch(&self.table[self.begin | self.size.home(tag)]);
    }

    /// A frame that may hold a page of this tag, for those who do not hold the lock. That there is
    /// none means nothing.
    #[inline(always)]
    pub(crate) fn lookup(self, tag: u32) -> Option<FrameId> {
        let mut at = self.size.home(tag);
        // Bounded: while entries are moved, none need be empty at the moment that it is looked at.
        let mut left = self.size.mask;
        loop {
            let slot = self.load(at);
            if slot.is_empty() {
                return None;
            }
            if slot.tag() == tag {
                return Some(slot.frame());
            }
            left = left.checked_sub(1)?;
            at = self.after(at);
        }
    }

    /// Where the entry of this tag lies whose frame `is_it`; if there is none, the empty slot where
    /// the search ended.
    pub(crate) fn find(
        self,
        tag: u32,
        is_it: impl Fn(FrameId) -> bool,
    ) -> Result<(usize, FrameId), usize> {
        let mut at = self.size.home(tag);
        loop {
            let slot = self.load(at);
            if slot.is_empty() {
                return Err(at);
            }
            if slot.tag() == tag && is_it(slot.frame()) {
                return Ok((at, slot.frame()));
            }
            at = self.after(at);
        }
    }

    /// Adds an entry of this tag, in the empty slot where the search for it has ended. There are at
    /// least two empty slots.
    pub(crate) fn insert(self, at: usize, tag: u32, frame: FrameId) {
        debug_assert!(self.load(at).is_empty());
        self.store(at, Slot::new(tag, frame));
    }

    /// Puts another frame into the entry that lies there.
    pub(crate) fn replace(self, at: usize, frame: FrameId) {
        self.store(at, Slot::new(self.load(at).tag(), frame));
    }

    /// Takes out the entry that lies there. Gives the empty slot where a search for it would end.
    pub(crate) fn remove(self, at: usize) -> usize {
        let mut hole = at;
        let mut next = self.after(at);
        loop {
            let slot = self.load(next);
            if slot.is_empty() {
                break;
            }
            // It may go into the hole, unless its home lies beyond that.
            let from_home = self.distance(self.size.home(slot.tag()), next);
            if from_home >= self.distance(hole, next) {
                self.store(hole, slot);
                hole = next;
            }
            next = self.after(next);
        }
        self.store(hole, Slot::EMPTY);
        hole
    }

    /// How many steps lead from one slot to another.
    fn distance(self, from: usize, to: usize) -> usize {
        let row_len = (self.size.slots() / ROWS).max(1);
        let steps = |at: usize| at % ROWS * row_len + at / ROWS;
        steps(to).wrapping_sub(steps(from)) & self.size.mask
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn steps_from_home(self, tag: u32, at: usize) -> usize {
        self.distance(self.size.home(tag), at)
    }

    /// All frames in it.
    pub(crate) fn frames(self) -> impl Iterator<Item = FrameId> {
        (0..self.size.slots())
            .map(move |at| self.load(at))
            .filter(|slot| !slot.is_empty())
            .map(Slot::frame)
    }
}

#[cfg(all(test, loom))]
mod loom;
