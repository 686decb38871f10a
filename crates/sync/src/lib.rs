//! Waiting without herds: a keyed wait table, locks that stand on it, and an account of every wait.
//!
//! The crate promises:
//!
//! - **Exact wakeups.** [`WaitTable::wake`] wakes waiters of its key alone, whatever else waits in
//!   the same bucket: all shared ones, and exclusive ones up to the number asked for.
//! - **No lost wakeup.** A waiter whose `validate` did not see what a waker stored is found by that
//!   waker. Each protocol is written down as a race in two columns where its code stands, and
//!   checked under loom.
//! - **Nothing to wake takes no lock**, unless a key with a similar hash is waited for just then,
//!   and except in [`WaitTable::wake_one`]: it costs the hash of the key, a fence, a load of the
//!   bucket's word, and a count in the thread's own row of the ledger; no write to shared memory.
//! - **No allocation** on wait and wake. A thread's first use registers it with the ledger, in
//!   memory by mmap(2).
//! - **Every wait has a name.** The [`Ledger`] counts, per [`Reason`], what waited, for how long,
//!   and for nothing; of waits for a bucket lock it counts how many.
//!
//! What it does not promise: fairness among different keys, priorities, use from a signal handler,
//! or sharing between processes. After fork(2) the child has the memory but not the other threads:
//! it may use tables that it makes itself, and those in which no other thread was inside a call
//! (all locks together have one table); it must not register or print reasons if another thread may
//! have been doing so. Its ledger begins with its parent's counts.
//!
//! A thread waits for a page, and another one brings it:
//!
//! ```
//! # use unherd_sync as unherd;
//! use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
//! use unherd::{Reason, WaitKey, WaitTable};
//!
//! let waits = WaitTable::<WaitKey>::builder().build();
//! let reading = Reason::register("block-read");
//! let (page, is_read) = (WaitKey::Page { file: 1, page: 7 }, AtomicBool::new(false));
//! std::thread::scope(|scope| {
//!     let reader = scope.spawn(|| waits.wait_until(&page, || is_read.load(Acquire), reading));
//!     is_read.store(true, Release);
//!     waits.wake_all(&page); // wakes the reader, if it sleeps, and nobody else
//!     assert!(reader.join().is_ok());
//! });
//! ```

#![cfg_attr(
    not(feature = "async"),
    allow(dead_code, reason = "what serves tasks alone stays where it is")
)]

mod futex_table;
mod gate;
mod ledger;
#[cfg_attr(loom, allow(dead_code, reason = "loom drives what is below `Mutex`"))]
mod locks;
mod parker;
mod ready_set;
mod reason;
mod wait_table;

pub use futex_table::{FutexOp, FutexTable, FutexWord};
pub use gate::{
    Congested, Gate, GateBuilder, GateDuty, GateMode, GateStatus, GateWaiter, OwnedCongested,
    SharedCongested, WaitEnd, Waited,
};
pub use ledger::{Counts, GateAccount, Ledger, Snapshot};
#[cfg(all(feature = "async", not(loom)))]
pub use locks::AsyncMutexGuard;
pub use locks::{Barrier, Condvar, Epoch, EventCount, Latch, Once, RawMutex, RawRwLock};
#[cfg(not(loom))]
pub use locks::{
    Mutex, MutexGuard, OnceLock, OwnedPermits, Permits, RwLock, RwLockReadGuard, RwLockWriteGuard,
    Semaphore,
};
#[cfg(not(any(loom, shuttle)))]
pub use ready_set::{FdError, FdSource};
pub use ready_set::{ReadyBatch, ReadySet, ReadySetBuilder, SetFull, Source, SourceToken};
pub use reason::Reason;
pub use unherd_sys::{Deadline, Interest, Timestamp};
#[cfg(feature = "async")]
pub use wait_table::WaitFuture;
pub use wait_table::{
    AnyOutcome, Chosen, Outcome, Requeued, Tag, TimedOut, Token, Verdict, WAIT_ANY_MAX, Wait,
    WaitAnyError, WaitKey, WaitTable, WaitTableBuilder, Woken,
};
