//! `poll`: the price of asking many sources whether one is ready, of saying so, and of waking a
//! waiter for it.
//!
//! Scene `empty`: T threads ask `--sources` sources, of which none is ready. Scene `post`: one
//! thread posts to a source whose event nobody takes, so that all posts but the first coalesce.
//! Scene `event`: T threads sleep; the driver posts one event, waits until it was taken, and posts
//! the next: how many threads does each wake, and is each waiter's share the same?
//! Scene `flood`: one source is posted to without pause, all others once a millisecond: how late do
//! the T waiters find these?

mod descriptors;
mod flood;
mod floor;
mod set;

use unherd::Ledger;
use unherd_sys::primitives::{AtomicBool, AtomicU64, Ordering, thread};

use crate::random::mix_all;
use crate::timed_threads::work_for;
use crate::{
    Basis, Better, Description, Impl, Job, Kind, LoadError, Meter, Metric, Param, Round, Workload,
};
use descriptors::{Epoll, Poll};
use floor::Floor;
use set::Set;

/// The workload `poll` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct Polling;

/// An implementation under test: sources and those that wait for them.
pub trait Sources: Sync {
    /// What a waiter keeps between calls.
    type Waiter<'s>
    where
        Self: 's;

    /// A new waiter.
    fn waiter(&self) -> Self::Waiter<'_>;

    /// How many events there are, of which it takes none away if there are none. Never sleeps.
    fn check<'s>(&'s self, waiter: &mut Self::Waiter<'s>) -> usize;

    /// Sleeps until there is an event, and takes it: its source. `None` if another has taken it.
    fn wait<'s>(&'s self, waiter: &mut Self::Waiter<'s>) -> Option<usize>;

    /// Sleeps until there are events, and takes those that the implementation finds at a time.
    fn wait_all<'s>(&'s self, waiter: &mut Self::Waiter<'s>, found: &mut dyn FnMut(usize)) {
        self.wait(waiter).into_iter().for_each(found);
    }

    /// Posts for a source.
    fn post(&self, source: usize);
}

const IMPLS: &[Impl] = &[
    Impl { name: "before", about: "poll(2) over an eventfd for each source" },
    Impl { name: "epoll", about: "one epoll, edge-triggered, over an eventfd for each source" },
    Impl { name: "unherd", about: "ReadySet" },
    Impl { name: "unherd-lifo", about: "ReadySet that wakes the last waiter first" },
    Impl {
        name: "floor",
        about: "scene empty: loads of two cache lines; scene post: a fetch_or of a word",
    },
];

const PARAMS: &[Param] = &[
    Param {
        name: "scene",
        about: "empty (checks), post (that coalesce), event (one at a time, T threads asleep), \
                flood (of one source, the others once a millisecond)",
        default: "empty",
        kind: Kind::Text,
    },
    Param { name: "sources", about: "how many there are", default: "1024", kind: Kind::Count },
    Param {
        name: "budget-ms",
        about: "scenes empty, post and flood: how long the timed region lasts",
        default: "300",
        kind: Kind::Count,
    },
    Param {
        name: "events",
        about: "scene event: how many are posted",
        default: "6400",
        kind: Kind::Count,
    },
];

/// Calls between two looks at the clock's flag.
const BATCH: u64 = 64;

impl Workload for Polling {
    fn describe(&self) -> Description {
        describe_with(IMPLS.to_vec(), vec!["before", "epoll", "unherd"])
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let sources = job.params.at_least_one("sources")?;
        match job.with.as_str() {
            "before" => run_with(job, &Poll::new(sources)?),
            "epoll" => run_with(job, &Epoll::new(sources)?),
            "unherd" => run_with(job, &Set::new(sources, false)?),
            "unherd-lifo" => run_with(job, &Set::new(sources, true)?),
            "floor" if matches!(job.params.text("scene"), "event" | "flood") => {
                let scene = job.params.text("scene");
                Err(LoadError::usage(format!("scene={scene}: the floor has nobody to wake")))
            }
            "floor" => run_with(job, &Floor::new()),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// The description of `poll` in a runner that has these implementations.
pub fn describe_with(impls: Vec<Impl>, default_impls: Vec<&'static str>) -> Description {
    Description {
        name: "poll",
        about: "asking many sources for events, posting them, and waking waiters for them",
        primary: vec!["ns_per_call".to_owned()],
        impls,
        default_impls,
        params: PARAMS.to_vec(),
        metrics: vec![
            Metric::new(
                "ns_per_call",
                Better::Lower,
                "scene empty: a check; post: a post; event, flood: from a post until it was taken",
            ),
            Metric::new(
                "delay_us_max",
                Better::Lower,
                "scene flood: the longest of a quiet source",
            ),
            Metric::new("quiet_events", Better::Neither, "scene flood: of quiet sources"),
            Metric::new("wakeups_per_event", Better::Lower, "scene event: waits that ended"),
            Metric::new("context_switches_per_event", Better::Lower, "of waiters and driver"),
            Metric::new("share_ratio", Better::Higher, "events of the waiter with fewest to most"),
            Metric::new("cpu_ns_per_call", Better::Lower, "user and system time"),
            Metric::new("planted_s", Better::Neither, "CPU time burned on purpose"),
        ],
        default_threads: 1,
        ..Description::default()
    }
}

/// Runs a round.
pub fn run_with<S: Sources>(job: &Job, sources: &S) -> Result<Round, LoadError> {
    let waits_before = Ledger::snapshot();
    let (check, metrics) = match job.params.text("scene") {
        "empty" => calls(job, |waiter| sources.check(waiter) == 0, || sources.waiter())?,
        "post" => {
            sources.post(0);
            calls(
                job,
                |()| {
                    sources.post(0);
                    true
                },
                || (),
            )?
        }
        "event" => events(job, sources)?,
        "flood" => flood::run(job, sources)?,
        other => {
            return Err(LoadError::usage(format!(
                "scene={other}: there are empty, post, event and flood"
            )));
        }
    };
    let metrics = metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let waits = Ledger::snapshot().since(&waits_before);
    Ok(Round { check: mix_all(&[job.seed, check]), metrics, waits })
}

type Metrics = Vec<(&'static str, f64)>;

/// Scenes `empty` and `post`: `call` as often as it goes, which must say that it went well.
fn calls<W>(
    job: &Job,
    call: impl Fn(&mut W) -> bool + Sync,
    waiter: impl Fn() -> W + Sync,
) -> Result<(u64, Metrics), LoadError> {
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let (done, span) = work_for(job, budget_ms, |_, region| {
        let mut waiter = waiter();
        let (mut calls, mut good) = (0_u64, 0_u64);
        region.begin();
        while !region.is_over() {
            good += (0..BATCH).map(|_| u64::from(call(&mut waiter))).sum::<u64>();
            calls += BATCH;
        }
        (calls, good)
    })?;
    let calls: u64 = done.iter().map(|(calls, _)| calls).sum();
    let good: u64 = done.iter().map(|(_, good)| good).sum();
    if calls != good {
        return Err(LoadError::NotPolled { expected: calls, found: good });
    }
    let metrics = vec![
        ("ns_per_call", span.elapsed_s * 1e9 * job.threads as f64 / calls.max(1) as f64),
        ("cpu_ns_per_call", span.cpu_s * 1e9 / calls.max(1) as f64),
        ("planted_s", span.planted_s),
    ];
    Ok((0, metrics))
}

/// What the threads of scene `event` share. Relaxed where not said otherwise: the counts are read
/// when the event was taken, or all were joined.
struct Taken {
    events: AtomicU64,
    over: AtomicBool,
}

/// Scene `event`. The waiter that takes an event says so; the driver posts the next when all
/// have gone back to sleep, as far as a yield of the processor can tell.
fn events<S: Sources>(job: &Job, sources: &S) -> Result<(u64, Metrics), LoadError> {
    let count = job.params.at_least_one("events")? as u64;
    let source_count = job.params.at_least_one("sources")? as u64;
    let taken = Taken { events: AtomicU64::new(0), over: AtomicBool::new(false) };
    let asleep = AtomicU64::new(0);
    let meter = Meter::start(Basis::Process)?;
    let shares = thread::scope(|scope| {
        let (taken, asleep) = (&taken, &asleep);
        let mut waiters = Vec::with_capacity(job.threads);
        for index in 0..job.threads {
            let waiter = thread::Builder::new().spawn_scoped(scope, move || {
                let mut waiter = sources.waiter();
                let (mut own, mut wakeups) = (0_u64, 0_u64);
                loop {
                    asleep.fetch_add(1, Ordering::Relaxed);
                    let event = sources.wait(&mut waiter);
                    asleep.fetch_sub(1, Ordering::Relaxed);
                    if taken.over.load(Ordering::Relaxed) {
                        // One event ends the next waiter, and so on.
                        sources.post(0);
                        return (own, wakeups);
                    }
                    wakeups += 1;
                    if event.is_some() {
                        own += 1;
                        // ORDER[POLL-TAKEN]: Release; pairs with the Acquire of the driver: it
                        // sees what the waiter has counted.
                        taken.events.fetch_add(1, Ordering::Release);
                    }
                }
            });
            match waiter {
                Ok(waiter) => waiters.push(waiter),
                Err(source) => {
                    taken.over.store(true, Ordering::Relaxed);
                    sources.post(0);
                    let threads = job.threads;
                    return Err(LoadError::Thread { thread: index, threads, source });
                }
            }
        }
        let all_asleep = || asleep.load(Ordering::Relaxed) == job.threads as u64;
        for event in 0..count {
            while !all_asleep() {
                thread::yield_now();
            }
            sources.post((event % source_count) as usize);
            // ORDER[POLL-TAKEN]: Acquire; pairs with the Release of the waiter.
            while taken.events.load(Ordering::Acquire) <= event {
                thread::yield_now();
            }
        }
        while !all_asleep() {
            thread::yield_now();
        }
        taken.over.store(true, Ordering::Relaxed);
        sources.post(0);
        let joined = waiters.into_iter().enumerate().map(|(index, waiter)| {
            waiter.join().map_err(|panic| LoadError::panicked(index, &*panic))
        });
        joined.collect::<Result<Vec<(u64, u64)>, _>>()
    })?;
    let span = meter.stop(job.plant)?;
    let found: u64 = shares.iter().map(|(own, _)| own).sum();
    if found != count {
        return Err(LoadError::NotPolled { expected: count, found });
    }
    let wakeups: u64 = shares.iter().map(|(_, wakeups)| wakeups).sum();
    let fewest = shares.iter().map(|(own, _)| *own).min().unwrap_or(0) as f64;
    let most = shares.iter().map(|(own, _)| *own).max().unwrap_or(0) as f64;
    let per_event = |value: f64| value / count as f64;
    let metrics = vec![
        ("ns_per_call", per_event(span.elapsed_s * 1e9)),
        ("wakeups_per_event", per_event(wakeups as f64)),
        ("context_switches_per_event", per_event(span.voluntary_switches as f64)),
        ("share_ratio", fewest / most.max(1.0)),
        ("cpu_ns_per_call", per_event(span.cpu_s * 1e9)),
        ("planted_s", span.planted_s),
    ];
    Ok((found, metrics))
}
