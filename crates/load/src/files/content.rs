//! What stands in the files, and the check that it does.
//!
//! The bytes of a block follow from the seed, the file, the block's number and its version (1 as
//! first written, 2 after a random write): a fixed page of random words, each combined with one of
//! four keys that are the block's own, and new ones for each further page of a large block. So no
//! layer below can compress a block or share it with another, while making one is little more than
//! writing it. Making one of 4 KiB takes about 0.1 µs, comparing and hashing it as much again; that
//! is part of every implementation's time.

use crate::LoadError;
use crate::random::{mix, mix_all};

const LANES: usize = 4;
const WORD: usize = size_of::<u64>();
const PAGE_WORDS: usize = 512;

/// Random words, the same in all runs.
static PAGE: [u64; PAGE_WORDS] = {
    let mut page = [0; PAGE_WORDS];
    let mut at = 0;
    while at < PAGE_WORDS {
        page[at] = mix(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(at as u64 + 1));
        at += 1;
    }
    page
};

/// The name of one block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    key: u64,
}

/// A word that is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) offset_in_block: usize,
    pub(crate) expected: u64,
    pub(crate) found: u64,
}

impl Mismatch {
    /// The error for a block at `offset` of a file.
    pub(crate) fn in_file(self, file: usize, offset: u64) -> LoadError {
        let Self { offset_in_block, expected, found } = self;
        LoadError::Corrupt { file, offset: offset + offset_in_block as u64, expected, found }
    }
}

impl Content {
    pub(crate) fn new(seed: u64, file: usize, block: u64, version: u64) -> Self {
        Self { key: mix_all(&[seed, file as u64, block, version]) }
    }

    /// The keys of one page of the block.
    fn keys(self, page: usize) -> [u64; LANES] {
        std::array::from_fn(|lane| mix_all(&[self.key, page as u64, lane as u64]))
    }

    /// Writes the content over all of `block`, whose length is a multiple of 32.
    pub(crate) fn fill(self, block: &mut [u8]) {
        for (page, bytes) in block.chunks_mut(PAGE_WORDS * WORD).enumerate() {
            let keys = self.keys(page);
            let groups = bytes.chunks_exact_mut(LANES * WORD);
            for (group, words) in groups.zip(PAGE.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    let word = (words[lane] ^ keys[lane]).to_le_bytes();
                    group[lane * WORD..][..WORD].copy_from_slice(&word);
                }
            }
        }
    }

    /// A hash of `block` as it was read, if it is this content.
    pub(crate) fn verify(self, block: &[u8]) -> Result<u64, Mismatch> {
        let mut sums = [0_u64; LANES];
        let mut differs = [0_u64; LANES];
        for (page, bytes) in block.chunks(PAGE_WORDS * WORD).enumerate() {
            let keys = self.keys(page);
            let groups = bytes.chunks_exact(LANES * WORD);
            for (group, words) in groups.zip(PAGE.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    let found = word_at(group, lane * WORD);
                    differs[lane] |= found ^ words[lane] ^ keys[lane];
                    // A sum is enough: each word was compared at its place.
                    sums[lane] = sums[lane].wrapping_add(found);
                }
            }
        }
        if differs == [0; LANES] { Ok(mix_all(&sums)) } else { Err(self.first_mismatch(block)) }
    }

    /// The same for two words of a page that is read as a block of its own: its first and its last.
    /// It costs some 10 ns, where all of the page costs 100.
    pub(crate) fn verify_stamp(self, page: &[u8]) -> Result<u64, Mismatch> {
        let keys = self.keys(0);
        let last = page.len() / WORD - 1;
        let mut sum = self.key;
        for at in [0, last] {
            let expected = PAGE[at] ^ keys[at % LANES];
            let found = word_at(page, at * WORD);
            if found != expected {
                return Err(Mismatch { offset_in_block: at * WORD, expected, found });
            }
            sum = sum.wrapping_add(found);
        }
        Ok(sum)
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
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}
