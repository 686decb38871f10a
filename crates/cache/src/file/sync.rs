//! The calls that make writes durable, and that say which may be.

use std::ops::Range;

use unherd_sys::primitives::{Arc, Ordering};

use crate::error::Error;
use crate::file::{Core, File};
use crate::page::ALL_PAGES;
use crate::state::{Failure, FileState};

impl File {
    /// Returns once everything that was written to the file before, by any handle, is on stable
    /// storage, with the file's length.
    ///
    /// Blocks under `file`, `page-change` and `write-back`, or on the device. Threads and tasks
    /// that call it while a sync of the file runs share the next one, and its outcome. If all that
    /// was written through this cache is on stable storage, it returns at once; but the first one
    /// after the file was opened flushes. After an error that all other writes would meet as well
    /// (no space, quota, a device that is gone) the other pages are not tried.
    ///
    /// # Errors
    /// Returns the failed write with the lowest offset; if none failed, the latest error since this
    /// handle last reported one, of this sync or of a write-back in between; those before that one
    /// are not told. So each handle learns once that something went wrong since. What could not be
    /// written stays dirty and is tried again by the next call, which succeeds if the device then
    /// takes it.
    ///
    /// After an error, take nothing for durable until a later call succeeds. (If the error is of an
    /// earlier write-back, this sync has made everything durable after all; but the error does not
    /// say whether it is of that kind.)
    ///
    /// After a flush that failed, all pages that were written since the last good one count as
    /// dirty again, and the next call writes them again. The error is [`Error::LostDurability`] if
    /// a page has left the cache by then, if [`File::set_len`] has changed a length inside a block
    /// of the file system since, or if pages are smaller than its blocks.
    ///
    /// [`Error::Held`] if pages are held back
    /// ([`PageMut::hold_until`](crate::PageMut::hold_until)): all others are durable.
    ///
    /// [`Error::LostDurability`] is reported until the file's last handle is dropped; if no handle
    /// has reported it until then, once more by one that opens the file for writing.
    /// [`Error::LostWrites`] is reported once; what it names is lost, and the next call says how
    /// the rest fares. [`Error::WouldDeadlock`]: nothing was done.
    pub fn sync_all(&self) -> Result<(), Error> {
        self.settle(|core, file| core.sync_pages(file, &ALL_PAGES))
    }

    /// As [`File::sync_all`] for the bytes in `range`, rounded to whole pages: writes back the
    /// dirty pages among them and no others, and returns once they are on stable storage, with as
    /// much of the file's length as it takes to read what was written there. If they are durable
    /// already, it returns at once, without a flush, unless a changed page of the file has left the
    /// cache before a flush covered it.
    ///
    /// Concurrent syncs of one file share a flush, whatever their ranges; and it takes no longer
    /// from the front of a long file, as it looks at unclean pages alone.
    ///
    /// A log to which several threads append: its end is the program's own, under a lock. (Two
    /// threads may see one [`File::len`]; and after a crash it may lie behind zeros, up to the end
    /// of a page, so a log that is opened again ends where its last whole record does.)
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # let cache = unherd::Cache::builder().build()?;
    /// use std::sync::Mutex;
    ///
    /// let log = cache.open("log", unherd::OpenOptions::new().write(true))?;
    /// let end = Mutex::new(0); // behind the last whole record
    /// let append = |record: &[u8]| {
    ///     let to = {
    ///         // The write too: where the lock is free, all before the end is written.
    ///         let mut end = end.lock().unwrap();
    ///         log.write_all_at(record, *end)?;
    ///         *end += record.len() as u64;
    ///         *end
    ///     };
    ///     // From the front: a record counts only if those before it are there too. Not under the
    ///     // lock, so those that commit at the same time share a flush.
    ///     log.sync_range(0..to)
    /// };
    /// append(b"a record")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::sync_all`]: of failures in the whole file, so that each is reported once, and
    /// [`Error::WouldDeadlock`] if this thread holds any page of it. [`Error::BackwardRange`]; a
    /// range that is empty syncs nothing.
    pub fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_forward(&range)?;
        let pages = self.pages_in(range);
        self.settle(|core, file| core.sync_pages(file, &pages))
    }

    /// [`Cache::sync_many`](crate::Cache::sync_many), which takes handles of any cache.
    pub(crate) fn sync_many(files: &[&Self]) -> Result<(), Error> {
        for file in files {
            file.check_sync()?;
            file.core().check_not_forked()?;
        }
        for file in files.iter().filter(|file| file.file.writable) {
            file.core().begin_sync(&file.file);
        }
        let mut outcome = Ok(());
        for file in files {
            if outcome.is_ok() {
                outcome = file.sync_all();
            } else if file.file.writable {
                // Its own handle is to learn of this failure: by the next call.
                let _ = file.core().sync_pages(&file.file, &ALL_PAGES);
            }
        }
        outcome
    }

    /// Writes back what is dirty in the file, by whatever handle, but does not flush: what was
    /// written before survives the end of this process, by kill -9 too, though not a power cut. The
    /// file has its length on the device then. (A process that is killed, or a machine that stops,
    /// during a write-back may leave the file longer, by zeros up to the end of a page.)
    ///
    /// Blocks as [`File::sync_all`].
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn write_back(&self) -> Result<(), Error> {
        self.settle(|core, file| core.write_back_pages(file, &ALL_PAGES))
    }

    fn settle(
        &self,
        how: impl FnOnce(&Core, &Arc<FileState>) -> Result<(), Failure>,
    ) -> Result<(), Error> {
        self.check_sync()?;
        self.told(if self.file.writable { how(self.core(), &self.file) } else { Ok(()) })
    }

    pub(crate) fn check_sync(&self) -> Result<(), Error> {
        self.check_not_closed()?;
        self.file.check_has_none_of(&ALL_PAGES)
    }

    /// What this handle reports of a sync with that outcome.
    pub(crate) fn told(&self, outcome: Result<(), Failure>) -> Result<(), Error> {
        // Its own failure first: another thread may have reported the same for this handle.
        self.own(outcome)?;
        self.report()
    }

    /// The log is durable up to `lsn`, from its beginning: pages that were changed under no higher
    /// one ([`PageMut::hold_until`](crate::PageMut::hold_until)) may be written from now on, as
    /// other dirty pages. A number lower than an earlier one changes nothing. For all handles of
    /// the file; the next that opens it begins with 0. Takes time for each held page of the file;
    /// does not block otherwise.
    pub fn release_to(&self, lsn: u64) {
        // In a child of fork(2) the locks may be held for ever, and nothing is written.
        let (core, file) = (self.core(), &self.file);
        if core.fork().is_forked() {
            return;
        }
        let released = file.holds.lock().release_to(lsn, file.id, &core.pages);
        if released > 0 {
            core.files.held.fetch_sub(released, Ordering::Relaxed);
            core.pages.notify_writable();
        }
    }
}
