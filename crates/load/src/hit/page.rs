//! What stands in a page, and which words of it an operation loads.

use crate::LoadError;
use crate::random::{mix, mix_all};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4096;

const WORD: usize = size_of::<u64>();
const WORDS: usize = PAGE_BYTES / WORD;

/// Words in front that are loaded; those behind are written.
const LOADED: u64 = 504;

/// Where in a page is written.
pub(super) const WRITTEN_AT: usize = LOADED as usize * WORD;

/// Bytes that a write writes.
pub(super) const WRITTEN_BYTES: usize = PAGE_BYTES - WRITTEN_AT;

/// The bit that no word has, which is not known to the compiler.
const CHAIN_SHIFT: u32 = u64::BITS - 1;

/// The bytes of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(align(64))]
pub struct Page(pub [u8; PAGE_BYTES]);

impl Default for Page {
    fn default() -> Self {
        Self([0; PAGE_BYTES])
    }
}

/// The word of page `page` at `index`.
fn word(seed: u64, page: u32, index: usize) -> u64 {
    mix_all(&[seed, u64::from(page), index as u64]) & !(1 << CHAIN_SHIFT)
}

/// Page `page` as it is at first.
pub fn value(seed: u64, page: u32) -> Page {
    let mut bytes = Page::default();
    for (index, place) in bytes.0.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
        *place = word(seed, page, index).to_le_bytes();
    }
    bytes
}

/// The words that one operation loads, at random places; `N` of them, or one if `N` is 0.
#[derive(Debug, Clone, Copy)]
pub struct Places<const N: usize>(u64);

impl<const N: usize> Places<N> {
    /// The places of a thread's operation of this number.
    #[inline]
    pub(super) fn new(operation: u64) -> Self {
        Self(operation.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The exclusive or of what `load` gives for each place, in words from the page's begin.
    #[inline]
    pub fn fold(self, mut load: impl FnMut(usize) -> u64) -> u64 {
        let Ok(sum) = self.try_fold(|index| Ok::<_, std::convert::Infallible>(load(index)));
        sum
    }

    /// As [`Places::fold`], of loads that may fail.
    #[inline]
    pub(super) fn try_fold<E>(
        self,
        mut load: impl FnMut(usize) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let mut state = self.0;
        let mut sum = 0;
        for _ in 0..N.max(1) {
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            let index = (((state >> 32) * LOADED) >> 32) as usize;
            // It is below already; the mask says so to the compiler.
            sum ^= load(index % WORDS)?;
        }
        Ok(sum)
    }

    pub(super) fn expected(self, seed: u64, page: u32) -> u64 {
        self.fold(|index| word(seed, page, index))
    }
}

/// Loads the words from a page that lies still: with `N` = 0, from a copy of it in `block`.
#[inline]
pub fn read<const N: usize>(page: &[u8; PAGE_BYTES], places: Places<N>, block: &mut Page) -> u64 {
    let from = if N == 0 {
        block.0.copy_from_slice(page);
        std::hint::black_box(&block.0)
    } else {
        page
    };
    let words = from.as_chunks::<WORD>().0;
    places.fold(|index| u64::from_le_bytes(words[index]))
}

/// How many steps further in the sequence the next operation is for what was loaded: none. The
/// compiler does not know that, so the next operation waits for the words.
#[inline]
pub(super) fn chained(sum: u64) -> usize {
    (sum >> CHAIN_SHIFT) as usize
}

/// A thread's `number`th write.
pub(super) fn written(number: u64) -> [u8; WRITTEN_BYTES] {
    let mut bytes = [0; WRITTEN_BYTES];
    bytes.as_chunks_mut::<WORD>().0.iter_mut().for_each(|word| *word = mix(number).to_le_bytes());
    bytes
}

/// Fails if an operation loaded what is not there.
pub(super) fn check(page: u32, expected: u64, found: u64) -> Result<(), LoadError> {
    if expected == found {
        return Ok(());
    }
    Err(LoadError::Corrupt {
        file: 0,
        offset: u64::from(page) * PAGE_BYTES as u64,
        expected,
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_is_what_is_there() {
        let (page, mut block) = (value(7, 3), Page::default());
        let mut seen = std::collections::HashSet::new();
        for operation in 0..10_000 {
            let places = Places::<4>::new(operation);
            let expected = places.expected(7, 3);
            assert_eq!(read(&page.0, places, &mut block), expected);
            assert_eq!(chained(expected), 0);
            places.fold(|index| u64::from(seen.insert(index)));
            let places = Places::<0>::new(operation);
            assert_eq!(read(&page.0, places, &mut block), places.expected(7, 3));
        }
        assert_eq!((seen.len(), seen.iter().max()), (504, Some(&503)));
        assert_eq!(block, page, "a copy is of the whole page");
        assert!(check(3, 1, 2).is_err() && check(3, 1, 1).is_ok());
    }
}
