//! The gates of the process: a row for each in the ledger, where tracers find it.
//!
//! A gate keeps in its row what it knows of time and of its waiters; a thread that waits at a gate
//! says so in its own slot. [`unherd_sys::ledger_layout`] has the places of both.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use unherd_sys::Timestamp;
use unherd_sys::primitives::{AtomicU64, Ordering};

use crate::gate::{ago_or_never, write_waiters};
use crate::{GateWaiter, Reason};

/// The words of a [`GateRow`], in the order of [`unherd_sys::ledger_layout::GATE_FIELDS`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum GateField {
    /// 0 if the row is free, else 1 and the number of the gate's reason.
    Owner,
    /// When the gate was congested or cleared last.
    ChangedNs,
    /// 0 before the first progress.
    ProgressedNs,
    /// The moving average of the time from one unit to the next; 0 before it is known.
    UnitNs,
    /// How many wait or are about to.
    Waiting,
    /// How often the signal has become untrusted.
    Untrusted,
    /// When it did so last.
    UntrustedNs,
    /// How many waits ended by the gate's bound.
    Overdue,
}

const WORDS: usize = GateField::Overdue as usize + 1;

/// What is known of a gate. Relaxed, except the owner, and each word by itself: of two changes at a
/// time one may be lost, which makes an estimate worse and a stall look younger, and nothing else.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct GateRow([AtomicU64; WORDS]);

impl GateRow {
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn word(&self, field: GateField) -> &AtomicU64 {
        &self.0[field as usize]
    }

    pub(crate) fn get(&self, field: GateField) -> u64 {
        self.word(field).load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, field: GateField, value: u64) {
        self.word(field).store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, field: GateField, amount: u64) {
        self.word(field).fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, field: GateField, amount: u64) {
        self.word(field).fetch_sub(amount, Ordering::Relaxed);
    }

    /// When anything happened last.
    pub(crate) fn last(&self) -> Timestamp {
        self.changed().max(self.progressed().unwrap_or_default())
    }
}

/// A gate's row, until it is dropped: one that tracers find, or, if there are 64 gates already, one
/// of its own.
#[derive(Debug)]
pub(crate) enum OwnRow {
    #[cfg(not(any(loom, shuttle)))]
    Shown {
        row: &'static GateRow,
        /// Its number, from 1 on.
        number: u32,
    },
    Hidden(Box<GateRow>),
}

impl OwnRow {
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn take(reason: Reason) -> Self {
        let owner = reason.index() as u64 + 1;
        for (row, number) in super::shard::gates().iter().zip(1..) {
            let word = row.word(GateField::Owner);
            // A look first, which leaves another gate's line where it is.
            if word.load(Ordering::Relaxed) != 0 {
                continue;
            }
            // ORDER[ROWOWNER]: Acquire; pairs with the Release in `drop`. The next gate's words are
            // not overwritten by the last one's.
            if word.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                row.0[1..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
                return Self::Shown { row, number };
            }
        }
        super::shard::gates_hidden().fetch_add(1, Ordering::Relaxed);
        Self::Hidden(Box::new(GateRow::new()))
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn take(_reason: Reason) -> Self {
        Self::Hidden(Box::new(GateRow::new()))
    }

    /// 0 if it has none.
    pub(crate) fn number(&self) -> u32 {
        match self {
            #[cfg(not(any(loom, shuttle)))]
            Self::Shown { number, .. } => *number,
            Self::Hidden(_) => 0,
        }
    }
}

impl Deref for OwnRow {
    type Target = GateRow;

    fn deref(&self) -> &GateRow {
        match self {
            #[cfg(not(any(loom, shuttle)))]
            Self::Shown { row, .. } => row,
            Self::Hidden(row) => row,
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Drop for OwnRow {
    fn drop(&mut self) {
        match self {
            // ORDER[ROWOWNER]: Release; pairs with the Acquire in `take`.
            Self::Shown { row, .. } => row.word(GateField::Owner).store(0, Ordering::Release),
            Self::Hidden(_) => _ = super::shard::gates_hidden().fetch_sub(1, Ordering::Relaxed),
        }
    }
}

/// A gate of the process, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateAccount {
    /// When that was.
    pub now: Timestamp,
    /// The gate's own reason: [`GateBuilder::reason`](crate::GateBuilder::reason).
    pub reason: Reason,
    /// The threads that wait or are about to, the longest waiting first. One that goes from one
    /// wait to the next meanwhile may stand here with parts of both.
    pub waiters: Vec<GateWaiter>,
    /// The number of these and of waiting tasks.
    pub waiting: u64,
    /// When the gate was congested or cleared last: the clock's zero if never.
    pub last_change: Timestamp,
    /// When progress was made last.
    pub last_progress: Option<Timestamp>,
    /// Whether waits sleep: false after repeated timeouts in which nothing happened.
    pub is_trusted: bool,
    /// How often the signal has become untrusted.
    pub untrusted: u64,
    /// How many waits ended as [`WaitEnd::Overdue`](crate::WaitEnd::Overdue).
    pub overdue: u64,
}

impl GateAccount {
    /// As [`GateStatus::stalled_for`](crate::GateStatus::stalled_for).
    pub fn stalled_for(&self) -> Duration {
        let last = self.last_change.max(self.last_progress.unwrap_or_default());
        let first = self.waiters.first().map(|waiter| waiter.since);
        let first = if self.waiting == 0 { Some(self.now) } else { first };
        stalled_for(self.now, last, self.is_trusted, first)
    }
}

/// One line, and one more for each thread that waits.
impl fmt::Display for GateAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let progress = ago_or_never(self.now, self.last_progress);
        let trust = if self.is_trusted { "trusted" } else { "untrusted" };
        write!(f, "gate {}: progress: {progress}; {trust}", self.reason)?;
        write!(f, " (lost {} times); overdue: {}", self.untrusted, self.overdue)?;
        write!(f, "; waiting: {}", self.waiting)?;
        let stalled = self.stalled_for();
        if !stalled.is_zero() {
            write!(f, "; stalled for {:.3} s", stalled.as_secs_f64())?;
        }
        write_waiters(f, self.now, &self.waiters)
    }
}

/// The time since the last event, or since the first waiter has come, if that is known and was
/// later: at a gate that was calm for long, somebody may be seen to wait before the event that
/// congests it is. An untrusted signal has been silent for longer than its waits last. Where there
/// was no event, nothing can stall: a fixed sleep, or a wait at a closed gate.
pub(crate) fn stalled_for(
    now: Timestamp,
    last: Timestamp,
    is_trusted: bool,
    first: Option<Timestamp>,
) -> Duration {
    if last == Timestamp::default() {
        return Duration::ZERO;
    }
    now.since(first.filter(|_| is_trusted).map_or(last, |first| first.max(last)))
}

#[cfg(not(any(loom, shuttle)))]
pub(super) fn gates(now: Timestamp) -> Vec<GateAccount> {
    let mut waiters: Vec<(u32, GateWaiter)> =
        Reason::all().flat_map(super::shard::waiters).collect();
    waiters.sort_by_key(|(_, waiter)| waiter.since);
    let account = |(row, number): (&GateRow, u32)| {
        let index = row.get(GateField::Owner).checked_sub(1)?;
        let here = waiters.iter().filter(|(gate, _)| *gate == number);
        Some(GateAccount {
            now,
            reason: Reason::from_index(index as usize),
            waiters: here.map(|(_, waiter)| *waiter).collect(),
            waiting: row.get(GateField::Waiting),
            last_change: row.changed(),
            last_progress: row.progressed(),
            is_trusted: row.get(GateField::UntrustedNs) <= row.last().as_ns(),
            untrusted: row.get(GateField::Untrusted),
            overdue: row.get(GateField::Overdue),
        })
    };
    super::shard::gates().iter().zip(1..).filter_map(account).collect()
}
