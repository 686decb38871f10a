//! Two samples that are not pairs: the shift between them, with its exact interval.
//!
//! U, the statistic of Mann and Whitney (1947) for "the second is the first, shifted by θ", is the
//! number of differences yⱼ − xᵢ below θ. With k the largest count for which 2·P(U ≤ k) ≤ α, the θ
//! that are not rejected are those from the (k+1)-th smallest difference to the (k+1)-th largest
//! (Hodges & Lehmann 1963; Hollander, Wolfe & Chicken 2014, §4.3). Ties err to the wide side, as
//! with pairs.
//!
//! It takes both samples for independent, and what moves one of them as a whole for a shift: of two
//! times of measurement it cannot tell the programs from what the machine did meanwhile.

use super::median_of_sorted;
use super::signed_rank::Interval;

/// The distribution is counted out up to this many values a side: some 10⁸ additions.
pub const SAMPLE_MAX: usize = 200;

/// Where the second of two samples lies against the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The Hodges–Lehmann estimate: the median of all differences.
    pub estimate: f64,
    /// Covers the shift with at least 1 − α; `None` where so few values allow no such interval.
    pub interval: Option<Interval>,
}

/// The shift from `first` to `second`. `None` where one of them is empty or larger than
/// [`SAMPLE_MAX`], or where a value is not finite.
pub fn shift(first: &[f64], second: &[f64], alpha: f64) -> Option<Shift> {
    let is_usable = |sample: &[f64]| {
        (1..=SAMPLE_MAX).contains(&sample.len()) && sample.iter().all(|value| value.is_finite())
    };
    if !(is_usable(first) && is_usable(second)) {
        return None;
    }
    let mut differences: Vec<f64> =
        second.iter().flat_map(|&y| first.iter().map(move |&x| y - x)).collect();
    differences.sort_by(f64::total_cmp);
    let cut = at_most(first.len(), second.len()).partition_point(|&p| 2.0 * p <= alpha);
    let interval = (cut > 0).then(|| Interval {
        low: differences[cut - 1],
        high: differences[differences.len() - cut],
    });
    Some(Shift { estimate: median_of_sorted(&differences).unwrap_or(0.0), interval })
}

/// P(U ≤ u) for u = 0 ..= nm where n and m values are in random order. The largest value is of the
/// first sample with chance n/(n + m), and then above all m of the second.
fn at_most(n: usize, m: usize) -> Vec<f64> {
    // chance[j] is the distribution for i and j values, of which i grows.
    let mut chance: Vec<Vec<f64>> = vec![vec![1.0]; m + 1];
    for i in 1..=n {
        chance[0] = vec![1.0];
        for j in 1..=m {
            let of_first = i as f64 / (i + j) as f64;
            let mut both = vec![0.0; i * j + 1];
            for (u, &p) in chance[j].iter().enumerate() {
                both[u + j] += of_first * p;
            }
            for (u, &p) in chance[j - 1].iter().enumerate() {
                both[u] += (1.0 - of_first) * p;
            }
            chance[j] = both;
        }
    }
    let mut sum = 0.0;
    let of_all = chance.pop().unwrap_or_default();
    of_all
        .into_iter()
        .map(|p| {
            sum += p;
            sum
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// All orders of n and m values, one by one.
    fn enumerated(n: usize, m: usize) -> Vec<f64> {
        let mut counts = vec![0.0; n * m + 1];
        let mut orders = 0.0;
        for order in 0_u32..1 << (n + m) {
            if order.count_ones() as usize != n {
                continue;
            }
            orders += 1.0;
            let is_first = |place: usize| order >> place & 1 == 1;
            let below = |place: usize| (0..place).filter(|&other| !is_first(other)).count();
            let u: usize = (0..n + m).filter(|&place| is_first(place)).map(below).sum();
            counts[u] += 1.0;
        }
        let mut sum = 0.0;
        counts
            .iter()
            .map(|count| {
                sum += count / orders;
                sum
            })
            .collect()
    }

    #[test]
    fn distribution_is_that_of_all_orders() {
        for (n, m) in [(1, 1), (2, 3), (5, 2), (4, 4), (6, 7)] {
            let (counted, expected) = (at_most(n, m), enumerated(n, m));
            assert_eq!(counted.len(), expected.len());
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
            assert!(counted.iter().zip(&expected).all(is_close), "{n}, {m}");
        }
    }

    #[test]
    fn critical_values_are_the_tables() {
        // Mann & Whitney's table for two sides and 5 %, as in Hollander, Wolfe & Chicken.
        for (n, m, largest) in
            [(4, 4, 0), (5, 5, 2), (6, 6, 5), (8, 10, 17), (10, 10, 23), (20, 20, 127)]
        {
            let cut = at_most(n, m).partition_point(|&p| 2.0 * p <= 0.05);
            assert_eq!(cut, largest + 1, "{n}, {m}");
        }
        assert_eq!(at_most(3, 3).partition_point(|&p| 2.0 * p <= 0.05), 0, "too few");
    }

    #[test]
    fn intervals_agree_with_benchstats_p_values() {
        // Of benchstat's own testdata/crc-{old,new}.txt, rows without ties: Koopman 32kB/align=1,
        // 1kB/align=0 and 512/align=1, with the p-values that it prints (golang.org/x/perf
        // 22c9c6c9d4da).
        let rows: [([f64; 10], [f64; 10], f64); 3] = [
            (
                [
                    70108.0, 67566.0, 71256.0, 69979.0, 69972.0, 68356.0, 69631.0, 70087.0,
                    75510.0, 76970.0,
                ],
                [
                    76238.0, 74141.0, 71910.0, 76684.0, 75951.0, 73299.0, 76288.0, 73453.0,
                    72748.0, 72097.0,
                ],
                0.009,
            ),
            (
                [2308.0, 2480.0, 2288.0, 2371.0, 2247.0, 2211.0, 2264.0, 2231.0, 2161.0, 2109.0],
                [2259.0, 2322.0, 2350.0, 2355.0, 2291.0, 2343.0, 2416.0, 2410.0, 2256.0, 2405.0],
                0.052,
            ),
            (
                [1096.0, 1117.0, 1200.0, 1109.0, 1155.0, 1141.0, 1136.0, 1145.0, 1085.0, 1084.0],
                [1074.0, 1100.0, 1106.0, 1226.0, 1189.0, 1176.0, 1235.0, 1213.0, 1210.0, 1137.0],
                0.143,
            ),
        ];
        for (old, new, p) in rows {
            let leaves_out_zero = |alpha: f64| {
                let found = shift(&old, &new, alpha).unwrap().interval.unwrap();
                found.low > 0.0 || found.high < 0.0
            };
            assert!(!leaves_out_zero(p - 0.0005) && leaves_out_zero(p + 0.0005), "{p}");
        }
    }

    #[test]
    fn interval_covers_the_shift() {
        let mut random = Random::new(7);
        let trials = 4_000;
        let covered = (0..trials).filter(|_| {
            let mut sample = |count: usize, by: f64| -> Vec<f64> {
                (0..count).map(|_| by + random.below(1_000_000) as f64 / 1e6).collect()
            };
            let (first, second) = (sample(9, 0.0), sample(12, 0.3));
            let found = shift(&first, &second, 0.05).unwrap().interval.unwrap();
            found.low <= 0.3 && 0.3 <= found.high
        });
        let share = covered.count() as f64 / f64::from(trials);
        assert!((0.945..0.97).contains(&share), "{share}");
    }

    #[test]
    fn what_cannot_be_judged_is_none() {
        assert_eq!(shift(&[], &[1.0], 0.05), None);
        assert_eq!(shift(&[f64::NAN], &[1.0], 0.05), None);
        assert_eq!(shift(&vec![0.0; SAMPLE_MAX + 1], &[1.0], 0.05), None);
        let few = shift(&[1.0, 2.0], &[3.0], 0.05).unwrap();
        assert_eq!((few.estimate, few.interval), (1.5, None));
    }
}
