//! Transfers between frames and the device.
//!
//! Stands on the frames. It knows no page: what becomes of frames whose transfer has ended, its
//! caller says.

pub(crate) mod engine;
pub(crate) mod run;
pub(crate) mod transfer;
pub(crate) mod worker_queue;

use unherd_sys::Device;
use unherd_sys::primitives::Arc;

use engine::Engine;
use run::RunBuffers;

/// How one cache reaches its device.
pub(crate) struct Transfers {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) runs: RunBuffers,
    /// Queued I/O; without it each thread does its own.
    pub(crate) engine: Option<Engine>,
}
