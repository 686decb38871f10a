//! The account of every wait: who waited for what, how long, and whether for nothing.
//!
//! Each thread counts in a slot of its own, and the slots are added up when read. A slot has one
//! writer, its thread, so counting is a load and a store of a line that nobody else writes: no
//! locked instruction, no sharing. When a thread ends, its slot keeps its counts and passes to the
//! next thread that needs one. Slots are never freed: there are as many as there were threads at a
//! time.
//!
//! A [`Snapshot`] is not an instant: counts that are written while it is taken may be in it or not.
//! What happened before (in the sense of the memory model: threads joined, messages received) is.
//!
//! Under the model checkers the ledger is off: it decides nothing that the table does.
#![cfg_attr(
    any(loom, shuttle),
    expect(dead_code, reason = "the ledger is off under the model checkers")
)]

pub(crate) mod gates;
pub(crate) mod shard;
mod snapshot;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use gates::GateAccount;
pub use snapshot::{Counts, Snapshot};

use unherd_sys::Timestamp;
#[cfg(not(any(loom, shuttle)))]
use unherd_sys::primitives::Ordering;

use crate::Reason;

/// What is counted for each reason; the order is that of [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Waits,
    AsleepNs,
    Wakeups,
    NeedlessWakeups,
    Wakes,
    EmptyWakes,
    Timeouts,
    Locks,
    LocksContended,
}

/// How many [`Field`]s there are.
pub(crate) const FIELDS: usize = Field::LocksContended as usize + 1;

/// The process's account of waits: of each [`Reason`], how often and how long threads slept, how
/// many wakes there were, and what was for nothing ([`Counts`] says what each count is). It is
/// always on.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Ledger;
/// let before = Ledger::snapshot();
/// // … work …
/// println!("{}", Ledger::snapshot().since(&before));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Ledger;

impl Ledger {
    /// The counts of all threads, living and ended, by reason. Takes no lock on the counts; its
    /// cost grows with the largest number of threads alive at once (88 bytes read of each for
    /// each reason).
    #[cfg(not(any(loom, shuttle)))]
    pub fn snapshot() -> Snapshot {
        Snapshot::now()
    }

    /// The gates of the process, each with its waiters: what
    /// [`Gate::status`](crate::Gate::status) says of one, without its lock, for who watches all of
    /// them. There is room for 64: a gate that was made while there was none is not among them, now
    /// and later, and [`Ledger::gates_hidden`] counts it. A tracer reads the same from outside.
    /// Costs as a snapshot does.
    ///
    /// A forked child has a copy of its parent's ledger, and not the threads: who waited at a gate
    /// during the fork stands there for ever, and so does the stall.
    #[cfg(not(any(loom, shuttle)))]
    pub fn gates() -> Vec<GateAccount> {
        gates::gates(Timestamp::now())
    }

    /// How many gates there are that [`Ledger::gates`] has no room for.
    #[cfg(not(any(loom, shuttle)))]
    pub fn gates_hidden() -> u64 {
        shard::gates_hidden().load(Ordering::Relaxed)
    }

    /// The calling thread waits at a gate from now until the guard is dropped. Its own stores, and
    /// nobody else's lines.
    pub(crate) fn wait_at_gate(
        reason: Reason,
        since: Timestamp,
        gate: u32,
        thread: u32,
    ) -> WaitingAtGate {
        #[cfg(not(any(loom, shuttle)))]
        return WaitingAtGate(shard::note_waiting(reason, since, gate, thread));
        #[cfg(any(loom, shuttle))]
        {
            let _ = (reason, since, gate, thread);
            WaitingAtGate()
        }
    }

    /// Adds to the calling thread's count. Costs a thread-local load, a load and a store.
    #[inline]
    pub(crate) fn add(reason: Reason, field: Field, amount: u64) {
        #[cfg(not(any(loom, shuttle)))]
        shard::add(reason, field, amount);
        #[cfg(any(loom, shuttle))]
        let _ = (reason, field, amount);
    }

    /// A wait begins: counts it and tells the time.
    #[inline]
    pub(crate) fn asleep(reason: Reason) -> Timestamp {
        Self::add(reason, Field::Waits, 1);
        if cfg!(any(loom, shuttle)) { Timestamp::default() } else { Timestamp::now() }
    }

    /// The wait that began at `since` is over.
    #[inline]
    pub(crate) fn awake(reason: Reason, since: Timestamp) {
        if cfg!(not(any(loom, shuttle))) {
            let asleep_ns = Timestamp::now().as_ns().saturating_sub(since.as_ns());
            Self::add(reason, Field::AsleepNs, asleep_ns);
        }
    }
}

/// See [`Ledger::wait_at_gate`].
pub(crate) struct WaitingAtGate(#[cfg(not(any(loom, shuttle)))] Option<&'static shard::Row>);

impl Drop for WaitingAtGate {
    fn drop(&mut self) {
        #[cfg(not(any(loom, shuttle)))]
        self.0.into_iter().for_each(shard::Row::end_waiting);
    }
}
