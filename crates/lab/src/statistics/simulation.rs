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
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), drift: 0.0 }
    }

    /// A standard normal deviate (Box and Muller).
    fn normal(&mut self) -> f64 {
        let mut uniform = || (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let (a, b) = (1.0 - uniform(), uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    fn measure(&mut self, log_cost: f64) -> f64 {
        self.drift += NOISE * self.normal();
        (log_cost + self.drift + NOISE * self.normal()).exp()
    }

    /// `rounds` pairs in random order, AB or BA; the second costs `effect` times the first.
    fn pairs(&mut self, rounds: usize, effect: f64) -> Vec<f64> {
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
        log_ratios(&base, &other, Better::Lower).unwrap()
    }
}

/// The share of trials for which `holds`.
fn share(mut holds: impl FnMut() -> bool) -> f64 {
    (0..TRIALS).filter(|_| holds()).count() as f64 / TRIALS as f64
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
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
fn without_pairing_drift_looks_like_an_effect() {
    // The trap that the rounds are for: all of one first, then all of the other. If this did not go
    // wrong, the simulation would be too tame to prove anything about the procedure.
    let mut machine = Machine::new(9);
    let wrong = share(|| {
        let base: Vec<f64> = (0..10).map(|_| machine.measure(0.0)).collect();
        let other: Vec<f64> = (0..10).map(|_| machine.measure(0.0)).collect();
        let log_ratios = log_ratios(&base, &other, Better::Lower).unwrap();
        Pairs::new(&log_ratios).unwrap().p_value() <= ALPHA
    });
    println!("sequential: {wrong:.4} called different");
    assert!(wrong > 0.20, "{wrong}");
}
