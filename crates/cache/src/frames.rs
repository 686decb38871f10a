//! Frames: the memory of the cache, who may use it, and the waits for it.
//!
//! This layer knows the names of pages, which a frame bears, but neither where a page is found, nor
//! what a file is.

#[cfg(not(loom))]
mod alarm;
pub(crate) mod dirty_waiters;
mod event_count;
mod frame;
#[cfg(not(loom))]
mod free;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub(crate) mod policy;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod supply;
pub(crate) mod turns;
pub(crate) mod waiters;
mod word;

pub(crate) use frame::{
    Claim, Frames, Hit, Lent, OptimisticRead, Pin, UnavailableFrames, spin_retry,
};
#[cfg(not(loom))]
pub use pool::MIN_FRAMES;
pub(crate) use waiters::Notified;
pub(crate) use word::{State, Word};
#[cfg(not(loom))]
pub(crate) use {
    alarm::Alarm,
    free::EXTENT,
    memory::{FrameMemory, RacyPage},
    pool::{LockedPool, Pool, PoolGuard},
    supply::Supply,
};
