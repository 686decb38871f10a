//! Estimate, interval and test of one cell, from its Walsh averages.
//!
//! T⁺(θ), Wilcoxon's statistic for "the differences are symmetric about θ", is the number of Walsh
//! averages above θ (Tukey). Over n pairs there are M = n(n+1)/2 of them. With k the largest count
//! for which 2·P(T⁺ ≤ k) ≤ α, the test rejects θ when T⁺(θ) ≤ k or T⁺(θ) ≥ M − k, so the θ that are
//! not rejected are those from the (k+1)-th smallest Walsh average to the (k+1)-th largest.

use std::cell::RefCell;
use std::rc::Rc;

use super::{median_of_sorted, midpoint};

/// The differences of one cell's pairs (logarithms of ratios), ready for questions.
#[derive(Debug, Clone)]
pub struct Pairs {
    count: usize,
    /// All (dᵢ + dⱼ)/2 with i ≤ j, sorted.
    walsh: Vec<f64>,
    /// `at_most[t]` is P(T⁺ ≤ t) if nothing differs.
    at_most: Rc<[f64]>,
}

/// Where a difference lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end, itself inside.
    pub low: f64,
    /// The upper end, itself inside.
    pub high: f64,
}

impl Pairs {
    /// Takes the differences of at least one pair. Infinite ones are legal (a ratio to zero); none
    /// may be NaN. Costs O(n³) additions for n pairs, as the exact distribution is counted out, and
    /// O(n² log n) steps where the last pairs were as many.
    pub fn new(differences: &[f64]) -> Option<Self> {
        if differences.is_empty() || differences.iter().any(|d| d.is_nan()) {
            return None;
        }
        let mut walsh = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
        for (i, &a) in differences.iter().enumerate() {
            walsh.extend(differences[i..].iter().map(|&b| midpoint(a, b)));
        }
        walsh.sort_by(f64::total_cmp);
        Some(Self {
            count: differences.len(),
            walsh,
            at_most: null_distribution(differences.len()),
        })
    }

    /// How many pairs there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The Hodges–Lehmann estimate of the difference.
    pub fn estimate(&self) -> f64 {
        // There is at least one Walsh average, so the median exists.
        median_of_sorted(&self.walsh).unwrap_or(0.0)
    }

    /// The interval that covers the true difference with at least 1 − `alpha`, or `None` where even
    /// the widest one that so few pairs allow does not.
    pub fn interval(&self, alpha: f64) -> Option<Interval> {
        // P(T⁺ ≤ t) grows with t: the counts that may be cut off each end are a prefix.
        let cut = self.at_most.partition_point(|&p| 2.0 * p <= alpha);
        if cut == 0 {
            return None;
        }
        Some(Interval { low: self.walsh[cut - 1], high: self.walsh[self.walsh.len() - cut] })
    }

    /// The two-sided p-value of "no difference": the smallest α whose interval leaves zero out.
    pub fn p_value(&self) -> f64 {
        let above = self.walsh.iter().filter(|&&w| w > 0.0).count();
        let below = self.walsh.iter().filter(|&&w| w < 0.0).count();
        // Averages of exactly zero lie on neither side, and so count against both.
        let against = self.walsh.len() - above.max(below);
        (2.0 * self.at_most[against]).min(1.0)
    }
}

thread_local! {
    /// The distribution that was asked for last: all cells of a bench have as many pairs.
    static LAST: RefCell<(usize, Rc<[f64]>)> = RefCell::new((0, Rc::from([1.0])));
}

/// P(T⁺ ≤ t) for t = 0 ..= n(n+1)/2 when each of the ranks 1 ..= n is positive with chance ½.
fn null_distribution(n: usize) -> Rc<[f64]> {
    LAST.with_borrow_mut(|last| {
        if last.0 != n {
            *last = (n, counted_out(n).into());
        }
        Rc::clone(&last.1)
    })
}

fn counted_out(n: usize) -> Vec<f64> {
    let mut chance = vec![1.0];
    (1..=n).for_each(|rank| add_rank(&mut chance, rank));
    let mut sum = 0.0;
    for p in &mut chance {
        sum += *p;
        *p = sum;
    }
    chance
}

/// From the chances of each sum of the ranks below this one to those with it: it is positive with
/// chance ½. Goes down by blocks of `rank` sums, so that what a block is added from is still
/// without the rank, and neither overlaps the other.
fn add_rank(chance: &mut Vec<f64>, rank: usize) {
    chance.resize(chance.len() + rank, 0.0);
    for start in (rank..chance.len()).step_by(rank).rev() {
        let (below, block) = chance.split_at_mut(start);
        for (p, with) in block.iter_mut().zip(&below[start - rank..]) {
            *p = (*p + with) / 2.0;
        }
    }
    chance[..rank].iter_mut().for_each(|p| *p /= 2.0);
}

/// For growing numbers of pairs, how many of the smallest sums an interval of 1 − α may cut off.
/// Numbers that were asked for before cost nothing.
#[derive(Debug)]
struct Cuts {
    alpha: f64,
    /// Of the largest number of pairs so far.
    chance: Vec<f64>,
    cuts: Vec<usize>,
}

thread_local! {
    /// Of the α that was asked for last: all cells of a bench have one.
    static CUTS: RefCell<Cuts> = RefCell::new(Cuts::new(super::ALPHA));
}

/// How many of the smallest sums an interval of 1 − `alpha` may cut off with `n` pairs.
pub(super) fn cut_of(n: usize, alpha: f64) -> usize {
    CUTS.with_borrow_mut(|cuts| {
        if cuts.alpha != alpha {
            *cuts = Cuts::new(alpha);
        }
        cuts.of(n)
    })
}

impl Cuts {
    fn new(alpha: f64) -> Self {
        Self { alpha, chance: vec![1.0], cuts: vec![0] }
    }

    /// Those of `n` pairs.
    fn of(&mut self, n: usize) -> usize {
        while self.cuts.len() <= n {
            add_rank(&mut self.chance, self.cuts.len());
            let mut sum = 0.0;
            let is_cut = |p: &&f64| {
                sum += **p;
                2.0 * sum <= self.alpha
            };
            self.cuts.push(self.chance.iter().take_while(is_cut).count());
        }
        self.cuts[n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_those_of_the_intervals() {
        let mut cuts = Cuts::new(0.05);
        for n in [40, 5, 6, 12, 120, 13] {
            let expected = null_distribution(n).partition_point(|&p| 2.0 * p <= 0.05);
            assert_eq!(cuts.of(n), expected, "{n}");
        }
        for alpha in [0.05, 0.001, 0.05] {
            assert_eq!(cut_of(12, alpha), Cuts::new(alpha).of(12), "{alpha}");
        }
        // Hollander, Wolfe and Chicken, table A.4: P(T⁺ ≤ 0) is 1/64 for six pairs.
        assert_eq!((cuts.of(5), cuts.of(6)), (0, 1));
    }

    const TEN: [f64; 10] = [0.021, -0.013, 0.034, 0.008, 0.055, -0.002, 0.041, 0.017, 0.029, 0.003];
    const TWELVE: [f64; 12] = [1.5, -0.7, 2.2, 0.3, -1.1, 3.4, 0.9, -2.6, 4.1, 1.3, -0.2, 2.9];

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs().max(1e-3)
    }

    #[test]
    fn p_values_are_scipys() {
        // scipy 1.17.1: scipy.stats.wilcoxon(x, method='exact').pvalue
        let expected = [
            (&TEN[..], 0.019_531_25),
            (&TWELVE[..6], 0.3125),
            (&TWELVE[..8], 0.546_875),
            (&TWELVE[..], 0.109_863_281_25),
        ];
        for (differences, p) in expected {
            assert!(close(Pairs::new(differences).unwrap().p_value(), p), "{differences:?}");
        }
    }

    #[test]
    fn estimates_are_numpys() {
        // numpy 2: numpy.median([(x[i] + x[j]) / 2 for i in range(n) for j in range(i, n)])
        let expected = [(&TEN[..], 0.019), (&TWELVE[..8], 0.475), (&TWELVE[..], 1.05)];
        for (differences, estimate) in expected {
            let found = Pairs::new(differences).unwrap().estimate();
            assert!(close(found, estimate), "{differences:?}: {found}");
        }
    }

    #[test]
    fn intervals_are_what_scipys_test_does_not_reject() {
        // scipy 1.17.1: the outermost Walsh averages of x between which every m has
        // scipy.stats.wilcoxon(x - m, method='exact').pvalue > alpha
        let ten = Pairs::new(&TEN).unwrap();
        let at_5 = ten.interval(0.05).unwrap();
        assert!(close(at_5.low, 0.003) && close(at_5.high, 0.035), "{at_5:?}");
        let at_1_25 = ten.interval(0.0125).unwrap();
        assert!(close(at_1_25.low, -0.0025) && close(at_1_25.high, 0.042), "{at_1_25:?}");
    }

    /// Runs `visit` with every choice of signs for `sizes`.
    fn every_sign_flip(sizes: &[f64], mut visit: impl FnMut(&[f64])) {
        for signs in 0..1_u32 << sizes.len() {
            let flipped: Vec<f64> = sizes
                .iter()
                .enumerate()
                .map(|(i, size)| if signs >> i & 1 == 1 { *size } else { -size })
                .collect();
            visit(&flipped);
        }
    }

    /// The p-value by its definition: the share of sign flips at least as lopsided.
    fn p_by_enumeration(differences: &[f64]) -> f64 {
        let mut order: Vec<usize> = (0..differences.len()).collect();
        order.sort_by(|&a, &b| differences[a].abs().total_cmp(&differences[b].abs()));
        let positive = |signed: &[f64]| -> usize {
            order.iter().enumerate().filter(|&(_, &i)| signed[i] > 0.0).map(|(r, _)| r + 1).sum()
        };
        let all = differences.len() * (differences.len() + 1) / 2;
        let seen = positive(differences);
        let (mut as_low, mut as_high, mut flips) = (0_u32, 0_u32, 0_u32);
        every_sign_flip(differences, |flipped| {
            let t = positive(flipped);
            as_low += u32::from(t <= seen.min(all - seen));
            as_high += u32::from(t >= seen.max(all - seen));
            flips += 1;
        });
        f64::from((as_low + as_high).min(flips)) / f64::from(flips)
    }

    #[test]
    fn test_equals_enumerated_sign_flips() {
        for n in 1..=10 {
            every_sign_flip(&TWELVE[..n.min(6)], |start| {
                let mut differences = start.to_vec();
                differences.extend_from_slice(&TWELVE[n.min(6)..n]);
                let found = Pairs::new(&differences).unwrap().p_value();
                let expected = p_by_enumeration(&differences);
                assert!(close(found, expected), "{differences:?}: {found} not {expected}");
            });
        }
    }

    #[test]
    fn ties_and_zeros_keep_test_conservative() {
        let tied: [&[f64]; 4] = [
            &[1.0; 8],
            &[0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0],
            &[0.0, 0.5, 0.5, 1.0, 1.5, 1.5, 2.0, 0.0],
            &[f64::INFINITY, f64::INFINITY, 1.0, 2.0, 3.0, 0.0, 4.0, 1.0],
        ];
        for sizes in tied {
            let mut p_values = Vec::new();
            every_sign_flip(sizes, |flipped| p_values.push(Pairs::new(flipped).unwrap().p_value()));
            for &alpha in &p_values {
                let rejected = p_values.iter().filter(|&&p| p <= alpha).count();
                let share = rejected as f64 / p_values.len() as f64;
                assert!(share <= alpha + 1e-12, "{sizes:?}: {share} at {alpha}");
            }
        }
    }

    #[test]
    fn interval_excludes_zero_when_test_rejects() {
        for sizes in [&TWELVE[..8], &[0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 0.5, 0.5][..]] {
            every_sign_flip(sizes, |flipped| {
                let pairs = Pairs::new(flipped).unwrap();
                for alpha in [0.01, 0.02, 0.05, 0.1, 0.3] {
                    let rejects = pairs.p_value() <= alpha;
                    let leaves_out =
                        pairs.interval(alpha).is_some_and(|i| i.low > 0.0 || i.high < 0.0);
                    assert_eq!(rejects, leaves_out, "{flipped:?} at {alpha}");
                }
            });
        }
    }

    #[test]
    fn too_few_pairs_have_no_interval() {
        let five = Pairs::new(&TEN[..5]).unwrap();
        assert_eq!(five.interval(0.05), None);
        assert!(Pairs::new(&TEN[..6]).unwrap().interval(0.05).is_some());
        assert!(Pairs::new(&[]).is_none());
        assert!(Pairs::new(&[f64::NAN]).is_none());
    }

    #[test]
    fn a_ratio_to_zero_is_an_infinite_difference() {
        let all = Pairs::new(&[f64::NEG_INFINITY; 6]).unwrap();
        assert_eq!(all.estimate(), f64::NEG_INFINITY);
        assert_eq!(all.p_value(), 2.0 / 64.0);
        let none = Pairs::new(&[f64::INFINITY, f64::NEG_INFINITY]).unwrap();
        assert_eq!((none.estimate(), none.p_value()), (0.0, 1.0));
    }
}
