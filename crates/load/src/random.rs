//! Numbers that look random and follow from a seed.

/// Mixes a word well: each bit of the input changes about half of the output's (the finalizer of
/// SplitMix64, by Steele, Lea and Flood).
#[inline]
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Mixes several words into one; their order counts.
#[inline]
pub(crate) fn mix_all(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |sum, word| {
        mix(sum.wrapping_add(*word).wrapping_add(0x9e37_79b9_7f4a_7c15))
    })
}

/// A sequence of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence that belongs to `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next number.
    #[inline]
    pub(crate) fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// The next number below `bound`, which is at least 1. For small bounds the bias is below
    /// 2^-32.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_word()) * bound as u128) >> 64) as usize
    }
}
