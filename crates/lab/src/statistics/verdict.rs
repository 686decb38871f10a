//! From pairs to words.

use serde::{Deserialize, Serialize};

use super::{ALPHA, HolmStep, Interval, Pairs, holm};

/// Which way a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better: times, CPU, wakeups.
    Lower,
    /// More is better: rates.
    Higher,
    /// The metric describes and does not judge; there are no verdicts about it.
    Neither,
}

/// What may be said of an implementation against the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Better in the metric's direction, surely and by more than δ could hide.
    #[serde(rename = "faster")]
    Faster,
    /// Worse in the metric's direction.
    #[serde(rename = "slower")]
    Slower,
    /// The whole interval lies within δ of "no change".
    #[serde(rename = "same")]
    Same,
    /// The interval holds both "no change" and changes larger than δ.
    #[serde(rename = "cannot tell")]
    CannotTell,
    /// The mechanism was used 0 times, so the pairs say nothing about it.
    #[serde(rename = "not exercised")]
    NotExercised,
}

impl Verdict {
    /// The word as reports print it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::CannotTell => "cannot tell",
            Self::NotExercised => "not exercised",
        }
    }
}

/// One cell to be judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Logarithms of "how many times better", pair by pair ([`log_ratios`]).
    pub log_ratios: Vec<f64>,
    /// Whether the mechanism that the workload is about was used at all.
    pub exercised: bool,
}

/// What the pairs of one cell say. Ratios tell how many times *better* the implementation is than
/// the base, in the metric's direction: above 1 is better, whether less or more of the metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// The Hodges–Lehmann estimate.
    pub ratio: f64,
    /// The interval's ends, or `None` where there are too few pairs for any at this level.
    pub interval: Option<Interval>,
    /// The confidence of this interval by itself. All intervals of a family have the same, at which
    /// they hold *together* with 1 − [`ALPHA`].
    pub level: f64,
    /// How many pairs there were.
    pub pairs: usize,
    /// The exact two-sided p-value, before Holm.
    pub p_value: f64,
    /// The word for it.
    pub verdict: Verdict,
}

/// Why there is no ratio.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{base} and {other} have no ratio, which takes numbers that are not negative")]
pub struct NoRatio {
    /// What the base measured.
    pub base: f64,
    /// What the other measured.
    pub other: f64,
}

/// The logarithm of how many times better `other` is than `base`. Two zeros are equal; one zero is
/// an infinite ratio.
///
/// # Errors
///
/// [`NoRatio`] where a number is negative or NaN.
pub fn log_ratio(base: f64, other: f64, better: Better) -> Result<f64, NoRatio> {
    if !(base >= 0.0 && other >= 0.0) {
        return Err(NoRatio { base, other });
    }
    let more = if base == other { 0.0 } else { other.ln() - base.ln() };
    Ok(if better == Better::Lower { -more } else { more })
}

/// The same pair by pair.
///
/// # Errors
///
/// [`NoRatio`] for the first pair that has none.
pub fn log_ratios(base: &[f64], other: &[f64], better: Better) -> Result<Vec<f64>, NoRatio> {
    base.iter().zip(other).map(|(&base, &other)| log_ratio(base, other, better)).collect()
}

/// Judges a family of cells together: the chance that any of them is called different though
/// nothing differs is at most [`ALPHA`]. Changes within `delta` (0.02 is 2 %) are called the same.
///
/// All intervals have the level at which they cover their truths together (Bonferroni's). Holm's
/// procedure tells more cells apart than these intervals do; there the interval ends at "no
/// change", as the confidence region that belongs to Holm's procedure does (Guilbaud 2008;
/// Strassburger & Bretz 2008).
///
/// Cells without pairs are left out of the family and get no judgement.
pub fn judge(family: &[Comparison], delta: f64) -> Vec<Option<Judgement>> {
    judge_at(family, delta, ALPHA)
}

/// The same where the family is allowed the error `error` instead of [`ALPHA`].
pub fn judge_at(family: &[Comparison], delta: f64, error: f64) -> Vec<Option<Judgement>> {
    let pairs: Vec<Option<Pairs>> =
        family.iter().map(|cell| Pairs::new(&cell.log_ratios)).collect();
    let p_values: Vec<f64> = pairs.iter().flatten().map(Pairs::p_value).collect();
    let mut steps = holm(&p_values, error).into_iter();
    pairs
        .iter()
        .zip(family)
        .map(|(pairs, cell)| {
            let (pairs, step) = (pairs.as_ref()?, steps.next()?);
            Some(judge_one(pairs, step, error / p_values.len() as f64, delta, cell.exercised))
        })
        .collect()
}

/// Judges a cell whose figures do not vary from round to round: one pair says all, and the
/// interval has no width. Without pairs there is no judgement.
pub fn judge_exact(cell: &Comparison, delta: f64) -> Option<Judgement> {
    let low = cell.log_ratios.iter().copied().min_by(f64::total_cmp)?;
    let high = cell.log_ratios.iter().copied().max_by(f64::total_cmp)?;
    let interval = Interval { low, high };
    let is_different = low > 0.0 || high < 0.0;
    let verdict = if cell.exercised {
        verdict_of(interval, is_different, delta)
    } else {
        Verdict::NotExercised
    };
    Some(Judgement {
        ratio: low.exp(),
        interval: Some(Interval { low: low.exp(), high: high.exp() }),
        level: 1.0,
        pairs: cell.log_ratios.len(),
        p_value: if low <= 0.0 && high >= 0.0 { 1.0 } else { 0.0 },
        verdict,
    })
}

fn judge_one(pairs: &Pairs, step: HolmStep, alpha: f64, delta: f64, exercised: bool) -> Judgement {
    let own = pairs.interval(step.alpha).filter(|_| step.rejected);
    let interval = pairs.interval(alpha).map(|all| match own {
        Some(own) if own.low > 0.0 => Interval { low: all.low.max(0.0), ..all },
        Some(own) if own.high < 0.0 => Interval { high: all.high.min(0.0), ..all },
        _ => all,
    });
    let verdict = match interval {
        _ if !exercised => Verdict::NotExercised,
        None => Verdict::CannotTell,
        Some(interval) => verdict_of(interval, step.rejected, delta),
    };
    Judgement {
        ratio: pairs.estimate().exp(),
        interval: interval.map(|i| Interval { low: i.low.exp(), high: i.high.exp() }),
        level: 1.0 - alpha,
        pairs: pairs.count(),
        p_value: pairs.p_value(),
        verdict,
    }
}

/// Within δ comes first: a change that is sure but too small to matter is no reason for anything.
fn verdict_of(interval: Interval, is_different: bool, delta: f64) -> Verdict {
    let within = (1.0 + delta).ln();
    if interval.low >= -within && interval.high <= within {
        Verdict::Same
    } else if is_different && interval.low >= 0.0 {
        Verdict::Faster
    } else if is_different && interval.high <= 0.0 {
        Verdict::Slower
    } else {
        Verdict::CannotTell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(log_ratios: &[f64]) -> Judgement {
        let cell = Comparison { log_ratios: log_ratios.to_vec(), exercised: true };
        judge(&[cell], 0.02)[0].unwrap()
    }

    #[test]
    fn metric_direction_decides_what_is_better() {
        let base = [10.0; 6];
        let half = [5.0, 5.1, 4.9, 5.0, 5.2, 5.0];
        let lower = one(&log_ratios(&base, &half, Better::Lower).unwrap());
        assert_eq!(lower.verdict, Verdict::Faster);
        assert!((lower.ratio - 2.0).abs() < 0.05, "{}", lower.ratio);
        let higher = one(&log_ratios(&base, &half, Better::Higher).unwrap());
        assert_eq!(higher.verdict, Verdict::Slower);
        assert!((higher.ratio - 0.5).abs() < 0.05, "{}", higher.ratio);
    }

    #[test]
    fn each_verdict_has_its_interval() {
        assert_eq!(one(&[0.001, -0.002, 0.003, 0.0, 0.001, -0.001]).verdict, Verdict::Same);
        assert_eq!(one(&[0.005, 0.006, 0.007, 0.008, 0.005, 0.006]).verdict, Verdict::Same);
        assert_eq!(one(&[0.1, -0.2, 0.3, 0.0, 0.1, -0.1]).verdict, Verdict::CannotTell);
        assert_eq!(one(&[0.1, 0.2, 0.3, 0.15, 0.12, 0.11]).verdict, Verdict::Faster);
        let few = one(&[0.1, 0.2, 0.3]);
        assert_eq!((few.verdict, few.interval), (Verdict::CannotTell, None));
    }

    #[test]
    fn one_pair_says_all_where_nothing_varies() {
        let exact = |log_ratios: &[f64]| {
            let cell = Comparison { log_ratios: log_ratios.to_vec(), exercised: true };
            judge_exact(&cell, 0.02)
        };
        let verdict = |log_ratio: f64| exact(&[log_ratio]).unwrap().verdict;
        assert_eq!(
            [0.1, -0.1, 0.01].map(verdict),
            [Verdict::Faster, Verdict::Slower, Verdict::Same]
        );
        let judged = exact(&[0.1]).unwrap();
        assert_eq!((judged.interval.unwrap().low, judged.level), (0.1_f64.exp(), 1.0));
        assert_eq!(exact(&[]), None);
    }

    #[test]
    fn unused_mechanism_is_not_exercised() {
        let cell = Comparison { log_ratios: vec![0.5; 8], exercised: false };
        assert_eq!(judge(&[cell], 0.02)[0].unwrap().verdict, Verdict::NotExercised);
    }

    #[test]
    fn no_verdict_contradicts_its_interval_in_a_family() {
        let mut random = crate::random::Random::new(11);
        let family: Vec<Comparison> = (0..12)
            .map(|cell| {
                let shift = f64::from(cell % 4) * 0.05;
                let noise = |random: &mut crate::random::Random| {
                    (random.below(1000) as f64 / 1000.0 - 0.5) * 0.2
                };
                let log_ratios = (0..12).map(|_| shift + noise(&mut random)).collect();
                Comparison { log_ratios, exercised: true }
            })
            .collect();
        let judged: Vec<Judgement> = judge(&family, 0.02).into_iter().flatten().collect();
        for judgement in &judged {
            let Interval { low, high } = judgement.interval.unwrap();
            assert_eq!(judgement.level, 1.0 - ALPHA / 12.0, "one level for all");
            assert!((low..=high).contains(&judgement.ratio), "{judgement:?}");
            match judgement.verdict {
                Verdict::Faster => assert!(low >= 1.0, "{judgement:?}"),
                Verdict::Slower => assert!(high <= 1.0, "{judgement:?}"),
                _ => assert!(low < 1.0 && high > 1.0, "{judgement:?}"),
            }
        }
        assert!(judged.iter().any(|j| j.verdict == Verdict::Faster));
        assert!(judged.iter().any(|j| j.verdict == Verdict::CannotTell));
        // Told apart at a later step of Holm's alone: the interval ends at "no change".
        assert!(judged.iter().any(|j| j.interval.is_some_and(|i| i.low == 1.0)), "{judged:?}");
    }

    #[test]
    fn zero_ratios_are_equal_or_infinite() {
        let ratios = log_ratios(&[0.0, 0.0, 2.0], &[0.0, 3.0, 0.0], Better::Lower).unwrap();
        assert_eq!(ratios, [0.0, f64::NEG_INFINITY, f64::INFINITY]);
        assert!(log_ratios(&[1.0], &[-1.0], Better::Lower).is_err());
        assert!(log_ratios(&[f64::NAN], &[1.0], Better::Lower).is_err());
    }
}
