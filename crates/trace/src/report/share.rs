//! Shares and intervals.

use serde::Serialize;

/// What is proven, and what may be true at most. Never shown as one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// The lower end: certain.
    pub proven: u64,
    /// The upper end: the proven and everything that may be so besides.
    pub possible: u64,
}

impl Interval {
    /// From the proven part and what may come on top of it.
    pub(crate) fn new(proven: u64, besides: u64) -> Self {
        Self { proven, possible: proven.saturating_add(besides) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.proven = self.proven.saturating_add(other.proven);
        self.possible = self.possible.saturating_add(other.possible);
    }

    pub(crate) fn is_zero(self) -> bool {
        self.possible == 0
    }
}

/// The 95 % confidence interval (Wilson's) of a share in `samples` samples, in percent.
pub(crate) fn sampled_percent(percent: f64, samples: u64) -> [f64; 2] {
    const Z: f64 = 1.96;
    let (share, n) = ((percent / 100.0).clamp(0.0, 1.0), (samples as f64).max(1.0));
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    [(middle - half).max(0.0) * 100.0, (middle + half).min(1.0) * 100.0]
}

/// `part` of `whole` in percent, within 0 and 100; `None` if there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 * 100.0 / whole as f64).clamp(0.0, 100.0))
}

/// Splits a count in proportion to weights, in whole numbers that add up to it: the largest
/// remainders get what rounding down has left over, the earlier first.
pub(crate) fn apportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let product = |weight: &u64| u128::from(total) * u128::from(*weight);
    let floor = |weight| u64::try_from(product(weight) / sum).unwrap_or(u64::MAX);
    let mut parts: Vec<u64> = weights.iter().map(floor).collect();
    let left = total - parts.iter().sum::<u64>();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|&index| std::cmp::Reverse(product(&weights[index]) % sum));
    for index in by_remainder.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
        parts[index] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_remainder_gets_the_rest() {
        assert_eq!(apportion(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(apportion(7, &[0, 5]), [0, 7]);
        assert_eq!(apportion(7, &[0, 0]), [0, 0]);
        assert_eq!(apportion(7, &[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn parts_add_up(total: u64, weights in proptest::collection::vec(any::<u64>(), 1..20)) {
            let parts = apportion(total, &weights);
            let expected = if weights.iter().all(|weight| *weight == 0) { 0 } else { total };
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(),
                u128::from(expected));
        }

        #[test]
        fn a_share_is_within_the_whole(part: u64, whole: u64) {
            prop_assert!(percent(part, whole).is_none_or(|share| (0.0..=100.0).contains(&share)));
        }
    }
}
