//! One comparison on many machines: its rounds are divided into blocks, each of which one machine
//! measures, and the records of the blocks are joined.
//!
//! A pair never crosses machines, because a round is never divided. Nor does the order depend on
//! where a block runs: it follows from the plan's seed and the number of the round. So the joined
//! record is that of one run, except that its rounds may have seen different machines.
//!
//! **Machines in the analysis.** Where nothing differs, each pair's difference is symmetric about
//! zero on whichever machine, so the signed-rank test of all pairs together is exact. Where
//! something differs, it may do so by another amount on another machine; then the estimate is one
//! between these. So each machine's own estimate stands beside it, and machines whose intervals
//! exclude each other are named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::fingerprint::fingerprint;
use crate::plan::Plan;
use crate::record::{Header, Record, StoredRecord};
use crate::result::{BenchResult, ComparisonLine, Point};
use crate::round::{Round, counting};

/// The schema of a plan that is divided.
pub const BLOCKS_SCHEMA: &str = "unherd.blocks/1";

/// Some rounds of a plan, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Which, from 1.
    pub number: usize,
    /// How many blocks the plan has.
    pub of: usize,
    /// Its first round.
    pub first: usize,
    /// Its last round.
    pub last: usize,
}

/// A block with the machine that measured it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredBlock {
    /// Which.
    #[serde(flatten)]
    pub block: Block,
    /// The machine's name for itself.
    pub host: String,
    /// The machine.
    pub machine: Value,
}

/// A plan in blocks: a file that each machine reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockPlan {
    /// [`BLOCKS_SCHEMA`].
    pub schema: String,
    /// How many there are.
    pub blocks: usize,
    /// The plan, the command line, and where it was made.
    pub header: Header,
}

/// One machine's own estimate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineLine {
    /// The machine's name for itself, and what it is.
    pub machine: String,
    /// About which metric.
    pub metric: String,
    /// Compared with whom.
    pub base: String,
    /// Who.
    #[serde(rename = "impl")]
    pub label: String,
    /// The point of the sweep.
    #[serde(flatten)]
    pub point: Point,
    /// The estimate, as in a [`ComparisonLine`]; `null` is infinite.
    pub ratio: Option<f64>,
    /// Its interval at the level of the whole result, where there are pairs enough.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// How many pairs.
    pub pairs: usize,
}

impl BlockPlan {
    /// Divides the rounds of a plan.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for no block, or more blocks than rounds.
    pub fn new(header: Header, blocks: usize) -> Result<Self, Error> {
        let rounds = header.plan.rounds;
        if blocks == 0 || blocks > rounds {
            return Err(Error::usage(
                format!("{rounds} rounds cannot be divided into {blocks} blocks"),
                format!("give --blocks 1 to {rounds}, or more --rounds"),
            ));
        }
        Ok(Self { schema: BLOCKS_SCHEMA.to_owned(), blocks, header })
    }

    /// Writes it to a new file.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where a file is already, [`Error::Machine`] where it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = serde_json::to_string_pretty(self)
            .expect("strings, numbers and maps with string keys always become JSON");
        text.push('\n');
        let file = fs::File::create_new(path);
        let written = file.and_then(|mut file| {
            let written = std::io::Write::write_all(&mut file, text.as_bytes());
            // Half a plan would be in the way of the next.
            written.inspect_err(|_| drop(fs::remove_file(path)))
        });
        written.map_err(|source| {
            Error::machine(
                format!("cannot make the plan {}", path.display()),
                "name another",
                source,
            )
        })
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// [`Error::Machine`] where there is none, [`Error::Malformed`] where it is something else.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| {
            let what = format!("cannot read the plan {}", path.display());
            Error::machine(what, "name the file that --plan named", source)
        })?;
        let plan: Self = serde_json::from_str(&text).map_err(|error| {
            let what = format!("no plan in blocks: {error}; name the file that --plan has written");
            Error::malformed(path, what)
        })?;
        if plan.schema != BLOCKS_SCHEMA {
            let what = format!("its schema is '{}', not '{BLOCKS_SCHEMA}'", plan.schema);
            return Err(Error::malformed(path, what));
        }
        Ok(plan)
    }

    /// The block of this number, from 1.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where there is none.
    pub fn block(&self, number: usize) -> Result<Block, Error> {
        let Self { blocks: of, header, .. } = self;
        let rounds = header.plan.rounds;
        if !(1..=*of).contains(&number) {
            return Err(Error::usage(
                format!("there is no block {number}"),
                format!("give 1 to {of}"),
            ));
        }
        let first = 1 + (number - 1) * rounds / of;
        Ok(Block { number, of: *of, first, last: number * rounds / of })
    }
}

impl MeasuredBlock {
    /// A block that this machine measures.
    pub(crate) fn here(block: Block, machine: Value) -> Self {
        let name = rustix::system::uname();
        Self { block, host: name.nodename().to_string_lossy().into_owned(), machine }
    }

    fn shown(&self) -> String {
        format!("{} ({})", self.host, fingerprint(&self.machine))
    }
}

/// Builds differ from machine to machine for good reasons, and by mistake.
const OTHER_BUILDS: &str =
    "the blocks ran programs, or versions of unherd, that differ in their bytes";

/// Joins the records of blocks into a new one at `out`, and gives where it is.
///
/// # Errors
///
/// [`Error::Usage`] where they are not blocks of one plan, or one is given twice; [`Error::Record`]
/// where one cannot be read or the new one cannot be written.
pub fn merge(blocks: &[PathBuf], out: Option<&Path>) -> Result<PathBuf, Error> {
    let mut records: Vec<(&Path, MeasuredBlock, StoredRecord)> = Vec::new();
    for path in blocks {
        let record = StoredRecord::load(path)?;
        let shown = path.display();
        let [block] = &*record.header.blocks else {
            return Err(Error::usage(
                format!("{shown} is no block of a plan"),
                "name what `unherd run-block` has written",
            ));
        };
        let block = block.clone();
        is_of_block(path, &block.block, &record.rounds)?;
        if let Some((first, other, known)) = records.first() {
            let is_same = known.header.plan == record.header.plan
                && known.header.command == record.header.command
                && other.block.of == block.block.of;
            if !is_same {
                return Err(Error::usage(
                    format!("{} and {shown} are of different plans", first.display()),
                    "join the blocks of one plan",
                ));
            }
        }
        let is_twin = |other: &&(&Path, MeasuredBlock, StoredRecord)| {
            other.1.block.number == block.block.number
        };
        if let Some((other, ..)) = records.iter().find(is_twin) {
            let number = block.block.number;
            return Err(Error::usage(
                format!("{} and {shown} are both block {number}", other.display()),
                "name each block once",
            ));
        }
        records.push((path, block, record));
    }
    records.sort_by_key(|(_, block, _)| block.block.number);
    let Some((_, _, first)) = records.first() else {
        return Err(Error::usage("there is nothing to join", "name the records of blocks"));
    };
    let mut header = Header { blocks: Vec::new(), marks: Vec::new(), ..first.header.clone() };
    if records.iter().any(|(.., record)| record.header.build != header.build) {
        header.marks.push(OTHER_BUILDS.to_owned());
    }
    let mut rounds = Vec::new();
    for (_, block, record) in records {
        let new = record.header.marks.into_iter().filter(|mark| !header.marks.contains(mark));
        header.marks.extend(new.collect::<Vec<_>>());
        header.blocks.push(block);
        rounds.extend(record.rounds);
    }
    if rounds.is_empty() {
        return Err(Error::usage(
            "no block has a finished round",
            "measure one by `unherd run-block`",
        ));
    }
    let joined = Record::create(out, &header)?;
    joined.append(&rounds, "join them again, by another --out")?;
    Ok(joined.directory().to_owned())
}

/// Whether the rounds are those of the block, each process once: a file that was copied in would
/// count twice.
fn is_of_block(path: &Path, block: &Block, rounds: &[Round]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    let strange = rounds.iter().find(|it| {
        !(block.first..=block.last).contains(&it.round)
            || !seen.insert((it.round, it.cell, it.attempt, &it.label))
    });
    let Some(round) = strange else { return Ok(()) };
    let Block { number, first, last, .. } = block;
    let (shown, round) = (path.display(), round.round);
    Err(Error::usage(
        format!("{shown} has a round {round} that is not its own, or twice"),
        format!("block {number} is rounds {first} to {last}, each once: measure it again"),
    ))
}

/// What is to be said of blocks that are missing, in part or as a whole.
pub(crate) fn marks(header: &Header, rounds: &[Round]) -> Vec<String> {
    let [first, ..] = &*header.blocks else { return Vec::new() };
    let mut marks = Vec::new();
    let of = first.block.of;
    let is_there = |number: &usize| header.blocks.iter().any(|it| it.block.number == *number);
    let missing: Vec<String> =
        (1..=of).filter(|number| !is_there(number)).map(|number| number.to_string()).collect();
    if !missing.is_empty() {
        marks.push(format!("of {of} blocks these are missing: {}", missing.join(", ")));
    }
    let whole = header.plan.cells.len() * header.plan.contenders.len();
    let counted = counting(&header.plan, rounds);
    for MeasuredBlock { block, host, .. } in &header.blocks {
        let is_whole =
            |number: &usize| counted.iter().filter(|round| round.round == *number).count() == whole;
        let (planned, done) =
            (block.last + 1 - block.first, (block.first..=block.last).filter(is_whole).count());
        if done < planned {
            let Block { number, .. } = block;
            marks.push(format!("block {number} ({host}) has {done} of {planned} rounds"));
        }
    }
    marks
}

/// Each machine's own estimates, where there are several, with a mark for those that exclude each
/// other.
pub(crate) fn machines(
    header: &Header,
    rounds: &[Round],
    result: &BenchResult,
) -> (Vec<MachineLine>, Vec<String>) {
    let mut names: Vec<String> = header.blocks.iter().map(MeasuredBlock::shown).collect();
    names.sort();
    names.dedup();
    if names.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    let mut lines = Vec::new();
    for name in names {
        let is_here = |round: &&Round| {
            let of = |it: &&MeasuredBlock| (it.block.first..=it.block.last).contains(&round.round);
            header.blocks.iter().find(of).is_some_and(|block| block.shown() == name)
        };
        let here: Vec<Round> = rounds.iter().filter(is_here).cloned().collect();
        let plan = Plan { until: None, ..header.plan.clone() };
        let own = BenchResult::new(&plan, &here, Value::Null, Vec::new());
        lines.extend(own.comparisons.into_iter().map(|line| MachineLine {
            machine: name.clone(),
            metric: line.metric,
            base: line.base,
            label: line.label,
            point: line.point,
            ratio: line.ratio,
            low: line.low,
            high: line.high,
            pairs: line.pairs,
        }));
    }
    let mut marks = Vec::new();
    for ComparisonLine { metric, base, label, point, .. } in &result.comparisons {
        let of: Vec<&MachineLine> = lines
            .iter()
            .filter(|line| (&line.metric, &line.base, &line.label) == (metric, base, label))
            .filter(|line| line.point == *point)
            .collect();
        let lowest = of.iter().filter_map(|line| line.high).fold(f64::INFINITY, f64::min);
        let highest = of.iter().filter_map(|line| line.low).fold(0.0, f64::max);
        if lowest < highest {
            marks.push(format!(
                "the machines differ in {metric} of {label} against {base}{}: the estimate is one \
                 between theirs",
                point.suffix()
            ));
        }
    }
    (lines, marks)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::round::tests::round;

    fn plan(rounds: usize) -> BlockPlan {
        let request = Request { seed: 3, delta: 0.02, rounds: Some(rounds), ..Request::default() };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        BlockPlan::new(Header::of(plan, Vec::new()), 3).unwrap()
    }

    /// Blocks of 8 rounds on three hosts; the third finds another ratio.
    fn measured(third: f64) -> StoredRecord {
        let plan = plan(24);
        let machine = json!({"cpu_model": "Fast 9", "cpus": 2});
        let on = |(number, host): (usize, &str)| MeasuredBlock {
            block: plan.block(number).unwrap(),
            host: host.to_owned(),
            machine: machine.clone(),
        };
        let blocks = [(1, "a"), (2, "b"), (3, "c")].map(on).to_vec();
        let header = Header { blocks, ..plan.header.clone() };
        let of = |number: usize| {
            let cost = if number > 16 { third } else { 80.0 };
            let jitter = (number * 7 % 5) as f64 / 10.0;
            [round(number, "before", 100.0 + jitter), round(number, "unherd", cost)]
        };
        StoredRecord { header, rounds: (1..=24).flat_map(of).collect() }
    }

    #[test]
    fn blocks_hold_each_round_once() {
        for rounds in [6, 7, 20, 500] {
            let plan = plan(rounds);
            let blocks = [1, 2, 3].map(|number| plan.block(number).unwrap());
            let all: Vec<usize> = blocks.iter().flat_map(|it| it.first..=it.last).collect();
            assert_eq!(all, (1..=rounds).collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_machine_has_its_own_estimate() {
        let result = measured(80.0).result();
        assert_eq!(result.machines.len(), 3);
        assert!(result.machines.iter().all(|line| line.pairs == 8 && line.low.is_some()));
        assert_eq!(result.marks, Vec::<String>::new());
        let mut one_host = measured(80.0);
        for block in &mut one_host.header.blocks {
            block.host = "a".to_owned();
        }
        assert_eq!(one_host.result().machines, [], "one machine needs no table");
    }

    #[test]
    fn machines_that_differ_are_marked() {
        let result = measured(120.0).result();
        let expected = "the machines differ in cost_us of unherd against before, 4 threads: the \
                        estimate is one between theirs";
        assert_eq!(result.marks, [expected]);
        let tables = crate::tables::tables(
            &measured(120.0).header.plan,
            &[],
            &result,
            &[],
            crate::tables::Progress::Done,
        );
        let row =
            "unherd against before      8  \u{2212}16.5 % (\u{2212}16.6 % to \u{2212}16.4 %)\n";
        assert!(tables.contains("on c (Fast 9, 2 CPUs"), "{tables}");
        assert!(tables.contains(row), "{tables}");
    }

    #[test]
    fn missing_rounds_of_blocks_are_marked() {
        let mut record = measured(80.0);
        record.header.blocks.remove(1);
        record.rounds.retain(|round| round.round > 16 || round.round <= 7);
        let expected = ["of 3 blocks these are missing: 2", "block 1 (a) has 7 of 8 rounds"];
        assert_eq!(record.result().marks, expected);
    }
}
