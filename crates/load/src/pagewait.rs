//! `pagewait`: many threads each wait for a page of their own, and pages complete in random order.
//!
//! This is the herd of report 000 by itself, without a device: a thread that reads a page waits on
//! the page's hash bucket, a completion wakes the bucket, and the cost depends on who is woken.
//! One *waker* thread plays the device. It picks a page at random among those whose thread is
//! registered as waiting, publishes the completion, wakes, and goes on, with at most `outstanding`
//! completions whose threads have not come back yet. A thread that comes back checks the value that
//! was published with the completion and waits for its page's next one. See `scene.rs` for how
//! the waker knows that a thread really waits.

mod bucket;
mod per_page;
mod scene;
mod table;

pub use scene::{PageWaits, Tally, run_with};

use unherd_sys::primitives::{Condvar, Mutex};

use crate::random::mix;
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

/// The workload `pagewait` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct PageWait;

const IMPLS: &[Impl] = &[
    Impl {
        name: "before",
        about: "one mutex and condvar per bucket, and each completion wakes all of its bucket",
    },
    Impl { name: "per-page", about: "one mutex and condvar per page: no herd, but all that space" },
    Impl { name: "unherd", about: "the wait table: a completion wakes the page's waiters only" },
    Impl {
        name: "unherd-nofilter",
        about: "the wait table with the key ignored: a completion wakes all of its bucket",
    },
];

impl Workload for PageWait {
    fn describe(&self) -> Description {
        describe_with(IMPLS.to_vec(), vec!["before", "unherd"])
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let fixed = || job.params.at_least_one("buckets");
        let is_default = job.params.text("buckets") == "auto";
        match job.with.as_str() {
            "before" => run_with(job, &bucket::BucketCondvars::new(fixed()?)),
            "per-page" => {
                run_with(job, &per_page::PageCondvars::new(job.params.at_least_one("pages")?))
            }
            "unherd" if is_default => run_with(job, &table::TableWaits::new(None, true, job.seed)),
            "unherd" => run_with(job, &table::TableWaits::new(Some(fixed()?), true, job.seed)),
            "unherd-nofilter" => {
                run_with(job, &table::TableWaits::new(Some(fixed()?), false, job.seed))
            }
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// The description of `pagewait` in a runner that has these implementations.
pub fn describe_with(impls: Vec<Impl>, default_impls: Vec<&'static str>) -> Description {
    use Better::{Higher, Lower, Neither};
    let metric = |name: &str, better, about| Metric::new(name, better, about);
    Description {
        name: "pagewait",
        about: "T threads each wait for their own page; completions arrive in random order",
        primary: vec!["cpu_us_per_event".to_owned()],
        impls,
        default_impls,
        params: PARAMS.to_vec(),
        metrics: vec![
            metric("cpu_us_per_event", Lower, "user and system time of the process"),
            metric("events_per_s", Higher, "completions seen by their threads"),
            metric("wakeups_per_event", Lower, "returns from sleep; 1 is the least"),
            metric("needless_wakeups", Lower, "returns from sleep that found the page pending"),
            metric("context_switches", Lower, "the waiting threads' voluntary ones, by the kernel"),
            metric("context_switches_per_event", Lower, "the same for one event"),
            metric("wait_bytes", Lower, "memory of the wait structures and of the waiters in them"),
            metric("wait_bytes_idle", Lower, "the same before the first thread waits"),
            metric("waiter_bytes", Lower, "of these for each thread that waits, on its stack"),
            metric("wakeups", Neither, "returns from sleep in the whole region"),
            metric("events", Neither, "completions in the timed region"),
            metric("waker_context_switches", Neither, "the waker's own voluntary ones"),
            metric("elapsed_s", Neither, "the timed region on the clock"),
            metric("planted_s", Neither, "CPU time burned on purpose"),
        ],
        default_threads: 512,
        counts_as_exercised: Some("wakeups"),
        ..Description::default()
    }
}

const PARAMS: &[Param] = &[
    Param {
        name: "buckets",
        about: "hash buckets that pages share (a power of two); auto: our default",
        default: "16",
        kind: Kind::Count,
    },
    Param {
        name: "pages",
        about: "pages that could be waited for; the threads' pages are spread over them",
        default: "65536",
        kind: Kind::Count,
    },
    Param {
        name: "outstanding",
        about: "completions whose threads may not have come back yet",
        default: "8",
        kind: Kind::Count,
    },
    Param {
        name: "events",
        about: "completions to time; auto: as many as fit into budget-ms, and at least 100",
        default: "auto",
        kind: Kind::Count,
    },
    Param {
        name: "budget-ms",
        about: "how long the timed region lasts when events is auto",
        default: "1000",
        kind: Kind::Count,
    },
];

/// The bucket of a page among `buckets`, a power of two, for implementations without a table.
pub fn bucket_of(page: usize, buckets: usize) -> usize {
    mix(page as u64) as usize & (buckets - 1)
}

/// A lock and its condvar; what they guard is elsewhere.
#[derive(Debug, Default)]
struct WaitPoint {
    lock: Mutex<()>,
    wakeups: Condvar,
}

impl WaitPoint {
    fn wait(&self, tally: &Tally, pending: impl Fn() -> bool) {
        let mut guard = self.lock.lock();
        if !pending() {
            return;
        }
        loop {
            guard = self.wakeups.wait(guard);
            tally.wakeup();
            if !pending() {
                return;
            }
            tally.needless();
        }
    }
}
