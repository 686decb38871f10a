//! Tables of futexes: the kernel's, ours, and one by the rules that the kernel's had before.
//!
//! | implementation | what it is |
//! |---|---|
//! | `kernel` | futex(2), private, with the slots that the kernel gives the process by itself |
//! | `unherd` | `FutexTable` |
//! | `before` | the kernel's rules up to 2013, in user space ([`Before`]) |
//! | `before-…` | the same with one patch of the report, or with all |

mod before;

use rustix::thread::futex;
use unherd::{Deadline, Errno, FutexTable};
use unherd_sys::{Futex, FutexWait};

use crate::{Impl, Job, LoadError, Workload};
use before::{Before, Patches};

/// An implementation under test.
pub(crate) trait Table: Sync {
    /// Sleeps until a wake of `word` finds this thread, if it holds `expected`.
    fn wait(&self, word: &Futex, expected: u32, deadline: Deadline) -> FutexWait;

    /// Wakes up to `n` that wait for `word`, and says how many.
    fn wake(&self, word: &Futex, n: u32) -> usize;

    /// Has up to `n` that wait for `from` wait for `to`, without waking them.
    fn requeue(&self, from: &Futex, to: &Futex, n: u32);

    /// How long threads have waited for locks of buckets that others held, in waits and in wakes;
    /// `None` where that is not known.
    fn contended_ns(&self) -> Option<[u64; 2]> {
        None
    }
}

pub(crate) const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "futex(2), with the kernel's own number of slots" },
    Impl { name: "unherd", about: "FutexTable" },
    Impl {
        name: "before",
        about: "the kernel's rules of 2013, in user space: 256 buckets, locked by each call",
    },
    Impl { name: "before-larger-table", about: "with 256 buckets a CPU, in lines of their own" },
    Impl { name: "before-empty-check", about: "with a look whether a bucket is empty, unlocked" },
    Impl { name: "before-wake-list", about: "with wakeups that are sent after the unlock" },
    Impl { name: "before-all", about: "with the three patches" },
];

/// What the figures of [`Table::contended_ns`] mean.
pub(crate) const CONTENDED: [(&str, &str); 2] = [
    ("contended_wait_pct", "of the threads' time, that in held locks of buckets, by waits"),
    ("contended_wake_pct", "the same, by wakes (of before… alone)"),
];

/// Has `run` run a round with the job's implementation.
pub(crate) fn with_table<R>(
    job: &Job,
    workload: &impl Workload,
    run: impl FnOnce(&dyn Table) -> Result<R, LoadError>,
) -> Result<R, LoadError> {
    match job.with.as_str() {
        "kernel" => run(&Kernel),
        "unherd" => run(&FutexTable::new()),
        with => match with.strip_prefix("before").and_then(Patches::of_impl) {
            Some(patches) => run(&Before::new(patches)),
            None => Err(job.unknown_impl(&workload.describe())),
        },
    }
}

/// The figures of [`CONTENDED`], for threads that have run for `threads_s` together.
pub(crate) fn contended_pct(table: &dyn Table, threads_s: f64) -> Vec<(&'static str, f64)> {
    let ns = table.contended_ns().into_iter().flatten();
    CONTENDED.iter().zip(ns).map(|((name, _), ns)| (*name, ns as f64 / 1e7 / threads_s)).collect()
}

struct Kernel;

impl Table for Kernel {
    fn wait(&self, word: &Futex, expected: u32, deadline: Deadline) -> FutexWait {
        word.wait_until(expected, deadline)
    }

    fn wake(&self, word: &Futex, n: u32) -> usize {
        word.wake(n)
    }

    fn requeue(&self, from: &Futex, to: &Futex, n: u32) {
        // It fails for no word of this process.
        let _moved = futex::requeue(from.word(), futex::Flags::PRIVATE, 0, n, to.word());
    }
}

impl Table for FutexTable {
    fn wait(&self, word: &Futex, expected: u32, deadline: Deadline) -> FutexWait {
        match self.wait(word.word(), expected, deadline) {
            Ok(()) => FutexWait::Woken,
            Err(Errno::TIMEDOUT) => FutexWait::TimedOut,
            Err(_) => FutexWait::Mismatch,
        }
    }

    fn wake(&self, word: &Futex, n: u32) -> usize {
        self.wake(word.word(), n as usize)
    }

    fn requeue(&self, from: &Futex, to: &Futex, n: u32) {
        self.requeue(from.word(), to.word(), 0, n as usize);
    }
}
