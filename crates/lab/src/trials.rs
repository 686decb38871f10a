//! The lab judged by itself: many whole comparisons whose answer is known.
//!
//! An implementation against itself must rarely be called different; with a known slowdown planted
//! in one side, the slower side must mostly be found. Each trial is a whole bench, or a whole
//! comparison of commands, with a seed of its own and a record of its own.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bench::{BenchObserver, Conditions, Outcome, bench};
use crate::catalogue::RegisteredWorkload;
use crate::compare::{COMPARE, CompareRequest, Side, compare};
use crate::date;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::plan::{Plan, Request};
use crate::random::derived_seed;
use crate::record::make_place;
use crate::result::ComparisonLine;
use crate::statistics::{ALPHA, Verdict};

/// The share of planted slowdowns that must be found.
pub const POWER: f64 = 0.90;

/// How the trials went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trials {
    /// `unherd.trials/1`.
    pub schema: &'static str,
    /// The workload.
    pub workload: String,
    /// The implementation that ran against itself.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// The planted slowdown.
    pub plant: Option<f64>,
    /// Whether the second side is slower, so that this must be found; else both are the same.
    pub second_is_slower: bool,
    /// How many benches.
    pub trials: usize,
    /// Rounds of each; the most, where each goes on until its intervals are narrow.
    pub rounds: usize,
    /// Whether that is so.
    pub until_narrow: bool,
    /// Where all randomness started.
    pub seed: u64,
    /// Benches in which any comparison was called faster or slower.
    pub different: usize,
    /// All comparisons.
    pub comparisons: usize,
    /// Comparisons in which the second side was called slower.
    pub slower: usize,
}

impl Trials {
    /// Whether the lab is as good as it says: [`ALPHA`] of the benches called different where
    /// nothing is, [`POWER`] of the planted slowdowns found. The number that a lab shows is itself
    /// chance; what a lab that is just as good would show in fewer than one of a hundred times is
    /// too bad.
    pub fn is_met(&self) -> bool {
        if self.second_is_slower {
            self.slower >= self.bound()
        } else {
            self.different <= self.bound()
        }
    }

    /// The most wrong, or the fewest found, that a lab may show which is as good as it says.
    fn bound(&self) -> usize {
        if self.second_is_slower {
            self.comparisons - most(self.comparisons, 1.0 - POWER)
        } else {
            most(self.trials, ALPHA)
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        let Self { workload, implementation, trials, rounds, seed, .. } = self;
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        let bound = self.bound();
        let slower = match self.plant {
            Some(plant) => format!("a planted {:.1} % was found", 100.0 * plant),
            None => "the second was found slower".to_owned(),
        };
        let what = if self.second_is_slower {
            format!(
                "{slower} in {} of {} comparisons ({:.1} %; a lab with {:.0} % shows at least \
                 {bound} in 99 of 100 cases)",
                self.slower,
                self.comparisons,
                percent(self.slower, self.comparisons),
                100.0 * POWER
            )
        } else {
            format!(
                "{} of {trials} A/A benches called different ({:.1} %; a lab with {:.0} % shows at \
                 most {bound} in 99 of 100 cases)",
                self.different,
                percent(self.different, self.trials),
                100.0 * ALPHA
            )
        };
        let most = if self.until_narrow { "at most " } else { "" };
        format!("{workload}, {implementation}, {most}{rounds} rounds each, seed {seed}: {what}\n")
    }

    fn count(&mut self, comparisons: &[ComparisonLine]) {
        let is_different =
            |line: &&ComparisonLine| matches!(line.verdict, Verdict::Faster | Verdict::Slower);
        self.trials += 1;
        self.different += usize::from(comparisons.iter().any(|line| is_different(&line)));
        self.comparisons += comparisons.len();
        self.slower += comparisons.iter().filter(|line| line.verdict == Verdict::Slower).count();
    }
}

/// How many of `trials` happen at most, in 99 of 100 cases, if each happens with this chance: the
/// binomial distribution.
fn most(trials: usize, chance: f64) -> usize {
    const RARE: f64 = 0.01;
    let mut exactly = (1.0 - chance).powi(trials as i32);
    let mut above = 1.0 - exactly;
    let mut count = 0;
    while above > RARE && count < trials {
        count += 1;
        exactly *= (trials - count + 1) as f64 / count as f64 * chance / (1.0 - chance);
        above -= exactly;
    }
    count
}

/// Runs `count` benches of `request`, which must be an A/A one. Blocks until all are done; their
/// records stand below one directory.
///
/// # Errors
///
/// Those of [`bench()`].
pub fn trials(
    request: &Request,
    known: &RegisteredWorkload,
    conditions: &Conditions,
    count: usize,
    watch: &mut dyn BenchObserver,
    interrupt: &Interrupt,
) -> Result<Trials, Error> {
    if !request.aa {
        return Err(Error::usage("--repeat repeats an A/A run", "add --aa"));
    }
    if conditions.profile || conditions.trace.is_some() {
        return Err(Error::usage(
            "--repeat judges the bench; it samples and traces nothing",
            "give --profile and --trace without it",
        ));
    }
    let plan = Plan::new(request, known)?;
    let mut trials = Trials {
        implementation: plan.contenders[0].implementation.clone(),
        plant: request.plant,
        rounds: plan.rounds,
        ..Trials::none(plan.workload, plan.seed, request.plant.is_some())
    };
    trials.repeat(count, conditions.out.as_deref(), &mut |seed, out, _| {
        let plan = Plan::new(&Request { seed, ..request.clone() }, known)?;
        let conditions = Conditions { out: Some(out), ..conditions.clone() };
        bench(&plan, known, &conditions, watch, interrupt)
    })?;
    Ok(trials)
}

/// Runs `count` comparisons of commands. Where all sides are one command, none may be called
/// different; else the others must be called slower than the first. Blocks until all are done;
/// their records stand below one directory.
///
/// # Errors
///
/// Those of [`compare()`].
pub fn compare_trials(
    request: &CompareRequest,
    count: usize,
    watch: &mut dyn BenchObserver,
    interrupt: &Interrupt,
) -> Result<Trials, Error> {
    let sides = &request.sides;
    let is_first =
        |side: &Side| (&side.words, &side.directory) == (&sides[0].words, &sides[0].directory);
    let mut trials = Trials {
        implementation: sides.iter().map(Side::shown).collect::<Vec<_>>().join(" against "),
        until_narrow: request.until.is_some(),
        ..Trials::none(COMPARE.to_owned(), request.seed, !sides.iter().all(is_first))
    };
    trials.repeat(count, request.out.as_deref(), &mut |seed, out, rounds| {
        // By default it follows from the time of the first run: all take the first one's number.
        let rounds = rounds.filter(|_| request.until.is_none()).or(request.rounds);
        let request = CompareRequest { seed, rounds, out: Some(out), ..request.clone() };
        compare(&request, watch, interrupt)
    })?;
    Ok(trials)
}

/// Runs one trial with this seed, into this record, with as many rounds as the first.
type Trial<'a> = dyn FnMut(u64, PathBuf, Option<usize>) -> Result<Outcome, Error> + 'a;

impl Trials {
    fn none(workload: String, seed: u64, second_is_slower: bool) -> Self {
        Self {
            schema: "unherd.trials/1",
            workload,
            implementation: String::new(),
            plant: None,
            second_is_slower,
            trials: 0,
            rounds: 0,
            until_narrow: false,
            seed,
            different: 0,
            comparisons: 0,
            slower: 0,
        }
    }

    fn repeat(
        &mut self,
        count: usize,
        out: Option<&Path>,
        trial: &mut Trial<'_>,
    ) -> Result<(), Error> {
        let all = make_place(out, &format!("{}-trials-{}", self.workload, date::stamp_now()))?;
        for number in 1..=count {
            let seed = derived_seed(self.seed, number as u64) >> 11;
            let rounds = (self.rounds > 0).then_some(self.rounds);
            let outcome = trial(seed, all.join(format!("{number:04}")), rounds)?;
            self.rounds = outcome.header.plan.rounds;
            self.count(&outcome.result.comparisons);
            outcome.keep()?;
            if let Some(error) = outcome.failed {
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::tests::line;
    use crate::random::Random;

    fn counted(verdicts: &[Verdict], plant: Option<f64>) -> Trials {
        let mut trials = Trials {
            implementation: "unherd".to_owned(),
            plant,
            rounds: 6,
            ..Trials::none("wait".to_owned(), 1, plant.is_some())
        };
        for &verdict in verdicts {
            trials.count(&[line(0.9, 1.1, verdict)]);
        }
        trials
    }

    #[test]
    fn too_many_false_differences_fail() {
        let wolves = |count: usize| {
            let mut verdicts = vec![Verdict::CannotTell; 200 - count];
            verdicts.resize(200, Verdict::Faster);
            counted(&verdicts, None)
        };
        // scipy 1.17.1: binom.isf(0.01, 200, 0.05) is 18.
        let line = wolves(18).line();
        assert!(wolves(18).is_met() && !wolves(19).is_met(), "{line}");
        assert!(line.contains("18 of 200 A/A benches called different (9.0 %"), "{line}");
        assert!(line.contains("at most 18 in 99 of 100"), "{line}");
    }

    #[test]
    fn too_few_found_plants_fail() {
        let found = |count: usize| {
            let mut verdicts = vec![Verdict::Slower; count];
            verdicts.resize(100, Verdict::Same);
            counted(&verdicts, Some(0.05))
        };
        let line = found(82).line();
        assert!(found(82).is_met() && !found(81).is_met(), "{line}");
        assert!(line.contains("a planted 5.0 % was found in 82 of 100 comparisons"), "{line}");
    }

    #[test]
    fn a_correct_lab_rarely_fails() {
        // A bound at the share itself would fail it two times in five.
        for trials in [3, 20, 200, 1000] {
            let mut random = Random::new(trials as u64);
            let draws = 2_000;
            let failed = (0..draws).filter(|_| {
                let wrong = (0..trials).filter(|_| random.below(100) < 5).count();
                wrong > most(trials, 0.05)
            });
            let share = failed.count() as f64 / f64::from(draws);
            assert!(share <= 0.02, "{trials}: {share}");
        }
    }
}
