//! The interface of `parking_lot_core` 0.10 on unherd's wait table.
//!
//! With `[patch.crates-io]` a program that uses `parking_lot` waits in unherd's table, with its
//! locks unchanged: a test of the table by other people's tests, and a comparison in which the
//! parking alone differs. Names and signatures are those of that crate; its documentation says what
//! they promise. `0.9` is beside it, in `parking_lot_core_09`.
//!
//! # What the table lacks, and what stands in for it
//!
//! `park`, `unpark_one` and `unpark_all` are the table's `wait_with`, `wake_one` and `wake_with`.
//! The other two cannot be done in one hold of a bucket lock:
//!
//! | asked for | the table's nearest | what is missing |
//! |---|---|---|
//! | `unpark_filter` | `wake_where` | a callback under the lock when all were shown, which learns whether some stay and gives the token |
//! | `unpark_requeue` | `requeue_if` | the same callback; a `validate` that chooses the operation, and is asked even if nobody waits |
//!
//! So each address has a lock here, above the bucket's: its *queue lock*. All that joins, wakes or
//! moves takes it, and an operation of several steps holds it throughout.
//!
//! ```text
//!  park                     unpark_filter                    unpark_one
//!  ----                     -------------                    ----------
//!  lock the queue           lock the queue                   lock the queue
//!    lock the bucket          choose: states CHOSEN            lock the bucket
//!    validate; push           callback: the token                callback
//!    unlock the bucket        tokens; states READY               unlock the queue
//!  unlock the queue           wake the chosen                    take the node out
//!  before_sleep; sleep      unlock the queue, at the last      unlock the bucket; wake
//! ```
//!
//! `unpark_one` may unlock the queue before the node is out, as nobody sees the nodes without the
//! bucket lock, which it still holds.
//!
//! A waiter whose deadline passes takes its node out with the bucket lock alone. So it may leave
//! between two steps:
//!
//! | state | set by | what its owner does, in whichever way its wait ended |
//! |---|---|---|
//! | WAITING | its owner, before it parks | woken: takes the table's token; timed out: calls `timed_out` under the queue lock |
//! | CHOSEN | a filter, or a requeue that wakes it, under the bucket lock | takes the queue lock once, so that the token is there, and is unparked |
//! | READY | the filter, before it wakes it | woken: takes the token; timed out: as in CHOSEN |
//!
//! - **F1** The owner of a CHOSEN node does not free it before it has had the queue lock: the
//!   operation that chose it uses it until then.
//! - **F2** A node that the table shows to a filter is queued, so it is alive: its owner takes the
//!   bucket lock before it leaves.
//!
//! # What differs
//!
//! - `timed_out` runs under the queue lock, when the waiter has left the bucket, not as it leaves.
//! - `unpark_all` wakes 32 at a time, and holds the queue lock until the last is woken.
//! - A requeue from an address to itself moves nobody.
//! - Each operation takes one lock more than the original's.
//! - `deadlock` records nothing. With the feature `deadlock_detection` this crate does not build:
//!   the table does not list its waiters.
//! - `SpinWait` yields the processor as often as the original's.
#![expect(unsafe_code, reason = "parking by address is unsafe, and nodes are raw pointers")]

#[cfg(feature = "deadlock_detection")]
compile_error!("unherd's wait table has no detector of deadlocks");

pub mod deadlock;
mod filter;
mod operations;
mod park;
mod parked;
mod queue_lock;
mod requeue;
mod spin_wait;
mod unpark;

pub use filter::unpark_filter;
pub use operations::{
    DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, FilterOp, ParkResult, ParkToken, RequeueOp,
    UnparkResult, UnparkToken,
};
pub use park::park;
pub use requeue::unpark_requeue;
pub use spin_wait::SpinWait;
pub use unpark::{unpark_all, unpark_one};

use std::sync::LazyLock;

use unherd_sync::{Reason, WaitTable};

/// As many as the table of unherd's own locks has.
const BUCKETS: usize = 1 << 14;

/// Where all threads park, by address.
fn table() -> &'static WaitTable<usize> {
    static TABLE: LazyLock<WaitTable<usize>> = LazyLock::new(|| {
        WaitTable::builder().buckets(BUCKETS).reason(Reason::register("parking_lot")).build()
    });
    &TABLE
}

/// Ends the process if a callback panics, as the original does: callbacks may not.
struct AbortOnPanic;

impl AbortOnPanic {
    fn guard<T>(operation: impl FnOnce() -> T) -> T {
        let guard = Self;
        let result = operation();
        std::mem::forget(guard);
        result
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}
