//! `wake`: the price of waking nobody, of waking one thread among many that wait for others, and of
//! waking many at once.
//!
//! One thread, the *driver*, wakes keys one after the other and times batches of it; what counts is
//! the median batch. Scene `nobody`: nobody waits for these keys, which is what most wakes find.
//! `--foreign N` wait in the same table meanwhile, for other keys: tasks where it has tasks, for so
//! many threads that sleep make each futex call slower by themselves. Scene `one`: a thread sleeps
//! for the key each time, and each wake is timed by itself, with its system call. Scene `all`:
//! `--sleepers` threads sleep for one key, and a wake of all of them is timed.

mod table;

use std::hint::black_box;
use std::ops::Range;

use unherd::{Ledger, Timestamp};
use unherd_sys::Futex;
use unherd_sys::primitives::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence, thread};

use crate::random::mix_all;
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};
use table::TableWakes;

/// The workload `wake` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct Wake;

/// An implementation under test. Keys are small numbers.
pub trait Wakes: Sync {
    /// Wakes one waiter of `key`, if there is one.
    fn wake(&self, key: usize);

    /// Wakes all waiters of `key`.
    fn wake_all(&self, key: usize);

    /// Sleeps until it is woken by `key`, and calls `is_queued` when a wake that begins later will
    /// find it.
    fn wait(&self, key: usize, is_queued: impl Fn());

    /// Has somebody wait for each of `keys` until the result is dropped, where that takes no
    /// threads. By default it does.
    fn crowd(&self, keys: Range<usize>) -> Option<Box<dyn Crowd + '_>> {
        let _ = keys;
        None
    }
}

/// Waiters that are no threads.
pub trait Crowd {}
impl<T> Crowd for T {}

const IMPLS: &[Impl] = &[
    Impl { name: "floor", about: "scene nobody: a fence and a load of a word of the key's own" },
    Impl { name: "futex", about: "futex(2): a word of the key's own, and a system call each time" },
    Impl { name: "unherd", about: "the wait table" },
    Impl {
        name: "unherd-nosignature",
        about: "the wait table, where a wake takes the lock of a bucket in which anybody waits",
    },
    Impl { name: "unherd-alone", about: "the wait table with one foreign waiter, not --foreign" },
];

const PARAMS: &[Param] = &[
    Param {
        name: "scene",
        about: "nobody (waits for the keys), one (thread does), all (of --sleepers threads do)",
        default: "nobody",
        kind: Kind::Text,
    },
    Param { name: "keys", about: "keys that are woken in turn", default: "1", kind: Kind::Count },
    Param {
        name: "foreign",
        about: "how many wait for other keys meanwhile: tasks in the wait table, else threads",
        default: "0",
        kind: Kind::Count,
    },
    Param {
        name: "sleepers",
        about: "scene all: how many threads sleep for the key",
        default: "1024",
        kind: Kind::Count,
    },
    Param {
        name: "buckets",
        about: "buckets of the wait table, which keeps this size",
        default: "256",
        kind: Kind::Count,
    },
    Param {
        name: "wakes",
        about: "how many; auto: 20000000 of nobody, 4000 of one, 40 of all",
        default: "auto",
        kind: Kind::Count,
    },
];

/// Wakes of nobody that are timed together.
const BATCH: usize = 4096;
/// How long after it has queued a thread is taken to be asleep.
const ASLEEP_NS: f64 = 20_000.0;
/// Sleeping threads call little; the frames of an unoptimized build are the larger part of this.
const STACK_BYTES: usize = 64 << 10;

impl Workload for Wake {
    fn describe(&self) -> Description {
        describe_with(IMPLS.to_vec(), vec!["floor", "unherd"])
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let buckets = job.params.at_least_one("buckets")?;
        let foreign = job.params.number("foreign")?.unwrap_or(0) as usize;
        let keys = job.params.at_least_one("keys")?;
        let table = |signature| TableWakes::new(buckets, signature, job.seed);
        match job.with.as_str() {
            "floor" if job.params.text("scene") != "nobody" => {
                let scene = job.params.text("scene");
                Err(LoadError::usage(format!("scene={scene}: the floor has nobody to wake")))
            }
            "floor" => run_with(job, &Floor(words(keys)), 0),
            "futex" => run_with(job, &Futexes(words(keys + foreign)), foreign),
            "unherd" => run_with(job, &table(true), foreign),
            "unherd-nosignature" => run_with(job, &table(false), foreign),
            "unherd-alone" => run_with(job, &table(true), 1),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// The description of `wake` in a runner that has these implementations.
pub fn describe_with(impls: Vec<Impl>, default_impls: Vec<&'static str>) -> Description {
    Description {
        name: "wake",
        about: "waking nobody, one among many, and many at once",
        primary: vec!["wake_ns".to_owned()],
        impls,
        default_impls,
        params: PARAMS.to_vec(),
        metrics: vec![
            Metric::new(
                "wake_ns",
                Better::Lower,
                "one wake in the median batch; scene all: for each thread",
            ),
            Metric::new("wake_ns_p99", Better::Lower, "one wake, in the batch at 99 %"),
        ],
        default_threads: 1,
        ..Description::default()
    }
}

/// A word for each key, alone on its cache line.
#[repr(align(64))]
struct Line(Futex);

fn words(keys: usize) -> Box<[Line]> {
    (0..keys).map(|_| Line(Futex::new(0))).collect()
}

struct Floor(Box<[Line]>);

impl Wakes for Floor {
    #[inline]
    fn wake(&self, key: usize) {
        // ORDER[FLOOR]: SeqCst fence, (B) of the wait table by itself, and what it costs; there it
        // pairs with (A) in `queue`, here with nothing.
        fence(Ordering::SeqCst);
        black_box(self.0[key].0.word().load(Ordering::Relaxed));
    }

    fn wake_all(&self, key: usize) {
        self.wake(key);
    }

    fn wait(&self, _key: usize, is_queued: impl Fn()) {
        is_queued();
    }
}

struct Futexes(Box<[Line]>);

impl Wakes for Futexes {
    #[inline]
    fn wake(&self, key: usize) {
        let word = &self.0[key].0;
        word.word().fetch_add(1, Ordering::Relaxed);
        black_box(word.wake(1));
    }

    fn wake_all(&self, key: usize) {
        let word = &self.0[key].0;
        // ORDER[WAKE1]: Release; pairs with the Acquire in `wait`. A thread that leaves it
        // because of this sees what was stored before: that there are no more waits, say.
        word.word().fetch_add(1, Ordering::Release);
        black_box(word.wake(u32::MAX));
    }

    fn wait(&self, key: usize, is_queued: impl Fn()) {
        let word = &self.0[key].0;
        let seen = word.word().load(Ordering::Relaxed);
        is_queued();
        // ORDER[WAKE1]: Acquire; pairs with the Release in `wake_all`.
        while word.word().load(Ordering::Acquire) == seen {
            word.wait(seen);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scene {
    Nobody,
    One,
    All { sleepers: usize },
}

impl Scene {
    fn of(job: &Job) -> Result<Self, LoadError> {
        match job.params.text("scene") {
            "nobody" => Ok(Self::Nobody),
            "one" => Ok(Self::One),
            "all" => Ok(Self::All { sleepers: job.params.at_least_one("sleepers")? }),
            other => Err(LoadError::usage(format!("scene={other}: there are nobody, one and all"))),
        }
    }

    fn default_wakes(self) -> u64 {
        match self {
            Self::Nobody => 20_000_000,
            Self::One => 4_000,
            Self::All { .. } => 40,
        }
    }
}

/// Runs a round; `foreign` wait for the keys after the driver's.
pub fn run_with<W: Wakes>(job: &Job, wakes: &W, foreign: usize) -> Result<Round, LoadError> {
    let scene = Scene::of(job)?;
    let keys = job.params.at_least_one("keys")?;
    let count = match job.params.text("wakes") {
        "auto" => scene.default_wakes(),
        _ => job.params.at_least_one("wakes")? as u64,
    };
    let waits_before = Ledger::snapshot();
    let queued = AtomicUsize::new(0);
    let crowd = wakes.crowd(keys..keys + foreign);
    let foreign = if crowd.is_some() { 0 } else { foreign };
    let times_ns = thread::scope(|scope| {
        let queued = &queued;
        for index in 0..foreign {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            let sleeper = builder.spawn_scoped(scope, move || {
                wakes.wait(keys + index, || has_queued(queued));
            });
            if let Err(source) = sleeper {
                wake_each(wakes, keys..keys + index, queued);
                return Err(LoadError::WaitingThread {
                    thread: index,
                    threads: foreign,
                    source,
                    param: "foreign",
                });
            }
        }
        until(queued, foreign);
        let times_ns = match scene {
            Scene::Nobody => Ok(wake_nobody(wakes, keys, count as usize, job.plant)),
            Scene::One => wake_one(wakes, keys, count as usize, job.plant),
            Scene::All { sleepers } => wake_many(wakes, sleepers, count as usize, job.plant),
        };
        wake_each(wakes, keys..keys + foreign, queued);
        times_ns
    })?;
    let at = |share: f64| times_ns[((times_ns.len() - 1) as f64 * share) as usize];
    let metrics = [("wake_ns", at(0.5)), ("wake_ns_p99", at(0.99))];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let waits = Ledger::snapshot().since(&waits_before);
    Ok(Round { check: mix_all(&[job.seed, count, scene.default_wakes()]), metrics, waits })
}

fn has_queued(queued: &AtomicUsize) {
    // ORDER[WAKE2]: Release; pairs with the Acquire in `until`. Of a word it has been loaded by
    // then, so that the wake changes what is waited on.
    queued.fetch_add(1, Ordering::Release);
}

/// Waits until `wanted` threads have queued. A wake that comes after finds them: it takes the lock
/// that they hold while they say so, or changes the word that they have loaded.
fn until(queued: &AtomicUsize, wanted: usize) {
    // ORDER[WAKE2]: Acquire; pairs with the Release in `has_queued`.
    while queued.load(Ordering::Acquire) < wanted {
        thread::yield_now();
    }
}

fn wake_each(wakes: &impl Wakes, keys: Range<usize>, queued: &AtomicUsize) {
    until(queued, keys.len());
    keys.for_each(|key| wakes.wake(key));
}

/// Sorted times of a wake, of each batch.
fn wake_nobody(wakes: &impl Wakes, keys: usize, count: usize, plant: f64) -> Vec<f64> {
    let mut key = 0;
    let mut times_ns: Vec<f64> = (0..count.div_ceil(BATCH))
        .map(|_| {
            timed(plant, || {
                for _ in 0..BATCH {
                    wakes.wake(black_box(key));
                    key = if key + 1 == keys { 0 } else { key + 1 };
                }
            }) / BATCH as f64
        })
        .collect();
    times_ns.sort_unstable_by(f64::total_cmp);
    times_ns
}

/// Sorted times of each wake of a thread that waits for the keys in turn.
fn wake_one(
    wakes: &impl Wakes,
    keys: usize,
    count: usize,
    plant: f64,
) -> Result<Vec<f64>, LoadError> {
    let (queued, woken) = (AtomicUsize::new(0), AtomicU64::new(0));
    let mut times_ns = thread::scope(|scope| {
        let (queued, woken) = (&queued, &woken);
        let sleeper = thread::Builder::new().spawn_scoped(scope, move || {
            for index in 0..count {
                wakes.wait(index % keys, || has_queued(queued));
                woken.fetch_add(1, Ordering::Relaxed);
            }
        });
        if let Err(source) = sleeper {
            return Err(LoadError::Thread { thread: 0, threads: 1, source });
        }
        let mut times_ns = Vec::with_capacity(count);
        for index in 0..count {
            until(queued, index + 1);
            // It has queued, but is perhaps not asleep yet.
            let seen = Timestamp::now();
            while ns_since(seen) < ASLEEP_NS {}
            times_ns.push(timed(plant, || wakes.wake(index % keys)));
            // The next wait begins only after this one.
            while woken.load(Ordering::Relaxed) <= index as u64 {
                thread::yield_now();
            }
        }
        Ok(times_ns)
    })?;
    times_ns.sort_unstable_by(f64::total_cmp);
    Ok(times_ns)
}

/// Sorted times of a wake of all `sleepers` threads that sleep for one key, for each thread.
fn wake_many(
    wakes: &impl Wakes,
    sleepers: usize,
    count: usize,
    plant: f64,
) -> Result<Vec<f64>, LoadError> {
    let (queued, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut times_ns = thread::scope(|scope| {
        let (queued, stopped) = (&queued, &stopped);
        for index in 0..sleepers {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            let sleeper = builder.spawn_scoped(scope, move || {
                for _ in 0..count {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    wakes.wait(0, || has_queued(queued));
                }
            });
            if let Err(source) = sleeper {
                until(queued, index);
                stopped.store(true, Ordering::Relaxed);
                wakes.wake_all(0);
                return Err(LoadError::WaitingThread {
                    thread: index,
                    threads: sleepers,
                    source,
                    param: "sleepers",
                });
            }
        }
        let mut times_ns = Vec::with_capacity(count);
        for round in 1..=count {
            until(queued, round * sleepers);
            let seen = Timestamp::now();
            while ns_since(seen) < ASLEEP_NS {}
            times_ns.push(timed(plant, || wakes.wake_all(0)) / sleepers as f64);
        }
        Ok(times_ns)
    })?;
    times_ns.sort_unstable_by(f64::total_cmp);
    Ok(times_ns)
}

/// What `work` takes, with the share that is wasted on purpose.
fn timed(plant: f64, work: impl FnOnce()) -> f64 {
    let begin = Timestamp::now();
    work();
    let until_ns = ns_since(begin) * (1.0 + plant);
    while plant > 0.0 && ns_since(begin) < until_ns {}
    ns_since(begin)
}

fn ns_since(begin: Timestamp) -> f64 {
    Timestamp::now().since(begin).as_nanos() as f64
}
