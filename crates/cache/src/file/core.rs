//! What the parts of this layer share: the layers below, and the files.

use std::fmt;
use std::time::Duration;

use unherd_sync::{WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, Mutex};
use unherd_sys::{Errno, ForkMark};

use crate::Error;
use crate::error::Operation;
use crate::frames::turns::Turns;
use crate::frames::{FrameMemory, Frames, Supply, UnavailableFrames};
use crate::io::Transfers;
use crate::latch::RwLatch;
use crate::page::{PageKey, PageNo};
use crate::pages::Pages;
use crate::reasons::Reasons;
use crate::state::runs::RunPages;
use crate::state::{FileState, Files, TRUNCATED};
use crate::stats::Counters;

/// One cache, without its handles.
///
/// The order of its locks stands in `ranked.rs`. Latches are waited for with none of them held.
pub(crate) struct Core {
    pub(crate) pages: Pages,
    pub(crate) io: Transfers<RunPages>,
    pub(crate) files: Arc<Files>,
    pub(crate) turns: Turns,
    /// The latest write-back that failed, to be named where frames are missing.
    pub(crate) write_error: Mutex<Option<Arc<Error>>>,
    pub(crate) frame_wait: Duration,
    /// The bytes of write-backs that make a flush due; `u64::MAX`: never.
    pub(crate) flush_behind_bytes: u64,
    /// Exclusive to who changes the number of frames.
    pub(crate) resizing: RwLatch,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("frames", &self.supply().len())
            .field("page_bytes", &self.memory().page_bytes())
            .field("queued", &self.io.engine.is_some())
            .field("stats", &self.pages.stats())
            .finish_non_exhaustive()
    }
}

impl Core {
    #[inline]
    pub(crate) fn supply(&self) -> &Supply {
        &self.pages.supply
    }

    #[inline]
    pub(crate) fn frames(&self) -> &Frames {
        &self.pages.supply.frames
    }

    #[inline]
    pub(crate) fn memory(&self) -> &FrameMemory {
        &self.pages.supply.memory
    }

    #[inline]
    pub(crate) fn waits(&self) -> &WaitTable<WaitKey> {
        &self.pages.supply.waits
    }

    #[inline]
    pub(crate) fn reasons(&self) -> &Reasons {
        &self.pages.reasons
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.pages.counters
    }

    #[inline]
    pub(crate) fn fork(&self) -> &ForkMark {
        &self.pages.fork
    }

    /// Refuses what a child of fork(2) may not do with its parent's cache: all that takes a lock,
    /// waits, or reaches the device. Comes before the first lock of every call; hits take none, but
    /// see [`Core::continue_readahead`].
    pub(crate) fn check_not_forked(&self) -> Result<(), Error> {
        if self.fork().is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Refuses what lies beyond the largest offset that a file of any kind has.
    #[inline]
    pub(crate) fn check_range(
        &self,
        file: &FileState,
        offset: u64,
        len: usize,
    ) -> Result<(), Error> {
        let len = len as u64;
        // The last page must end at a legal offset too, because pages are written whole.
        let last = (i64::MAX as u64) & !(self.memory().page_bytes() as u64 - 1);
        match offset.checked_add(len) {
            Some(end) if end <= last => Ok(()),
            _ => Err(file.out_of_range(offset, len)),
        }
    }

    /// As [`Core::check_range`], of bytes that are to be written; and refuses what would make the
    /// file larger than its file system allows, as pages are written whole.
    #[inline]
    pub(crate) fn check_write(
        &self,
        file: &FileState,
        offset: u64,
        len: usize,
    ) -> Result<(), Error> {
        self.check_range(file, offset, len)?;
        let last = file.len_max & !(self.memory().page_bytes() as u64 - 1);
        if len > 0 && offset + len as u64 > last {
            return Err(file.too_large(offset, len as u64));
        }
        Ok(())
    }

    /// As [`Core::check_range`] of a page.
    pub(crate) fn check_page(&self, file: &FileState, page: PageNo) -> Result<(), Error> {
        let page_bytes = self.memory().page_bytes();
        let offset = page.0.saturating_mul(page_bytes as u64);
        self.check_range(file, offset, page_bytes).map_err(|_| Error::OutOfRange {
            file: file.path.clone(),
            offset,
            len: page_bytes as u64,
            page: Some(page.0),
        })
    }

    /// There is no frame. Looks at all of them, to say why.
    pub(crate) fn no_frames(&self, waited: Duration) -> Error {
        self.no_frames_as(self.supply().held(), waited)
    }

    pub(crate) fn no_frames_as(&self, held: UnavailableFrames, waited: Duration) -> Error {
        let UnavailableFrames { pinned, threads, unwritten } = held;
        let write_error = if unwritten > 0 { self.write_error.lock().clone() } else { None };
        let (capacity, given_out) = (self.supply().capacity(), self.supply().given_out());
        Error::NoFrames { pinned, threads, unwritten, given_out, capacity, waited, write_error }
    }

    pub(crate) fn read_error(&self, file: &FileState, key: PageKey, errno: Errno) -> Error {
        let offset = self.memory().offset(key.page);
        if errno == TRUNCATED {
            let len = file.durability.lock().device_len.data();
            return Error::Truncated { file: file.path.clone(), offset, len };
        }
        file.io_error(Operation::Read, offset, errno)
    }
}
