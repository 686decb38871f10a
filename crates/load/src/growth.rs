//! `growth`: what a wait table costs while it grows with its waiters, and shrinks again.
//!
//! One thread, the *driver*, measures from the first waiter to the last. The waiters are tasks with
//! a key each, so that nobody else runs meanwhile. The driver has them queue one by one, and wakes
//! them one by one; it times this *step*, and after each of them two things:
//!
//! - a batch of wakes of keys that nobody waits for: the way on which the table must cost nothing
//!   more because it can grow;
//! - a wait of its own whose deadline has passed: it queues, moves a share of the buckets if the
//!   table is just being changed, and leaves. So it does what a thread does on its way to sleep,
//!   but for the sleep.
//!
//! `fixed` is a table that was built at the largest size. Five phases do the same on both: *before*
//! the first waiter, *growing* while they come, *peak* when all wait, *shrinking* while they are
//! woken, and *after* the table was told to settle.
//!
//! Other threads, if `--threads` says so, wait and leave all the while as load. Costs are medians;
//! the longest is told in CPU time besides, in which no time slice of another thread is.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rustix::time::{ClockId, clock_gettime};
use unherd_sync::{Deadline, Ledger, Reason, TableSize, Timestamp, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicBool, Ordering, thread};

use crate::random::mix_all;
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

/// The workload `growth`.
#[derive(Debug, Clone, Copy)]
pub struct Growth;

const IMPLS: &[Impl] = &[
    Impl { name: "fixed", about: "the wait table, built at the largest size" },
    Impl { name: "unherd", about: "the wait table, growing from the least size and back" },
];

const PARAMS: &[Param] = &[
    Param {
        name: "buckets-min",
        about: "buckets of the growing table when nobody waits",
        default: "16",
        kind: Kind::Count,
    },
    Param {
        name: "buckets-max",
        about: "buckets at most; a quarter as many waiters make it grow so far",
        default: "16384",
        kind: Kind::Count,
    },
    Param {
        name: "waiters",
        about: "tasks that come to wait, and are woken",
        default: "4096",
        kind: Kind::Count,
    },
];

const PHASES: [&str; 5] = ["before", "growing", "peak", "shrinking", "after"];
/// The phases in which the hot path is compared.
const COMPARED: [&str; 4] = ["growing", "peak", "shrinking", "after"];

/// Keys that nobody waits for, beyond the waiters'.
const EMPTY_KEYS: usize = 1024;
/// Wakes that are timed together.
const BATCH: usize = 64;

impl Workload for Growth {
    fn describe(&self) -> Description {
        use Better::{Lower, Neither};
        let metrics = PHASES.into_iter().flat_map(|phase| {
            let metric =
                |name, better, about| Metric::new(format!("{phase}_{name}"), better, about);
            let is_still = !["growing", "shrinking"].contains(&phase);
            let size = [
                metric("buckets", Neither, "how many at the end of the phase"),
                metric("table_bytes", Neither, "of the table in memory, without waiters"),
                metric("rss_bytes", Neither, "of the process, with all stacks"),
            ];
            let steps = [
                metric("step_us", Neither, "a waiter's coming or going, median"),
                metric("step_us_max", Lower, "the longest of them"),
            ];
            let costs = [
                metric("empty_wake_ns", Lower, "a wake of nobody, median"),
                metric("wait_us", Lower, "a wait that times out, median"),
                metric("wait_us_max", Lower, "the longest of them"),
                metric("wait_cpu_us_max", Lower, "the longest by CPU time"),
            ];
            let steps = steps.into_iter().filter(move |_| !is_still);
            costs.into_iter().chain(steps).chain(size.into_iter().filter(move |_| is_still))
        });
        let settle = Metric::new("settle_us", Neither, "to finish shrinking, all at once");
        Description {
            name: "growth",
            about: "a table grows with its waiters and shrinks: the hot path, the longest wait",
            primary: COMPARED.map(|phase| format!("{phase}_empty_wake_ns")).to_vec(),
            impls: IMPLS.to_vec(),
            default_impls: vec!["fixed", "unherd"],
            params: PARAMS.to_vec(),
            metrics: metrics.chain([settle]).collect(),
            uses_dir: false,
            uses_memory: false,
            kernel_work: false,
            deterministic: false,
            default_threads: 1,
            counts_as_exercised: Some("wakeups"),
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let (min, max) =
            (job.params.at_least_one("buckets-min")?, job.params.at_least_one("buckets-max")?);
        let builder = WaitTable::<WaitKey>::builder().reason(Reason::register("growth"));
        let builder = match job.with.as_str() {
            "fixed" => builder.buckets(max),
            "unherd" => builder.grow(min, max),
            _ => return Err(job.unknown_impl(&self.describe())),
        };
        let scene = Scene { table: builder.seed(job.seed).build(), over: AtomicBool::new(false) };
        scene.run(job)
    }
}

struct Scene {
    table: WaitTable<WaitKey>,
    /// Relaxed: nothing depends on it but when the load ends.
    over: AtomicBool,
}

fn key(of: usize) -> WaitKey {
    WaitKey::Address(of)
}

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(1))
}

impl Scene {
    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let waiters = job.params.at_least_one("waiters")?;
        let waits_before = Ledger::snapshot();
        let mut report = Report::default();
        thread::scope(|scope| {
            for index in 1..job.threads {
                let load =
                    thread::Builder::new().spawn_scoped(scope, move || self.wait_often(index));
                if let Err(source) = load {
                    self.over.store(true, Ordering::Relaxed);
                    return Err(LoadError::Thread { thread: index, threads: job.threads, source });
                }
            }
            let driven = self.drive(job, waiters, &mut report);
            self.over.store(true, Ordering::Relaxed);
            driven
        })?;
        let waits = Ledger::snapshot().since(&waits_before);
        let check = mix_all(&[job.seed, waiters as u64]);
        Ok(Round { check, metrics: report.0, waits })
    }

    /// A thread that waits for keys beyond all others', and times out each time.
    fn wait_often(&self, index: usize) {
        while !self.over.load(Ordering::Relaxed) {
            let _timed_out = self.table.wait(&key(usize::MAX - index), || true, past());
        }
    }

    fn drive(&self, job: &Job, waiters: usize, report: &mut Report) -> Result<(), LoadError> {
        let mut probe = Probe { table: &self.table, waiters, plant: job.plant, at: 0 };
        let mut context = Context::from_waker(Waker::noop());
        report.phase("before", (0..waiters).map(|_| probe.once(|| ())));
        report.moment("before", self.table.size());

        let wait = |index| Box::pin(self.table.wait_async(&key(index), || true, Reason::OTHER));
        let mut tasks: Vec<_> = (0..waiters).map(wait).collect();
        let mut poll = |index: usize| Pin::as_mut(&mut tasks[index]).poll(&mut context);
        let mut wrong = None;
        let growing = (0..waiters).map(|index| {
            let step = || {
                if poll(index).is_ready() {
                    wrong.get_or_insert((index, 0));
                }
            };
            probe.once(step)
        });
        report.phase("growing", growing);
        report.phase("peak", (0..waiters).map(|_| probe.once(|| ())));
        report.moment("peak", self.table.size());

        let shrinking = (0..waiters).map(|index| {
            let step = || {
                let woken = self.table.wake(&key(index), 2).total();
                if woken != 1 || poll(index) == Poll::Pending {
                    wrong.get_or_insert((index, woken));
                }
            };
            probe.once(step)
        });
        report.phase("shrinking", shrinking);
        let begin = Timestamp::now();
        self.table.settle();
        let settle_us = ns_since(begin) / 1e3;
        report.phase("after", (0..waiters).map(|_| probe.once(|| ())));
        report.moment("after", self.table.size());
        report.push("settle_us", settle_us);
        match wrong {
            None => Ok(()),
            Some((page, woken)) => {
                Err(LoadError::Disorder { page, completion: 1, expected: 1, found: woken as u64 })
            }
        }
    }
}

/// The driver's own operations.
struct Probe<'a> {
    table: &'a WaitTable<WaitKey>,
    /// Keys from here on have no waiters.
    waiters: usize,
    plant: f64,
    at: usize,
}

/// What one round of them took.
struct Sample {
    step_us: f64,
    empty_wake_ns: f64,
    wait_us: f64,
    wait_cpu_us: f64,
}

impl Probe<'_> {
    /// Times `step`, then the rest.
    fn once(&mut self, step: impl FnOnce()) -> Sample {
        let begin = Timestamp::now();
        step();
        let step_us = ns_since(begin) / 1e3;
        let begin = Timestamp::now();
        for _ in 0..BATCH {
            self.at = (self.at + 1) % EMPTY_KEYS;
            black_box(self.table.wake(&key(self.waiters + self.at), 1));
        }
        self.burn(begin);
        let empty_wake_ns = ns_since(begin) / BATCH as f64;

        let (begin, cpu_begin) = (Timestamp::now(), cpu_ns());
        let _ = black_box(self.table.wait(&key(self.waiters + self.at), || true, past()));
        let wait_cpu_us = (cpu_ns() - cpu_begin) as f64 / 1e3;
        Sample { step_us, empty_wake_ns, wait_us: ns_since(begin) / 1e3, wait_cpu_us }
    }

    /// Wastes the share that was asked for of the time since `begin`.
    fn burn(&self, begin: Timestamp) {
        let until_ns = ns_since(begin) * (1.0 + self.plant);
        while self.plant > 0.0 && ns_since(begin) < until_ns {}
    }
}

fn ns_since(begin: Timestamp) -> f64 {
    Timestamp::now().since(begin).as_nanos() as f64
}

/// CPU time of this thread.
fn cpu_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

#[derive(Default)]
struct Report(Vec<(String, f64)>);

impl Report {
    fn push(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), value));
    }

    fn phase(&mut self, phase: &str, samples: impl Iterator<Item = Sample>) {
        let samples: Vec<Sample> = samples.collect();
        let sorted = |of: fn(&Sample) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(of).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let median = |values: &[f64]| values[values.len() / 2];
        let max = |values: &[f64]| values[values.len() - 1];
        let (wake, wait) = (sorted(|sample| sample.empty_wake_ns), sorted(|sample| sample.wait_us));
        self.push(format!("{phase}_empty_wake_ns"), median(&wake));
        self.push(format!("{phase}_wait_us"), median(&wait));
        self.push(format!("{phase}_wait_us_max"), max(&wait));
        self.push(format!("{phase}_wait_cpu_us_max"), max(&sorted(|sample| sample.wait_cpu_us)));
        if ["growing", "shrinking"].contains(&phase) {
            let step = sorted(|sample| sample.step_us);
            self.push(format!("{phase}_step_us"), median(&step));
            self.push(format!("{phase}_step_us_max"), max(&step));
        }
    }

    fn moment(&mut self, moment: &str, size: TableSize) {
        self.push(format!("{moment}_buckets"), size.buckets as f64);
        self.push(format!("{moment}_table_bytes"), size.bytes_resident as f64);
        self.push(format!("{moment}_rss_bytes"), rss_bytes());
    }
}

/// Memory of the process; 0 where /proc does not tell.
fn rss_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * rustix::param::page_size() as f64
}
