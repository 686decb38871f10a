//! Which pages a thread asks for.

use super::page::PAGE_BYTES;
use crate::job::parse_size;
use crate::random::{Random, mix_all};
use crate::{Job, LoadError};

/// A sequence of this many pages is all that a small set has room for beside it in the cache.
const SHORT: usize = 8 << 10;
const LONG: usize = 1 << 20;

/// Sets up to this size are small.
const SMALL_PAGES: u32 = 4096;

/// The exponent of Zipf's law.
const SKEW: f64 = 0.99;

/// How many pages `set` says.
pub fn resident_pages(job: &Job) -> Result<u32, LoadError> {
    let text = job.params.text("set");
    let bytes = match text {
        "l2" => Some(512 << 10),
        "llc" => Some(512 << 20),
        _ => parse_size(text),
    };
    let pages = bytes.map(|bytes| bytes / PAGE_BYTES as u64);
    let pages = pages.filter(|pages| (1..=1 << 28).contains(pages));
    pages.map(|pages| pages as u32).ok_or_else(|| {
        LoadError::usage(format!("set={text}: give l2, llc, or bytes from 4K to 1T"))
    })
}

/// The sequence of a thread; its length is a power of two.
pub(super) fn sequence(job: &Job, thread: usize) -> Result<Box<[u32]>, LoadError> {
    let pages = resident_pages(job)?;
    let len = if pages <= SMALL_PAGES { SHORT } else { LONG };
    let mut random = Random::new(mix_all(&[job.seed, thread as u64]));
    Ok(match job.params.text("pattern") {
        "one" => vec![0; len].into_boxed_slice(),
        "uniform" => (0..len).map(|_| random.below(pages as usize) as u32).collect(),
        "zipf" => {
            let zipf = Zipf::new(job.seed, pages);
            (0..len).map(|_| zipf.page(&mut random)).collect()
        }
        other => {
            let what = format!("pattern={other}: there are one, uniform and zipf");
            return Err(LoadError::usage(what));
        }
    })
}

/// The page of rank r is asked for in proportion to 1 / r^0.99. Which page has which rank is drawn.
struct Zipf {
    /// The share of this rank and those before it, not yet divided by all.
    shares: Vec<f64>,
    pages: Vec<u32>,
}

impl Zipf {
    fn new(seed: u64, pages: u32) -> Self {
        let mut sum = 0.0;
        let share = |rank: u32| {
            sum += f64::from(rank).powf(-SKEW);
            sum
        };
        let shares = (1..=pages).map(share).collect();
        let mut random = Random::new(seed);
        let mut pages: Vec<u32> = (0..pages).collect();
        for last in (1..pages.len()).rev() {
            pages.swap(last, random.below(last + 1));
        }
        Self { shares, pages }
    }

    fn page(&self, random: &mut Random) -> u32 {
        let all = self.shares.last().copied().unwrap_or(0.0);
        let drawn = all * (random.next_word() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.shares.partition_point(|share| *share <= drawn);
        self.pages[rank.min(self.pages.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_first_key_has_its_share() {
        let zipf = Zipf::new(1, 1000);
        let mut random = Random::new(2);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..100_000 {
            counts[zipf.page(&mut random) as usize] += 1;
        }
        let all = zipf.shares.last().unwrap();
        for rank in [0, 1, 9] {
            let expected = 100_000.0 * f64::from(rank as u32 + 1).powf(-SKEW) / all;
            let found = f64::from(counts[zipf.pages[rank] as usize]);
            // Five standard deviations.
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {found}");
        }
    }
}
