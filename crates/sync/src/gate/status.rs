//! A gate, looked at: its waiters, since when and for what they wait, and whether anything moves.

use std::fmt;
use std::time::Duration;

use unherd_sys::Timestamp;
#[cfg(not(any(loom, shuttle)))]
use unherd_sys::primitives::thread_local;

use crate::ledger::gates::stalled_for;
use crate::{Reason, Tag};

/// A waiter in a [`GateStatus`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateWaiter {
    /// The thread's number, as `ps -L` and `perf` have it; `None` for a task, and where /proc does
    /// not say.
    pub thread: Option<u32>,
    /// For what it waits.
    pub reason: Reason,
    /// Since when, up to 1.05 ms early.
    pub since: Timestamp,
}

/// What [`Gate::status`](crate::Gate::status) has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateStatus {
    /// When that was.
    pub now: Timestamp,
    /// How many tokens congest the gate; 0 if it is clear.
    pub congested: u32,
    /// Those that sleep, the longest waiting first, up to some more than there were when the look
    /// began.
    pub waiters: Vec<GateWaiter>,
    /// When the gate was congested or cleared last: the clock's zero if never.
    pub last_change: Timestamp,
    /// When progress was made last.
    pub last_progress: Option<Timestamp>,
    /// The moving average of the time from one unit of progress to the next.
    pub unit: Option<Duration>,
    /// Whether waits sleep: false after repeated timeouts in which nothing happened.
    pub is_trusted: bool,
    /// How often the signal has become untrusted.
    pub untrusted: u64,
    /// How many waits ended as [`WaitEnd::Overdue`](crate::WaitEnd::Overdue).
    pub overdue: u64,
}

impl GateStatus {
    /// For how long somebody has waited and nothing has happened: the time since the last event,
    /// or since the first of the waiters has come, if that was later; zero if nobody waits. While
    /// the signal is not trusted, the time since the last event. Zero if there never was one.
    pub fn stalled_for(&self) -> Duration {
        let last = self.last_change.max(self.last_progress.unwrap_or_default());
        let first = self.waiters.first().map_or(self.now, |waiter| waiter.since);
        stalled_for(self.now, last, self.is_trusted, Some(first))
    }
}

/// One line, and one more for each waiter.
impl fmt::Display for GateStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.congested {
            0 => write!(f, "clear")?,
            tokens => write!(f, "congested by {tokens}")?,
        }
        let progress = ago_or_never(self.now, self.last_progress);
        let trust = if self.is_trusted { "trusted" } else { "untrusted" };
        write!(f, "; progress: {progress}; {trust} (lost {} times)", self.untrusted)?;
        write!(f, "; overdue: {}; waiting: {}", self.overdue, self.waiters.len())?;
        write_waiters(f, self.now, &self.waiters)
    }
}

fn ago(now: Timestamp, at: Timestamp) -> String {
    format!("{:.3} s ago", now.since(at).as_secs_f64())
}

pub(crate) fn ago_or_never(now: Timestamp, at: Option<Timestamp>) -> String {
    at.map_or_else(|| "never".to_owned(), |at| ago(now, at))
}

/// A line for each.
pub(crate) fn write_waiters(
    f: &mut fmt::Formatter<'_>,
    now: Timestamp,
    waiters: &[GateWaiter],
) -> fmt::Result {
    for waiter in waiters {
        let name = waiter.thread.map_or("task".to_owned(), |thread| format!("thread {thread}"));
        write!(f, "\n  {name} since {} for {}", ago(now, waiter.since), waiter.reason)?;
    }
    Ok(())
}

/// Set in the tag of a task.
const TASK: u64 = 1 << 63;
const THREAD_BITS: u32 = 22;
const REASON_BITS: u32 = 6;
const SINCE_SHIFT: u32 = THREAD_BITS + REASON_BITS;
/// What is left of the tag's 63 bits, in units of 2²⁰ ns: more than a year.
const SINCE_MASK: u64 = (1 << (63 - SINCE_SHIFT)) - 1;
const SINCE_UNIT: u32 = 20;

/// Packs what [`GateWaiter`] tells; `thread` is none of a task.
pub(super) fn tag(reason: Reason, since: Timestamp, thread: Option<u32>) -> Tag {
    let task = if thread.is_none() { TASK } else { 0 };
    let thread = u64::from(thread.unwrap_or_default()) & ((1 << THREAD_BITS) - 1);
    let since = (since.as_ns() >> SINCE_UNIT) & SINCE_MASK;
    Tag(task | since << SINCE_SHIFT | (reason.index() as u64) << THREAD_BITS | thread)
}

/// What [`tag`] has packed, seen at `now`.
pub(super) fn waiter(tag: Tag, now: Timestamp) -> GateWaiter {
    let thread = tag.0 as u32 & ((1 << THREAD_BITS) - 1);
    let reason = (tag.0 >> THREAD_BITS) as usize & ((1 << REASON_BITS) - 1);
    let now_units = now.as_ns() >> SINCE_UNIT;
    let ago = now_units.wrapping_sub((tag.0 & !TASK) >> SINCE_SHIFT) & SINCE_MASK;
    // One that came after `now` was taken has waited for no time.
    let ago = if ago > SINCE_MASK / 2 { 0 } else { ago };
    GateWaiter {
        thread: (thread != 0).then_some(thread),
        reason: Reason::from_index(reason),
        since: Timestamp::from_ns(now_units.saturating_sub(ago) << SINCE_UNIT),
    }
}

pub(super) fn is_task(tag: Tag) -> bool {
    tag.0 & TASK != 0
}

#[cfg(not(any(loom, shuttle)))]
thread_local! {
    /// 0 before it was asked for.
    static NUMBER: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// This thread's number; 0 if /proc does not say. The first call of a thread asks.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn thread_number() -> u32 {
    if NUMBER.get() == 0 {
        let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
        let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
        NUMBER.set(number.unwrap_or(0));
    }
    NUMBER.get()
}

#[cfg(any(loom, shuttle))]
pub(super) fn thread_number() -> u32 {
    0
}
