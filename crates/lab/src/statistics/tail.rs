//! Beside the middle: how far the rounds of each side scatter, and the worst of them.
//!
//! A herd, a stalled write or a lost wakeup shows in few rounds. An estimate of the middle does not
//! see them, which is its strength against a disturbed machine and its weakness here.

use serde::{Deserialize, Serialize};

use super::{ALPHA, Better, Pairs, median_of_sorted};

/// A round that is this many times as bad as its side's median is counted as an outlier.
pub const OUTLIER: f64 = 1.5;

/// The scatter of the two sides of a comparison, each about its own median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// How many times as bad as its median the base's worst round was.
    pub base_worst: f64,
    /// The same of the other side.
    pub worst: f64,
    /// How many of the base's rounds were [`OUTLIER`] times as bad as its median.
    pub base_outliers: usize,
    /// The same of the other side.
    pub outliers: usize,
    /// How many times as far from their median the other side's rounds lie, on average.
    pub spread_ratio: f64,
    /// How surely they do not scatter alike: the signed-rank test of the distances, pair by pair.
    pub spread_p_value: f64,
}

impl Tail {
    /// Whether one side surely scatters wider, and by enough to matter, among this many
    /// comparisons.
    pub fn spread_differs(&self, comparisons: usize) -> bool {
        let wider = self.spread_ratio.max(self.spread_ratio.recip());
        wider >= OUTLIER && self.spread_p_value <= ALPHA / comparisons.max(1) as f64
    }

    /// Whether one side's worst round stands out and the other's does not.
    pub fn worst_differ(&self) -> bool {
        let (large, small) = (self.worst.max(self.base_worst), self.worst.min(self.base_worst));
        large >= OUTLIER && large >= 1.25 * small
    }
}

/// The scatter of pairs of measurements, or `None` where fewer than two are above zero.
pub fn tail(base: &[f64], other: &[f64], better: Better) -> Option<Tail> {
    let pairs = || base.iter().zip(other).filter(|&(&a, &b)| a > 0.0 && b > 0.0);
    let sign = if better == Better::Higher { -1.0 } else { 1.0 };
    let deviations = |side: Vec<f64>| {
        let costs: Vec<f64> = side.iter().map(|value| sign * value.ln()).collect();
        let mut sorted = costs.clone();
        sorted.sort_by(f64::total_cmp);
        let median = median_of_sorted(&sorted)?;
        Some(costs.into_iter().map(|cost| cost - median).collect::<Vec<f64>>())
    };
    let base = deviations(pairs().map(|(&a, _)| a).collect())?;
    let other = deviations(pairs().map(|(_, &b)| b).collect())?;
    if base.len() < 2 {
        return None;
    }
    let worst = |side: &[f64]| side.iter().copied().fold(0.0, f64::max).exp();
    let outliers = |side: &[f64]| side.iter().filter(|&&d| d >= OUTLIER.ln()).count();
    // Below a thousandth, scatter is the clock's and not the program's.
    let distance = |side: &[f64]| side.iter().map(|d| d.abs() + 0.001).sum::<f64>();
    let differences: Vec<f64> = base.iter().zip(&other).map(|(a, b)| b.abs() - a.abs()).collect();
    Some(Tail {
        base_worst: worst(&base),
        worst: worst(&other),
        base_outliers: outliers(&base),
        outliers: outliers(&other),
        spread_ratio: distance(&other) / distance(&base),
        spread_p_value: Pairs::new(&differences)?.p_value(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_finds_rare_slow_rounds() {
        let base: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 3)).collect();
        let mut other = base.clone();
        (other[4], other[13]) = (300.0, 310.0);
        let seen = tail(&base, &other, Better::Lower).unwrap();
        assert!(seen.worst_differ(), "{seen:?}");
        assert_eq!((seen.base_outliers, seen.outliers), (0, 2));
        assert!(seen.worst > 3.0 && seen.base_worst < 1.02, "{seen:?}");
        // Of a rate, the worst is the lowest.
        let rates = |side: &[f64]| side.iter().map(|cost| 1.0 / cost).collect::<Vec<f64>>();
        let same = tail(&rates(&base), &rates(&other), Better::Higher).unwrap();
        assert!((same.worst - seen.worst).abs() < 1e-9, "{same:?}");
        assert!(!tail(&base, &base, Better::Lower).unwrap().worst_differ());
    }

    #[test]
    fn a_wider_scatter_is_told_from_the_same() {
        let scatter = |size: f64, step: i32| -> Vec<f64> {
            (0..18).map(|i| 100.0 * (size * f64::from(i * step % 7 - 3)).exp()).collect()
        };
        let (narrow, wide) = (scatter(0.01, 3), scatter(0.05, 5));
        let wider = tail(&narrow, &wide, Better::Lower).unwrap();
        assert!(wider.spread_ratio > 4.0 && wider.spread_p_value < 0.05, "{wider:?}");
        let alike = tail(&narrow, &scatter(0.01, 5), Better::Lower).unwrap();
        assert!(alike.spread_p_value > 0.2, "{alike:?}");
        assert_eq!(tail(&[1.0], &[1.0], Better::Lower), None);
        assert_eq!(tail(&[0.0, 0.0], &[1.0, 1.0], Better::Lower), None);
    }
}
