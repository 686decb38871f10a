//! Whether the machine's own speed changed while rounds ran.
//!
//! Pairs share the speed of the moment, so verdicts bear it. A reader must know it all the same:
//! the medians are then of two machines, and so may be the ratio.

use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::result::Point;
use crate::round::Round;

/// The time of a process, as commands have it and as runners do.
const METRICS: [&str; 2] = ["wall_s", "process_elapsed_s"];

/// Slower by less than this is not worth a mark.
const SLOWER_MIN: f64 = 1.10;

/// Noise alone moves the smoothed level of hundreds of rounds by up to three times the scatter
/// between the sides.
const SCATTERS_MIN: f64 = 4.0;

/// How slow the machine was, and when.
struct Drift {
    ratio: f64,
    slow: usize,
    fast: usize,
    cell: usize,
}

/// A mark where all sides together became slower or faster for some rounds, and by more than they
/// scatter. Of a sweep, the point at which it was most.
pub(crate) fn mark(plan: &Plan, rounds: &[Round]) -> Option<String> {
    let drifts = (0..plan.cells.len()).filter_map(|cell| drift(plan, rounds, cell));
    let Drift { ratio, slow, fast, cell } = drifts.max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let at = match Point::of(plan, cell).to_string() {
        point if plan.cells.len() > 1 => format!(" at {point}"),
        _ => String::new(),
    };
    Some(format!(
        "the machine's own speed changed meanwhile: all sides took {ratio:.2} times as long around \
         round {slow} as around round {fast}{at}"
    ))
}

fn drift(plan: &Plan, rounds: &[Round], cell: usize) -> Option<Drift> {
    let mut by_round: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for contender in &plan.contenders {
        let is_of = |it: &&Round| it.cell == cell && it.label == contender.label;
        let time = |it: &Round| METRICS.iter().find_map(|name| it.metrics.get(*name)).copied();
        let times: Vec<(usize, f64)> = rounds
            .iter()
            .filter(is_of)
            .filter_map(|it| Some((it.round, time(it).filter(|time| *time > 0.0)?.ln())))
            .collect();
        let middle = median(times.iter().map(|(_, time)| *time))?;
        for (round, time) in times {
            by_round.entry(round).or_default().push(time - middle);
        }
    }
    by_round.retain(|_, sides| sides.len() == plan.contenders.len());
    let least = |sides: &Vec<f64>| sides.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |sides: &Vec<f64>| sides.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scatter = median(by_round.values().map(|sides| most(sides) - least(sides)))?;
    // A machine that is slow is so for all sides, and for more than one round in three.
    let levels: Vec<(usize, f64)> =
        by_round.iter().map(|(round, sides)| (*round, least(sides))).collect();
    let smoothed: Vec<(usize, f64)> = levels
        .windows(3)
        .filter_map(|three| Some((three[1].0, median(three.iter().map(|(_, level)| *level))?)))
        .collect();
    let slow = smoothed.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let fast = smoothed.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let change = slow.1 - fast.1;
    let is_seen = change > SLOWER_MIN.ln() && change > SCATTERS_MIN * scatter;
    is_seen.then(|| Drift { ratio: change.exp(), slow: slow.0, fast: fast.0, cell })
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::random::Random;
    use crate::round::tests::round;

    /// The mark of `count` rounds of two sides, whose times are what `time` says times a scatter
    /// of 5 %.
    fn marked(count: usize, seed: u64, time: impl Fn(usize, &str) -> f64) -> Option<String> {
        let request = Request { seed: 3, delta: 0.02, ..Request::default() };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        let mut random = Random::new(seed);
        let mut scatter = || {
            let unit = || random.below(1_000_000) as f64 / 1e6 - 0.5;
            1.0 + 0.05 * std::iter::repeat_with(unit).take(12).sum::<f64>()
        };
        let mut of = |number: usize, label: &str| {
            let mut it = round(number, label, 1.0);
            it.metrics.insert("wall_s".to_owned(), time(number, label) * scatter());
            it
        };
        let rounds: Vec<Round> =
            (1..=count).flat_map(|n| [of(n, "before"), of(n, "unherd")]).collect();
        mark(&plan, &rounds)
    }

    #[test]
    fn slow_stretch_of_all_sides_is_marked() {
        let slow = |n: usize, label: &str| {
            let own = if label == "unherd" { 0.5 } else { 1.0 };
            own * if (10..=21).contains(&n) { 1.6 } else { 1.0 }
        };
        let said = marked(30, 1, slow).unwrap();
        assert!(said.starts_with("the machine's own speed changed meanwhile: all sides"), "{said}");
        let around = |name: &str| -> usize {
            let rest = said.split_once(name).unwrap().1;
            rest.split_whitespace().next().unwrap().parse().unwrap()
        };
        assert!((10..=21).contains(&around("around round ")), "{said}");
        assert!(!(10..=21).contains(&around("as around round ")), "{said}");
        let one_side = |n, label: &str| if label == "unherd" { slow(n, label) } else { 1.0 };
        assert_eq!(marked(30, 1, one_side), None, "which is that side's own");
    }

    #[test]
    fn noise_and_outliers_are_no_drift() {
        for seed in 0..40 {
            assert_eq!(marked(200, seed, |_, _| 1.0), None, "seed {seed}");
            let outliers = |n: usize, label: &str| {
                let every = if label == "unherd" { 7 } else { 11 };
                if n.is_multiple_of(every) { 3.0 } else { 1.0 }
            };
            assert_eq!(marked(200, seed, outliers), None, "seed {seed}");
        }
        assert_eq!(marked(2, 1, |n, _| n as f64), None, "two rounds say nothing");
    }
}
