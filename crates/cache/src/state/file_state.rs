//! What all handles of one open file share.

use std::path::Path;

use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering};
use unherd_sys::{DeviceFile, Errno, Identity};

use crate::error::{Error, Operation};
use crate::foreign_code::run_foreign;
use crate::group_commit::GroupCommit;
use crate::latch::{RwLatch, StripedRwLatch};
use crate::page::{ALL_PAGES, FileId, PageKey, PageNo, PageRange};
use crate::ranked::{Ranked, rank};
use crate::state::holds::Holds;
use crate::state::write_behind::WriteStreams;
use crate::state::{Durability, Failure, Hook, PageSet, ReadStreams, Unflushed, Unwritten};

/// What the handles of one file share.
#[derive(Debug)]
pub(crate) struct FileState {
    /// The number of its cache.
    pub(crate) cache: u64,
    pub(crate) id: FileId,
    pub(crate) device_file: DeviceFile,
    pub(crate) identity: Identity,
    pub(crate) path: Arc<Path>,
    /// Of offsets and of memory, in bytes: a transfer that goes on in the middle moves both.
    pub(crate) alignment: u32,
    /// Of memory alone.
    pub(crate) memory_alignment: u32,
    pub(crate) writable: bool,
    /// Whether the kernel's page cache is bypassed.
    pub(crate) direct: bool,
    /// The largest length that its file system lets it have.
    pub(crate) len_max: u64,
    /// A block of its file system.
    pub(crate) block_bytes: u64,
    /// All pages pass it on their way to the device and back.
    pub(crate) hook: Option<Hook>,
    /// The length is a multiple of this, which is a power of two: of a file with a hook, a page.
    pub(crate) len_unit: u64,
    /// The length in bytes, as the handles see it. Bytes of cached pages beyond it are zero.
    pub(crate) len: AtomicU64,
    /// To what it is being cut, while the device may be shorter than `len`; else `u64::MAX`.
    pub(crate) cutting_to: AtomicU64,
    /// Shared by writers, except those of `overwrite.rs`; exclusive to who changes the length.
    pub(crate) writers: StripedRwLatch,
    /// Shared by write-backs; exclusive to who changes the length on the device.
    pub(crate) write_backs: RwLatch,
    /// Group commit. A round writes the pages back that its callers want durable, and flushes.
    /// Gives the held pages, which it has left out.
    pub(crate) syncs: GroupCommit<PageRange, Result<Vec<PageNo>, Failure>>,
    /// Shared with the other files of the device.
    pub(crate) unflushed: Arc<Unflushed>,
    /// Every page that may be other than clean; the set may name pages that are clean or gone. A
    /// page enters it while it is changing, and leaves it under this lock if it is clean or gone.
    pub(crate) unclean: Ranked<PageSet, { rank::UNCLEAN }>,
    pub(crate) durability: Ranked<Durability, { rank::DURABILITY }>,
    pub(crate) unwritten: Unwritten,
    pub(crate) holds: Ranked<Holds, { rank::HOLDS }>,
    /// Whether each page is read once: `Advice::NoReuse`. Relaxed: advice.
    pub(crate) no_reuse: AtomicBool,
    /// Locked by misses, and by first uses of pages that were read ahead.
    pub(crate) read_streams: Ranked<ReadStreams, { rank::STREAMS }>,
    /// Locked by those who write a page to its end, and by those who take frames back from streams.
    pub(crate) write_streams: Ranked<WriteStreams, { rank::STREAMS }>,
}

impl Drop for FileState {
    fn drop(&mut self) {
        // The hook's own drop is foreign code, and this may be the I/O thread.
        let hook = self.hook.take();
        let _ = run_foreign(|| drop(hook));
    }
}

impl FileState {
    pub(crate) fn is_block_device(&self) -> bool {
        self.identity.inode == 0
    }

    #[inline]
    pub(crate) fn key(&self, page: PageNo) -> PageKey {
        PageKey { file: self.id, page }
    }

    /// Whether the device can move its pages to these bytes, and nothing else is done to them.
    pub(crate) fn can_read_into(&self, to: &[u8]) -> bool {
        let is_aligned = to.as_ptr().addr().is_multiple_of(self.memory_alignment as usize);
        is_aligned && self.direct && self.hook.is_none()
    }

    /// Whether writes of the file fail, and it is too early to try again.
    pub(crate) fn is_refused(&self) -> bool {
        self.unwritten.is_failing() && self.durability.lock().refusal().is_some()
    }

    pub(crate) fn len(&self) -> u64 {
        // ORDER[FILE-LEN]: Acquire; pairs with the Release in `grow` and `set_len`: one who sees a
        // length finds the pages that it covers in the index, or on the device.
        self.len.load(Ordering::Acquire)
    }

    /// Up to where a page that has been read has bytes of the file, and not zeros for want of any.
    #[inline]
    pub(crate) fn readable_len(&self) -> u64 {
        // ORDER[FILE-LEN]: Acquire; pairs with the Release in `end_cut`: one who sees no cut any
        // more sees the length that it has left.
        let cutting_to = self.cutting_to.load(Ordering::Acquire);
        self.len().min(cutting_to)
    }

    /// The device is about to be cut. The caller then locks `durability`, as do those who find the
    /// device cut: so they see this, and so do those whom they give the page.
    pub(crate) fn begin_cut(&self, len: u64) {
        self.cutting_to.store(len, Ordering::Relaxed);
    }

    /// The handles see the length that the cut has left.
    pub(crate) fn end_cut(&self) {
        // ORDER[FILE-LEN]: Release; pairs with the Acquire in `readable_len`.
        self.cutting_to.store(u64::MAX, Ordering::Release);
    }

    /// `len`, as the file can have it.
    pub(crate) fn rounded_len(&self, len: u64) -> u64 {
        (len + (self.len_unit - 1)) & !(self.len_unit - 1)
    }

    /// At least `len` bytes, from now on. The page that ends there is being changed by the caller.
    pub(crate) fn grow(&self, len: u64) {
        // Mostly it is longer already, and a store would take the line from those who read it. It
        // gets no shorter meanwhile: the caller holds `writers` shared.
        if self.len.load(Ordering::Relaxed) < len {
            // ORDER[FILE-LEN]: Release; pairs with the Acquire in `len`.
            self.len.fetch_max(self.rounded_len(len), Ordering::Release);
        }
    }

    pub(crate) fn set_len(&self, len: u64) {
        // ORDER[FILE-LEN]: Release; pairs with the Acquire in `len`.
        self.len.store(self.rounded_len(len), Ordering::Release);
    }

    /// Whether a sync that has left out the `held` pages has done all for one who wants those
    /// pages: one that was released meanwhile is to be synced.
    pub(crate) fn is_done(&self, pages: &PageRange, held: &[PageNo]) -> Result<bool, Failure> {
        let mut left_out = held.iter().filter(|page| pages.contains(&page.0)).peekable();
        let is_done = left_out.peek().is_none();
        let holds = self.holds.lock();
        match left_out.find(|page| holds.has(**page)) {
            // No error of the file: nobody else is to be told.
            Some(&page) => Err((holds.error(&self.path, page), 0)),
            None => Ok(is_done),
        }
    }

    /// Refuses a file that has held pages.
    pub(crate) fn check_released(&self) -> Result<(), Error> {
        let holds = self.holds.lock();
        holds.first().map_or(Ok(()), |page| Err(holds.error(&self.path, page)))
    }

    /// Whether none of the pages is other than clean, and a flush has covered all that was changed
    /// on the device; of all pages, that has no padding of ours either.
    pub(crate) fn is_synced(&self, pages: &PageRange) -> bool {
        // A page leaves the set after the flush period of its write was noted.
        let is_clean = self.unclean.lock().iter_in(pages).next().is_none();
        let durability = self.durability.lock();
        is_clean
            && if *pages == ALL_PAGES {
                !durability.needs_flush() && !durability.device_len.is_padded()
            } else {
                durability.covers_absent_pages()
            }
    }

    /// What a handle that has seen `seen` errors reports, and how many it has seen then.
    pub(crate) fn report(&self, seen: u64) -> (Result<(), Error>, u64) {
        let mut durability = self.durability.lock();
        match durability.unseen(seen) {
            Some((error, errors)) => {
                durability.note_reported(errors);
                (Err(error), errors)
            }
            None if durability.report_lost() => {
                (Err(Error::LostDurability { file: self.path.clone() }), seen)
            }
            None => (Ok(()), seen),
        }
    }

    #[cold]
    pub(crate) fn out_of_range(&self, offset: u64, len: u64) -> Error {
        Error::OutOfRange { file: self.path.clone(), offset, len, page: None }
    }

    pub(crate) fn too_large(&self, offset: u64, len: u64) -> Error {
        Error::FileTooLarge { file: self.path.clone(), offset, len, len_max: self.len_max }
    }

    pub(crate) fn io_error(&self, operation: Operation, offset: u64, errno: Errno) -> Error {
        Error::Io { operation, file: self.path.clone(), offset, errno }
    }
}
