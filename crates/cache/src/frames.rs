//! Frames: the memory of the cache, who may use it, and the waits for it.
//!
//! This room knows the names of pages, which a frame bears, but neither where a page is found, nor
//! what a file is.

#[cfg(not(loom))]
pub(crate) mod alarm;
pub(crate) mod frame;
#[cfg(not(loom))]
pub(crate) mod free;
#[cfg(not(loom))]
pub(crate) mod memory;
#[cfg(not(loom))]
pub mod policy;
#[cfg(not(loom))]
pub(crate) mod pools;
pub(crate) mod room;
#[cfg(not(loom))]
pub(crate) mod supply;
#[cfg(not(loom))]
pub(crate) mod usage;
pub(crate) mod waiters;
pub(crate) mod word;
