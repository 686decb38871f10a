//! Slots, leaves and summary: how events are posted and taken. No waiting here.
//!
//! | level | a word or bit for | says |
//! |---|---|---|
//! | slot | one source | its generation, and POSTED: it has an event that nobody has taken |
//! | leaf | 64 sources in a word | where to look for slots that are POSTED |
//! | summary | 64 leaves in a word | where to look for leaves that are not zero |
//!
//! Invariants (`docs/ready-set.md` has all of the set's):
//!
//! 1. A slot that is POSTED is *visible* (its leaf bit and summary bit are set), or a poster is
//!    about to make it so, or a check that is going on will take it or make it visible again.
//! 2. A poster that returns has made its event visible, whether it was the first or not: it sets
//!    each bit that it finds clear.
//!
//! ```text
//!  poster                                    check
//!  ------                                    -----
//!  slot: set POSTED                  (1)     summary: clear the leaf's bit      (a)
//!  leaf: set the bit, if clear       (2)     leaf: clear the bits it takes      (b)
//!  summary: set the bit, if clear    (3)     slot: clear POSTED                 (c)
//! ```
//!
//! Excluded: that a slot stays POSTED and its bits stay clear. The poster goes up and the check
//! goes down, and they meet in one word. Either (1) comes before (c), and the check has the event;
//! or (1) sees (c), and with it (b), and sets the leaf bit. Either (2) comes before (b), and the
//! check takes the bit or sets the summary again; or (2) sees (b), and with it (a).

use std::ops::Range;

use unherd_sys::primitives::{AtomicUsize, Ordering};

use super::batch::{GENERATION_MAX, ReadyBatch, SourceToken};
use super::bits::{WORD_BITS, Words, lowest, ones};

/// In the word of a slot, below the generation.
const POSTED: u64 = 1;

#[derive(Debug)]
pub(super) struct Levels {
    // Never written: these and the summary are the two lines of an empty check.
    summary: Words,
    leaves: Words,
    slots: Words,
    cursor: Cursor,
}

/// The place at which the next check begins. Relaxed: any will do.
#[derive(Debug)]
#[repr(align(64))]
struct Cursor(AtomicUsize);

impl Levels {
    pub(super) fn new(sources: usize) -> Self {
        let leaves = sources.div_ceil(WORD_BITS);
        Self {
            summary: Words::new(leaves.div_ceil(WORD_BITS)),
            leaves: Words::new(leaves),
            slots: Words::new(sources),
            cursor: Cursor(AtomicUsize::new(0)),
        }
    }

    pub(super) fn sources(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self) + self.summary.bytes() + self.leaves.bytes() + self.slots.bytes()
    }

    /// Whether no event is visible.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.summary.are_zero()
    }

    /// Posts an event of the source in `place`, and says whether it is a new one.
    #[inline]
    pub(super) fn post(&self, place: usize) -> bool {
        // ORDER[SLOT]: (1), AcqRel; pairs with (c) in `take_slot`. The check that takes the event
        // sees what the poster wrote; the poster that comes after (c) sees that the leaf bit was
        // taken (loom: `post_meets_check`).
        let before = self.slots.word(place).fetch_or(POSTED, Ordering::AcqRel);
        self.make_visible(place);
        before & POSTED == 0
    }

    /// As [`Levels::post`], of the source with `token`: `None` if that is gone.
    pub(super) fn rearm(&self, token: SourceToken) -> Option<bool> {
        let (place, posted) = (token.place(), token.generation() << 1 | POSTED);
        if place >= self.slots.len() {
            return None;
        }
        let slot = self.slots.word(place);
        let mut seen = slot.load(Ordering::Relaxed);
        while seen | POSTED == posted {
            // ORDER[SLOT]: (1), AcqRel, as in `post`.
            match slot.compare_exchange(seen, posted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    self.make_visible(place);
                    return Some(seen & POSTED == 0);
                }
                Err(other) => seen = other,
            }
        }
        None
    }

    /// Sets the bits of `place` that are clear: invariant 2.
    #[inline]
    fn make_visible(&self, place: usize) {
        let (leaf, bit) = self.leaves.bit(place);
        // ORDER[LEAF]: Acquire; pairs with the AcqRel of (2): who finds the bit set sees what the
        // one saw who set it, the clear summary too (loom: `second_poster_is_not_hidden`).
        if leaf.load(Ordering::Acquire) & bit == 0 {
            // ORDER[LEAF]: (2), AcqRel; pairs with (b) in `take_leaf`: the check sees the bit, or
            // this sees that the summary was cleared (loom: `post_meets_check`).
            leaf.fetch_or(bit, Ordering::AcqRel);
        }
        self.mark(place / WORD_BITS);
    }

    /// Sets the summary bit of a leaf, if it is clear (3). Relaxed: a check that finds it goes on
    /// to the leaf, and who sleeps or wakes has a fence.
    #[inline]
    fn mark(&self, leaf: usize) {
        let (summary, bit) = self.summary.bit(leaf);
        if summary.load(Ordering::Relaxed) & bit == 0 {
            summary.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes events into `batch`, as many as it has room for: once round, from the cursor on. Says
    /// how many others that it left the summary has hidden for a moment.
    pub(super) fn take(&self, batch: &mut ReadyBatch) -> u32 {
        let start = self.cursor.0.load(Ordering::Relaxed);
        let (first, above) = (start / WORD_BITS, !0 << (start % WORD_BITS));
        let mask_of = |leaf, mask| if leaf == first { mask } else { !0 };
        let mut hidden = 0;
        for leaf in self.marked(first..self.leaves.len()) {
            hidden += self.take_leaf(leaf, mask_of(leaf, above), batch);
        }
        for leaf in self.marked(0..first + 1) {
            hidden += self.take_leaf(leaf, mask_of(leaf, !above), batch);
        }
        if let Some(last) = batch.tokens().last() {
            let next = last.place() + 1;
            self.cursor.0.store(if next < self.slots.len() { next } else { 0 }, Ordering::Relaxed);
        }
        hidden
    }

    /// Those of `leaves` that the summary has.
    fn marked(&self, leaves: Range<usize>) -> impl Iterator<Item = usize> {
        (leaves.start / WORD_BITS..leaves.end.div_ceil(WORD_BITS))
            .flat_map(|word| {
                let marked = self.summary.word(word).load(Ordering::Relaxed);
                ones(marked).map(move |bit| word * WORD_BITS + bit)
            })
            .filter(move |leaf| leaves.contains(leaf))
    }

    /// Takes from one leaf, of the bits in `mask`; says how many others the summary hid meanwhile.
    fn take_leaf(&self, index: usize, mut mask: u64, batch: &mut ReadyBatch) -> u32 {
        let leaf = self.leaves.word(index);
        let (summary, bit) = self.summary.bit(index);
        let mut hidden = 0;
        while mask != 0 && batch.room() > 0 {
            let seen = leaf.load(Ordering::Relaxed);
            let wanted = lowest(seen & mask, batch.room());
            let takes_all = wanted == seen;
            if takes_all {
                // (a). Relaxed: (b) publishes it.
                summary.fetch_and(!bit, Ordering::Relaxed);
            }
            // ORDER[LEAF]: (b), AcqRel; pairs with (2) in `make_visible`: this sees the bit, or
            // the poster sees (a) (loom: `post_meets_check`).
            let before = leaf.fetch_and(!wanted, Ordering::AcqRel);
            for bit in ones(before & wanted) {
                self.take_slot(index * WORD_BITS + bit, batch);
            }
            hidden &= !wanted;
            let left = before & !wanted;
            if !takes_all || left == 0 {
                break;
            }
            hidden = left;
            self.mark(index);
            // Not those that were taken: each source once in a batch.
            mask &= left;
        }
        hidden.count_ones()
    }

    fn take_slot(&self, place: usize, batch: &mut ReadyBatch) {
        // ORDER[SLOT]: (c), AcqRel; pairs with (1) in `post` and `rearm`. Acquire: what the posters
        // wrote is seen by the one who takes the event. Release: see (1).
        let before = self.slots.word(place).fetch_and(!POSTED, Ordering::AcqRel);
        if before & POSTED != 0 {
            batch.push(SourceToken::new(place, before >> 1));
        }
    }

    /// The token of the source that begins in `place`, which is free.
    pub(super) fn begin(&self, place: usize) -> SourceToken {
        let slot = self.slots.word(place).load(Ordering::Relaxed);
        SourceToken::new(place, slot >> 1)
    }

    /// Ends the source with `token` and forgets its event; says whether another can have the
    /// place.
    pub(super) fn end(&self, token: SourceToken) -> bool {
        let next = token.generation() + 1;
        // Not a store, which would end the release sequence of (c): the next post in this place
        // must see what the checks of this source did (loom: `reused_slot_keeps_its_events`).
        self.slots.word(token.place()).swap(next << 1, Ordering::Relaxed);
        next < GENERATION_MAX
    }
}
