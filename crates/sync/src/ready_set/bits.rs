//! Arrays of atomic words that share their cache lines with nothing else.

use unherd_sys::primitives::{AtomicU64, Ordering};

/// Bits in a word.
pub(super) const WORD_BITS: usize = 64;
const WORDS_IN_LINE: usize = if cfg!(loom) { 1 } else { 8 };

#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS_IN_LINE]);

/// Words that are zero at first.
#[derive(Debug)]
pub(super) struct Words {
    lines: Box<[Line]>,
    len: usize,
}

impl Words {
    pub(super) fn new(len: usize) -> Self {
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { lines: (0..len.div_ceil(WORDS_IN_LINE)).map(line).collect(), len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        &self.lines[index / WORDS_IN_LINE].0[index % WORDS_IN_LINE]
    }

    /// The word that has bit `index`, and a mask with that bit.
    #[inline]
    pub(super) fn bit(&self, index: usize) -> (&AtomicU64, u64) {
        (self.word(index / WORD_BITS), 1 << (index % WORD_BITS))
    }

    /// Whether all are zero. Relaxed.
    #[inline]
    pub(super) fn are_zero(&self) -> bool {
        (0..self.len).all(|word| self.word(word).load(Ordering::Relaxed) == 0)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

/// The first `n` bits of `word`, lowest first.
pub(super) fn lowest(word: u64, n: usize) -> u64 {
    let mut rest = word;
    if word.count_ones() as usize <= n {
        return word;
    }
    for _ in 0..n {
        rest &= rest - 1;
    }
    word & !rest
}

/// The indices of the bits of `word`, lowest first.
pub(super) fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            index
        })
    })
}
