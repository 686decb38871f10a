//! Whether a difference is the programs' or their layout's.
//!
//! Where code and data lie moves the time of a program by some per cent, and a build fixes that by
//! chance: all rounds of a comparison share it, so its interval does not contain it. What was found
//! different is measured again with what can be moved from outside: each process gets an
//! environment of another length, which moves its stack, and what `--build` has built is built
//! again with `UNHERD_LAYOUT=1`, by which the line can link in another order.

use std::path::PathBuf;

use super::{CompareRequest, cells};
use crate::error::Error;
use crate::random::Random;
use crate::result::{BenchResult, ComparisonLine, Point};
use crate::statistics::Verdict;

/// No environment is longer by more than this, a page.
const PADDING_BYTES_MAX: usize = 4096;

/// One difference, and whether it was there again.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirmation {
    /// The difference as it was found first.
    pub line: ComparisonLine,
    /// Whether the second comparison found it, and in the same direction.
    pub is_confirmed: bool,
}

impl Confirmation {
    /// A sentence without its full stop.
    pub fn sentence(&self) -> String {
        let ComparisonLine { metric, label, base, point, .. } = &self.line;
        let what = format!("{metric} of {label} against {base}{}", point.suffix());
        match self.is_confirmed {
            true => format!("confirmed: {what}"),
            false => format!("not confirmed: {what} may differ by the layout of this build alone"),
        }
    }
}

/// The comparison that repeats what was found different, and nothing else; `None` where that is
/// nothing. Its record goes into `out`.
///
/// # Errors
///
/// Those of the sweep, which the first comparison would have met.
pub fn to_confirm(
    request: &CompareRequest,
    found: &BenchResult,
    out: PathBuf,
) -> Result<Option<CompareRequest>, Error> {
    let lines: Vec<&ComparisonLine> = different(found).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let mut again = request.clone();
    let base = again.sides.first().map(|side| side.label.clone());
    again.sides.retain(|side| {
        Some(&side.label) == base.as_ref() || lines.iter().any(|line| line.label == side.label)
    });
    again.judge.clear();
    for line in &lines {
        if !again.judge.contains(&line.metric) {
            again.judge.push(line.metric.clone());
        }
    }
    again.sweep.only = cells(request)?;
    let is_open = |point: &Point| lines.iter().any(|line| line.point == *point);
    again.sweep.only.retain(|cell| is_open(&Point::of_cell(cell)));
    again.seed = request.seed.wrapping_add(1);
    again.out = Some(out);
    (again.resume, again.plan, again.moves_layout) = (None, None, true);
    Ok(Some(again))
}

/// What became of each difference.
pub fn confirmations(found: &BenchResult, again: &BenchResult) -> Vec<Confirmation> {
    let is_there = |line: &ComparisonLine| {
        let same = |other: &&ComparisonLine| {
            (&other.metric, &other.label, &other.point) == (&line.metric, &line.label, &line.point)
        };
        again.comparisons.iter().find(same).is_some_and(|other| other.verdict == line.verdict)
    };
    let confirmation =
        |line: &ComparisonLine| Confirmation { is_confirmed: is_there(line), line: line.clone() };
    different(found).map(confirmation).collect()
}

fn different(result: &BenchResult) -> impl Iterator<Item = &ComparisonLine> {
    let is_different = |verdict| matches!(verdict, Verdict::Faster | Verdict::Slower);
    result.comparisons.iter().filter(move |line| is_different(line.verdict))
}

/// What the environment of one process is longer by.
pub(super) fn padding(seed: u64, contender: usize) -> String {
    let mut random = Random::new(seed.wrapping_add(contender as u64));
    "x".repeat(random.below(PADDING_BYTES_MAX))
}
