//! `unherd run-block` and `unherd merge`: one comparison on several machines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use unherd_lab::{Block, BlockPlan, Header, StoredRecord, holds_record, merge};

use crate::arguments::{Arguments, Command, Format, needs_catalogue, parse};
use crate::output::{Failure, note};
use crate::reports::ReportFiles;
use crate::{bench, compare, runners};

/// A kept command line that is run again: to measure a block, or to go on with a record.
pub(crate) struct BlockRun {
    pub(crate) block: Option<Block>,
    /// The plan, the command line, and where it was made.
    pub(crate) header: Header,
    pub(crate) out: PathBuf,
    /// Whether the record is there, to be gone on with.
    pub(crate) is_begun: bool,
}

impl BlockRun {
    /// A record to go on with, of a block or not.
    pub(crate) fn of_record(directory: &Path, header: Header) -> Self {
        let block = header.blocks.first().map(|it| it.block);
        Self { block, header, out: directory.to_owned(), is_begun: true }
    }
}

/// Measures one block by the plan's command line.
pub(crate) fn run(number: usize, plan: &Path, out: Option<&Path>) -> Result<ExitCode, Failure> {
    let known = BlockPlan::load(plan)?;
    let block = known.block(number)?;
    let out = out.map_or_else(|| default_out(plan, number), Path::to_owned);
    let is_begun = holds_record(&out);
    if is_begun {
        let kept = StoredRecord::load(&out)?.header;
        if kept.blocks.iter().all(|it| it.block != block) || kept.command != known.header.command {
            return Err(Failure::usage(
                &format!("{} holds another record", out.display()),
                "give another directory by --out",
            ));
        }
        note(&format!("going on with {}", out.display()));
    }
    again(BlockRun { block: Some(block), header: known.header, out, is_begun })
}

/// Runs a kept command line.
fn again(run: BlockRun) -> Result<ExitCode, Failure> {
    let words: Vec<OsString> = run.header.command.iter().map(OsString::from).collect();
    let registry = needs_catalogue(&words).then(runners::registry).transpose()?;
    match (parse(&words, registry.as_ref())?, registry) {
        (Ok(Arguments { command: Command::Compare(args), .. }), _) => {
            compare::run_again(&args, &run)
        }
        (Ok(Arguments { command: Command::Bench(args), params, .. }), Some(registry)) => {
            bench::run_again(&args, params, &registry, &run)
        }
        _ => Err(Failure::usage(
            "the plan is neither of `unherd bench` nor of `unherd compare`",
            "name the file that --plan named",
        )),
    }
}

fn default_out(plan: &Path, number: usize) -> PathBuf {
    let stem = plan.file_stem().unwrap_or_default().to_string_lossy();
    plan.with_file_name(format!("{stem}-{number}"))
}

/// Joins blocks, and prints what they say together.
pub(crate) fn join(
    blocks: &[PathBuf],
    out: Option<&Path>,
    format: Format,
    files: &ReportFiles,
) -> Result<ExitCode, Failure> {
    let joined = merge(blocks, out)?;
    let code = bench::report(&joined, format, files)?;
    note(&format!("the record is in {}", joined.display()));
    Ok(code)
}
