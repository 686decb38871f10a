//! `mutex`: threads that lock one mutex again and again, with work inside and between.
//!
//! Each thread locks, works for `section` steps on what the mutex guards, unlocks, works for `gap`
//! steps of its own, and begins again, until the time is over. A step is two dependent
//! floating-point operations, as in parking_lot's benchmark. With `hog` greater than 1 the first
//! thread stays in its sections for as many times as long; with `burst`, each runs as many sections
//! before its gap.
//!
//! Throughput alone would favour a mutex that one thread never lets go. So each round also reports
//! the smallest share of a thread over the largest, and how long one acquisition in a thousand took
//! at least.

pub(crate) mod impls;

use std::hint::black_box;

use unherd::{Ledger, Timestamp};

use crate::random::mix_all;
use crate::timed_threads::{Region, work_for};
use crate::{
    Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Span, Workload,
};

/// The workload `mutex` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct Mutexes;

/// An implementation under test: a mutex and what it guards.
pub trait Exclusive: Sync {
    /// Runs `section` while no other thread is in one.
    fn run(&self, section: impl FnOnce(&mut Guarded));
}

/// What the mutex guards: the sections that were run, and the value of their work.
#[derive(Debug, Default)]
pub struct Guarded {
    sections: u64,
    value: f64,
}

const IMPLS: &[Impl] = &[
    Impl { name: "unherd", about: "Mutex: one byte, others may come between for 1 ms" },
    Impl { name: "unherd-fair", about: "the same, handed over at each unlock" },
    Impl { name: "unherd-barging", about: "the same, never handed over" },
    Impl { name: "std", about: "std::sync::Mutex" },
    Impl { name: "pthread", about: "pthread_mutex_t of the C library, as it is by default" },
    Impl { name: "kernel", about: "futex(2) alone: three states, no look before the sleep" },
];

const PARAMS: &[Param] = &[
    Param {
        name: "section",
        about: "steps of work with the mutex locked, of two dependent floating-point operations",
        default: "5",
        kind: Kind::Count,
    },
    Param {
        name: "gap",
        about: "steps of work between two sections of a thread",
        default: "5",
        kind: Kind::Count,
    },
    Param {
        name: "hog",
        about: "how many times as long the first thread's sections are",
        default: "1",
        kind: Kind::Count,
    },
    Param {
        name: "burst",
        about: "sections in a row, with one gap behind them that is as many times as long",
        default: "1",
        kind: Kind::Count,
    },
    Param {
        name: "budget-ms",
        about: "how long the timed region lasts",
        default: "500",
        kind: Kind::Count,
    },
];

/// One acquisition of as many is timed.
const SAMPLED: u64 = 64;
/// As many times are kept of a thread; later ones replace earlier.
const SAMPLES: usize = 1 << 14;

impl Workload for Mutexes {
    fn describe(&self) -> Description {
        describe_with(IMPLS.to_vec(), vec!["std", "pthread", "unherd"])
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        use impls::{FutexMutex, Pthread, Std};
        match job.with.as_str() {
            "unherd" => run_with(job, &unherd::Mutex::new(Guarded::default())),
            "unherd-fair" => {
                run_with(job, &unherd::Mutex::<_, 0>::with_barging(Guarded::default()))
            }
            "unherd-barging" => {
                run_with(job, &unherd::Mutex::<_, { u32::MAX }>::with_barging(Guarded::default()))
            }
            "std" => run_with(job, &Std::default()),
            "pthread" => run_with(job, &Pthread::new()),
            "kernel" => run_with(job, &FutexMutex::new()),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// The description of `mutex` in a runner that has these implementations.
pub fn describe_with(impls: Vec<Impl>, default_impls: Vec<&'static str>) -> Description {
    Description {
        name: "mutex",
        about: "T threads lock one mutex, with work inside and between",
        primary: vec!["sections_per_s".to_owned()],
        impls,
        default_impls,
        params: PARAMS.to_vec(),
        metrics: describe_metrics(),
        default_threads: 4,
        ..Description::default()
    }
}

/// What the figures of [`metrics_of`] mean.
fn describe_metrics() -> Vec<Metric> {
    use Better::{Higher, Lower, Neither};
    vec![
        Metric::new("sections_per_s", Higher, "sections of all threads"),
        Metric::new("share_ratio", Higher, "the smallest share of a thread over the largest"),
        Metric::new("acquire_us_p999", Lower, "the wait for the lock, of 1 in 1,000"),
        Metric::new("cpu_ns_per_section", Lower, "user and system time of the process"),
        Metric::new("context_switches_per_section", Lower, "voluntary ones, by the kernel"),
        Metric::new("elapsed_s", Neither, "the timed region on the clock"),
        Metric::new("planted_s", Neither, "CPU time burned on purpose"),
    ]
}

/// How much work there is.
struct Scene {
    section: usize,
    gap: usize,
    hog: usize,
    burst: usize,
}

/// What a thread has done.
pub(crate) struct Share {
    pub(crate) sections: u64,
    acquire_ns: Vec<u64>,
}

impl Share {
    pub(crate) fn new() -> Self {
        Self { sections: 0, acquire_ns: Vec::with_capacity(SAMPLES) }
    }

    /// Counts a section, and how long it had to wait, if it is one that is timed: then `run` is
    /// given a time, and replaces it by that at which it has the lock.
    #[inline]
    pub(crate) fn count(&mut self, run: impl FnOnce(&mut Option<Timestamp>)) {
        let asked = self.sections.is_multiple_of(SAMPLED).then(Timestamp::now);
        let mut acquired = asked;
        run(&mut acquired);
        if let (Some(asked), Some(acquired)) = (asked, acquired) {
            let place = (self.sections / SAMPLED) as usize % SAMPLES;
            let ns = acquired.as_ns() - asked.as_ns();
            match self.acquire_ns.get_mut(place) {
                Some(sample) => *sample = ns,
                None => self.acquire_ns.push(ns),
            }
        }
        self.sections += 1;
    }
}

/// Runs a round.
pub fn run_with(job: &Job, mutex: &impl Exclusive) -> Result<Round, LoadError> {
    let scene = Scene {
        section: job.params.at_least_one("section")?,
        gap: job.params.at_least_one("gap")?,
        hog: job.params.at_least_one("hog")?,
        burst: job.params.at_least_one("burst")?,
    };
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let waits_before = Ledger::snapshot();
    let (shares, span) = work_for(job, budget_ms, |index, region| {
        let section = if index == 0 { scene.section * scene.hog } else { scene.section };
        scene.work(mutex, section, region)
    })?;
    let waits = Ledger::snapshot().since(&waits_before);

    let sections: u64 = shares.iter().map(|share| share.sections).sum();
    let mut counted = 0;
    mutex.run(|guarded| counted = guarded.sections);
    if counted != sections {
        return Err(LoadError::NotExclusive { done: sections, counted });
    }
    let metrics = metrics_of(shares, &span);
    let check = [job.seed, scene.section as u64, scene.gap as u64, scene.hog as u64];
    Ok(Round { check: mix_all(&check), metrics, waits })
}

/// The figures of a round.
pub(crate) fn metrics_of(shares: Vec<Share>, span: &Span) -> Vec<(String, f64)> {
    let sections: u64 = shares.iter().map(|share| share.sections).sum();
    let smallest = shares.iter().map(|share| share.sections).min().unwrap_or(0) as f64;
    let largest = shares.iter().map(|share| share.sections).max().unwrap_or(1).max(1) as f64;
    let mut acquire_ns: Vec<u64> = shares.into_iter().flat_map(|share| share.acquire_ns).collect();
    acquire_ns.sort_unstable();
    let p999_ns = acquire_ns.get(acquire_ns.len().saturating_sub(1) * 999 / 1000);
    let per_section = |amount: f64| amount / (sections.max(1) as f64);
    let metrics = [
        ("sections_per_s", sections as f64 / span.elapsed_s),
        ("share_ratio", smallest / largest),
        ("acquire_us_p999", p999_ns.map_or(0.0, |ns| *ns as f64 / 1e3)),
        ("cpu_ns_per_section", per_section(span.cpu_s * 1e9)),
        ("context_switches_per_section", per_section(span.voluntary_switches as f64)),
        ("elapsed_s", span.elapsed_s),
        ("planted_s", span.planted_s),
    ];
    metrics.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

impl Scene {
    fn work(&self, mutex: &impl Exclusive, section: usize, region: &Region) -> Share {
        let mut share = Share::new();
        let mut own = 1.0;
        region.begin();
        while !region.is_over() {
            share.count(|timed| {
                mutex.run(|guarded| {
                    *timed = timed.map(|_| Timestamp::now());
                    guarded.sections += 1;
                    own = steps(section, &mut guarded.value, own);
                });
            });
            if share.sections.is_multiple_of(self.burst as u64) {
                let mut between = own;
                own = steps(self.gap * self.burst, &mut between, own);
            }
        }
        share
    }
}

/// Work of `count` steps, each of which needs the one before.
#[inline]
pub(crate) fn steps(count: usize, value: &mut f64, mut own: f64) -> f64 {
    for _ in 0..count {
        *value = black_box((*value + own) * 0.501);
        own = *value;
    }
    own
}
