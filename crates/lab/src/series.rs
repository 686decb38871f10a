//! The rounds of a plan, one process after the other, whatever these processes are.
//!
//! What went on around a process is looked up before and after it. For short processes that would
//! take longer than the process itself, so there it is looked up every [`WINDOW`], for all that ran
//! in between; the lines of the record are written then too.

use std::ops::RangeInclusive;
use std::time::Duration;

use unherd_sys::Timestamp;

use crate::bench::BenchObserver;
use crate::blocks::Block;
use crate::error::Error;
use crate::plan::{Plan, Step};
use crate::record::Record;
use crate::round::{Round, agree};
use crate::surroundings::{SurroundingsProbe, is_to_be_repeated};

/// Less than a hundredth of it goes into looking at the surroundings.
const WINDOW: Duration = Duration::from_millis(500);

/// Something that can run one process of a plan.
pub(crate) trait Measure {
    /// Runs it to its end. `number` is that of the round, with that of the attempt.
    fn measure(&self, number: (usize, usize), step: Step, record: &Record) -> Result<Round, Error>;
}

/// What has been run so far.
pub(crate) struct Series<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) record: Record,
    /// All attempts, as the record has them.
    pub(crate) rounds: Vec<Round>,
    /// Which rounds are run: all, or those of one block.
    numbers: RangeInclusive<usize>,
    keep_disturbed: bool,
    window: Option<(Timestamp, SurroundingsProbe)>,
    /// For the next window, from the end of the last.
    next: Option<SurroundingsProbe>,
    /// Those of `rounds` before this one are in the record.
    written: usize,
    /// Groups of which it is not decided whether they are run again.
    undecided: Vec<(usize, Vec<Step>)>,
}

impl<'a> Series<'a> {
    /// A series that goes on after `rounds`, which are in the record.
    pub(crate) fn new(
        plan: &'a Plan,
        record: Record,
        rounds: Vec<Round>,
        block: Option<Block>,
        keep_disturbed: bool,
    ) -> Self {
        let numbers = block.map_or(1..=plan.rounds, |block| block.first..=block.last);
        let written = rounds.len();
        let undecided = Vec::new();
        Self {
            plan,
            record,
            rounds,
            numbers,
            keep_disturbed,
            window: None,
            next: None,
            written,
            undecided,
        }
    }

    /// Runs all rounds until `is_enough`, which is asked after each with its number. What was
    /// measured before an error is kept.
    pub(crate) fn run(
        &mut self,
        measure: &dyn Measure,
        watch: &mut dyn BenchObserver,
        is_enough: &mut dyn FnMut(&Self, usize, &mut dyn BenchObserver) -> bool,
    ) -> Result<(), Error> {
        let done = self.all_rounds(measure, watch, is_enough);
        let closed = self.close_window();
        done.and(closed)
    }

    fn all_rounds(
        &mut self,
        measure: &dyn Measure,
        watch: &mut dyn BenchObserver,
        is_enough: &mut dyn FnMut(&Self, usize, &mut dyn BenchObserver) -> bool,
    ) -> Result<(), Error> {
        for number in self.numbers.clone() {
            let steps = self.plan.round(number);
            for group in steps.chunks(self.plan.contenders.len()) {
                if !self.is_finished(number, group[0].cell) {
                    self.group(number, group, measure, watch)?;
                }
            }
            if is_enough(self, number, watch) {
                break;
            }
        }
        while !self.undecided.is_empty() {
            self.close_window()?;
            self.decide(measure, watch)?;
        }
        Ok(())
    }

    /// All contenders in one cell, one after the other.
    fn group(
        &mut self,
        number: usize,
        group: &[Step],
        measure: &dyn Measure,
        watch: &mut dyn BenchObserver,
    ) -> Result<(), Error> {
        let attempt = 1 + self.attempts(number, group[0].cell);
        let first = self.rounds.len();
        for &step in group {
            watch.starting(number, &self.plan.contenders[step.contender].label);
            let next = &mut self.next;
            let begin = || (Timestamp::now(), next.take().unwrap_or_else(SurroundingsProbe::begin));
            let (began, _) = *self.window.get_or_insert_with(begin);
            let round = measure.measure((number, attempt), step, &self.record)?;
            self.rounds.push(round);
            watch.finished();
            if Timestamp::now().since(began) >= WINDOW {
                self.close_window()?;
            }
        }
        agree(&self.rounds[first..]).map_err(|what| Error::Disagreement {
            round: number,
            what,
            records: self.record.directory().to_owned(),
        })?;
        self.undecided.push((number, group.to_vec()));
        if self.window.is_none() { self.decide(measure, watch) } else { Ok(()) }
    }

    /// Tells the processes since the window's beginning what went on meanwhile, and writes them.
    fn close_window(&mut self) -> Result<(), Error> {
        if let Some((_, probe)) = self.window.take() {
            let (surroundings, next) = probe.end();
            self.next = Some(next);
            for round in &mut self.rounds[self.written..] {
                round.surroundings = surroundings;
            }
        }
        // Measured, whether they can be written or not.
        let new = self.written..self.rounds.len();
        self.written = new.end;
        let again = format!("go on by `{}`", self.record.resume_line(&self.plan.workload));
        self.record.append(&self.rounds[new], &again)
    }

    /// Runs the groups again in which others used the machine.
    fn decide(
        &mut self,
        measure: &dyn Measure,
        watch: &mut dyn BenchObserver,
    ) -> Result<(), Error> {
        for (number, steps) in std::mem::take(&mut self.undecided) {
            let (cell, attempt) = (steps[0].cell, self.attempts(number, steps[0].cell));
            let is_of = |round: &&Round| {
                (round.round, round.cell, round.attempt) == (number, cell, attempt)
            };
            let group: Vec<Round> = self.rounds.iter().filter(is_of).cloned().collect();
            if !self.keep_disturbed && is_to_be_repeated(self.plan, &self.rounds, &group) {
                watch.repeating(steps.len());
                self.group(number, &steps, measure, watch)?;
            }
        }
        Ok(())
    }

    /// The attempts at this cell of this round, whole or not.
    fn attempts(&self, number: usize, cell: usize) -> usize {
        let of = self.rounds.iter().filter(|round| (round.round, round.cell) == (number, cell));
        of.map(|round| round.attempt).max().unwrap_or(0)
    }

    /// Whether a whole attempt at it is there.
    fn is_finished(&self, number: usize, cell: usize) -> bool {
        let last = self.attempts(number, cell);
        (1..=last).any(|attempt| {
            let is_of = |round: &&Round| {
                (round.round, round.cell, round.attempt) == (number, cell, attempt)
            };
            self.rounds.iter().filter(is_of).count() == self.plan.contenders.len()
        })
    }

    /// How many groups are still to be run.
    pub(crate) fn groups_left(&self) -> usize {
        let cells = 0..self.plan.cells.len();
        let groups = self.numbers.clone().flat_map(|n| cells.clone().map(move |cell| (n, cell)));
        groups.filter(|&(number, cell)| !self.is_finished(number, cell)).count()
    }
}
