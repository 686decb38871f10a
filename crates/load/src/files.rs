//! What workloads on files share: the place, the contents, the memory, and the kernel's own ways.

mod aligned;
mod cache_io;
mod content;
mod kernel;
mod memory;
mod mixed;
mod numbered;
mod queued;
mod queued_writes;
mod scratch;

pub(crate) use aligned::AlignedBytes;
pub(crate) use cache_io::CacheIo;
pub(crate) use content::Content;
pub(crate) use kernel::{KernelFile, Way};
pub(crate) use memory::{PAGE_BYTES, capacity_bytes};
pub(crate) use mixed::MixedFile;
pub(crate) use numbered::{device_read_bytes, write_numbered_pages, write_pages};
pub(crate) use queued::QueuedReads;
pub(crate) use queued_writes::QueuedWrites;
pub(crate) use scratch::{ScratchDir, check_space};
