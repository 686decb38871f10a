//! One number that decides every random choice of a test.

use std::fmt;

/// A random number generator that remembers where it began.
///
/// The generator is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): 64 bits of state, equidistributed, and good enough to pick faults.
#[derive(Debug, Clone)]
pub struct Seed {
    origin: u64,
    state: u64,
}

/// The environment variable that overrides the seed of [`Seed::of_test`].
const SEED_VARIABLE: &str = "UNHERD_SEED";

impl Seed {
    /// A generator that begins at `origin`.
    pub const fn new(origin: u64) -> Self {
        Self { origin, state: origin }
    }

    /// The generator of one test: from `UNHERD_SEED` if that is set, else from `origin`.
    ///
    /// Prints the seed to standard error, which the test harness shows when the test fails.
    ///
    /// # Panics
    /// If `UNHERD_SEED` is not a number, decimal or with `0x`: a seed that was meant for a run must
    /// not be dropped silently.
    pub fn of_test(origin: u64) -> Self {
        let origin = match std::env::var(SEED_VARIABLE) {
            Ok(text) => parse(&text)
                .unwrap_or_else(|| panic!("{SEED_VARIABLE}={text} is not a 64-bit number")),
            Err(_) => origin,
        };
        let seed = Self::new(origin);
        eprintln!("{SEED_VARIABLE}={seed}");
        seed
    }

    /// The number that the generator began with.
    pub const fn origin(&self) -> u64 {
        self.origin
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` - 1; 0 if `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `per_mille` times in a thousand.
    ///
    /// Draws only where the outcome is open, so that a plan without faults costs no numbers.
    pub fn chance_per_mille(&mut self, per_mille: u32) -> bool {
        match per_mille {
            0 => false,
            1000.. => true,
            _ => self.below(1000) < u64::from(per_mille),
        }
    }

    /// True half of the time.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// Puts `items` in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    /// A generator of its own for another actor, decided by this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.origin)
    }
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        // The first three outputs of Vigna's splitmix64.c from state 1234567.
        let mut seed = Seed::new(1_234_567);
        let numbers = [seed.next_u64(), seed.next_u64(), seed.next_u64()];
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn bounds_hold_and_all_values_occur() {
        let mut seed = Seed::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            seen[seed.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
        assert_eq!(seed.below(0), 0);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Seed::new(2).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let seed = Seed::new(0xfeed);
        assert_eq!(parse(&seed.to_string()), Some(0xfeed));
        assert_eq!(parse("17"), Some(17));
        assert_eq!(parse("seventeen"), None);
    }
}
