//! Locks of a byte or a few, on one wait table for the whole process.
//!
//! A lock is a word, and its queue is found by its address: in a static [`WaitTable`], whose memory
//! is mapped when a thread waits for the first time. So an idle lock costs its word and nothing
//! else, every lock can stand in a `static`, and no path allocates: an allocator can be built on
//! them.
//!
//! | lock | file | bytes |
//! |---|---|---|
//! | [`Mutex`] | `mutex.rs`, its protocol in `word_mutex.rs` | 1 |
//! | [`RwLock`] | `rwlock.rs`, its protocol in `raw_rwlock.rs` | 4 |
//! | [`Condvar`] | `condvar.rs` | 8 |
//! | [`EventCount`] | `event_count.rs` | 4 |
//! | [`Semaphore`] | `semaphore.rs`, its protocol in `raw_semaphore.rs` | 4 |
//! | [`Once`], [`OnceLock`] | `once.rs`, `once_lock.rs` | 1, and the `Option` of the value |
//! | [`Latch`] | `latch.rs` | 4 |
//! | [`Barrier`] | `barrier.rs` | 16 |
//!
//! In debug builds a mutex, a `RwLock` and a `Once` know the thread that has locked, and take more.

mod barging;
mod barrier;
mod condvar;
mod event_count;
mod latch;
mod looks;
#[cfg(not(loom))]
mod mutex;
mod once;
#[cfg(not(loom))]
mod once_lock;
mod owner;
mod raw_mutex;
mod raw_rwlock;
mod raw_semaphore;
#[cfg(not(loom))]
mod rwlock;
#[cfg(not(loom))]
mod semaphore;
#[cfg(feature = "async")]
mod settled_wait;
mod table;
mod word_mutex;

#[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
mod lock_api;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, shuttle))]
mod shuttle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use barrier::Barrier;
pub use condvar::Condvar;
pub use event_count::{Epoch, EventCount};
pub use latch::Latch;
#[cfg(all(feature = "async", not(loom)))]
pub use mutex::AsyncMutexGuard;
#[cfg(not(loom))]
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
#[cfg(not(loom))]
pub use once_lock::OnceLock;
pub use raw_mutex::RawMutex;
pub use raw_rwlock::RawRwLock;
#[cfg(not(loom))]
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(loom))]
pub use semaphore::{OwnedPermits, Permits, Semaphore};
#[cfg(feature = "async")]
pub(crate) use settled_wait::SettledWait;

#[cfg(doc)]
use crate::WaitTable;
