//! The ledger, read: counts by reason, their difference, and text.

use std::fmt;

use crate::{GateAccount, Reason};

/// What was counted for one reason: numbers of events, except for `asleep_ns`.
///
/// Wakes and bucket locks are counted under the reason of the wait table, all else under the reason
/// of the wait. So the row of a table that serves waits of several reasons has their wakes: `lock`
/// those of all locks of this library, which share a table, and `page-read` those of all pages of
/// the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Waits that were queued, and went to sleep unless a wake was quicker (a wait that `validate`
    /// refused is none).
    pub waits: u64,
    /// Time from going to sleep to returning, in nanoseconds, added up over threads.
    pub asleep_ns: u64,
    /// Waits that a waker ended.
    pub wakeups: u64,
    /// Wakeups after which the condition was still false.
    pub needless_wakeups: u64,
    /// Wake calls that found a waiter. A wake that was cut short by a panic is not
    /// counted; the waiters that it woke are.
    pub wakes: u64,
    /// Wake calls that found none. A call that may wake 0 is not counted.
    pub empty_wakes: u64,
    /// Waits of threads that their deadline ended, and waits of tasks that were dropped before a
    /// wake had found them (tasks have no deadlines).
    pub timeouts: u64,
    /// Bucket locks taken.
    pub locks: u64,
    /// Bucket locks that were held by another thread at the first try. Time asleep for a bucket
    /// lock is not part of `asleep_ns`: critical sections are short, and this counts how often.
    pub locks_contended: u64,
    /// Threads and tasks that waited as the snapshot was taken; of a difference the later one's.
    /// A future that was forgotten ([`std::mem::forget`]) waits for ever; a thread that sleeps in
    /// epoll_wait(2) for a [`ReadySet`](crate::ReadySet) is not counted. While waits begin and end
    /// it is wrong by some: a snapshot is not an instant.
    pub waiting: u64,
}

impl Counts {
    fn each(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            waits: f(self.waits, other.waits),
            asleep_ns: f(self.asleep_ns, other.asleep_ns),
            wakeups: f(self.wakeups, other.wakeups),
            needless_wakeups: f(self.needless_wakeups, other.needless_wakeups),
            wakes: f(self.wakes, other.wakes),
            empty_wakes: f(self.empty_wakes, other.empty_wakes),
            timeouts: f(self.timeouts, other.timeouts),
            locks: f(self.locks, other.locks),
            locks_contended: f(self.locks_contended, other.locks_contended),
            waiting: f(self.waiting, other.waiting),
        }
    }
}

/// The counts of a process at some time, or between two times.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Ledger;
/// let before = Ledger::snapshot();
/// // … work …
/// println!("{}", Ledger::snapshot().since(&before));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// By [`Reason::index`].
    by_reason: Vec<(Reason, Counts)>,
    gates: Vec<GateAccount>,
}

impl Snapshot {
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn now() -> Self {
        use super::Field;
        let counts = |reason: Reason| {
            let sum = |field: Field| {
                let rows = super::shard::all().flat_map(|slab| slab.rows(reason));
                rows.map(|row| row.get(field)).fold(0, u64::wrapping_add)
            };
            // Each wait ends as one of the two. Their ends first: so one that ends meanwhile is
            // counted, and none is less than none.
            let (wakeups, timeouts) = (sum(Field::Wakeups), sum(Field::Timeouts));
            let waits = sum(Field::Waits);
            Counts {
                waits,
                asleep_ns: sum(Field::AsleepNs),
                wakeups,
                needless_wakeups: sum(Field::NeedlessWakeups),
                wakes: sum(Field::Wakes),
                empty_wakes: sum(Field::EmptyWakes),
                timeouts,
                locks: sum(Field::Locks),
                locks_contended: sum(Field::LocksContended),
                waiting: waits.saturating_sub(wakeups.wrapping_add(timeouts)),
            }
        };
        let by_reason = Reason::all().map(|reason| (reason, counts(reason))).collect();
        Self { by_reason, gates: super::Ledger::gates() }
    }

    /// What was counted after `earlier` and up to this snapshot; zeros if that is the later one.
    /// The gates and those that wait are as this snapshot has them.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |&(reason, counts): &(Reason, Counts)| {
            let since = counts.each(earlier.reason(reason), u64::saturating_sub);
            (reason, Counts { waiting: counts.waiting, ..since })
        };
        let by_reason = self.by_reason.iter().map(difference).collect();
        Self { by_reason, gates: self.gates.clone() }
    }

    /// The gates as they were: [`Ledger::gates`](crate::Ledger::gates).
    pub fn gates(&self) -> &[GateAccount] {
        &self.gates
    }

    /// The counts of one reason; zeros if it was not registered yet.
    pub fn reason(&self, reason: Reason) -> Counts {
        self.by_reason.get(reason.index()).map_or(Counts::default(), |(_, counts)| *counts)
    }

    /// The counts of all reasons added up.
    pub fn total(&self) -> Counts {
        let add =
            |sum: Counts, (_, counts): &(Reason, Counts)| sum.each(*counts, u64::wrapping_add);
        self.by_reason.iter().fold(Counts::default(), add)
    }

    /// Reasons with anything counted, in the order in which they were registered.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, Counts)> {
        self.by_reason.iter().copied().filter(|(_, counts)| *counts != Counts::default())
    }
}

/// A table, one line a reason.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = "reason                waits   asleep (s)    wakeups   needless      wakes";
        writeln!(f, "{head} empty wakes  timeouts      locks  contended waiting")?;
        for (reason, c) in self.iter() {
            writeln!(
                f,
                "{:<16} {:>10} {:>12.3} {:>10} {:>10} {:>10} {:>11} {:>9} {:>10} {:>10} {:>7}",
                reason,
                c.waits,
                c.asleep_ns as f64 / 1e9,
                c.wakeups,
                c.needless_wakeups,
                c.wakes,
                c.empty_wakes,
                c.timeouts,
                c.locks,
                c.locks_contended,
                c.waiting
            )?;
        }
        Ok(())
    }
}
