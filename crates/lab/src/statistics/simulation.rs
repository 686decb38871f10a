//! The whole procedure judged on simulated noise, where the truth is known.
//!
//! A machine that drifts: the logarithm of its speed takes a random-walk step of 1 % before every
//! round, and every round has 1 % jitter of its own. Seeds are fixed, so the shares below are facts
//! and not luck; each bound is the one that is published.

use super::*;
use crate::random::Random;

const TRIALS: usize = 4_000;
const NOISE: f64 = 0.01;

struct Machine {
    random: Random,
    drift: f64,
    /// How far the drift goes before each process.
    step: f64,
    /// The scatter of each process by itself.
    jitter: f64,
    /// The share of processes that take three times as long.
    outliers: f64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), drift: 0.0, step: NOISE, jitter: NOISE, outliers: 0.0 }
    }

    /// A number from 0 to 1, without the latter.
    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A standard normal deviate (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    fn measure(&mut self, log_cost: f64) -> f64 {
        self.drift += self.step * self.normal();
        let outlier = if self.outliers > 0.0 && self.uniform() < self.outliers { 3.0 } else { 1.0 };
        outlier * (log_cost + self.drift + self.jitter * self.normal()).exp()
    }

    /// `rounds` pairs in random order, AB or BA; the second costs `effect` times the first.
    fn pairs(&mut self, rounds: usize, effect: f64) -> Vec<f64> {
        let (base, other) = self.sides(rounds, effect);
        log_ratios(&base, &other, Better::Lower).unwrap()
    }

    fn sides(&mut self, rounds: usize, effect: f64) -> (Vec<f64>, Vec<f64>) {
        let (mut base, mut other) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            if self.random.below(2) == 0 {
                base.push(self.measure(0.0));
                other.push(self.measure(effect.ln()));
            } else {
                other.push(self.measure(effect.ln()));
                base.push(self.measure(0.0));
            }
        }
        (base, other)
    }
}

/// The share of trials for which `holds`.
fn share(mut holds: impl FnMut() -> bool) -> f64 {
    (0..TRIALS).filter(|_| holds()).count() as f64 / TRIALS as f64
}

#[test]
fn intervals_have_their_stated_coverage() {
    for (rounds, effect) in [(6, 1.0), (8, 1.05), (10, 0.5), (12, 1.0), (20, 1.01)] {
        let mut machine = Machine::new(rounds as u64);
        let covered = share(|| {
            let pairs = Pairs::new(&machine.pairs(rounds, effect)).unwrap();
            let interval = pairs.interval(ALPHA).unwrap();
            (interval.low..=interval.high).contains(&-effect.ln())
        });
        println!("{rounds} rounds, effect {effect}: {covered:.4} covered");
        assert!((0.93..=0.97).contains(&covered), "{rounds} rounds: {covered}");
    }
}

#[test]
fn nothing_is_rarely_called_something() {
    for (rounds, cells) in [(6, 1), (8, 4), (11, 40)] {
        assert_eq!(rounds, pairs_needed(cells));
        let mut machine = Machine::new(100 + rounds as u64);
        let called_different = share(|| {
            let family: Vec<Comparison> = (0..cells)
                .map(|_| Comparison { log_ratios: machine.pairs(rounds, 1.0), exercised: true })
                .collect();
            let judged = judge(&family, 0.02);
            judged.iter().flatten().any(|j| matches!(j.verdict, Verdict::Faster | Verdict::Slower))
        });
        println!("{cells} cells, {rounds} rounds: {called_different:.4} called different");
        assert!(called_different <= ALPHA, "{cells} cells: {called_different}");
    }
}

#[test]
fn five_per_cent_is_found() {
    let mut machine = Machine::new(5);
    let rounds = 10;
    let found = share(|| {
        let cell = Comparison { log_ratios: machine.pairs(rounds, 1.05), exercised: true };
        judge(&[cell], 0.02)[0].is_some_and(|j| j.verdict == Verdict::Slower)
    });
    println!("{rounds} rounds: 5 % found {found:.4}");
    assert!(found >= 0.90, "{found}");
}

#[test]
fn advised_rounds_survive_disturbed_ones() {
    // A planted 10 % where 3 of 100 processes take three times as long.
    let found = |rounds: usize, cells: usize| {
        let mut machine = Machine { outliers: 0.03, ..Machine::new(21 + rounds as u64) };
        share(|| {
            let mut family: Vec<Comparison> = (0..cells)
                .map(|_| Comparison { log_ratios: machine.pairs(rounds, 1.0), exercised: true })
                .collect();
            family[0].log_ratios = machine.pairs(rounds, 1.1);
            judge(&family, 0.02)[0].is_some_and(|j| j.verdict == Verdict::Slower)
        })
    };
    for cells in [1, 8] {
        let (fewest, advised) = (pairs_needed(cells), pairs_advised(cells));
        let shares = [found(fewest, cells), found(advised, cells)];
        println!("{cells} cells: found {shares:.3?} in {fewest} and {advised} rounds");
        assert!(shares[0] < 0.86 && shares[1] > 0.90, "{cells} cells: {shares:?}");
    }
}

#[test]
fn all_intervals_of_a_family_hold_together() {
    let effects = [1.0, 1.0, 1.03, 0.97, 1.1, 0.9, 2.0, 1.0];
    let mut machine = Machine::new(31);
    let rounds = pairs_advised(effects.len());
    let together = share(|| {
        let family: Vec<Comparison> = effects
            .iter()
            .map(|&e| Comparison { log_ratios: machine.pairs(rounds, e), exercised: true })
            .collect();
        judge(&family, 0.02).iter().flatten().zip(effects).all(|(judged, effect)| {
            let interval = judged.interval.unwrap();
            (interval.low..=interval.high).contains(&(1.0 / effect))
        })
    });
    println!("8 cells, {rounds} rounds: all intervals covered {together:.4}");
    assert!((0.95..=0.99).contains(&together), "{together}");
}

#[test]
fn the_rounds_that_are_advised_find_the_change() {
    // As printed beside "cannot tell", from a pilot of 12 pairs each time.
    let mut machine = Machine::new(41);
    let mut rounds = Vec::new();
    let found = (0..400)
        .filter(|_| {
            let pilot = machine.pairs(12, 1.0);
            let advised = rounds_to_find(&pilot, 0.02, ALPHA).unwrap();
            rounds.push(advised as f64);
            Pairs::new(&machine.pairs(advised, 1.02)).unwrap().p_value() <= ALPHA
        })
        .count() as f64
        / 400.0;
    let median = summary(&rounds).unwrap();
    println!("2 % found {found:.3} in the rounds advised, {median:?}");
    assert!(found >= 0.90, "{found}");
}

#[test]
fn planted_five_per_cent_is_found_in_printed_rounds() {
    // As `unherd compare --delta 5%` prints them beside a first comparison of twelve rounds.
    // Of 24 processes none may be one of the 3 in 100 that take three times as long.
    for (jitter, outliers) in [(0.01, 0.0), (0.05, 0.0), (0.03, 0.03)] {
        let mut machine = Machine { jitter, outliers, ..Machine::new(43) };
        let (mut rounds, mut found, mut never) = (Vec::new(), 0, 0);
        let trials = 200;
        for _ in 0..trials {
            let Some(printed) = rounds_to_find(&machine.pairs(12, 1.05), 0.05, ALPHA) else {
                never += 1;
                continue;
            };
            rounds.push(printed as f64);
            let log_ratios = machine.pairs(printed, 1.05);
            let judged = judge(&[Comparison { log_ratios, exercised: true }], 0.05)[0];
            found += usize::from(judged.is_some_and(|it| it.verdict == Verdict::Slower));
        }
        let share = found as f64 / rounds.len() as f64;
        let rounds = summary(&rounds).unwrap();
        println!(
            "jitter {jitter}, {outliers} outliers: 5 % found {share:.3} in the printed rounds, \
             {rounds:?}; {never} of {trials} printed none"
        );
        assert!(share >= 0.90, "{share}");
    }
}

/// A comparison that goes on until its interval is within `width`: the rounds that it took, the
/// interval and the verdict.
fn until(machine: &mut Machine, effect: f64, width: f64) -> (usize, Judgement) {
    let pilot = machine.pairs(pilot_rounds(1), effect);
    let looks = looks(&[pilot], width, 500);
    let mut log_ratios = Vec::new();
    loop {
        let look = look_at(&looks, log_ratios.len() + 1);
        log_ratios.extend(machine.pairs(look.rounds - log_ratios.len(), effect));
        let cell = Comparison { log_ratios: log_ratios.clone(), exercised: true };
        let judged = judge_at(&[cell], 0.02, look.alpha)[0].unwrap();
        let interval = judged.interval.unwrap();
        if (interval.high / interval.low).sqrt() <= 1.0 + width || look.rounds == 500 {
            return (look.rounds, judged);
        }
    }
}

#[test]
fn stopping_when_narrow_keeps_the_coverage() {
    for (effect, width, outliers) in
        [(1.0, 0.01, 0.0), (1.05, 0.01, 0.0), (1.0, 0.005, 0.0), (1.0, 0.01, 0.03)]
    {
        let mut machine = Machine { outliers, ..Machine::new(71) };
        let (mut rounds, mut narrow, mut different) = (Vec::new(), 0, 0);
        let trials = 600;
        let covered = (0..trials).filter(|_| {
            let (taken, judged) = until(&mut machine, effect, width);
            let interval = judged.interval.unwrap();
            rounds.push(taken as f64);
            narrow += usize::from((interval.high / interval.low).sqrt() <= 1.0 + width);
            different += usize::from(matches!(judged.verdict, Verdict::Faster | Verdict::Slower));
            (interval.low..=interval.high).contains(&(1.0 / effect))
        });
        let share = |count: usize| count as f64 / f64::from(trials);
        let (covered, different) = (share(covered.count()), share(different));
        let rounds = summary(&rounds).unwrap();
        println!(
            "until {width}, effect {effect}, {outliers} outliers: {covered:.3} covered, \
             {different:.3} called different, {rounds:?}"
        );
        assert!(covered >= 0.95, "{covered}");
        assert!(share(narrow) > 0.98, "{narrow} of {trials} are narrow");
        if effect == 1.0 {
            assert!(different <= ALPHA, "{different}");
        } else {
            assert!(different >= 0.90, "{different}");
        }
    }
}

#[test]
fn looking_after_each_round_spoils_the_coverage() {
    // What the rule above is for: stop at the first of 12 to 60 rounds that "shows" something.
    let mut machine = Machine::new(81);
    let wrong = (0..200)
        .filter(|_| {
            let all = machine.pairs(60, 1.0);
            (12..=60).any(|n| Pairs::new(&all[..n]).unwrap().p_value() <= ALPHA)
        })
        .count() as f64
        / 200.0;
    println!("looking after each round: {wrong:.3} called different");
    assert!(wrong > 0.15, "{wrong}");
}

#[test]
fn equal_sides_rarely_seem_to_scatter_differently() {
    let mut machine = Machine::new(51);
    let wrong = share(|| {
        let (base, other) = machine.sides(12, 1.0);
        let seen = tail(&base, &other, Better::Lower).unwrap();
        seen.spread_differs(1) || seen.worst_differ()
    });
    println!("12 rounds: {wrong:.4} seem to scatter differently");
    assert!(wrong <= ALPHA, "{wrong}");
}

/// All of one side first, then all of the other, as most people measure.
fn one_after_the_other(machine: &mut Machine, runs: usize) -> (Vec<f64>, Vec<f64>) {
    let mut side = || (0..runs).map(|_| machine.measure(0.0)).collect();
    (side(), side())
}

/// The two-sided p-value of the rank sum test, exact: benchstat's.
fn rank_sum_p(a: &[f64], b: &[f64]) -> f64 {
    let u = a.iter().map(|x| b.iter().filter(|&y| y < x).count()).sum::<usize>();
    let most = a.len() * b.len();
    // ways[n][u]: how many orders of n of the one and m of the other side have this statistic.
    let mut ways = vec![vec![0.0; most + 1]; a.len() + 1];
    ways[0][0] = 1.0;
    for rank in 1..=a.len() + b.len() {
        for n in (1..=a.len().min(rank)).rev() {
            // This rank is one of the first side's: `rank - n` of the other side are below it.
            let below = rank - n;
            for at in (below..=most).rev() {
                if below <= b.len() {
                    ways[n][at] += ways[n - 1][at - below];
                }
            }
        }
    }
    let all: f64 = ways[a.len()].iter().sum();
    let tail: f64 = ways[a.len()][..=u.min(most - u)].iter().sum();
    (2.0 * tail / all).min(1.0)
}

/// The two-sided p-value of Welch's test, as hyperfine's and criterion's users apply it.
fn welch_p(a: &[f64], b: &[f64]) -> f64 {
    let moments = |side: &[f64]| {
        let n = side.len() as f64;
        let mean = side.iter().sum::<f64>() / n;
        let variance = side.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n, n)
    };
    let ((mean_a, a, n_a), (mean_b, b, n_b)) = (moments(a), moments(b));
    let t = (mean_a - mean_b).abs() / (a + b).sqrt();
    let freedom = (a + b).powi(2) / (a * a / (n_a - 1.0) + b * b / (n_b - 1.0));
    // The density of Student's distribution, by Simpson's rule; its scale by the whole of it.
    let density = |x: f64| (1.0 + x * x / freedom).powf(-(freedom + 1.0) / 2.0);
    let area = |to: f64| {
        let steps = 600;
        let width = to / f64::from(steps);
        let at = |i: u32| density(f64::from(i) * width);
        let inner: f64 = (1..steps).map(|i| if i % 2 == 1 { 4.0 } else { 2.0 } * at(i)).sum();
        (at(0) + inner + at(steps)) * width / 3.0
    };
    1.0 - area(t.min(60.0)) / area(60.0)
}

#[test]
fn the_tests_of_others_are_theirs() {
    let (a, b) = ([1.1, 2.2, 3.9, 4.2, 5.8, 9.0], [2.5, 4.9, 6.1, 7.7, 8.3, 9.9, 12.0]);
    // scipy 1.17.1: mannwhitneyu(a, b, method='exact').pvalue, ttest_ind(a, b, equal_var=False)
    assert!((rank_sum_p(&a, &b) - 0.101_398_601_398_601_4).abs() < 1e-9, "{}", rank_sum_p(&a, &b));
    assert!((welch_p(&a, &b) - 0.099_630_112).abs() < 1e-6, "{}", welch_p(&a, &b));
}

#[test]
fn drift_fools_sequential_tests_not_pairs() {
    // The table in docs/measuring.md.
    for (name, drift) in [("1 % walk", NOISE), ("0.3 % walk", 0.003), ("no drift", 0.0)] {
        let mut machine = Machine { step: drift, ..Machine::new(61) };
        let mut sequential = |test: fn(&[f64], &[f64]) -> f64| {
            share(|| {
                let (a, b) = one_after_the_other(&mut machine, 10);
                test(&a, &b) <= ALPHA
            })
        };
        let (benchstat, welch) = (sequential(rank_sum_p), sequential(welch_p));
        let ours = share(|| {
            let log_ratios = machine.pairs(pairs_advised(1), 1.0);
            let judged = judge(&[Comparison { log_ratios, exercised: true }], 0.02)[0];
            judged.is_some_and(|j| matches!(j.verdict, Verdict::Faster | Verdict::Slower))
        });
        println!("| {name} | {benchstat:.3} | {welch:.3} | {ours:.3} |");
        assert!(ours <= ALPHA, "{name}: {ours}");
        let wrong = benchstat.min(welch);
        assert!(drift == 0.0 || wrong > 0.15, "{name}: too tame to prove anything: {wrong}");
    }
}

#[test]
fn without_pairing_drift_looks_like_an_effect() {
    // The trap that the rounds are for: all of one first, then all of the other. If this did not go
    // wrong, the simulation would be too tame to prove anything about the procedure.
    let mut machine = Machine::new(9);
    let wrong = share(|| {
        let (base, other) = one_after_the_other(&mut machine, 10);
        let log_ratios = log_ratios(&base, &other, Better::Lower).unwrap();
        Pairs::new(&log_ratios).unwrap().p_value() <= ALPHA
    });
    println!("sequential: {wrong:.4} called different");
    assert!(wrong > 0.20, "{wrong}");
}

#[test]
fn scalability_intervals_cover_the_truth() {
    let (lambda, sigma, kappa, rounds) = (100.0, 0.05, 0.002_f64, 12);
    let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0_f64];
    let mut machine = Machine::new(77);
    let mut covered = [0; 3];
    for _ in 0..TRIALS {
        let measured: Vec<Vec<f64>> = (0..rounds)
            .map(|_| {
                let mut order: Vec<usize> = (0..loads.len()).collect();
                machine.random.shuffle(&mut order);
                let mut throughput = vec![0.0; loads.len()];
                for at in order {
                    let others = loads[at] - 1.0;
                    let cost: f64 = (1.0 + sigma * others + kappa * loads[at] * others) / loads[at];
                    throughput[at] = lambda / machine.measure(cost.ln());
                }
                throughput
            })
            .collect();
        let found = Usl::fit(&loads, &measured).unwrap();
        // What drifts is the machine's speed: there is no one λ to be covered.
        let truths = [sigma, kappa, ((1.0 - sigma) / kappa).sqrt()];
        for (count, (estimate, truth)) in
            covered.iter_mut().zip([found.sigma, found.kappa, found.peak].into_iter().zip(truths))
        {
            let (low, high) = (estimate.low.unwrap(), estimate.high.unwrap_or(f64::INFINITY));
            *count += usize::from((low..=high).contains(&truth));
        }
    }
    let shares = covered.map(|count| count as f64 / TRIALS as f64);
    println!(
        "covered: contention {:.4}, crosstalk {:.4}, peak {:.4}",
        shares[0], shares[1], shares[2]
    );
    assert!(shares.iter().all(|share| (0.93..=0.97).contains(share)), "{shares:?}");
}
