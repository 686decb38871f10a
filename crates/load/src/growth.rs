//! `growth`: what a wait table costs while it grows with its waiters, and shrinks again.
//!
//! One thread, the *driver*, measures from the first waiter to the last. It lets the others go to
//! sleep in the table, each for a key of its own, and wakes them one by one; after each of them it
//! times two things:
//!
//! - a batch of wakes of keys that nobody waits for: the way on which the table must cost nothing
//!   more because it can grow;
//! - a wait whose deadline has passed: it queues, moves a share of the buckets if the table is just
//!   being changed, and leaves. So it does what a thread does on its way to sleep and back.
//!
//! `fixed` is a table that was built at the largest size. Five phases do the same on both: *before*
//! the first waiter, *growing* while they come, *peak* when all wait, *shrinking* while they are
//! woken, and *after* the table was told to settle.
//!
//! Times are on the clock. The driver is never alone on the machine while others go to sleep, so
//! the longest wait has a time slice of theirs in it now and then, with `fixed` as well; therefore
//! the longest is told in CPU time besides, and costs are medians.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use unherd_sync::{Deadline, Ledger, Reason, TableSize, Timestamp, Token, WaitKey, WaitTable};
use unherd_sys::Futex;
use unherd_sys::primitives::{AtomicBool, AtomicUsize, Ordering, thread};

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
        about: "buckets at most; a quarter as many threads make it grow so far",
        default: "16384",
        kind: Kind::Count,
    },
];

const PHASES: [&str; 5] = ["before", "growing", "peak", "shrinking", "after"];
/// The phases in which the hot path is compared.
const COMPARED: [&str; 4] = ["growing", "peak", "shrinking", "after"];

/// Keys that nobody waits for, beyond the threads'.
const EMPTY_KEYS: usize = 1024;
/// Wakes that are timed together.
const BATCH: usize = 64;
/// Sleeping threads call little; the frames of an unoptimized build are the larger part of this.
const STACK_BYTES: usize = 64 << 10;

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
            let costs = [
                metric("empty_wake_ns", Lower, "a wake of nobody, median"),
                metric("wait_us", Lower, "a wait that times out, median"),
                metric("wait_us_max", Lower, "the longest of them"),
                metric("wait_cpu_us_max", Lower, "the longest by CPU time"),
            ];
            costs.into_iter().chain(size.into_iter().filter(move |_| is_still))
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
            default_threads: 4096,
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
        let scene = Scene {
            table: builder.seed(job.seed).build(),
            gates: (0..job.threads).map(|_| Futex::new(0)).collect(),
            queued: AtomicUsize::new(0),
            called_off: AtomicBool::new(false),
        };
        scene.run(job)
    }
}

struct Scene {
    table: WaitTable<WaitKey>,
    /// One for each thread: 1 lets it go to wait.
    gates: Vec<Futex>,
    /// Threads that can be woken. Relaxed: a wake that comes after takes the bucket's lock.
    queued: AtomicUsize,
    /// Not all threads could be made. Relaxed: the gates are opened after it.
    called_off: AtomicBool,
}

fn key(of: usize) -> WaitKey {
    WaitKey::Address(of)
}

impl Scene {
    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let waits_before = Ledger::snapshot();
        let mut report = Report::default();
        let driven = thread::scope(|scope| {
            let mut sleepers = Vec::with_capacity(job.threads);
            for index in 0..job.threads {
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                match builder.spawn_scoped(scope, move || self.sleep(index)) {
                    Ok(sleeper) => sleepers.push(sleeper),
                    Err(source) => {
                        self.called_off.store(true, Ordering::Relaxed);
                        self.gates.iter().for_each(Self::open);
                        return Err(LoadError::Thread {
                            thread: index,
                            threads: job.threads,
                            source,
                        });
                    }
                }
            }
            Ok(self.drive(job, &mut report))
        });
        // By then all threads have ended.
        driven??;
        let waits = Ledger::snapshot().since(&waits_before);
        let check = mix_all(&[job.seed, job.threads as u64]);
        Ok(Round { check, metrics: report.0, waits })
    }

    fn open(gate: &Futex) {
        gate.word().store(1, Ordering::Relaxed);
        gate.wake(1);
    }

    /// A thread that waits once.
    fn sleep(&self, index: usize) {
        let gate = &self.gates[index];
        while gate.word().load(Ordering::Relaxed) == 0 {
            gate.wait(0);
        }
        if !self.called_off.load(Ordering::Relaxed) {
            let count = || self.queued.fetch_add(1, Ordering::Relaxed) < usize::MAX;
            let _ = self.table.wait(&key(index), count, Reason::OTHER);
        }
    }

    fn drive(&self, job: &Job, report: &mut Report) -> Result<(), LoadError> {
        let threads = job.threads;
        let mut probe = Probe { table: &self.table, threads, plant: job.plant, at: 0 };
        report.phase("before", (0..threads).map(|_| probe.once()));
        report.moment("before", self.table.size());

        report.phase(
            "growing",
            (0..threads).map(|index| {
                Self::open(&self.gates[index]);
                while self.queued.load(Ordering::Relaxed) <= index {
                    thread::yield_now();
                }
                probe.once()
            }),
        );
        report.phase("peak", (0..threads).map(|_| probe.once()));
        report.moment("peak", self.table.size());

        let mut wrong = None;
        report.phase(
            "shrinking",
            (0..threads).map(|index| {
                let woken = self.table.wake_with(&key(index), 2, Token(1)).total();
                if woken != 1 {
                    wrong.get_or_insert((index, woken));
                }
                probe.once()
            }),
        );
        let begin = Timestamp::now();
        self.table.settle();
        let settle_us = ns_since(begin) / 1e3;
        report.phase("after", (0..threads).map(|_| probe.once()));
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
    threads: usize,
    plant: f64,
    at: usize,
}

/// What one round of them took.
struct Sample {
    empty_wake_ns: f64,
    wait_us: f64,
    wait_cpu_us: f64,
}

impl Probe<'_> {
    fn once(&mut self) -> Sample {
        let begin = Timestamp::now();
        for _ in 0..BATCH {
            self.at = (self.at + 1) % EMPTY_KEYS;
            black_box(self.table.wake(&key(self.threads + self.at), 1));
        }
        self.burn(begin);
        let empty_wake_ns = ns_since(begin) / BATCH as f64;

        let (begin, cpu_begin) = (Timestamp::now(), cpu_ns());
        let past = Deadline::at(Timestamp::from_ns(1));
        let _ = black_box(self.table.wait(&key(self.threads + self.at), || true, past));
        let wait_cpu_us = (cpu_ns() - cpu_begin) as f64 / 1e3;
        Sample { empty_wake_ns, wait_us: ns_since(begin) / 1e3, wait_cpu_us }
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
