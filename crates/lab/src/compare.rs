//! Any commands, compared: alternating rounds, as a bench has them, of programs that know nothing
//! of the lab.
//!
//! Each command is run once before the rounds begin. That run is not judged: it shows whether the
//! command works, what it prints ([`Format`]), and how long it takes, from which follows how many
//! rounds there are unless told. So what is judged is decided before the first round that is.

mod adapter;
mod builds;
mod confirm;
mod metrics;
mod readers;
mod records;
mod sides;
mod sweep;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::set_current_timer_slack;
use serde_json::json;
use unherd_host::{Cgroup, Machine, Usage};

pub use adapter::Adapter;
pub use builds::WorkTrees;
pub(crate) use confirm::confirm;
pub use confirm::to_confirm;
pub use metrics::Source;
pub use readers::Format;
pub use records::{ComparedRecords, compare_records};
pub use sides::Side;
pub use sweep::Sweep;

use crate::bench::{BenchObserver, Outcome, build_digest, concluded, measured_here, resumed};
use crate::blocks::Block;
use crate::catalogue::Workload;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::launch::{BY_TIMEOUT, Ending, Finished, Launch, not_started};
use crate::plan::{Cell, Contender, Judged, PLAN_SCHEMA, Plan, ROUNDS_MAX, Step, Until};
use crate::program::absence_advice;
use crate::record::{Header, Record, check_place};
use crate::result::{BenchResult, Point, looks_of};
use crate::round::{Round, counting};
use crate::series::{Measure, Series};
use crate::statistics::{Better, pairs_advised, pairs_needed, pilot_rounds};
use crate::tables::compared;
use adapter::AdapterFiles;
use metrics::Metrics;

/// The workload's name in records of compared commands.
pub(crate) const COMPARE: &str = "compare";

/// Rounds take this long together unless told, if there are enough of them.
const UNLESS_TOLD: Duration = Duration::from_secs(3);

/// No more rounds than this unless told.
const ROUNDS_UNLESS_TOLD: usize = 200;

/// In which format the output of the commands holds figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Read {
    /// In that which the first run shows, if any.
    #[default]
    Detect,
    /// In none.
    Nothing,
    /// In this one.
    As(Format),
}

/// What is to be compared, and how.
#[derive(Debug, Clone, Default)]
pub struct CompareRequest {
    /// The commands; the first is the base.
    pub sides: Vec<Side>,
    /// The benchmark that they are, with its figures.
    pub adapter: Option<Adapter>,
    /// Where an adapter's files are made.
    pub directory: PathBuf,
    /// More figures in what they print.
    pub sources: Vec<Source>,
    /// The format of what they print.
    pub read: Read,
    /// Metrics of which more is better.
    pub more_is_better: Vec<String>,
    /// The metrics that are judged, instead of what is printed or wall and CPU time.
    pub judge: Vec<String>,
    /// How many rounds.
    pub rounds: Option<usize>,
    /// As many as it takes until the intervals are within this share.
    pub until: Option<f64>,
    /// Where all randomness starts.
    pub seed: u64,
    /// Changes within this share are the same.
    pub delta: f64,
    /// A line of sh(1) before each process, not measured.
    pub prepare: Option<String>,
    /// A line of sh(1) after each process.
    pub cleanup: Option<String>,
    /// Whether the outputs must agree.
    pub check: bool,
    /// The code that each command must end with.
    pub exit_code: i32,
    /// What differs from cell to cell.
    pub sweep: Sweep,
    /// Give each process an environment of another length, which moves its stack.
    pub moves_layout: bool,
    /// How long one process may take.
    pub timeout: Duration,
    /// Where the record goes.
    pub out: Option<PathBuf>,
    /// Instead of a new record, the one to go on with.
    pub resume: Option<PathBuf>,
    /// The plan that must come of it, where it was made before.
    pub plan: Option<Plan>,
    /// Only the rounds of this block of it.
    pub block: Option<Block>,
    /// Run nothing again because other programs used the machine.
    pub keep_disturbed: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// Builds one side by a line of sh(1), before anything is compared. `layout` is its
/// `UNHERD_LAYOUT`: 0, and 1 where it is built again to link in another order.
///
/// # Errors
///
/// [`Error::Step`] with what it wrote.
pub fn build(
    label: &str,
    line: &str,
    directory: Option<&Path>,
    layout: u32,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let what = format!("the build of {label} ({line})");
    let layout = layout.to_string();
    let environment = vec![("UNHERD_SIDE", label), ("UNHERD_LAYOUT", &layout)];
    builds::shell(what, line, directory, environment, interrupt)
}

/// Runs the commands in alternating rounds, keeps the rounds as they finish, and judges them.
///
/// Blocks until all is done, something fails or `interrupt` is raised. What ends it early does not
/// cost what was measured: it is judged if there is a pair, and the error is in the
/// [`Outcome`].
///
/// # Errors
///
/// [`Error`], whose exit code tells a command line that cannot be from a command that failed.
pub fn compare(
    request: &CompareRequest,
    watch: &mut dyn BenchObserver,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    check_place(request.out.as_deref())?;
    let (commands, mut header) = ready(request, interrupt)?;
    header.blocks = measured_here(request.block, &header.machine);
    let plan = header.plan.clone();
    let (record, rounds) = match &request.resume {
        None => (Record::create(request.out.as_deref(), &header)?, Vec::new()),
        Some(directory) => resumed(directory, &mut header)?,
    };
    let mut series = Series::new(&plan, record, rounds, request.block, request.keep_disturbed);
    let groups = series.groups_left();
    // How many rounds make the interval narrow is not known before.
    if plan.until.is_none() {
        let rounds = groups.div_ceil(plan.cells.len());
        watch.expects(&plan, rounds, commands.round_duration * rounds as u32);
    }
    watch.begun(&plan, groups * plan.contenders.len());
    let done = series.run(&commands, watch, &mut |series, number, _| is_narrow(series, number));
    watch.ended();
    let mut result = header.judged(&series.rounds);
    let failed = concluded(done, &series, &mut result)?;
    let tables = compared(&header, &result);
    Ok(Outcome { header, result, tables, failed, record: series.record })
}

/// The first runs of the commands, and the plan that follows from them, for machines that measure
/// its blocks.
///
/// # Errors
///
/// Those of [`compare()`] before its first round.
pub fn plan_comparison(request: &CompareRequest, interrupt: &Interrupt) -> Result<Header, Error> {
    ready(request, interrupt).map(|(_, header)| header)
}

/// The commands after their first runs, and what is to be done with them.
fn ready<'a>(
    request: &'a CompareRequest,
    interrupt: &'a Interrupt,
) -> Result<(Commands<'a>, Header), Error> {
    let files = request
        .adapter
        .as_ref()
        .map(|adapter| adapter.set_up(&request.sides, &request.directory, interrupt))
        .transpose()?;
    let cells = cells(request)?;
    // A cgroup without processes costs nothing; the next start tries again.
    let _ = Cgroup::sweep();
    let cells = cells.into_iter().map(|cell| FilledCell::new(request, cell));
    let cells = cells.collect::<Result<Vec<_>, Error>>()?;
    let mut commands = Commands {
        request,
        cells,
        files,
        metrics: None,
        round_duration: Duration::ZERO,
        interrupt,
    };
    let first = commands.first_runs()?;
    let metrics = commands.metrics(&first)?;
    let description = described(&metrics)?;
    commands.metrics = Some(metrics);
    commands.round_duration = first.iter().flatten().map(|run| run.elapsed).sum();
    let cells = commands.cells.iter().map(|filled| filled.cell.clone()).collect();
    let mut plan = planned(request, &description, cells, commands.round_duration)?;
    if let Some(known) = &request.plan {
        // By default it follows from the time of the first run, which is another one now.
        plan.rounds = known.rounds;
        if plan != *known {
            return Err(Error::usage(
                "the command line gives another plan here than where it was planned",
                "see whether the commands are the same, and print the same metrics",
            ));
        }
    }
    let mut header = Header {
        machine: json!(Machine::describe()),
        marks: sides::sameness(&request.sides, &commands.cells[0].programs),
        description: Some(description),
        sides: request.sides.clone(),
        build: build_digest(commands.cells[0].programs.iter().map(PathBuf::as_path)),
        ..Header::of(plan, request.command.clone())
    };
    header.marks.extend(header.plan.warning());
    Ok((commands, header))
}

/// Whether this is a look after which all intervals are as narrow as was asked for.
fn is_narrow(series: &Series<'_>, number: usize) -> bool {
    let plan = series.plan;
    let Some(until) = plan.until.filter(|until| number > until.pilot) else { return false };
    let of_pilot = series.rounds.iter().filter(|round| round.round <= until.pilot);
    let pilot = counting(plan, &of_pilot.cloned().collect::<Vec<_>>());
    let judged = number - until.pilot;
    if looks_of(plan, &pilot, until).iter().all(|look| look.rounds != judged) {
        return false;
    }
    let rounds = counting(plan, &series.rounds);
    let result = BenchResult::new(plan, &rounds, serde_json::Value::Null, Vec::new());
    result.comparisons.iter().all(|line| line.is_within(until.width))
}

fn described(metrics: &Metrics) -> Result<Workload, Error> {
    Ok(Workload {
        name: COMPARE.to_owned(),
        about: "Any commands.".to_owned(),
        primary: metrics.primary(),
        impls: Vec::new(),
        default_impls: Vec::new(),
        params: Vec::new(),
        metrics: metrics.all()?,
        uses_dir: false,
        takes_dir: false,
        uses_memory: false,
        kernel_work: false,
        deterministic: false,
        default_threads: 0,
        counts_as_exercised: None,
    })
}

fn judged(request: &CompareRequest, workload: &Workload) -> Result<Vec<Judged>, Error> {
    let names = if request.judge.is_empty() { &workload.primary } else { &request.judge };
    let mut judged: Vec<Judged> = Vec::new();
    for name in names {
        let known = workload.metrics.iter().find(|metric| metric.name == *name);
        let known = known.ok_or_else(|| {
            Error::unknown("metric", name, workload.metrics.iter().map(|metric| &*metric.name))
        })?;
        if judged.iter().any(|other| other.metric == *name) {
            return Err(Error::usage(format!("{name} is judged twice"), "name it once"));
        }
        judged.push(Judged { metric: name.clone(), better: known.better });
    }
    debug_assert!(judged.iter().all(|judged| judged.better != Better::Neither));
    Ok(judged)
}

/// Every point at which the commands are compared.
fn cells(request: &CompareRequest) -> Result<Vec<Cell>, Error> {
    let words = request.sides.iter().flat_map(|side| &side.words);
    let lines = request.prepare.iter().chain(&request.cleanup);
    let texts: Vec<&str> = words.chain(lines).map(String::as_str).collect();
    request.sweep.cells(&texts)
}

/// `first_runs` is what one run of each command in each cell takes together.
fn planned(
    request: &CompareRequest,
    workload: &Workload,
    cells: Vec<Cell>,
    first_runs: Duration,
) -> Result<Plan, Error> {
    let judged = judged(request, workload)?;
    let comparisons = cells.len() * judged.len() * (request.sides.len() - 1);
    let advised = pairs_advised(comparisons);
    let (rounds, until) = match (request.rounds, request.until) {
        (Some(_), Some(_)) => {
            return Err(Error::usage("--rounds and --until both say when to stop", "give one"));
        }
        (Some(rounds), None) => (rounds, None),
        (None, None) => {
            let time = UNLESS_TOLD.as_secs_f64() * cells.len() as f64;
            let that_fit = time / first_runs.as_secs_f64().max(1e-6);
            (advised.max((that_fit as usize).min(ROUNDS_UNLESS_TOLD)), None)
        }
        (None, Some(width)) => {
            if !(width > 0.0 && width < 1.0) {
                return Err(Error::share_out_of_range("--until", width, "1%"));
            }
            let pilot = pilot_rounds(comparisons);
            (pilot + ROUNDS_MAX, Some(Until { width, pilot }))
        }
    };
    let needed = pairs_needed(comparisons);
    if rounds < needed {
        return Err(Error::TooFewRounds { rounds, cells: comparisons, needed });
    }
    if until.is_none() && rounds > ROUNDS_MAX {
        return Err(Error::usage(
            format!("--rounds {rounds} is out of range"),
            format!("give {needed} to {ROUNDS_MAX}"),
        ));
    }
    if !(request.delta > 0.0 && request.delta < 1.0) {
        return Err(Error::share_out_of_range("--delta", request.delta, "2%"));
    }
    let contender = |side: &Side| Contender {
        label: side.label.clone(),
        implementation: side.shown(),
        plant: None,
    };
    Ok(Plan {
        schema: PLAN_SCHEMA.to_owned(),
        workload: COMPARE.to_owned(),
        contenders: request.sides.iter().map(contender).collect(),
        bases: 1,
        cells,
        judged,
        rounds,
        seed: request.seed,
        delta: request.delta,
        counts_as_exercised: None,
        deterministic: false,
        until,
    })
}

/// The commands, ready to be run.
struct Commands<'a> {
    request: &'a CompareRequest,
    cells: Vec<FilledCell>,
    files: Option<AdapterFiles>,
    /// Known after the first runs.
    metrics: Option<Metrics>,
    /// What the first runs took together: as long as a round.
    round_duration: Duration,
    interrupt: &'a Interrupt,
}

/// The commands at one point of the sweep.
struct FilledCell {
    cell: Cell,
    sides: Vec<Side>,
    programs: Vec<PathBuf>,
    prepare: Option<String>,
    cleanup: Option<String>,
}

impl FilledCell {
    fn new(request: &CompareRequest, cell: Cell) -> Result<Self, Error> {
        let fill = |text: &String| sweep::filled(text, &cell);
        let sides: Vec<Side> = request
            .sides
            .iter()
            .map(|side| Side { words: side.words.iter().map(fill).collect(), ..side.clone() })
            .collect();
        let programs = sides.iter().map(Side::program).collect::<Result<_, _>>()?;
        let (prepare, cleanup) =
            (request.prepare.as_ref().map(fill), request.cleanup.as_ref().map(fill));
        Ok(Self { cell, sides, programs, prepare, cleanup })
    }

    /// What errors add to a side's name.
    fn shown(&self) -> String {
        Point::of_cell(&self.cell).unless_empty(" at ", "")
    }
}

impl Commands<'_> {
    /// One run of each in each cell, before the rounds.
    fn first_runs(&self) -> Result<Vec<Vec<Finished>>, Error> {
        let run = |cell: usize, index: usize| {
            let side = &self.request.sides[index];
            let finished = self.process(cell, index, 0)?;
            let (label, at) = (side.label.clone(), self.cells[cell].shown());
            match self.succeeded(&finished) {
                Ok(()) => Ok(finished),
                _ if finished.ending == Ending::Interrupted => {
                    Err(Error::InterruptedStep { what: format!("the first run of {label}{at}") })
                }
                Err(how) => Err(Error::FirstRun { label, at, how, output: finished.stderr }),
            }
        };
        let of_cell = |cell| (0..self.request.sides.len()).map(|side| run(cell, side)).collect();
        (0..self.cells.len()).map(of_cell).collect()
    }

    /// What is measured, from what the first runs have printed.
    fn metrics(&self, first: &[Vec<Finished>]) -> Result<Metrics, Error> {
        let CompareRequest { sides, adapter, more_is_better, .. } = self.request;
        let adapted = adapter.iter().flat_map(|adapter| &adapter.sources);
        let sources: Vec<Source> = adapted.chain(&self.request.sources).cloned().collect();
        let format = match self.request.read {
            Read::Nothing => None,
            Read::As(format) => Some(format),
            Read::Detect if sources.is_empty() => Format::of(&first[0][0].stdout),
            Read::Detect => None,
        };
        let mut metrics = Metrics::new(sources, format, more_is_better.clone());
        if let Some(format) = format {
            metrics.printed = format.read(&first[0][0].stdout);
            if metrics.printed.is_empty() {
                return Err(Error::FirstRun {
                    label: sides[0].label.clone(),
                    at: String::new(),
                    how: format!("its output is not that of {}", format.name()),
                    output: first[0][0].stdout.clone(),
                });
            }
        }
        for (cell, runs) in self.cells.iter().zip(first) {
            for (side, finished) in sides.iter().zip(runs) {
                metrics.read(finished, own_bytes()).map_err(|how| Error::FirstRun {
                    label: side.label.clone(),
                    at: cell.shown(),
                    how,
                    output: format!("{}{}", finished.stdout, finished.stderr),
                })?;
            }
            let other = runs.iter().position(|finished| finished.digest != runs[0].digest);
            if let Some(other) = other.filter(|_| self.request.check) {
                let (a, b) = (&sides[0].label, &sides[other].label);
                let (a, b, at) = (a.clone(), b.clone(), cell.shown());
                return Err(Error::DifferentOutputs { a, b, at });
            }
        }
        Ok(metrics)
    }

    /// One process of one side, with what is to be done before and after it.
    fn process(&self, cell: usize, index: usize, seed: u64) -> Result<Finished, Error> {
        let FilledCell { cell, sides, programs, prepare, cleanup } = &self.cells[cell];
        let (side, program) = (&sides[index], &programs[index]);
        let directory = side.directory.as_deref();
        let files = self.files.iter().map(|files| (adapter::DIRECTORY, &*files.directory));
        let own = side.environment.iter().map(|(name, value)| (&**name, &**value));
        let environment: Vec<_> = files.chain([("UNHERD_SIDE", &*side.label)]).collect();
        let padding = self.request.moves_layout.then(|| confirm::padding(seed, index));
        let around = |what: &str, line: &Option<String>| match line {
            Some(line) => {
                let what = format!("{what} of {} ({line})", side.label);
                builds::shell(what, line, directory, environment.clone(), self.interrupt)
            }
            None => Ok(()),
        };
        around("--prepare", prepare)?;
        let cgroup = sweep::memory_bytes(cell)
            .map(Cgroup::create)
            .transpose()
            .map_err(|error| Error::usage(error.to_string(), "or leave out --cgroup"))?;
        let args = side.words[1..].iter().map(Into::into).collect();
        let padding = padding.as_deref().map(|padding| ("UNHERD_PADDING", padding));
        let launch = Launch {
            cpus: cell.cpus,
            cgroup: cgroup.as_ref().map(Cgroup::procs),
            directory,
            environment: environment.iter().copied().chain(padding).chain(own).collect(),
            own_session: true,
            ..Launch::new(program, args, self.request.timeout)
        };
        let run = || {
            let Some(slack) = side.timer_slack_ns else { return launch.run(self.interrupt) };
            // A child inherits it from the thread that starts it.
            set_current_timer_slack(Some(slack))?;
            let finished = launch.run(self.interrupt);
            set_current_timer_slack(None)?;
            finished
        };
        let finished = run().map_err(|source| {
            let bound = cgroup.as_ref().map(|_| "--cgroup");
            let absent = absence_advice(&program.to_string_lossy(), directory, &source);
            let advice = absent.unwrap_or(match source.kind() {
                std::io::ErrorKind::NotFound => "it was there a moment ago; see what removes it",
                _ => "see whether it is a program for this machine",
            });
            not_started(program, bound, advice, source)
        })?;
        around("--cleanup", cleanup)?;
        Ok(finished.in_cgroup(cgroup.as_ref()))
    }

    fn succeeded(&self, finished: &Finished) -> Result<(), String> {
        let wanted = self.request.exit_code;
        let code = finished.exit_code((self.request.timeout, BY_TIMEOUT), "--cgroup")?;
        if code == wanted {
            return Ok(());
        }
        let asks = finished.stderr.contains("tty") || finished.stderr.contains("terminal");
        let hint = match asks {
            true => "; it has neither terminal nor input here".to_owned(),
            false => finished.memory_hint("--cgroup"),
        };
        Err(format!("it ended with exit code {code}, not {wanted} (--exit-code){hint}"))
    }
}

/// The most memory that this process has had: what a process that it starts begins with.
fn own_bytes() -> u64 {
    Usage::of_this_process().max_rss_bytes
}

impl Measure for Commands<'_> {
    fn measure(
        &self,
        (number, attempt): (usize, usize),
        step: Step,
        record: &Record,
    ) -> Result<Round, Error> {
        let side = &self.request.sides[step.contender];
        let finished = self.process(step.cell, step.contender, step.seed)?;
        let cell = &self.cells[step.cell].cell;
        if finished.ending == Ending::Interrupted {
            let what = format!("round {number} of {}", side.label);
            return Err(Error::InterruptedStep { what });
        }
        let metrics = self.succeeded(&finished).and_then(|()| {
            let metrics = self.metrics.as_ref().ok_or("it was not run before the rounds")?;
            metrics.read(&finished, own_bytes())
        });
        let metrics = metrics.map_err(|what| {
            record.keep_stderr(&finished.stderr);
            Error::Round {
                round: number,
                label: side.label.clone(),
                what,
                stderr: finished.stderr.clone(),
                resume: record.resume_line(COMPARE),
            }
        })?;
        let check =
            if self.request.check { format!("{:016x}", finished.digest) } else { String::new() };
        Ok(Round {
            round: number,
            cell: step.cell,
            label: side.label.clone(),
            threads: 0,
            cpus: cell.cpus,
            params: cell.params.iter().map(|(name, value)| (name.clone(), json!(value))).collect(),
            seed: step.seed,
            check,
            metrics: metrics.into_iter().collect(),
            waits: serde_json::Value::Null,
            attempt,
            surroundings: Default::default(),
        })
    }
}
