//! What pairs of measurements say, and how surely. Pure: no I/O, no time, no threads.
//!
//! The unit is the pair: the base and another implementation measured next to each other, in random
//! order, in one round. Slow drift of the machine moves both and leaves their ratio alone, so all
//! that is computed here is computed from the logarithms of these ratios:
//!
//! - *How much better?* The Hodges–Lehmann estimate: the median of the Walsh averages
//!   (dᵢ + dⱼ)/2, i ≤ j (Hodges & Lehmann 1963).
//! - *How surely?* The interval between two order statistics of the Walsh averages, chosen by the
//!   exact distribution of the signed-rank statistic (Tukey 1949; Hollander, Wolfe & Chicken 2014,
//!   §3.3).
//! - *Is it different?* The exact signed-rank test, which is that interval turned round (Wilcoxon
//!   1945).
//! - *Over many cells?* Holm's step-down procedure (Holm 1979); all intervals are given at one
//!   level, at which they hold together.
//! - *What may still be?* Where nothing can be told, how many rounds would find a change of δ in 9
//!   of 10 benches ([`rounds_to_find`]).
//! - *When is it enough?* After a number of rounds that is fixed before the first; or when the
//!   interval is narrow, by looks that share the error ([`looks`]).
//! - *And without pairs?* Between two kept records, the shift by rank sums, which drift can fool
//!   ([`shift()`]).
//! - *And the worst rounds?* The estimate is one of the middle: it does not move when one round in
//!   ten takes three times as long. So the scatter and the worst rounds of the two sides are
//!   compared beside it ([`Tail`]).
//! - *And with more threads?* The universal scalability law, fitted to each round by itself
//!   ([`Usl`]).
//!
//! **A verdict never contradicts its interval**, because the test is defined by the interval: the
//! p-value is the smallest α whose interval leaves out "no change". Where no difference is zero and
//! no two are equal this is the textbook's exact test (the tests compare it with scipy's numbers
//! and with every one of the 2ⁿ sign flips). **Ties and zeros** need no second rule: a Walsh
//! average of exactly zero counts for neither side. That errs to the side of "no difference": break
//! the ties by a symmetric jitter, and the exact interval of the jittered values covers the truth
//! with at least its level; let the jitter go to nothing, and its ends go to the ends given here.
//!
//! What is not promised: that a difference comes from the code and not from its layout in memory,
//! or that it would be the same on another machine.

mod holm;
mod power;
mod rank_sum;
mod signed_rank;
mod stopping;
mod tail;
mod usl;
mod verdict;

#[cfg(test)]
mod simulation;

pub use holm::{HolmStep, holm};
pub use power::rounds_to_find;
pub use rank_sum::{SAMPLE_MAX, Shift, shift};
pub use signed_rank::{Interval, Pairs};
pub use stopping::{Look, look_at, looks, pilot_rounds};
pub use tail::{OUTLIER, Tail, tail};
pub use usl::{Coefficients, Estimate, LOADS_MIN, Usl};
pub use verdict::{
    Better, Comparison, Judgement, NoRatio, Verdict, judge, judge_at, judge_exact, log_ratio,
    log_ratios,
};

/// The chance of a wrong "different" that a whole family of cells is allowed.
pub const ALPHA: f64 = 0.05;

/// How many pairs it takes until `cells` cells can be told apart at all: with n pairs the smallest
/// p-value there is is 2/2ⁿ, and Holm's first step asks for [`ALPHA`]/cells.
pub fn pairs_needed(cells: usize) -> usize {
    let steps = (cells.max(1) as f64 / ALPHA).log2();
    1 + steps.ceil() as usize
}

/// How many pairs a bench of `cells` cells takes unless told: twice [`pairs_needed`]. The fewest
/// that can decide do so only where every pair points the same way, so a single disturbed round
/// ends it; with twice as many a few may point the other way (the simulation's test has the
/// shares).
pub fn pairs_advised(cells: usize) -> usize {
    2 * pairs_needed(cells)
}

/// Median, smallest and largest of some measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// The summary of `values`, or `None` of nothing.
pub fn summary(values: &[f64]) -> Option<Summary> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Summary {
        median: median_of_sorted(&sorted)?,
        min: *sorted.first()?,
        max: *sorted.last()?,
    })
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(midpoint(lower, upper))
}

/// The mean of two numbers on the extended line. Opposite infinities say nothing about a direction,
/// so they meet in the middle, at zero.
fn midpoint(a: f64, b: f64) -> f64 {
    if a == b {
        a
    } else if a.is_infinite() && b.is_infinite() {
        0.0
    } else {
        (a + b) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pairs_needed_are_those_of_the_design() {
        assert_eq!([1, 4, 40].map(pairs_needed), [6, 8, 11]);
        for cells in 1..200 {
            let n = pairs_needed(cells) as i32;
            let needed = ALPHA / cells as f64;
            assert!(2.0 * 0.5_f64.powi(n) <= needed, "{n} pairs are too few for {cells} cells");
            assert!(2.0 * 0.5_f64.powi(n - 1) > needed, "{n} pairs are too many for {cells} cells");
        }
    }

    #[test]
    fn advised_pairs_are_twelve_and_eighteen() {
        assert_eq!([1, 8].map(pairs_advised), [12, 18]);
    }

    #[test]
    fn a_summary_is_of_the_sorted_values() {
        let four = summary(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(four, Summary { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(summary(&[7.0]).unwrap().median, 7.0);
        assert_eq!(summary(&[]), None);
    }
}
