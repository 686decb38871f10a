//! When to stop a comparison that goes on until its interval is narrow, without spoiling the
//! interval's coverage.
//!
//! Who looks at the interval after each round and stops as soon as it pleases, stops more often
//! where chance has made it narrow, or moved it: the interval that is published then covers less
//! often than it says. The rule here is paid for in advance:
//!
//! 1. The first rounds are a *pilot*. From their scatter follows how many rounds the width will
//!    take. They are not judged, so that number is fixed before the first round that is: one
//!    of that many rounds has its coverage whatever the pilot was.
//! 2. Where it is still too wide then, it goes on to further *looks*, each of half as many rounds
//!    again, up to the most that are allowed. The looks are fixed by the pilot, too, and the error
//!    of 5 % is divided among them: two thirds to the first, two thirds of what remains to the
//!    next, and to the last what is left.
//!
//! The published interval is that of one look. It misses the truth only if the interval of some
//! look does, and the chances of that sum up to at most 5 %, however the looks depend on each other
//! and on the rule (a union bound).

use super::{ALPHA, Pairs, pairs_advised};

/// Where a comparison may stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// After this many judged rounds.
    pub rounds: usize,
    /// The error that all intervals of this look share.
    pub alpha: f64,
}

/// The part of the remaining error that each look takes.
const SHARE: f64 = 2.0 / 3.0;

/// How many rounds a pilot of `cells` comparisons takes.
pub fn pilot_rounds(cells: usize) -> usize {
    pairs_advised(cells)
}

/// The looks, from the pilot's logarithms of ratios, one list for each comparison: until all
/// intervals are within a factor of 1 + `width` of their middle, at most `most` rounds.
pub fn looks(pilot: &[Vec<f64>], width: f64, most: usize) -> Vec<Look> {
    let cells = pilot.len().max(1);
    let alpha = SHARE * ALPHA / cells as f64;
    let rounds_of = |ratios: &Vec<f64>| -> usize {
        let interval = Pairs::new(ratios).and_then(|pairs| pairs.interval(alpha));
        let half = interval
            .map_or(f64::INFINITY, |i| if i.low == i.high { 0.0 } else { (i.high - i.low) / 2.0 });
        let times = (half / width.ln_1p()).powi(2);
        // From infinite to the largest there is.
        (times * ratios.len() as f64).ceil() as usize
    };
    let first = pilot.iter().map(rounds_of).max().unwrap_or(0);
    let mut rounds = first.clamp(pairs_advised(cells).min(most), most);
    let (mut looks, mut left) = (Vec::new(), ALPHA);
    while rounds < most {
        looks.push(Look { rounds, alpha: SHARE * left });
        left -= SHARE * left;
        rounds += rounds.div_ceil(2);
    }
    looks.push(Look { rounds: most, alpha: left });
    looks
}

/// The look whose error an interval of `rounds` rounds has: the next one, where a comparison was
/// ended between two.
pub fn look_at(looks: &[Look], rounds: usize) -> Look {
    let next = looks.iter().find(|look| look.rounds >= rounds).or(looks.last());
    next.copied().unwrap_or(Look { rounds, alpha: ALPHA })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pilot(scatter: f64) -> Vec<Vec<f64>> {
        vec![(0..12).map(|i| scatter * f64::from(i % 5 - 2)).collect()]
    }

    #[test]
    fn looks_share_the_error() {
        for scatter in [0.0, 0.01, 0.05, 1.0] {
            let looks = looks(&pilot(scatter), 0.01, 500);
            let spent: f64 = looks.iter().map(|look| look.alpha).sum();
            assert!((spent - ALPHA).abs() < 1e-12, "{looks:?}");
            assert!(looks.is_sorted_by(|a, b| a.rounds < b.rounds), "{looks:?}");
            assert_eq!(looks.last().unwrap().rounds, 500);
        }
    }

    #[test]
    fn more_scatter_means_later_looks() {
        let first = |scatter| looks(&pilot(scatter), 0.01, 500)[0].rounds;
        assert_eq!(first(0.0), 12);
        assert!(first(0.01) > 15 && first(0.02) > 3 * first(0.01), "{}", first(0.01));
        assert_eq!(first(1.0), 500);
        assert_eq!(looks(&[vec![f64::INFINITY; 12]], 0.01, 500)[0].rounds, 12);
    }

    #[test]
    fn an_early_end_takes_the_next_look() {
        let looks = looks(&pilot(0.01), 0.01, 500);
        assert_eq!(look_at(&looks, looks[0].rounds), looks[0]);
        assert_eq!(look_at(&looks, looks[0].rounds - 1), looks[0]);
        assert_eq!(look_at(&looks, looks[0].rounds + 1), looks[1]);
    }
}
