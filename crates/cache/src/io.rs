//! Transfers between frames and the device.
//!
//! Stands on the frames. It knows no page: what becomes of frames whose transfer has ended, its
//! caller says.

pub(crate) mod engine;
pub(crate) mod run;
pub(crate) mod transfer;
pub(crate) mod worker_queue;
