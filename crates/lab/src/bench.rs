//! Running a plan: rounds as processes, one after the other, and what is kept of them.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use unherd_host::Cgroup;

use crate::blocks::{Block, MeasuredBlock};
use crate::catalogue::RegisteredWorkload;
use crate::compare::confirm;
use crate::error::Error;
use crate::fingerprint::fingerprint;
use crate::interrupt::Interrupt;
use crate::launch::{BY_TIMEOUT, Ending, Finished, Launch, not_started};
use crate::leftovers::RoundDirectory;
use crate::plan::{Contender, Plan, Step};
use crate::prepared_machine::{MachineOptions, PreparedMachine};
use crate::profile::{Sampled, sample};
use crate::record::{Header, Record, StoredRecord, check_place};
use crate::result::{BenchResult, Point, ProfileLine, Profiled, TraceLine, Traced};
use crate::round::{Printed, Round, counting};
use crate::series::{Measure, Series};
use crate::tables::{Progress, TRANSACTIONS, compared, rounds_finished};
use crate::tracing::Tracing;

/// How a plan is to be run.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// What is asked of the machine.
    pub options: MachineOptions,
    /// Where the record goes; `out/WORKLOAD-DATE` unless told.
    pub out: Option<PathBuf>,
    /// Instead of a new record, the one to go on with.
    pub resume: Option<PathBuf>,
    /// Only the rounds of this block.
    pub block: Option<Block>,
    /// Run nothing again because other programs used the machine.
    pub keep_disturbed: bool,
    /// After the judged rounds, one more of each contender under the sampler.
    pub profile: bool,
    /// After them, one more of each contender under this `unherd trace`.
    pub trace: Option<PathBuf>,
    /// How long one process may take.
    pub timeout: Duration,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// Who watches a bench run.
pub trait BenchObserver {
    /// How many rounds of `plan` follow and how long they take together, where first runs tell it.
    fn expects(&mut self, plan: &Plan, rounds: usize, duration: Duration);
    /// The machine is ready, and the record is there; this much is to be run.
    fn begun(&mut self, plan: &Plan, processes: usize);
    /// A process is about to start.
    fn starting(&mut self, round: usize, label: &str);
    /// It has finished.
    fn finished(&mut self);
    /// Others used the machine: this many processes are run again.
    fn repeating(&mut self, processes: usize);
    /// The tables of the rounds so far, of which this run has finished `done`: after the first, and
    /// after a third and two thirds where these are several.
    fn so_far(&mut self, done: usize, tables: &str);
    /// No more processes will start.
    fn ended(&mut self);
    /// The machine is not as it was: what, and what to do about it by hand.
    fn not_restored(&mut self, what: &str);
}

/// What came of a bench.
#[derive(Debug)]
pub struct Outcome {
    /// The plan and where it ran.
    pub header: Header,
    /// The contract.
    pub result: BenchResult,
    /// The same as text.
    pub tables: String,
    /// What ended the bench before all was done, or why a sampled or traced round is missing.
    pub failed: Option<Error>,
    pub(crate) record: Record,
}

impl Outcome {
    /// Where the record is.
    pub fn directory(&self) -> &Path {
        self.record.directory()
    }

    /// Notes which differences a second comparison, with other layouts, found again.
    pub fn confirm(&mut self, again: &BenchResult) {
        confirm(&mut self.result, again);
        self.tables = compared(&self.header, &self.result);
    }

    /// Writes result and tables into the record. Print them first: this may fail.
    ///
    /// # Errors
    ///
    /// [`Error::Record`], for instance when the disk is full.
    pub fn keep(&self) -> Result<(), Error> {
        self.record.finish(&self.result, &self.tables)
    }
}

/// Runs `plan` to its end, keeps its rounds as they finish, and judges them.
///
/// What ends a bench early, a crash or an interrupt, does not cost what was measured: if there is a
/// pair, the rounds are judged, and the error is in the [`Outcome`]. So is a failure after the
/// judged rounds, while sampling or tracing.
///
/// Blocks until all is done, something fails or `interrupt` is raised. When it returns, no child is
/// left, files and cgroups are removed and settings restored.
///
/// # Errors
///
/// [`Error`], whose exit code tells a machine that does not allow it from a round that failed.
pub fn bench(
    plan: &Plan,
    known: &RegisteredWorkload,
    conditions: &Conditions,
    watch: &mut dyn BenchObserver,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    check_place(conditions.out.as_deref())?;
    let mut prepared = PreparedMachine::prepare(&known.workload, &conditions.options, interrupt)?;
    prepared.marks.extend(plan.warning());
    let runner = Runner { plan, known, conditions, prepared: &prepared, interrupt };
    let outcome = measured(runner, watch);
    if let Err(error) = prepared.restore() {
        watch.not_restored(&error.to_string());
    }
    outcome
}

/// The rounds on the prepared machine, and what they say.
fn measured(runner: Runner<'_>, watch: &mut dyn BenchObserver) -> Result<Outcome, Error> {
    let Runner { plan, known, conditions, prepared, .. } = runner;
    let runner_of = |it: &Contender| known.runner_of(&it.implementation);
    let mut header = Header {
        machine: prepared.machine.clone(),
        marks: prepared.marks.clone(),
        description: Some(known.workload.clone()),
        blocks: measured_here(conditions.block, &prepared.machine),
        build: build_digest(plan.contenders.iter().filter_map(runner_of)),
        ..Header::of(plan.clone(), conditions.command.clone())
    };
    let (record, rounds) = match &conditions.resume {
        None => (Record::create(conditions.out.as_deref(), &header)?, Vec::new()),
        Some(directory) => resumed(directory, &mut header)?,
    };
    let block = conditions.block;
    let series = Series::new(plan, record, rounds, block, conditions.keep_disturbed);
    let mut run = Run { runner, series };
    let further = usize::from(conditions.profile) + usize::from(conditions.trace.is_some());
    let groups = run.series.groups_left();
    let processes = (groups + further * plan.cells.len()) * plan.contenders.len();
    watch.begun(plan, processes);
    let done = run.all_rounds(watch, &header);
    let (mut profiles, mut traces, mut failed) = (Vec::new(), Vec::new(), None);
    if done.is_ok() {
        profiles = run.profiles(watch, &mut failed);
        traces = run.traces(watch, &mut failed);
    }
    watch.ended();
    let rounds = &run.series.rounds;
    let mut result = BenchResult { profiles, traces, ..header.judged(rounds) };
    let failed = concluded(done, &run.series, &mut result)?
        .or(failed.map(|error| going_on(error, &run.series)));
    let tables = header.tables(&result, rounds, Progress::Done);
    Ok(Outcome { header, result, tables, failed, record: run.series.record })
}

/// The block that this machine measures, if it is one.
pub(crate) fn measured_here(block: Option<Block>, machine: &Value) -> Vec<MeasuredBlock> {
    block.map(|block| MeasuredBlock::here(block, machine.clone())).into_iter().collect()
}

/// Of this program's version, and of those that are run: their lengths, and of each the first and
/// the last MiB, which hold a linker's build ID. `None` where one cannot be read.
pub(crate) fn build_digest<'a>(programs: impl IntoIterator<Item = &'a Path>) -> Option<String> {
    const PART_BYTES: u64 = 1 << 20;
    let mut digest = DefaultHasher::new();
    digest.write(env!("CARGO_PKG_VERSION").as_bytes());
    for program in programs {
        let mut file = fs::File::open(program).ok()?;
        let length = file.metadata().ok()?.len();
        digest.write_u64(length);
        for first in [0, length.saturating_sub(PART_BYTES)] {
            let mut part = Vec::new();
            file.seek(SeekFrom::Start(first)).ok()?;
            file.by_ref().take(PART_BYTES).read_to_end(&mut part).ok()?;
            digest.write(&part);
        }
    }
    Some(format!("{:016x}", digest.finish()))
}

/// What ended the rounds early, with what there is to say about the record; an error only where
/// there is nothing to judge: no pair, or sides that did different work.
pub(crate) fn concluded(
    done: Result<(), Error>,
    series: &Series<'_>,
    result: &mut BenchResult,
) -> Result<Option<Error>, Error> {
    let Err(error) = done else { return Ok(None) };
    let error = completed(error, series);
    let has_pairs = result.comparisons.iter().any(|line| line.pairs > 0);
    if !has_pairs || matches!(error, Error::Disagreement { .. }) {
        // A record that holds no process yet is not worth going on with.
        return Err(if series.rounds.is_empty() { error } else { going_on(error, series) });
    }
    result.marks.push(format!("not all rounds were run: {}", error.mark()));
    Ok(Some(going_on(error, series)))
}

/// An interrupt, whatever it met, in the same number of rounds as the tables have: a round that was
/// being run again is whole.
fn completed(error: Error, series: &Series<'_>) -> Error {
    let Series { plan, record, rounds, .. } = series;
    let Error::InterruptedStep { .. } = error else { return error };
    Error::Interrupted {
        finished: rounds_finished(plan, counting(plan, rounds).iter().map(|round| round.round)),
        resume: record.resume_line(&plan.workload),
        report: (!rounds.is_empty()).then(|| record.report_line()),
    }
}

/// An error that came after some processes had finished: it says where the record is, by the
/// command that goes on with it.
fn going_on(error: Error, series: &Series<'_>) -> Error {
    let Series { plan, record, .. } = series;
    match completed(error, series) {
        error if error.names_record(record.directory()) => error,
        error => {
            Error::EndedEarly { error: Box::new(error), resume: record.resume_line(&plan.workload) }
        }
    }
}

/// The record in `directory`, to go on with on the same machine; `header` becomes the record's.
pub(crate) fn resumed(
    directory: &Path,
    header: &mut Header,
) -> Result<(Record, Vec<Round>), Error> {
    let record = Record::reopen(directory)?;
    let kept = StoredRecord::load(directory)?;
    let shown = directory.display();
    if kept.header.plan != header.plan {
        return Err(Error::usage(
            format!("{shown} is of another plan than its command line gives today"),
            "measure again",
        ));
    }
    let (then, now) = (fingerprint(&kept.header.machine), fingerprint(&header.machine));
    if then != now {
        return Err(Error::usage(
            format!("{shown} was measured on another machine ({then}; this is {now})"),
            "go on there, or measure again",
        ));
    }
    if kept.header.build.is_some() && kept.header.build != header.build {
        return Err(Error::usage(
            format!("the programs have changed since the first rounds of {shown}"),
            "put the old ones back, or measure again",
        ));
    }
    let mut new = std::mem::take(&mut header.marks);
    if !kept.is_whole() || kept.header.plan.until.is_some() {
        new.push("the bench was cut short, and gone on with later".to_owned());
    }
    new.retain(|mark| !kept.header.marks.contains(mark));
    record.add_marks(&new)?;
    *header = kept.header;
    header.marks.extend(new);
    Ok((record, kept.rounds))
}

/// Whether tables are shown after `done` of `of` rounds: seldom, as each says little more than the
/// one before it.
fn is_shown(done: usize, of: usize) -> bool {
    const SEVERAL: usize = 6;
    let is_third = of >= SEVERAL && done.is_multiple_of(of.div_ceil(3));
    done < of && (done == 1 || is_third)
}

struct Run<'a> {
    runner: Runner<'a>,
    series: Series<'a>,
}

impl Run<'_> {
    fn all_rounds(&mut self, watch: &mut dyn BenchObserver, header: &Header) -> Result<(), Error> {
        let runner = &self.runner;
        let of = self.series.groups_left().div_ceil(runner.plan.cells.len());
        let (mut done, mut seen) = (0, self.series.rounds.len());
        self.series.run(runner, watch, &mut |series, _, watch| {
            // A resumed series passes over the rounds that it has.
            if series.rounds.len() > seen {
                seen = series.rounds.len();
                done += 1;
                if is_shown(done, of) {
                    let result = header.judged(&series.rounds);
                    let tables = header.tables(&result, &series.rounds, Progress::SoFar);
                    watch.so_far(done, &tables);
                }
            }
            false
        })
    }

    /// One round more than is judged, sampled.
    fn profiles(
        &self,
        watch: &mut dyn BenchObserver,
        failed: &mut Option<Error>,
    ) -> Vec<ProfileLine> {
        if !self.runner.conditions.profile {
            return Vec::new();
        }
        let workload = &self.runner.known.workload;
        let serves = workload.metrics.iter().any(|metric| metric.name == TRANSACTIONS);
        let whose = match (workload.kernel_work, serves) {
            (true, _) => Sampled::Machine,
            (false, true) => Sampled::Server,
            (false, false) => Sampled::Runner,
        };
        let Series { record, .. } = &self.series;
        let sampled = |number, step| {
            sample(whose, || self.runner.measure((number, 1), step, record).map(drop))
        };
        let refused = |why| Profiled::Refused { why };
        let rounds = self.further_round(1, watch, failed, sampled, refused);
        let line = |(label, point, sampled)| ProfileLine { label, point, sampled };
        rounds.into_iter().map(line).collect()
    }

    /// One round more than is judged, traced.
    fn traces(&self, watch: &mut dyn BenchObserver, failed: &mut Option<Error>) -> Vec<TraceLine> {
        let Some(unherd) = &self.runner.conditions.trace else { return Vec::new() };
        let traced = |number, step: Step| {
            let Series { plan, record, .. } = &self.series;
            let label = &plan.contenders[step.contender].label;
            let files = record.trace_files(label, step.cell)?;
            let tracing = Tracing { unherd, files: &files };
            let finished = self.runner.process(step, Some(&tracing))?;
            if let Some(why) = tracing.refusal(&finished) {
                return Ok(Traced::Refused { why });
            }
            self.runner.round_of((number, 1), step, &finished, record)?;
            files.read()
        };
        let refused = |why| Traced::Refused { why };
        let after = 1 + usize::from(self.runner.conditions.profile);
        let rounds = self.further_round(after, watch, failed, traced, refused);
        let line = |(label, point, traced)| TraceLine { label, point, traced };
        rounds.into_iter().map(line).collect()
    }

    /// A round after the judged ones, in the order of the tables. Where a process fails there is
    /// `refused` in its place, and the first error in `failed`; an interrupt ends all.
    fn further_round<T>(
        &self,
        after: usize,
        watch: &mut dyn BenchObserver,
        failed: &mut Option<Error>,
        run: impl Fn(usize, Step) -> Result<T, Error>,
        refused: impl Fn(String) -> T,
    ) -> Vec<(String, Point, T)> {
        let plan = self.series.plan;
        let number = plan.rounds + after;
        let mut steps = plan.round(number);
        steps.sort_by_key(|step| (step.cell, step.contender));
        let mut lines = Vec::with_capacity(steps.len());
        for step in steps {
            if failed.as_ref().is_some_and(Error::is_interrupt) {
                break;
            }
            let label = &plan.contenders[step.contender].label;
            watch.starting(number, label);
            let line = run(number, step).unwrap_or_else(|error| {
                let why = match &error {
                    Error::Round { what, .. } => format!("the round failed: {what}"),
                    error => error.to_string(),
                };
                if failed.is_none() || error.is_interrupt() {
                    *failed = Some(error);
                }
                refused(why)
            });
            lines.push((label.clone(), Point::of(plan, step.cell), line));
            watch.finished();
        }
        lines
    }
}

/// Rounds by the runners' contract.
struct Runner<'a> {
    plan: &'a Plan,
    known: &'a RegisteredWorkload,
    conditions: &'a Conditions,
    prepared: &'a PreparedMachine,
    interrupt: &'a Interrupt,
}

impl Measure for Runner<'_> {
    fn measure(&self, number: (usize, usize), step: Step, record: &Record) -> Result<Round, Error> {
        self.round_of(number, step, &self.process(step, None)?, record)
    }
}

impl Runner<'_> {
    /// Runs one process to its end, traced or not.
    fn process(&self, step: Step, tracing: Option<&Tracing<'_>>) -> Result<Finished, Error> {
        let (cell, contender) =
            (&self.plan.cells[step.cell], &self.plan.contenders[step.contender]);
        let program = self.known.runner_of(&contender.implementation).ok_or_else(|| {
            Error::unknown("implementation", &contender.implementation, std::iter::empty())
        })?;
        let directory = self.prepared.work.as_ref().map(|work| work.for_round()).transpose()?;
        let cgroup = self.prepared.cgroup()?;
        let launch = Launch {
            cpus: cell.cpus,
            cgroup: cgroup.as_ref().map(Cgroup::procs),
            ..Launch::new(
                program,
                self.arguments(step, directory.as_ref()),
                self.conditions.timeout,
            )
        };
        let launch = match tracing {
            Some(tracing) => tracing.around(launch, cgroup.as_ref().map(Cgroup::dir)),
            None => launch,
        };
        let finished = launch.run(self.interrupt).map_err(|source| {
            let bound = cgroup.as_ref().map(|_| "--memory");
            not_started(program, bound, "build it again, or leave it out", source)
        })?;
        Ok(finished.in_cgroup(cgroup.as_ref()))
    }

    /// What a finished process has printed, if it is the round that was asked for.
    fn round_of(
        &self,
        number: (usize, usize),
        step: Step,
        finished: &Finished,
        record: &Record,
    ) -> Result<Round, Error> {
        let (cell, contender) =
            (&self.plan.cells[step.cell], &self.plan.contenders[step.contender]);
        let printed = self.succeeded(finished).and_then(|()| {
            let printed = Printed::parse(&finished.stdout).map_err(Failure::Broken)?;
            printed.check(self.plan, cell, contender, step).map_err(Failure::Broken)?;
            Ok(printed)
        });
        match printed {
            Ok(printed) => {
                let counted = counted(finished);
                Ok(printed.into_round(number, step, cell, &contender.label, counted))
            }
            Err(failure) => Err(self.error(failure, number.0, &contender.label, finished, record)),
        }
    }

    fn arguments(&self, step: Step, directory: Option<&RoundDirectory>) -> Vec<OsString> {
        let (cell, contender) =
            (&self.plan.cells[step.cell], &self.plan.contenders[step.contender]);
        let mut args: Vec<OsString> = vec!["load".into(), (&self.plan.workload).into()];
        let mut option = |name: &str, value: OsString| args.extend([name.into(), value]);
        option("--with", (&contender.implementation).into());
        option("--threads", cell.threads.to_string().into());
        option("--seed", step.seed.to_string().into());
        if let Some(bytes) = self.prepared.memory_bytes {
            option("--memory", bytes.to_string().into());
        }
        if let Some(directory) = directory {
            option("--dir", directory.path().into());
        }
        if let Some(plant) = contender.plant {
            option("--plant", plant.to_string().into());
        }
        if let Some(busy) = self.prepared.idle_busy {
            option("--idle-busy", busy.to_string().into());
        }
        for (name, value) in &cell.params {
            option("--param", format!("{name}={value}").into());
        }
        args
    }

    fn succeeded(&self, finished: &Finished) -> Result<(), Failure> {
        if finished.ending == Ending::Interrupted {
            return Err(Failure::Interrupted);
        }
        let code = finished.exit_code((self.conditions.timeout, BY_TIMEOUT), "--memory");
        match code.map_err(Failure::Broken)? {
            0 => Ok(()),
            2 => Err(Failure::Refused),
            code => {
                let memory = finished.memory_hint("--memory");
                Err(Failure::Broken(format!("it ended with exit code {code}{memory}")))
            }
        }
    }

    fn error(
        &self,
        failure: Failure,
        number: usize,
        label: &str,
        finished: &Finished,
        record: &Record,
    ) -> Error {
        match failure {
            Failure::Interrupted => {
                Error::InterruptedStep { what: format!("round {number} of {label}") }
            }
            Failure::Refused => Error::Refused { line: refusal(label, &finished.stderr) },
            Failure::Broken(what) => {
                record.keep_stderr(&finished.stderr);
                let stderr = finished.stderr.clone();
                let resume = record.resume_line(&self.plan.workload);
                Error::Round { round: number, label: label.to_owned(), what, stderr, resume }
            }
        }
    }
}

/// Why a process gave no round.
enum Failure {
    Interrupted,
    Refused,
    Broken(String),
}

/// The line in which a runner says why the machine does not allow the round.
fn refusal(label: &str, stderr: &str) -> String {
    match stderr.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => line.strip_prefix("unherd: ").unwrap_or(line).to_owned(),
        None => format!("{label} refused the round without a word; run it by hand to see why"),
    }
}

/// The kernel's own account of the process.
fn counted(finished: &Finished) -> [(&'static str, f64); 6] {
    let usage = &finished.usage;
    [
        ("process_user_s", usage.user.as_secs_f64()),
        ("process_sys_s", usage.system.as_secs_f64()),
        ("process_context_switches", usage.voluntary_switches as f64),
        ("process_preemptions", usage.involuntary_switches as f64),
        ("process_peak_bytes", usage.max_rss_bytes as f64),
        ("process_elapsed_s", finished.elapsed.as_secs_f64()),
    ]
}

/// Asks `runner` what it offers.
///
/// # Errors
///
/// [`Error::Catalogue`] where it cannot be started, fails or hangs.
pub fn describe(runner: &Path, interrupt: &Interrupt) -> Result<String, Error> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let broken = |what: String| Error::Catalogue { runner: runner.to_owned(), what };
    let launch = Launch::new(runner, vec!["load".into(), "--describe".into()], PATIENCE);
    let finished = launch.run(interrupt).map_err(|error| broken(error.to_string()))?;
    match finished.ending {
        Ending::Exited(status) if status.success() => Ok(finished.stdout),
        Ending::Exited(status) => Err(broken(format!("{status}: {}", finished.stderr.trim()))),
        Ending::TimedOut => Err(broken("it did not answer".to_owned())),
        Ending::Interrupted => {
            Err(Error::InterruptedStep { what: format!("{} load --describe", runner.display()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::round::tests::round;

    #[test]
    fn repeated_round_is_whole_after_interrupt() {
        let request = Request { seed: 1, delta: 0.02, ..Request::default() };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        let header = Header::of(plan.clone(), Vec::new());
        let said = |rounds: Vec<Round>| {
            let place = tempfile::tempdir().unwrap();
            let record = Record::create(Some(place.path()), &header).unwrap();
            let series = Series::new(&plan, record, rounds, None, false);
            let error = Error::InterruptedStep { what: "round 1 of before".to_owned() };
            completed(error, &series)
                .to_string()
                .replace(&series.record.resume_line(&plan.workload), "resume")
        };
        let again = Round { attempt: 2, ..round(1, "before", 2.0) };
        let whole = said(vec![round(1, "before", 2.0), round(1, "unherd", 1.0), again]);
        let first = "interrupted after 1 of 12 rounds; go on by `resume`, see what there is by `";
        assert!(whole.starts_with(first), "{whole}");
        let none = "interrupted after 0 of 12 rounds; go on by `resume`";
        assert_eq!(said(Vec::new()), none, "there is nothing to see");
        assert!(said(vec![round(1, "before", 2.0)]).starts_with(&format!("{none}, see")));
    }

    #[test]
    fn tables_are_shown_after_thirds() {
        let shown = |of| (1..=of).filter(|&done| is_shown(done, of)).collect::<Vec<_>>();
        assert_eq!(shown(18), [1, 6, 12]);
        assert_eq!(shown(100), [1, 34, 68]);
        assert_eq!(shown(5), [1], "a short one shows the first alone");
        assert_eq!(shown(1), [] as [usize; 0], "the result follows at once");
    }
}
