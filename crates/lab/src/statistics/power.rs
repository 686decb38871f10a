//! How many rounds it would take, from the scatter of those that there are.

use super::Pairs;
use super::signed_rank::cut_of;
use crate::random::Random;

/// How many imagined benches stand behind an answer.
const BENCHES: usize = 400;
/// At most this number of them may miss the change.
const MISSES_MAX: usize = BENCHES / 10;
/// More rounds than this are not looked at.
const ROUNDS_MAX: usize = 500;

/// How many rounds would tell a change by the share `delta` from none at `alpha` in 9 of 10
/// benches, were further pairs like these: their deviations from the estimate are drawn again and
/// again (the bootstrap), and now and then one that none of them has shown. `None` where that takes
/// more than 500, or where no pair has a finite ratio.
pub fn rounds_to_find(log_ratios: &[f64], delta: f64, alpha: f64) -> Option<usize> {
    let finite: Vec<f64> = log_ratios.iter().copied().filter(|d| d.is_finite()).collect();
    let centre = Pairs::new(&finite)?.estimate();
    let count = finite.len() as f64;
    // The deviations from an estimate are smaller than those from the truth.
    let scale = (count / (count - 1.0).max(1.0)).sqrt();
    let deviations: Vec<f64> = finite.iter().map(|d| scale * (d - centre)).collect();
    let shift = (1.0 + delta).ln();
    let finds = |rounds: usize| finds(&deviations, shift, rounds, cut_of(rounds, alpha));
    // Up in steps of a fifth until it is enough, then back to the least that is.
    let mut below = 0;
    let mut enough = 2;
    while !finds(enough) {
        if enough == ROUNDS_MAX {
            return None;
        }
        below = enough;
        enough = (enough + enough.div_ceil(5)).min(ROUNDS_MAX);
    }
    while below + 1 < enough {
        let middle = usize::midpoint(below, enough);
        if finds(middle) {
            enough = middle;
        } else {
            below = middle;
        }
    }
    Some(enough)
}

/// Whether imagined benches of `rounds` rounds find `shift`, all but [`MISSES_MAX`] of them, where
/// `cut` rank sums are too small to be chance.
fn finds(deviations: &[f64], shift: f64, rounds: usize, cut: usize) -> bool {
    if cut == 0 {
        return false;
    }
    let largest = (cut - 1) as f64;
    let mut random = Random::new(rounds as u64);
    let mut draws = vec![0.0; rounds];
    let variance = deviations.iter().map(|d| d * d).sum::<f64>() / deviations.len() as f64;
    // Drawn alone, few values stand in each other's way: two that differ in sign alone would tell
    // any shift. So they are blurred by half of their scatter, and drawn together again.
    let (blur, whole) = ((variance * 3.0 / 4.0).sqrt(), 1.25_f64.sqrt());
    // What n pairs have not shown, the next one shows with a chance of one in n + 2 (the rule of
    // succession): a process that takes several times as long. Its size does not matter to ranks.
    let unseen = deviations.len() + 2;
    let mut draw = || {
        if random.below(unseen) == 0 {
            return if random.below(2) == 0 { f64::MAX } else { -f64::MAX };
        }
        let deviation = deviations[random.below(deviations.len())];
        let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
        (deviation + blur * unit) / whole + shift
    };
    let misses = (0..BENCHES).filter(|_| {
        draws.fill_with(&mut draw);
        rank_sum_against(&mut draws) > largest
    });
    // Most numbers of rounds are far too few, which the first benches tell.
    misses.take(MISSES_MAX + 1).count() <= MISSES_MAX
}

/// Wilcoxon's statistic of the differences that are not above zero; ties share their ranks.
fn rank_sum_against(differences: &mut [f64]) -> f64 {
    // Without their signs, numbers are in the order of their bits.
    differences.sort_unstable_by_key(|d| d.abs().to_bits());
    let mut sum = 0.0;
    let mut first = 0;
    while first < differences.len() {
        let size = differences[first].abs();
        let tied = differences[first..].iter().take_while(|d| d.abs() == size).count();
        let rank = first as f64 + (tied as f64 + 1.0) / 2.0;
        let against = differences[first..first + tied].iter().filter(|&&d| d <= 0.0).count();
        sum += rank * against as f64;
        first += tied;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistic_is_that_of_the_textbook() {
        // scipy 1.17.1: wilcoxon([1.5, -0.7, 2.2, 0.3, -1.1, 3.4]).statistic is 5, ranks 2 and 3.
        assert_eq!(rank_sum_against(&mut [1.5, -0.7, 2.2, 0.3, -1.1, 3.4]), 5.0);
        assert_eq!(rank_sum_against(&mut [1.0, -1.0, 2.0]), 1.5, "ties share their ranks");
        assert_eq!(rank_sum_against(&mut [0.0, 1.0]), 1.0, "nothing counts against");
    }

    #[test]
    fn more_scatter_takes_more_rounds() {
        let scatter = |size: f64| {
            let pairs: Vec<f64> = (0..12).map(|i| size * f64::from(i % 5 - 2)).collect();
            rounds_to_find(&pairs, 0.02, 0.05)
        };
        let (little, much) = (scatter(0.005).unwrap(), scatter(0.02).unwrap());
        assert!((12..18).contains(&little), "{little}");
        assert!(much > 2 * little, "{little} and {much}");
        assert_eq!(scatter(1.0), None, "beyond any bench");
        assert_eq!(scatter(0.0), Some(12), "what twelve pairs have not shown is allowed for");
        assert_eq!(rounds_to_find(&[f64::INFINITY], 0.02, 0.05), None);
    }
}
