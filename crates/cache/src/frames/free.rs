//! The free frames of a pool: a bitmap, in which neighbours are neighbours in memory.
//!
//! A transfer costs less the fewer pieces its memory has, so frames for a run of pages are handed
//! out as extents. Single frames come from words that are broken already, so that whole words are
//! left for runs.
//!
//! A set bit stands for the [`Claim`] of its frame: [`FreeFrames::push`] takes the claim, and the
//! frame's next claim is made when the bit is cleared.

use crate::frames::frame::Claim;
use crate::page::FrameId;

const WORD: usize = u64::BITS as usize;

/// Frames of an extent that is worth looking for: 64 KiB of pages of 4 KiB.
pub(crate) const EXTENT: usize = 16;

/// Words that a search for extents looks at, before it takes single frames.
const LOOKS: usize = 64;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct FreeFrames {
    /// The number of the frame of the first bit.
    first: u32,
    /// How many frames there are, free or not.
    frames: usize,
    /// How many are free.
    count: usize,
    words: Box<[u64]>,
    /// A bit for each word that has any free frame.
    nonempty: Box<[u64]>,
    /// A bit for each word whose frames are all free.
    whole: Box<[u64]>,
}

/// The first set bit at or after bit `from`, if there is one.
fn find_bit(bits: &[u64], from: usize) -> Option<usize> {
    let mut at = from / WORD;
    let mut word = *bits.get(at)? & (u64::MAX << (from % WORD));
    while word == 0 {
        at += 1;
        word = *bits.get(at)?;
    }
    Some(at * WORD + word.trailing_zeros() as usize)
}

fn set_bit(bits: &mut [u64], at: usize, value: bool) {
    let mask = 1 << (at % WORD);
    if value {
        bits[at / WORD] |= mask;
    } else {
        bits[at / WORD] &= !mask;
    }
}

/// The longest extents in `word`: where the first begins, and its length.
fn longest_extent(word: u64) -> (usize, usize) {
    let (mut best, mut at) = ((0, 0), 0);
    while at < WORD && word >> at != 0 {
        at += (word >> at).trailing_zeros() as usize;
        let len = (word >> at).trailing_ones() as usize;
        if len > best.1 {
            best = (at, len);
        }
        at += len;
    }
    best
}

impl FreeFrames {
    /// No free frame, of those from `first` on, of which there are `len`.
    pub(crate) fn new(first: u32, len: usize) -> Self {
        let words = len.div_ceil(WORD);
        let zeros = |count: usize| vec![0; count].into_boxed_slice();
        Self {
            first,
            frames: len,
            count: 0,
            words: zeros(words),
            nonempty: zeros(words.div_ceil(WORD)),
            whole: zeros(words.div_ceil(WORD)),
        }
    }

    /// The number of free frames.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the bitmaps.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.nonempty) + size_of_val(&*self.whole)
    }

    fn store(&mut self, at: usize, word: u64) {
        // The last word may have fewer frames.
        let frames = (self.frames - at * WORD).min(WORD);
        self.words[at] = word;
        set_bit(&mut self.nonempty, at, word != 0);
        set_bit(&mut self.whole, at, word.count_ones() as usize == frames);
    }

    /// Takes an empty frame in.
    pub(crate) fn push(&mut self, claim: Claim) {
        let number = (claim.into_frame().0 - self.first) as usize;
        let word = self.words[number / WORD];
        debug_assert_eq!(word >> (number % WORD) & 1, 0, "a frame is freed once");
        self.store(number / WORD, word | 1 << (number % WORD));
        self.count += 1;
    }

    /// Takes `len` frames out, from bit `bit` of a word on.
    fn take(&mut self, at: usize, bit: usize, len: usize, out: &mut impl FnMut(Claim)) {
        let mask = (u64::MAX >> (WORD - len)) << bit;
        debug_assert_eq!(self.words[at] & mask, mask);
        self.store(at, self.words[at] & !mask);
        self.count -= len;
        let first = self.first + (at * WORD + bit) as u32;
        (first..first + len as u32).for_each(|id| out(Claim::of_empty(FrameId(id))));
    }

    /// A word with free frames, not all of whose frames are free; else any with free frames.
    fn broken_word(&self) -> Option<usize> {
        let broken =
            self.nonempty.iter().zip(&self.whole).enumerate().find_map(|(at, (some, all))| {
                let broken = some & !all;
                (broken != 0).then(|| at * WORD + broken.trailing_zeros() as usize)
            });
        broken.or_else(|| find_bit(&self.nonempty, 0))
    }

    /// A free frame.
    pub(crate) fn pop(&mut self) -> Option<Claim> {
        let at = self.broken_word()?;
        let mut claim = None;
        self.take(at, self.words[at].trailing_zeros() as usize, 1, &mut |one| claim = Some(one));
        claim
    }

    /// The frame after `before`, if it is free and of the same extent; else the first of an extent
    /// that is free as a whole, if a short search finds one.
    pub(crate) fn pop_next(&mut self, before: FrameId) -> Option<Claim> {
        let number = (before.0 - self.first) as usize + 1;
        let is_free = |number| {
            self.words.get(number / WORD).is_some_and(|word| word >> (number % WORD) & 1 == 1)
        };
        let (at, bit) = if !number.is_multiple_of(EXTENT) && is_free(number) {
            (number / WORD, number % WORD)
        } else {
            self.find_extent()?
        };
        let mut claim = None;
        self.take(at, bit, 1, &mut |one| claim = Some(one));
        claim
    }

    /// The word and the bit at which an extent begins that is free as a whole.
    fn find_extent(&self) -> Option<(usize, usize)> {
        let mut from = 0;
        for _ in 0..LOOKS {
            let at = find_bit(&self.nonempty, from)?;
            let extent = (1 << EXTENT) - 1;
            let is_free = |bit: &usize| self.words[at] >> bit & extent == extent;
            if let Some(bit) = (0..WORD).step_by(EXTENT).find(is_free) {
                return Some((at, bit));
            }
            from = at + 1;
        }
        None
    }

    /// Appends up to `wanted` free frames to `out`, in as few extents as a short search finds.
    pub(crate) fn pop_run(&mut self, wanted: usize, out: &mut Vec<Claim>) {
        let mut left = wanted.min(self.count);
        while left >= EXTENT
            && let Some(at) = find_bit(&self.whole, 0)
        {
            let len = left.min(self.words[at].count_ones() as usize);
            self.take(at, 0, len, &mut |claim| out.push(claim));
            left -= len;
        }
        let (mut from, mut looks) = (0, 0);
        while left >= EXTENT
            && looks < LOOKS
            && let Some(at) = find_bit(&self.nonempty, from)
        {
            let (bit, len) = longest_extent(self.words[at]);
            if len >= EXTENT {
                let len = len.min(left);
                self.take(at, bit, len, &mut |claim| out.push(claim));
                left -= len;
            } else {
                from = at + 1;
            }
            looks += 1;
        }
        while left > 0
            && let Some(at) = self.broken_word()
        {
            let (bit, len) = longest_extent(self.words[at]);
            let len = len.min(left);
            self.take(at, bit, len, &mut |claim| out.push(claim));
            left -= len;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all_free(first: u32, len: usize) -> FreeFrames {
        let mut free = FreeFrames::new(first, len);
        (first..first + len as u32).for_each(|id| free.push(Claim::of_empty(FrameId(id))));
        free
    }

    fn ids(claims: Vec<Claim>) -> Vec<u32> {
        claims.into_iter().map(|claim| claim.into_frame().0).collect()
    }

    #[test]
    fn single_frames_leave_whole_words_alone() {
        let mut free = all_free(10, 200);
        let singles: Vec<u32> = (0..70).map(|_| free.pop().unwrap().into_frame().0).collect();
        assert_eq!(singles, (10..80).collect::<Vec<_>>());
        let mut run = Vec::new();
        free.pop_run(64, &mut run);
        assert_eq!(ids(run), (138..202).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_gets_the_longest_extents() {
        let mut free = FreeFrames::new(0, 256);
        let singles = (0..64).step_by(2);
        let extent = 100..120;
        for id in singles.chain(extent.clone()) {
            free.push(Claim::of_empty(FrameId(id)));
        }
        let mut run = Vec::new();
        free.pop_run(22, &mut run);
        assert_eq!(ids(run), extent.chain([0, 2]).collect::<Vec<_>>());
        assert_eq!(free.len(), 30);
    }

    #[test]
    fn streams_get_neighbours() {
        let mut free = all_free(32, 130);
        let mut next = |before| free.pop_next(FrameId(before)).map(|claim| claim.into_frame().0);
        // Where the extent of the one before ends, another begins.
        assert_eq!(next(47), Some(32));
        assert_eq!(next(32), Some(33));
        assert_eq!(next(40), Some(41));
        assert_eq!(next(33), Some(34));
        // The one after is taken.
        assert_eq!(next(40), Some(48));
        assert_eq!(next(48), Some(49));
        // The last frames are no extent as a whole.
        let begins: Vec<_> = std::iter::from_fn(|| next(41 - 1)).collect();
        assert_eq!(begins, [64, 80, 96, 112, 128, 144]);
        assert_eq!(next(160), Some(161));
        assert_eq!(next(161), None, "there is no frame after the last");
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_frames(steps in prop::collection::vec((0..4_u8, 0..150_u32), 0..200)) {
            let mut free = all_free(7, 150);
            let mut taken = std::collections::BTreeSet::new();
            for (step, number) in steps {
                let mut out = Vec::new();
                match step {
                    0 => out.extend(free.pop()),
                    1 => free.pop_run(number as usize, &mut out),
                    2 => out.extend(free.pop_next(FrameId(7 + number))),
                    _ if taken.remove(&(7 + number)) => {
                        free.push(Claim::of_empty(FrameId(7 + number)));
                    }
                    _ => {}
                }
                prop_assert!(step != 1 || out.len() == (number as usize).min(150 - taken.len()));
                for id in ids(out) {
                    prop_assert!((7..157).contains(&id) && taken.insert(id));
                }
                prop_assert_eq!(free.len(), 150 - taken.len());
            }
        }
    }
}
