//! Transfers between frames and the device.
//!
//! Stands on the frames. It knows no page and no file: what becomes of frames whose transfer has
//! ended, its caller says.

mod engine;
mod page_copies;
mod run;
mod transfer;
mod worker_queue;

use std::ops::RangeInclusive;

use unherd_sys::Device;
use unherd_sys::primitives::Arc;

use crate::error::BuildError;
pub(crate) use engine::Engine;
#[cfg(test)]
pub(crate) use engine::{OWN_READS_MAX, READS_MAX};
pub(crate) use run::{Moved, Payload, Run, RunBuffer, RunBuffers, RunFrames, TransferError};
use worker_queue::WorkerQueue;

/// Threads that [`Io::Threads`] may start.
const THREADS: RangeInclusive<usize> = 1..=1024;

/// As many as [`Io::Auto`] starts.
const AUTO_THREADS: usize = 4;

/// Who moves pages between the cache and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Io {
    /// [`Io::Ring`] where that can be had, and else [`Io::Threads`] of 4; which of them it is,
    /// [`Cache::io`](crate::Cache::io) tells. `Ring` cannot be had where
    /// io_uring is forbidden (often in containers), or where another cache uses the queue of the
    /// same [`Device`](unherd_sys::Device). Caches with the default device have a queue each.
    #[default]
    Auto,
    /// Write-backs, readahead and the reads of async tasks are queued by the device (io_uring, for
    /// the default device), and one thread of the cache, the I/O thread, takes the completions.
    /// A thread that misses a page reads it by a blocking call of its own, unless some two hundred
    /// do so already: then that read is queued as well.
    Ring,
    /// As [`Io::Ring`], without such a queue: the transfers are made by this many
    /// threads of the cache, 1 to 1024, beside the I/O thread. A thread that misses a page reads it
    /// itself however many do.
    Threads(usize),
    /// Each thread does its own, by blocking calls, and the cache has no thread. A miss reads the
    /// page and, where the file is read in order, those behind it in the same call; nothing is read
    /// in the background. A sync writes one run of neighbouring pages after the other.
    Blocking,
}

/// How one cache reaches its device.
pub(crate) struct Transfers<T> {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) runs: RunBuffers,
    /// Who does the I/O; never [`Io::Auto`].
    pub(crate) kind: Io,
    /// Queued I/O; without it each thread does its own.
    pub(crate) engine: Option<Engine<T>>,
}

/// The engine for queued I/O, if there is to be one, and what was chosen.
pub(crate) fn choose_engine<T: Payload>(
    io: Io,
    device: &Arc<dyn Device>,
) -> Result<(Io, Option<Engine<T>>), BuildError> {
    let is_ring = io == Io::Ring;
    let queue: Arc<dyn Device> = match io {
        Io::Auto => {
            let ring = choose_engine(Io::Ring, device);
            return ring.or_else(|_| choose_engine(Io::Threads(AUTO_THREADS), device));
        }
        Io::Ring => device.clone(),
        Io::Threads(threads) if !THREADS.contains(&threads) => {
            return Err(BuildError::IoThreads { threads });
        }
        Io::Threads(threads) => Arc::new(WorkerQueue::new(device.clone(), threads)?),
        Io::Blocking => return Ok((io, None)),
    };
    Ok((io, Some(Engine::new(queue, is_ring)?)))
}
