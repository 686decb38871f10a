//! What stands in the files, and the check that it does.
//!
//! The bytes of a block follow from the seed, the file, the block's number and its version (1 as
//! first written, 2 after a random write). They are made by four multiplicative generators side by
//! side, folded so that low bits vary as well: no layer below can compress or share the blocks, and
//! making one costs about 0.1 µs for 4 KiB. That, and the same again for comparing and hashing, is
//! part of every implementation's time.

use crate::random::{mix, mix_all};

/// Odd, with the bits well spread; any such number gives the full period.
const FACTOR: u64 = 0xd134_2543_de82_ef95;
const LANES: usize = 4;
const WORD: usize = size_of::<u64>();

/// The name of one block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    key: u64,
}

/// A word that is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) offset_in_block: usize,
    pub(super) expected: u64,
    pub(super) found: u64,
}

impl Content {
    pub(super) fn new(seed: u64, file: usize, block: u64, version: u64) -> Self {
        Self { key: mix_all(&[seed, file as u64, block, version]) }
    }

    fn lanes(self) -> [u64; LANES] {
        std::array::from_fn(|lane| mix(self.key.wrapping_add(lane as u64)) | 1)
    }

    /// Writes the content over all of `block`, whose length is a multiple of 32.
    pub(super) fn fill(self, block: &mut [u8]) {
        let mut lanes = self.lanes();
        for group in block.chunks_exact_mut(LANES * WORD) {
            for (lane, word) in lanes.iter_mut().zip(group.chunks_exact_mut(WORD)) {
                word.copy_from_slice(&next_word(lane).to_le_bytes());
            }
        }
    }

    /// A hash of `block` as it was read, if it is this content.
    pub(super) fn verify(self, block: &[u8]) -> Result<u64, Mismatch> {
        let mut lanes = self.lanes();
        let mut hash = [0_u64; LANES];
        let mut differs = 0;
        for group in block.chunks_exact(LANES * WORD) {
            for lane in 0..LANES {
                let found = word_at(group, lane * WORD);
                differs |= found ^ next_word(&mut lanes[lane]);
                hash[lane] = hash[lane].rotate_left(5) ^ found;
            }
        }
        if differs != 0 { Err(self.first_mismatch(block)) } else { Ok(mix_all(&hash)) }
    }

    #[cold]
    fn first_mismatch(self, block: &[u8]) -> Mismatch {
        let mut expected = vec![0; block.len()];
        self.fill(&mut expected);
        let offsets = (0..block.len()).step_by(WORD);
        let differs = |at: &usize| word_at(block, *at) != word_at(&expected, *at);
        let at = offsets.into_iter().find(differs).unwrap_or(0);
        Mismatch {
            offset_in_block: at,
            expected: word_at(&expected, at),
            found: word_at(block, at),
        }
    }
}

#[inline]
fn next_word(lane: &mut u64) -> u64 {
    *lane = lane.wrapping_mul(FACTOR);
    *lane ^ (*lane >> 32)
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}
