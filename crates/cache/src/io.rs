//! Transfers between frames and the device.
//!
//! Stands on the frames. It looks up no page and no file: what becomes of frames whose transfer has
//! ended, its caller says.

mod engine;
mod page_copies;
mod run;
mod transfer;

use unherd_sys::primitives::Arc;
use unherd_sys::{Device, Errno};

use crate::foreign_code::run_foreign;
pub(crate) use engine::Engine;
#[cfg(test)]
pub(crate) use engine::{BLOCKING_READS_MAX, READS_MAX};
pub(crate) use run::{
    Moved, Payload, Run, RunBuffer, RunBuffers, RunFrames, TransferError, read_into,
};

/// Who moves pages between the cache and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Io {
    /// [`Io::Queued`] where that can be had, and else [`Io::Blocking`]; which of them it is,
    /// [`Cache::queue`](crate::Cache::queue) tells. `Queued` cannot be had where the
    /// [`Device`](unherd_sys::Device) has no queue, or where another cache uses that. Caches with
    /// the default device have a queue each.
    #[default]
    Auto,
    /// Write-backs, readahead and the reads of async tasks are queued by the device (the default
    /// device does so by io_uring, and by AIO where that is forbidden), and one thread of the
    /// cache, the I/O thread, takes the completions. A thread that misses a page reads it by a
    /// blocking call of its own, unless some two hundred do so already: then that read is queued as
    /// well.
    Queued,
    /// Each thread does its own, by blocking calls, and the cache has no thread. A miss reads the
    /// page and, where the file is read in order, those behind it in the same call; nothing is read
    /// in the background. A sync writes one run of neighbouring pages after the other.
    Blocking,
}

/// What a call of the device gives. One that panics has failed: what others wait for is ended all
/// the same.
pub(crate) fn call_device<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    run_foreign(call).unwrap_or(Err(Errno::IO))
}

/// How one cache reaches its device.
pub(crate) struct Transfers<T> {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) runs: RunBuffers,
    /// Queued I/O; without it each thread does its own.
    pub(crate) engine: Option<Engine<T>>,
}
