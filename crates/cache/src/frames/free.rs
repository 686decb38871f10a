//! The free frames: a bitmap, in which neighbours are neighbours in memory.
//!
//! A transfer costs less the fewer pieces its memory has. So memory is handed out by *extents* of
//! [`EXTENT`] frames as far as that goes, and an extent with free frames is in one of two sets:
//!
//! | set | its free frames | who takes from it first |
//! |---|---|---|
//! | whole | all | runs of pages, short ones several from one |
//! | loose | some | who wants a single frame |
//!
//! Where one is empty, the other is used.
//!
//! A set bit stands for the [`Claim`] of its frame: [`FreeFrames::push`] takes the claim, and the
//! frame's next claim is made when the bit is cleared.

use crate::frames::Claim;
use crate::page::FrameId;

/// Frames of an extent: 64 KiB of pages of 4 KiB.
pub(crate) const EXTENT: usize = 16;

/// The frames of an extent that are free, a bit each.
type Extent = u16;

const WORD: usize = u64::BITS as usize;

/// A set of extents, or of frames.
#[derive(Debug)]
pub(crate) struct Set {
    bits: Box<[u64]>,
    /// No bit is set in the words before this one.
    from: usize,
}

impl Set {
    /// None of this many.
    pub(crate) fn new(most: usize) -> Self {
        Self { bits: vec![0; most.div_ceil(WORD)].into_boxed_slice(), from: 0 }
    }

    pub(crate) fn has(&self, at: usize) -> bool {
        self.bits[at / WORD] >> (at % WORD) & 1 == 1
    }

    pub(crate) fn set(&mut self, at: usize, value: bool) {
        let mask = 1 << (at % WORD);
        if value {
            self.bits[at / WORD] |= mask;
            self.from = self.from.min(at / WORD);
        } else {
            self.bits[at / WORD] &= !mask;
        }
    }

    fn first(&mut self) -> Option<usize> {
        let after = self.bits[self.from..].iter().position(|&word| word != 0);
        self.from = after.map_or(self.bits.len(), |after| self.from + after);
        let word = self.bits.get(self.from)?;
        Some(self.from * WORD + word.trailing_zeros() as usize)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct FreeFrames {
    len: usize,
    extents: Box<[Extent]>,
    /// What the last extent has if all its frames are free: it may have fewer.
    last: Extent,
    // The sets of the table above.
    whole: Set,
    loose: Set,
    /// The extent of the last short run: the next one goes on there, if it can.
    broken: usize,
}

/// The first of the longest rows of set bits: where it begins, and its length.
fn longest_row(extent: Extent) -> (usize, usize) {
    let (mut best, mut at) = ((0, 0), 0);
    while at < EXTENT && extent >> at != 0 {
        at += (extent >> at).trailing_zeros() as usize;
        let len = (extent >> at).trailing_ones() as usize;
        if len > best.1 {
            best = (at, len);
        }
        at += len;
    }
    best
}

impl FreeFrames {
    /// No free frame, of this many.
    pub(crate) fn new(frames: usize) -> Self {
        let extents = frames.div_ceil(EXTENT);
        Self {
            len: 0,
            extents: vec![0; extents].into_boxed_slice(),
            last: Extent::MAX >> (extents * EXTENT - frames),
            whole: Set::new(extents),
            loose: Set::new(extents),
            broken: 0,
        }
    }

    /// The number of free frames.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where a frame's bit is.
    fn locate(frame: FrameId) -> (usize, usize) {
        (frame.index() / EXTENT, frame.index() % EXTENT)
    }

    fn store(&mut self, at: usize, extent: Extent) {
        self.extents[at] = extent;
        let all = if at + 1 == self.extents.len() { self.last } else { Extent::MAX };
        self.whole.set(at, extent == all);
        self.loose.set(at, extent != 0 && extent != all);
    }

    /// Takes an empty frame in.
    pub(crate) fn push(&mut self, claim: Claim) {
        self.push_all([claim]);
    }

    /// As [`FreeFrames::push`], of many: neighbours cost next to nothing.
    pub(crate) fn push_all(&mut self, claims: impl IntoIterator<Item = Claim>) {
        let (mut last, mut bits): (usize, Extent) = (0, 0);
        for claim in claims {
            let (at, bit_at) = Self::locate(claim.into_frame());
            if at != last {
                self.put(last, bits);
                (last, bits) = (at, 0);
            }
            bits |= 1 << bit_at;
        }
        self.put(last, bits);
    }

    fn put(&mut self, at: usize, bits: Extent) {
        debug_assert_eq!(self.extents[at] & bits, 0, "a frame is freed once");
        if bits != 0 {
            self.store(at, self.extents[at] | bits);
            self.len += bits.count_ones() as usize;
        }
    }

    /// Takes `len` frames of an extent out, from bit `from` on.
    fn take(&mut self, at: usize, from: usize, len: usize) -> impl Iterator<Item = Claim> + use<> {
        let mask = (Extent::MAX >> (EXTENT - len)) << from;
        debug_assert_eq!(self.extents[at] & mask, mask);
        self.store(at, self.extents[at] & !mask);
        self.len -= len;
        let first = (at * EXTENT + from) as u32;
        (first..first + len as u32).map(|id| Claim::of_empty(FrameId(id)))
    }

    /// Up to `most` neighbours, where they are missed least.
    fn pop_some(&mut self, most: usize) -> Option<impl Iterator<Item = Claim> + use<>> {
        if self.len == 0 {
            return None;
        }
        let Self { whole, loose, .. } = self;
        let (at, from, len) = if most == 1 {
            let at = [loose, whole].into_iter().find_map(Set::first)?;
            (at, self.extents[at].trailing_zeros() as usize, 1)
        } else {
            if longest_row(self.extents[self.broken]).1 < most {
                self.broken = [whole, loose].into_iter().find_map(Set::first)?;
            }
            let (from, len) = longest_row(self.extents[self.broken]);
            (self.broken, from, len)
        };
        Some(self.take(at, from, len.min(most)))
    }

    /// A free frame.
    pub(crate) fn pop(&mut self) -> Option<Claim> {
        self.pop_some(1)?.next()
    }

    pub(crate) fn has(&self, frame: FrameId) -> bool {
        let (at, bit_at) = Self::locate(frame);
        self.extents[at] >> bit_at & 1 == 1
    }

    /// This very frame, if it is free.
    pub(crate) fn pop_this(&mut self, frame: FrameId) -> Option<Claim> {
        let (at, bit_at) = Self::locate(frame);
        self.has(frame).then(|| self.take(at, bit_at, 1).next())?
    }

    /// Whether `len` neighbours, or an extent, could be taken at once.
    pub(crate) fn has_row(&mut self, len: usize) -> bool {
        self.whole.first().is_some() || longest_row(self.extents[self.broken]).1 >= len
    }

    /// Appends up to `wanted` free frames to `out`: whole extents as far as there are any.
    pub(crate) fn pop_run(&mut self, wanted: usize, out: &mut Vec<Claim>) {
        let mut left = wanted;
        while left >= EXTENT
            && let Some(at) = self.whole.first()
        {
            let len = self.extents[at].count_ones() as usize;
            out.extend(self.take(at, 0, len));
            left -= len;
        }
        while left > 0
            && let Some(claims) = self.pop_some(left)
        {
            let before = out.len();
            out.extend(claims);
            left -= out.len() - before;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all_free(frames: usize) -> FreeFrames {
        let mut free = FreeFrames::new(frames);
        (0..frames as u32).for_each(|id| free.push(Claim::of_empty(FrameId(id))));
        free
    }

    fn ids(claims: Vec<Claim>) -> Vec<u32> {
        claims.into_iter().map(|claim| claim.into_frame().0).collect()
    }

    #[test]
    fn single_frames_leave_whole_extents_alone() {
        let mut free = all_free(200);
        let singles: Vec<u32> = (0..20).map(|_| free.pop().unwrap().into_frame().0).collect();
        assert_eq!(singles, (0..20).collect::<Vec<_>>());
        let mut run = Vec::new();
        free.pop_run(48, &mut run);
        assert_eq!(ids(run), (32..80).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_gets_whole_extents_then_the_longest_rows() {
        let mut free = FreeFrames::new(256);
        let singles = (0..8).step_by(2);
        let extent = 96..112;
        for id in singles.chain(10..13).chain(extent.clone()) {
            free.push(Claim::of_empty(FrameId(id)));
        }
        let mut run = Vec::new();
        free.pop_run(20, &mut run);
        assert_eq!(ids(run), extent.chain([10, 11, 12, 0]).collect::<Vec<_>>());
        assert_eq!(free.len(), 3);
    }

    #[test]
    fn short_runs_share_an_extent() {
        let mut free = all_free(64);
        (0..3).for_each(|id| assert_eq!(free.pop().unwrap().into_frame().0, id));
        let mut run = |wanted| {
            let mut run = Vec::new();
            free.pop_run(wanted, &mut run);
            ids(run)
        };
        assert_eq!(run(4), (3..7).collect::<Vec<_>>());
        assert_eq!(run(10), (16..26).collect::<Vec<_>>(), "nine are too few");
        assert_eq!(run(4), (26..30).collect::<Vec<_>>());
        assert_eq!(free.pop().unwrap().into_frame().0, 7);
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_frames(steps in prop::collection::vec((0..4_u8, 0..150_u32), 0..200)) {
            let mut free = all_free(150);
            let mut taken = std::collections::BTreeSet::new();
            for (step, number) in steps {
                let mut out = Vec::new();
                match step {
                    0 => out.extend(free.pop()),
                    1 => free.pop_run(number as usize, &mut out),
                    2 => {
                        let frame = FrameId(number);
                        prop_assert_eq!(free.has(frame), !taken.contains(&frame.0));
                        out.extend(free.pop_this(frame));
                        prop_assert!(out.iter().all(|claim| claim.id() == frame));
                        prop_assert!(!free.has(frame));
                    }
                    _ if taken.remove(&number) => {
                        free.push(Claim::of_empty(FrameId(number)));
                    }
                    _ => {}
                }
                prop_assert!(step != 1 || out.len() == (number as usize).min(150 - taken.len()));
                for id in ids(out) {
                    prop_assert!(id < 150 && taken.insert(id));
                }
                prop_assert_eq!(free.len(), 150 - taken.len());
                for (at, extent) in free.extents.iter().enumerate() {
                    let sets = [&free.whole, &free.loose].map(|set| set.has(at));
                    let is_in = sets.into_iter().filter(|is_in| *is_in).count();
                    prop_assert_eq!(is_in, usize::from(*extent != 0));
                }
            }
        }
    }
}
