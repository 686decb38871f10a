//! The space of a file on the device: given back, and reserved.
//!
//! A hole is punched with writers (except those of `overwrite.rs`) and write-backs kept out, as a
//! file is cut (`set_len.rs`): first on the device, so that nothing has changed if that refuses.
//! Then, before any write-back may touch the file again, its dirty pages there are dropped, so none
//! of them fills the hole up. After that the others are dropped; one whose read began before the
//! hole is in the index by then.

use std::ops::Range;

use crate::error::{Error, Operation};
use crate::file::{ChangingPages, File};
use crate::page::{ALL_PAGES, PageNo, PageRange};
use crate::pages::{Want, Work};

impl File {
    /// Makes the bytes in `range` zeros, as far as the file reaches, and gives their blocks back to
    /// the file system (fallocate(2), `PUNCH_HOLE`); the length stays. What was written there and
    /// is still dirty is never written: use it for what is not needed any more, such as the old
    /// part of a log, or freed pages.
    ///
    /// Of pages that lie in `range` as a whole (or up to the end of the file) the blocks go, at
    /// once on the device. The parts of other pages at both ends are filled with zeros as by
    /// [`File::write_at`], and keep their blocks. The next sync makes both durable; a crash before
    /// it may leave old bytes, what was written since, or zeros, in each sector. Held pages
    /// ([`PageMut::hold_until`](crate::PageMut::hold_until)) are discarded like others, and their
    /// holds end: sync the log that describes the hole before.
    ///
    /// Reads meanwhile see each page as it was or as zeros, and guards keep what they had. Writes
    /// meanwhile come before the hole or after it, each page by itself. Waits
    /// for writers, [`PageMut`](crate::PageMut)s and write-backs under `file`, for pages that are
    /// being read under `page-read`, and for the parts at the ends as [`File::write_at`]. Takes
    /// time for each page in the cache, or in the range if these are fewer.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # let cache = unherd::Cache::builder().build()?;
    /// let log = cache.open("log", unherd::OpenOptions::new().write(true))?;
    /// let checkpoint = 1 << 20;
    /// log.punch_hole(0..checkpoint)?; // reads give zeros, and the disk has the space again
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::BackwardRange`], [`Error::WouldDeadlock`]: nothing was done.
    /// [`Error::Io`] of [`Operation::PunchHole`] (or of its length): with `EOPNOTSUPP` the file
    /// system has no holes, and nothing has changed; with another number the bytes are old or
    /// zeros, and the call may be repeated. The [errors](File#errors) of all writes, for the parts
    /// at the ends: the rest is done.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_write()?;
        self.check_forward(&range)?;
        self.file.check_has_none_of(&ALL_PAGES)?;
        self.punch(range.clone())?;
        self.write_through_if_asked(range)
    }

    /// Has the file system reserve blocks for the bytes in `range` (fallocate(2)), so that writes
    /// there find space: a full disk is an error here, and not when pages are written back. If the
    /// range reaches beyond the end, the file gets longer, by zeros; other bytes stay as they are.
    ///
    /// At once on the device; the next sync makes it durable. Pages are written whole, so the last
    /// one is safe only if the range covers it. The reservation ends where the file is cut or a
    /// hole is punched. File systems that write to another place each time (btrfs, ZFS, files that
    /// share blocks) cannot promise as much. Waits for writers and write-backs under `file`, and on
    /// the device.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # let cache = unherd::Cache::builder().build()?;
    /// let options = unherd::OpenOptions::new().write(true).create(true);
    /// let log = cache.open("log", options)?;
    /// log.allocate(0..64 << 20)?; // 64 MiB, or an error now
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::BackwardRange`], [`Error::OutOfRange`],
    /// [`Error::FileTooLarge`], [`Error::WouldDeadlock`]: nothing was done. [`Error::Io`] of
    /// [`Operation::Allocate`] with `ENOSPC`, `EDQUOT`, `EIO`; with `EOPNOTSUPP` the file system
    /// reserves nothing. The length is as it was then; some blocks may be reserved.
    pub fn allocate(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_write()?;
        let (core, file) = (self.core(), &self.file);
        self.check_forward(&range)?;
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        core.check_write(file, range.start, len)?;
        file.check_has_none_of(&ALL_PAGES)?;
        if range.is_empty() {
            return Ok(());
        }
        let writers = file.writers.lock_exclusive(core.waits(), core.reasons().file);
        core.without_write_backs(file, || {
            let allocated = self.allocate_alone(range.start..file.rounded_len(range.end));
            // Wakers that are told next may wait for a writer.
            drop(writers);
            allocated
        })
    }

    fn punch(&self, range: Range<u64>) -> Result<(), Error> {
        let (core, file) = (self.core(), &self.file);
        let _writers = file.writers.lock_exclusive(core.waits(), core.reasons().file);
        let page_bytes = core.memory().page_bytes() as u64;
        let len = file.len();
        let range = range.start..range.end.min(len);
        if range.is_empty() {
            return Ok(());
        }
        let first = range.start.div_ceil(page_bytes);
        // Beyond the end of the file there are zeros anyway.
        let end = if range.end == len { len.div_ceil(page_bytes) } else { range.end / page_bytes };
        if first < end {
            self.punch_pages(first..end, len)?;
        }
        let head = range.start..range.end.min(first * page_bytes);
        let tail = (end * page_bytes).max(head.end)..range.end;
        let head_cleared = core.write_zeros(file, head);
        head_cleared.and(core.write_zeros(file, tail))
    }

    /// The caller keeps writers out.
    fn punch_pages(&self, pages: PageRange, len: u64) -> Result<(), Error> {
        let (core, file) = (self.core(), &self.file);
        core.without_write_backs(file, || {
            let punched = self.punch_on_device(&pages, len);
            if punched.is_ok() {
                let unclean: Vec<PageNo> = file.unclean.lock().iter_in(&pages).collect();
                for key in unclean.into_iter().map(|page| file.key(page)) {
                    // One that is being read is clean. Writers are kept out, so who changes one
                    // found it dirty (`overwrite.rs`), and waits for nothing.
                    while let Err(busy) = core.try_drop_page(file, key)
                        && busy.work == Work::Changing
                    {
                        let _ = core.pages.wait(key, busy, Want::Read);
                    }
                }
            }
            punched
        })?;
        core.drop_pages(file, pages, ChangingPages::Awaited);
        Ok(())
    }

    /// The caller keeps writers and write-backs out.
    fn punch_on_device(&self, pages: &PageRange, len: u64) -> Result<(), Error> {
        let (core, file) = (self.core(), &self.file);
        let (device, device_file) = (&core.io.device, file.device_file);
        let bytes =
            core.memory().offset(PageNo(pages.start))..core.memory().offset(PageNo(pages.end));
        // Nobody else makes the file as long there as it is here, when the last page is dropped.
        if bytes.end >= len {
            let failed = |operation| move |errno| file.io_error(operation, len, errno);
            if device.len(device_file).map_err(failed(Operation::Len))? < len {
                device.set_len(device_file, len).map_err(failed(Operation::SetLen))?;
            }
            file.durability.lock().device_len.written(len, len);
        }
        let (start, began) = (bytes.start, file.durability.lock().period());
        let punched = device.punch_hole(device_file, bytes);
        let mut durability = file.durability.lock();
        // Also where it has failed: some of it may have been done.
        durability.note_resize();
        // No journal has it.
        if file.is_block_device() {
            durability.note_zeroed(began);
        }
        drop(durability);
        punched.map_err(|errno| file.io_error(Operation::PunchHole, start, errno))
    }

    fn allocate_alone(&self, range: Range<u64>) -> Result<(), Error> {
        let (core, file) = (self.core(), &self.file);
        let (device, device_file, end) = (&core.io.device, file.device_file, range.end);
        let failed = |operation| move |errno| file.io_error(operation, range.start, errno);
        let before = device.len(device_file).map_err(failed(Operation::Len))?;
        let began = file.durability.lock().period();
        // Whole pages are written.
        let from = range.start - range.start % core.memory().page_bytes() as u64;
        let allocated = device.allocate(device_file, from..end);
        // What a failed one has added is cut off; a sync does that if it fails as well.
        let is_added = |len: &u64| before < *len && *len <= end;
        let added = allocated.err().and_then(|_| device.len(device_file).ok()).filter(is_added);
        let padding = added.filter(|_| device.set_len(device_file, before).is_err());
        let mut durability = file.durability.lock();
        durability.note_resize();
        if before < end && !before.is_multiple_of(file.block_bytes) {
            durability.note_zeroed(began);
        }
        if padding.is_some() {
            durability.device_len.failed(before..end, padding);
        }
        allocated.map_err(failed(Operation::Allocate))?;
        let len = file.len().max(end);
        durability.device_len.written(end, len);
        drop(durability);
        file.set_len(len);
        Ok(())
    }
}
