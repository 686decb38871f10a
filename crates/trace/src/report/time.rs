//! What threads did with their time: running, waiting for a processor, or asleep and for what.

use serde::Serialize;

use super::share::percent;
use super::summary::sum;
use super::waits::WaitLine;
use crate::observation::{Observation, TimeClass, TimeSpent};

/// The time in one class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClassTime {
    /// What was done.
    pub class: TimeClass,
    /// For how long.
    pub ns: u64,
    /// Of all the time, in percent.
    pub percent: f64,
}

/// One thread's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadTime {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// The kernel's name for it.
    pub comm: String,
    /// From when it was first followed until it began to exit, or tracing ended.
    pub wall_ns: u64,
    /// What it did meanwhile.
    pub classes: Vec<ClassTime>,
}

/// The account of all threads' time, by the clock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Time {
    /// The sum over all threads of the time that each was followed.
    pub wall_ns: u64,
    /// What was done in it. Each moment of a thread is in one class.
    pub classes: Vec<ClassTime>,
    /// Of the sleeps at futexes, those for locks. Unknown where nothing was judged.
    pub lock_waits_ns: Option<u64>,
    /// Of the sleeps that a timer ended, the time after a file lock was free that was then had.
    pub over_sleep_ns: Option<u64>,
    /// Each thread, those that were followed longest first.
    pub threads: Vec<ThreadTime>,
    /// Threads that are in the sums alone, for want of room.
    pub threads_lost: u64,
}

impl ClassTime {
    fn all(time: &TimeSpent) -> Vec<Self> {
        let of = |class| {
            let ns = time.of(class);
            Self { class, ns, percent: percent(ns, time.wall_ns).unwrap_or_default() }
        };
        TimeClass::ALL.map(of).to_vec()
    }
}

impl Time {
    /// `None` where nobody saw it.
    pub(crate) fn new(seen: &Observation, waits: &[WaitLine], judged: bool) -> Option<Self> {
        let thread = |row: &crate::observation::ThreadRow| ThreadTime {
            pid: row.pid,
            tid: row.tid,
            comm: crate::symbols::printable(&row.comm),
            wall_ns: row.time.wall_ns,
            classes: ClassTime::all(&row.time),
        };
        let mut threads: Vec<_> = seen.threads.iter().map(thread).collect();
        threads.sort_by_key(|of| (std::cmp::Reverse(of.wall_ns), of.pid, of.tid));
        let locks = || waits.iter().filter(|line| line.is_lock_wait());
        (seen.time.wall_ns > 0).then(|| Self {
            wall_ns: seen.time.wall_ns,
            classes: ClassTime::all(&seen.time),
            lock_waits_ns: judged
                .then(|| locks().fold(0, |sum: u64, line| sum.saturating_add(line.asleep_ns))),
            over_sleep_ns: judged.then(|| sum(waits, |line| line.overslept_ns)),
            threads,
            threads_lost: seen.losses.lives,
        })
    }

    /// The time in one class.
    #[must_use]
    pub fn of(&self, class: TimeClass) -> u64 {
        self.classes.iter().find(|of| of.class == class).map_or(0, |of| of.ns)
    }

    /// The time in which threads could have run, and had no processor.
    #[must_use]
    pub fn runnable_ns(&self) -> u64 {
        self.of(TimeClass::Woken).saturating_add(self.of(TimeClass::Preempted))
    }
}
