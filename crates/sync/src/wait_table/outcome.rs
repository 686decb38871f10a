//! What a wait is told, and what comes of it.

use std::error::Error;
use std::fmt;

use unherd_sys::Deadline;

use crate::Reason;

/// A number that a waiter brings along; the filter of
/// [`WaitTable::wake_where`](crate::WaitTable::wake_where) sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag(pub u64);

/// A number that a wake hands to each waiter that it wakes: see [`Outcome::Woken`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Token(pub u64);

/// How to wait: for what reason, with which tag, until when.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    pub(super) reason: Option<Reason>,
    pub(super) tag: Tag,
    pub(super) shared: bool,
    pub(super) deadline: Deadline,
}

impl Wait {
    const PLAIN: Self =
        Self { reason: None, tag: Tag(0), shared: false, deadline: Deadline::NEVER };

    /// Waits for as long as it takes, and accounts it to `reason`.
    pub fn new(reason: Reason) -> Self {
        Self { reason: Some(reason), ..Self::PLAIN }
    }

    /// Waits as one of many: a wake of its key, for however few, and a requeue wake all *shared*
    /// waiters. ([`WaitTable::wake_one`](crate::WaitTable::wake_one) wakes one, and
    /// [`WaitTable::wake_where`](crate::WaitTable::wake_where) those that it chooses.) Without this
    /// a waiter is *exclusive*.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Shows `tag` to the filter of [`WaitTable::wake_where`](crate::WaitTable::wake_where). The
    /// default is `Tag(0)`.
    #[must_use]
    pub fn tag(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    /// Gives up at `deadline`.
    #[must_use]
    pub fn deadline(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
    }
}

impl From<Reason> for Wait {
    fn from(reason: Reason) -> Self {
        Self::new(reason)
    }
}

/// Waits until `deadline`, under the table's own reason.
impl From<Deadline> for Wait {
    fn from(deadline: Deadline) -> Self {
        Self { deadline, ..Self::PLAIN }
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// A wake found it, and has given this token: `Token(0)` if it names none, as `wake` and
    /// `wake_all`. What the thread that woke it wrote before is visible.
    Woken(Token),
    /// The deadline passed, and no wake had found it by then.
    TimedOut,
    /// `validate` said no; there was no sleep.
    Invalid,
}

/// Whom a wake found.
///
/// Compares with a number as [`Woken::total`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Woken {
    /// Those that waited as [`Wait::shared`] says.
    pub shared: usize,
    /// The others.
    pub exclusive: usize,
}

impl Woken {
    pub(super) const NOBODY: Self = Self { shared: 0, exclusive: 0 };

    /// Both kinds together.
    pub fn total(self) -> usize {
        self.shared + self.exclusive
    }

    pub(super) fn add(&mut self, shared: bool) {
        *(if shared { &mut self.shared } else { &mut self.exclusive }) += 1;
    }
}

/// Whom [`WaitTable::wake_one`](crate::WaitTable::wake_one) has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The waiter's tag.
    pub tag: Tag,
    /// Whether others wait for the key as well.
    pub more: bool,
}

/// What became of the waiters of a key: [`WaitTable::requeue`](crate::WaitTable::requeue).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requeued {
    /// Those that were woken.
    pub woken: Woken,
    /// Those that wait for another key now; all are exclusive.
    pub moved: usize,
}

impl PartialEq<usize> for Woken {
    fn eq(&self, total: &usize) -> bool {
        self.total() == *total
    }
}

impl PartialOrd<usize> for Woken {
    fn partial_cmp(&self, total: &usize) -> Option<std::cmp::Ordering> {
        self.total().partial_cmp(total)
    }
}

/// The deadline passed first: before the condition was true
/// ([`WaitTable::wait_until`](crate::WaitTable::wait_until)), or before a notification came
/// ([`Condvar::wait_until`](crate::Condvar::wait_until),
/// [`EventCount::wait_until`](crate::EventCount::wait_until)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl Error for TimedOut {}

/// What [`WaitTable::wake_where`](crate::WaitTable::wake_where) does with a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Wake it and go on.
    Wake,
    /// Leave it and go on.
    Skip,
    /// Wake it and look no further.
    WakeAndStop,
    /// Leave it and look no further.
    Stop,
}
