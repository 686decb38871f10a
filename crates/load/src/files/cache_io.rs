//! A cache of unherd, by each way to its files.

use std::sync::Arc;

use unherd::device::QueueKind;
use unherd::{Cache, CacheBuilder, Device, DirectDevice, Io};

use crate::{Job, LoadError};

/// How a cache reaches its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheIo {
    IoUring,
    Aio,
    Blocking,
}

impl CacheIo {
    /// The builder of a cache that does so, and in no other way.
    pub(crate) fn builder(self, job: &Job) -> Result<CacheBuilder, LoadError> {
        let (device, queue) = match self {
            Self::IoUring => (DirectDevice::new(), Some(QueueKind::IoUring)),
            Self::Aio => (DirectDevice::without_io_uring(), Some(QueueKind::Aio)),
            Self::Blocking => (DirectDevice::new(), None),
        };
        if queue.is_some() && device.queue() != queue {
            let name = job.with.clone();
            let message = format!("this process may not use {self:?}, which it is to measure");
            return Err(LoadError::Setup { name, message });
        }
        let io = if queue.is_some() { Io::Queued } else { Io::Blocking };
        Ok(Cache::builder().device(Arc::new(device)).io(io))
    }
}
