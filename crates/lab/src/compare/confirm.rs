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
    let lines: Vec<&ComparisonLine> =
        found.comparisons.iter().filter(|line| is_different(line)).collect();
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

/// Tells each difference in `found` whether `again` found it, too, and in the same direction.
pub(crate) fn confirm(found: &mut BenchResult, again: &BenchResult) {
    for line in found.comparisons.iter_mut().filter(|line| is_different(line)) {
        let is_it = |other: &&ComparisonLine| {
            (&other.metric, &other.label, &other.point) == (&line.metric, &line.label, &line.point)
        };
        let other = again.comparisons.iter().find(is_it);
        line.confirmed = Some(other.is_some_and(|other| other.verdict == line.verdict));
    }
}

fn is_different(line: &ComparisonLine) -> bool {
    matches!(line.verdict, Verdict::Faster | Verdict::Slower)
}

/// What the environment of one process is longer by.
pub(super) fn padding(seed: u64, contender: usize) -> String {
    let mut random = Random::new(seed.wrapping_add(contender as u64));
    "x".repeat(random.below(PADDING_BYTES_MAX))
}
