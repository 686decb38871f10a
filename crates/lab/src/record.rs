//! What is kept of a bench: a directory that tells everything, also of one that was cut short.
//!
//! | file | holds | written |
//! |---|---|---|
//! | `plan.json` | the plan, the command line, the machine, the marks | before the first round |
//! | `marks.jsonl` | a line for each mark that came later, where it was gone on with | as it goes on |
//! | `rounds/001.jsonl` | a line for each contender and cell, also of short rounds after it | as they finish |
//! | `result.json` | schema `unherd.bench/1` | at the end, after it was printed |
//! | `tables.txt` | the same as tables | at the end |
//! | `traces/IMPL-CELL.{txt,json}` | what the tracer saw, if asked for | after each traced round |
//! | `confirm/` | the record that repeats what differed, with other layouts | after the end |
//! | `stderr.txt` | what a failed runner wrote | when one fails |
//!
//! A reader leaves out a last line that has no end. A file of the end is
//! written beside its place and renamed into it, so that a full disk leaves the old one, or none.
//! `plan.json` is made once: of two benches that are given one directory the second is refused,
//! except where the first was cut off before the plan's end. Its lock is held while rounds are
//! added.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blocks::{self, MeasuredBlock};
use crate::catalogue::Workload;
use crate::compare::{COMPARE, Side, confirm};
use crate::date;
use crate::drift;
use crate::error::Error;
use crate::plan::{PLAN_SCHEMA, Plan};
use crate::result::{BenchResult, Traced};
use crate::round::{Round, counting};
use crate::surroundings;
use crate::tables::{Progress, compared, tables};
use crate::tracing::TraceFiles;

const PLAN: &str = "plan.json";
const MARKS: &str = "marks.jsonl";
const RESULT: &str = "result.json";
const TABLES: &str = "tables.txt";
const STDERR: &str = "stderr.txt";
const ROUNDS: &str = "rounds";
/// Where records go unless told.
const DEFAULT_PLACE: &str = "out";
const NOT_MADE: &str = "cannot make the record's directory";
/// In the record of compared commands, that of the comparison which repeats what differed.
pub const CONFIRM: &str = "confirm";
/// The directory of the traces.
pub(crate) const TRACES: &str = "traces";

/// What stands in `plan.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The plan.
    #[serde(flatten)]
    pub plan: Plan,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub machine: Value,
    /// What a reader must know before believing the figures.
    pub marks: Vec<String>,
    /// The workload as its runner described it; records of earlier versions lack it.
    #[serde(default)]
    pub description: Option<Workload>,
    /// The commands, where any commands were compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<Side>,
    /// The blocks of a plan that was divided: the one that this is, or all that were joined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<MeasuredBlock>,
    /// A digest of the programs that were run, and of this one's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

impl Header {
    /// Of a plan that `command` gives, with nothing known of the machine or the programs.
    pub fn of(plan: Plan, command: Vec<String>) -> Self {
        Self {
            plan,
            command,
            machine: Value::Null,
            marks: Vec::new(),
            description: None,
            sides: Vec::new(),
            blocks: Vec::new(),
            build: None,
        }
    }

    /// Judges those of the rounds that count.
    pub(crate) fn judged(&self, rounds: &[Round]) -> BenchResult {
        let counted = counting(&self.plan, rounds);
        let mut marks = [self.marks.clone(), surroundings::marks(&self.plan, rounds)].concat();
        // Several machines have several speeds.
        if self.blocks.len() < 2 {
            marks.extend(drift::mark(&self.plan, &counted));
        }
        let result = BenchResult::new(&self.plan, &counted, self.machine.clone(), marks);
        result.described_by(self)
    }

    /// What was judged, as text: the metrics are in the catalogue's order, or, without a catalogue,
    /// as the rounds have them.
    pub(crate) fn tables(
        &self,
        result: &BenchResult,
        rounds: &[Round],
        progress: Progress,
    ) -> String {
        let rounds = counting(&self.plan, rounds);
        let metrics: Vec<String> = match &self.description {
            Some(workload) => workload.metrics.iter().map(|metric| metric.name.clone()).collect(),
            None => rounds.first().map_or_else(Vec::new, |it| it.metrics.keys().cloned().collect()),
        };
        tables(&self.plan, &metrics, result, &rounds, progress)
    }
}

/// When the record in `directory` was begun: its plan is written once.
///
/// # Errors
///
/// What the file system says.
pub(crate) fn begun(directory: &Path) -> io::Result<SystemTime> {
    fs::metadata(directory.join(PLAN))?.modified()
}

/// A record being written.
#[derive(Debug)]
pub(crate) struct Record {
    directory: PathBuf,
    /// Held for its lock.
    _plan: File,
}

impl Record {
    /// Makes the directory (`out/NAME-DATE` unless told), but none above it, and writes the plan.
    ///
    /// # Errors
    ///
    /// [`Error::Record`] where that cannot be written; [`Error::Usage`] where a record is already.
    pub(crate) fn create(out: Option<&Path>, header: &Header) -> Result<Self, Error> {
        let directory = match out {
            Some(path) => path.to_owned(),
            None => free_name(&header.plan.workload),
        };
        if out.is_none() {
            make_default_place();
        }
        let rounds = directory.join(ROUNDS);
        make_directory(&directory)?;
        make_directory(&rounds)?;
        let path = directory.join(PLAN);
        let cannot = |source| failed(&path, "cannot write", source, false);
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut plan = open.map_err(cannot)?;
        let is_mine = match flock(&plan, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => is_torn(&mut plan).map_err(cannot)? && is_empty(&rounds).map_err(cannot)?,
            Err(Errno::WOULDBLOCK) => false,
            Err(errno) => return Err(cannot(errno.into())),
        };
        if !is_mine {
            return Err(Error::usage(
                format!("{} already holds a record", directory.display()),
                "give another directory by --out, or go on with it by --resume",
            ));
        }
        let text = pretty(header);
        let written = plan.set_len(0).and_then(|()| plan.rewind());
        // What is cut off by a full disk is no plan, and the next may have the place.
        written.and_then(|()| plan.write_all(text.as_bytes())).map_err(cannot)?;
        Ok(Self { directory, _plan: plan })
    }

    /// Opens a record to add rounds to.
    ///
    /// # Errors
    ///
    /// [`Error::Record`] where it cannot be opened; [`Error::Usage`] while a bench is adding to it.
    pub(crate) fn reopen(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(PLAN);
        let cannot = |source: io::Error| Error::Record {
            path: path.clone(),
            what: "cannot open the record",
            advice: reopening_advice(source.kind()).to_owned(),
            source,
            begun: false,
        };
        let plan = File::options().read(true).write(true).open(&path).map_err(cannot)?;
        match flock(&plan, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { directory: directory.to_owned(), _plan: plan }),
            Err(Errno::WOULDBLOCK) => Err(Error::usage(
                format!("a bench is adding to {}", directory.display()),
                "wait for its end",
            )),
            Err(errno) => Err(cannot(errno.into())),
        }
    }

    /// Where the trace of one contender in one cell goes; makes the directory.
    pub(crate) fn trace_files(&self, label: &str, cell: usize) -> Result<TraceFiles, Error> {
        let traces = self.directory.join(TRACES);
        fs::create_dir_all(&traces).map_err(|source| {
            self.not_written(traces.clone(), "cannot make the directory of the traces", source)
        })?;
        let file = |kind: &str| traces.join(format!("{label}-{cell}.{kind}"));
        Ok(TraceFiles { text: file("txt"), json: file("json") })
    }

    /// The command that goes on with it: the program by the path that this process was started by,
    /// so that the line can be pasted.
    pub(crate) fn resume_line(&self, workload: &str) -> String {
        let subcommand = if workload == COMPARE { COMPARE } else { "bench" };
        format!("{} {subcommand} --resume {}", own_name(), self.directory.display())
    }

    /// The command that judges it again, written in the same way.
    pub(crate) fn report_line(&self) -> String {
        format!("{} report {}", own_name(), self.directory.display())
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends finished rounds, all to the file of the first: where rounds are short, making a file
    /// for each would take as long as they do. `again` is what to do once it can be written.
    ///
    /// # Errors
    ///
    /// [`Error::Record`], for instance when the disk is full.
    pub(crate) fn append(&self, rounds: &[Round], again: &str) -> Result<(), Error> {
        let Some(first) = rounds.first() else { return Ok(()) };
        let path = self.directory.join(ROUNDS).join(format!("{:03}.jsonl", first.round));
        let lines: String = rounds.iter().map(|round| compact(round) + "\n").collect();
        open_lines(&path).and_then(|mut file| file.write_all(lines.as_bytes())).map_err(|source| {
            let advice = format!("{}, and {again}", writing_advice(source.kind()));
            Error::Record {
                path,
                what: "cannot append a finished round",
                advice,
                source,
                begun: true,
            }
        })
    }

    /// Appends marks, which stand below those of the plan from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Record`], for instance when the disk is full.
    pub(crate) fn add_marks(&self, marks: &[String]) -> Result<(), Error> {
        let path = self.directory.join(MARKS);
        let lines: String = marks.iter().map(|mark| compact(mark) + "\n").collect();
        open_lines(&path).and_then(|mut file| file.write_all(lines.as_bytes())).map_err(|source| {
            Error::Record {
                path,
                what: "cannot append a mark",
                advice: format!("{}, and go on with it again", writing_advice(source.kind())),
                source,
                begun: false,
            }
        })
    }

    /// Writes the result and its tables.
    ///
    /// # Errors
    ///
    /// [`Error::Record`], for instance when the disk is full.
    pub(crate) fn finish(&self, result: &BenchResult, tables: &str) -> Result<(), Error> {
        self.replace(RESULT, &pretty(result))?;
        self.replace(TABLES, tables)
    }

    /// Keeps what a failed runner wrote. It is about to be shown anyway, so a second failure here
    /// is not reported over the first.
    pub(crate) fn keep_stderr(&self, text: &str) {
        let _ = fs::write(self.directory.join(STDERR), text);
    }

    fn replace(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.directory.join(name);
        let beside = self.directory.join(format!("{name}.new"));
        fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path)).map_err(|source| {
            let _ = fs::remove_file(&beside);
            self.not_written(path, "cannot write", source)
        })
    }

    /// A file of the record that is written after the rounds.
    fn not_written(&self, path: PathBuf, what: &'static str, source: io::Error) -> Error {
        let kept = match self.directory.join(ROUNDS).exists() {
            true => "the rounds are kept: ",
            false => "",
        };
        let (first, report) = (writing_advice(source.kind()), self.report_line());
        let advice = format!("{kept}{first}, and see `{report}`");
        Error::Record { path, what, advice, source, begun: true }
    }
}

/// Makes the directory for several records: `out`, or `default` below `out/`.
///
/// # Errors
///
/// [`Error::Record`], for instance where the directory above `out` is missing.
pub fn make_place(out: Option<&Path>, default: &str) -> Result<PathBuf, Error> {
    let place = match out {
        Some(path) => path.to_owned(),
        None => {
            make_default_place();
            Path::new(DEFAULT_PLACE).join(default)
        }
    };
    make_directory(&place)?;
    Ok(place)
}

/// Makes the place of all records. Where this fails, making the record's own directory says why.
fn make_default_place() {
    if fs::create_dir(DEFAULT_PLACE).is_ok() {
        // Records are no part of a repository.
        let _ = fs::write(Path::new(DEFAULT_PLACE).join(".gitignore"), "*\n");
    }
}

/// Makes a directory of a record, if it is not there. The one above it must be: a slip in a path
/// is no wish for a tree.
fn make_directory(path: &Path) -> Result<(), Error> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(|source| failed(path, NOT_MADE, source, false)),
    }
}

/// Sees whether the directory of a record is there, or could be made, before anything is run; that
/// of all records unless told.
///
/// # Errors
///
/// [`Error::Record`] with what making it would fail by, as far as that is known now.
pub fn check_place(out: Option<&Path>) -> Result<(), Error> {
    let directory = out.unwrap_or(Path::new(DEFAULT_PLACE));
    let above = match directory.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let place = if directory.is_dir() { directory } else { above };
    let seen = match fs::metadata(place) {
        Ok(found) if !found.is_dir() => Err(Errno::NOTDIR),
        Ok(_) if place == above && directory.exists() => Err(Errno::EXIST),
        Ok(_) => access(place, Access::WRITE_OK | Access::EXEC_OK),
        Err(error) => return Err(failed(directory, NOT_MADE, error, false)),
    };
    seen.map_err(|errno| failed(directory, NOT_MADE, errno.into(), false))
}

/// The path that this process was started by.
fn own_name() -> String {
    let program = std::env::args_os().next();
    program.map_or_else(|| "unherd".to_owned(), |it| it.to_string_lossy().into_owned())
}

/// Whether there is a record, whole or cut short, in the directory: a plan without its end is none.
pub fn holds_record(directory: &Path) -> bool {
    let open = File::open(directory.join(PLAN));
    open.and_then(|mut plan| is_torn(&mut plan)).is_ok_and(|is_torn| !is_torn)
}

/// A plan is written in one go, and its last byte ends a line.
fn is_torn(plan: &mut File) -> io::Result<bool> {
    let mut text = Vec::new();
    plan.read_to_end(&mut text)?;
    Ok(text.last() != Some(&b'\n'))
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(directory)?.next().is_none())
}

/// Opens a file of lines to append to, without a last line that has no end: a kill or a full disk
/// cut it off, and the next line would follow it directly.
fn open_lines(path: &Path) -> io::Result<File> {
    let mut file = File::options().read(true).create(true).append(true).open(path)?;
    if file.metadata()?.len() > 0 {
        let mut kept = Vec::new();
        file.read_to_end(&mut kept)?;
        let whole = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < kept.len() {
            file.set_len(whole as u64)?;
        }
    }
    Ok(file)
}

/// A record that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRecord {
    /// The plan and where it ran.
    pub header: Header,
    /// The processes that finished, those too that were run again.
    pub rounds: Vec<Round>,
}

impl StoredRecord {
    /// Reads a record, finished or cut short.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where the directory holds none, [`Error::Record`] where it cannot be read,
    /// [`Error::Malformed`] where it is no record.
    pub fn load(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(PLAN);
        if directory.is_file() || matches!(path.try_exists(), Ok(false)) {
            return Err(Error::no_record(
                directory,
                "name one that --out named, or out/WORKLOAD-DATE",
            ));
        }
        let mut header: Header = serde_json::from_str(&read(&path)?).map_err(|error| {
            let what = match error.is_eof() {
                true => "it was cut off before its end; measure again".to_owned(),
                false => format!("no plan of a record: {error}; name another, or measure again"),
            };
            Error::malformed(&path, what)
        })?;
        if header.plan.schema != PLAN_SCHEMA {
            let what = format!("its schema is '{}', not '{PLAN_SCHEMA}'", header.plan.schema);
            return Err(Error::malformed(&path, what));
        }
        read_lines(&directory.join(MARKS), &mut header.marks)?;
        let mut rounds = Vec::new();
        for number in 1..=header.plan.rounds {
            let path = directory.join(ROUNDS).join(format!("{number:03}.jsonl"));
            read_lines(&path, &mut rounds)?;
        }
        Ok(Self { header, rounds })
    }

    /// Judges the rounds that count.
    pub fn result(&self) -> BenchResult {
        let mut result = self.header.judged(&self.rounds);
        let rounds = counting(&self.header.plan, &self.rounds);
        let (machines, marks) = blocks::machines(&self.header, &rounds, &result);
        result.machines = machines;
        result.marks.extend(blocks::marks(&self.header, &self.rounds));
        result.marks.extend(marks);
        // Blocks have marks of their own.
        if self.header.blocks.is_empty() && !self.is_whole() {
            result.marks.push("not all rounds were run".to_owned());
        }
        result
    }

    /// Whether it has all rounds, as far as it is known how many these are.
    pub(crate) fn is_whole(&self) -> bool {
        let Header { plan, blocks, .. } = &self.header;
        let rounds = match &**blocks {
            [] => plan.rounds,
            blocks => blocks.iter().map(|it| it.block.last + 1 - it.block.first).sum(),
        };
        let planned = rounds * plan.cells.len() * plan.contenders.len();
        plan.until.is_some() || counting(plan, &self.rounds).len() >= planned
    }

    /// The result with the profiles and traces that were kept, and its tables.
    pub fn report(&self, directory: &Path) -> (BenchResult, String) {
        let mut result = self.result();
        let kept = fs::read_to_string(directory.join(RESULT)).ok();
        let kept = kept.and_then(|text| serde_json::from_str::<BenchResult>(&text).ok());
        if let Some(kept) = kept {
            (result.profiles, result.traces) = (kept.profiles, kept.traces);
        }
        for line in &mut result.traces {
            if let Traced::Taken { file, text, .. } = &mut line.traced {
                let path = directory.join(file.as_str()).with_extension("txt");
                *text = fs::read_to_string(path).unwrap_or_default();
            }
        }
        if !self.header.sides.is_empty() {
            if let Ok(again) = Self::load(&directory.join(CONFIRM))
                && again.is_whole()
            {
                confirm(&mut result, &again.result());
            }
            let tables = compared(&self.header, &result);
            return (result, tables);
        }
        let tables = self.header.tables(&result, &self.rounds, Progress::Done);
        (result, tables)
    }
}

/// What the lines of a file hold, if there is one.
fn read_lines<T: DeserializeOwned>(path: &Path, items: &mut Vec<T>) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    let text = read(path)?;
    // What stands after the last line's end was being written when the lab ended.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (index, line) in whole.lines().enumerate() {
        let item = serde_json::from_str(line).map_err(|error| {
            let line = index + 1;
            let what = format!("line {line}: {error}; take that line out, or measure again");
            Error::malformed(path, what)
        })?;
        items.push(item);
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::Record {
        path: path.to_owned(),
        what: "cannot read the record",
        advice: "name the directory that --out named".to_owned(),
        source,
        begun: false,
    })
}

fn failed(path: &Path, what: &'static str, source: io::Error, begun: bool) -> Error {
    let advice = match source.kind() {
        io::ErrorKind::NotFound => "make the directory above it, or give another by --out",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room, or give --out",
        _ => "give a directory that can be written by --out",
    };
    let advice = advice.to_owned();
    Error::Record { path: path.to_owned(), what, advice, source, begun }
}

/// What is to be done first where a record that is there cannot be written any more.
const fn writing_advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room",
        io::ErrorKind::PermissionDenied => "allow writing there again",
        io::ErrorKind::ReadOnlyFilesystem => "mount it for writing again",
        io::ErrorKind::NotFound => "put its directory back",
        _ => "see in the kernel's log (dmesg) what the disk has",
    }
}

/// What to do where a record cannot be opened to go on with.
const fn reopening_advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => "go on with it as the user who began it",
        io::ErrorKind::ReadOnlyFilesystem => "copy it to where it can be written, and go on there",
        io::ErrorKind::NotFound => "name the directory that --out named",
        _ => "see in the kernel's log (dmesg) what the disk has",
    }
}

/// Two in one second are told apart by the process number.
fn free_name(workload: &str) -> PathBuf {
    let name = format!("{DEFAULT_PLACE}/{workload}-{}", date::stamp_now());
    let path = PathBuf::from(&name);
    if path.exists() { PathBuf::from(format!("{name}-{}", std::process::id())) } else { path }
}

fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value)
        .expect("strings, numbers and maps with string keys always become JSON");
    text.push('\n');
    text
}

fn compact(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("strings, numbers and maps with string keys always become JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::round::tests::round;

    fn header() -> Header {
        let request = Request { seed: u64::MAX, delta: 0.02, ..Request::default() };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        Header::of(plan, vec!["unherd".to_owned()])
    }

    #[test]
    fn truncated_record_can_be_read() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("record");
        let record = Record::create(Some(&out), &header()).unwrap();
        let rounds = [round(1, "before", 2.0), round(1, "unherd", 1.0), round(2, "before", 2.0)];
        record.append(&rounds[..1], "").unwrap();
        record.append(&rounds[1..], "").unwrap();
        let torn = out.join("rounds/001.jsonl");
        let mut file = File::options().append(true).open(torn).unwrap();
        file.write_all(b"{\"round\": 2, \"ce").unwrap();
        let kept = StoredRecord::load(&out).unwrap();
        assert_eq!(kept.header, header());
        assert_eq!(kept.rounds, rounds);
        assert_eq!(kept.result().comparisons[0].pairs, 1);
        record.append(&rounds[..1], "").unwrap();
        assert_eq!(StoredRecord::load(&out).unwrap().rounds.len(), 4, "the torn line is gone");
    }

    #[test]
    fn a_record_is_never_written_over() {
        let place = tempfile::tempdir().unwrap();
        Record::create(Some(place.path()), &header()).unwrap();
        let error = Record::create(Some(place.path()), &header()).unwrap_err();
        assert!(error.to_string().contains("already holds a record"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn torn_plan_is_no_record() {
        let place = tempfile::tempdir().unwrap();
        for torn in ["", "{\"schema\""] {
            fs::write(place.path().join(PLAN), torn).unwrap();
            assert!(!holds_record(place.path()), "{torn}");
            drop(Record::create(Some(place.path()), &header()).unwrap());
            assert!(holds_record(place.path()));
            assert_eq!(StoredRecord::load(place.path()).unwrap().header, header());
            fs::remove_file(place.path().join(PLAN)).unwrap();
        }
        let of_other = place.path().join("rounds/001.jsonl");
        fs::write(of_other, "").unwrap();
        fs::write(place.path().join(PLAN), "").unwrap();
        let refused = Record::create(Some(place.path()), &header()).unwrap_err();
        assert!(refused.to_string().contains("already holds a record"), "its rounds are there");
    }

    #[test]
    fn second_bench_in_directory_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let created = std::thread::scope(|scope| {
            let create = || Record::create(Some(place.path()), &header()).is_ok();
            let all: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(created.iter().filter(|&&is_mine| is_mine).count(), 1, "{created:?}");
    }

    #[test]
    fn record_is_locked_while_written() {
        let place = tempfile::tempdir().unwrap();
        let first = Record::create(Some(place.path()), &header()).unwrap();
        let error = Record::reopen(place.path()).unwrap_err();
        assert!(error.to_string().contains("a bench is adding to"), "{error}");
        drop(first);
        let again = Record::reopen(place.path()).unwrap();
        again.append(&[round(1, "before", 2.0)], "").unwrap();
        assert_eq!(StoredRecord::load(place.path()).unwrap().rounds.len(), 1);
        assert!(Record::reopen(&place.path().join("absent")).is_err());
    }

    #[test]
    fn failed_write_leaves_old_result() {
        let place = tempfile::tempdir().unwrap();
        let record = Record::create(Some(place.path()), &header()).unwrap();
        let kept = StoredRecord::load(place.path()).unwrap();
        let (result, tables) = kept.report(place.path());
        record.finish(&result, &tables).unwrap();
        let old = fs::read_to_string(place.path().join(RESULT)).unwrap();
        std::os::unix::fs::symlink("/dev/full", place.path().join("result.json.new")).unwrap();
        let error = record.finish(&result, &tables).unwrap_err();
        let report = format!("{} report {}`", own_name(), place.path().display());
        let advice = format!("; the rounds are kept: make room, and see `{report}");
        assert!(error.to_string().ends_with(&advice), "{error}");
        assert_eq!(fs::read_to_string(place.path().join(RESULT)).unwrap(), old);
        fs::remove_dir_all(place.path()).unwrap();
        let error = record.finish(&result, &tables).unwrap_err();
        let advice = format!(" (os error 2); put its directory back, and see `{report}");
        assert!(error.to_string().ends_with(&advice), "{error}");
    }

    #[test]
    fn what_is_no_record_is_said_so() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [place.path(), &file, &place.path().join("absent")] {
            let error = StoredRecord::load(path).unwrap_err().to_string();
            assert!(error.contains("is not the directory of a record; name"), "{error}");
        }
        fs::write(place.path().join(PLAN), "{}").unwrap();
        assert!(matches!(StoredRecord::load(place.path()), Err(Error::Malformed { .. })));
        let error = Record::create(Some(&file.join("under")), &header()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
    }

    #[test]
    fn only_last_part_of_path_is_made() {
        let place = tempfile::tempdir().unwrap();
        let (absent, file) = (place.path().join("absent"), place.path().join("file"));
        fs::write(&file, "").unwrap();
        for (out, why) in [
            (absent.join("record"), "No such file or directory"),
            (file.join("record"), "Not a directory"),
            (file.clone(), "File exists"),
        ] {
            let checked = check_place(Some(&out)).unwrap_err();
            let created = Record::create(Some(&out), &header()).unwrap_err();
            assert_eq!(checked.to_string(), created.to_string(), "the same words early and late");
            assert_eq!(checked.exit_code(), 2);
            let said = format!("{}: cannot make the record's directory: {why}", out.display());
            assert!(checked.to_string().starts_with(&said), "{checked}");
        }
        assert!(!absent.exists());
        check_place(Some(&absent)).unwrap();
        Record::create(Some(&absent), &header()).unwrap();
        check_place(Some(&absent)).unwrap();
    }

    #[test]
    fn full_disk_fails_the_run() {
        let place = tempfile::tempdir().unwrap();
        let record = Record::create(Some(place.path()), &header()).unwrap();
        std::os::unix::fs::symlink("/dev/full", place.path().join("rounds/001.jsonl")).unwrap();
        let said = || {
            let error = record.append(&[round(1, "before", 2.0)], "go on").unwrap_err();
            assert_eq!(error.exit_code(), 1);
            error.to_string()
        };
        assert!(said().ends_with("(os error 28); make room, and go on"), "{}", said());
        fs::remove_dir_all(place.path()).unwrap();
        assert!(said().ends_with("(os error 2); put its directory back, and go on"), "{}", said());
    }

    #[test]
    fn advice_follows_the_kind_of_error() {
        let of = |errno: Errno| {
            let kind = io::Error::from(errno).kind();
            (writing_advice(kind), reopening_advice(kind))
        };
        assert_eq!(of(Errno::DQUOT).0, "make room");
        let denied = ("allow writing there again", "go on with it as the user who began it");
        assert_eq!(of(Errno::ACCESS), denied);
        let read_only = of(Errno::ROFS);
        assert_eq!(read_only.0, "mount it for writing again");
        assert!(read_only.1.starts_with("copy it to where it can be written"));
        let (writing, reopening) = of(Errno::IO);
        assert!(writing == reopening && writing.contains("(dmesg)"));
    }
}
