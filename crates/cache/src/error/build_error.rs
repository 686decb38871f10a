//! Why a cache could not be built.

use std::fmt;
use std::path::PathBuf;

use unherd_sys::Errno;

use super::Size;

/// Why a cache could not be built.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// Pages must be a power of two from 512 bytes to 2 MiB.
    PageSize {
        /// What was asked for.
        page_bytes: usize,
    },
    /// The capacity must hold at least [`MIN_FRAMES`](crate::MIN_FRAMES) pages.
    TooSmall {
        /// What was asked for.
        capacity_bytes: usize,
        /// Bytes of a page.
        page_bytes: usize,
        /// The pages that it holds.
        frames: usize,
        /// The pages that it must hold.
        least: usize,
    },
    /// The capacity must hold fewer than 2^31 pages.
    TooLarge {
        /// What was asked for.
        capacity_bytes: usize,
    },
    /// The machine, or a memory cgroup of the process, has less memory left than the cache takes.
    /// Nothing was taken.
    InsufficientMemory {
        /// Bytes that the cache takes: its capacity, and what it keeps about frames and pages.
        bytes: usize,
        /// Bytes that are left, page caches that the kernel can reclaim included.
        available_bytes: u64,
        /// The file that says so: `/proc/meminfo`, or a cgroup's limit.
        limit: PathBuf,
    },
    /// The kernel refused memory, by mmap(2) or madvise(2).
    Memory {
        /// What the memory was for, in words.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's number.
        errno: Errno,
    },
    /// `Io::Queued` was asked for, and the device has no queue.
    NoQueue,
    /// `Io::Queued` was asked for, and another cache uses the device's queue.
    QueueTaken,
    /// The I/O thread could not be started.
    Thread(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageSize { page_bytes } => write!(
                f,
                "a page size of {page_bytes} bytes: it must be a power of two from 512 to 2097152"
            ),
            Self::TooSmall { capacity_bytes, page_bytes, frames, least } => write!(
                f,
                "a capacity of {capacity_bytes} bytes holds {frames} pages; at least {least} are \
                 needed, which is {}",
                Size((least * page_bytes) as u64)
            ),
            Self::TooLarge { capacity_bytes } => write!(
                f,
                "a capacity of {} holds too many pages; give less, or use larger pages",
                Size(*capacity_bytes as u64)
            ),
            Self::InsufficientMemory { bytes, available_bytes, limit } => write!(
                f,
                "the cache takes {} of memory when it is built, and {} are available according to \
                 {}; build it with less capacity, or a smaller `max_capacity`",
                Size(*bytes as u64),
                Size(*available_bytes),
                limit.display()
            ),
            Self::Memory { what, bytes, errno } => {
                write!(f, "cannot map {bytes} bytes of memory for {what}: {errno}")
            }
            Self::NoQueue => {
                f.write_str("the device cannot queue transfers; use another, or `Io::Blocking`")
            }
            Self::QueueTaken => f.write_str(
                "another cache queues transfers on this device; give each its own, or use \
                 `Io::Blocking`",
            ),
            Self::Thread(reason) => write!(f, "cannot start the I/O thread: {reason}"),
        }
    }
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for BuildError {}
