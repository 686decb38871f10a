//! Pages that are forgotten because others have changed the file.
//!
//! A page that is clean goes from the index, and the next read brings it in again; those who have
//! it pinned keep the old one. What was not synced stays, since the device does not have it.

use std::ops::Range;

use crate::Error;
use crate::error::Operation;
use crate::file::{ChangingPages, File};
use crate::frames::State;
use crate::page::{ALL_PAGES, PageKey, PageNo, PageRange};
use crate::pages::{Pages, Want};
use crate::state::DeviceLen;

impl File {
    /// Forgets what the cache has of the bytes in `range`, whole pages at a time, so that the next
    /// read finds what others have written to the file. Guards keep the page that they have. If the
    /// range reaches to the end of the file, the file gets the length that it has on the device.
    ///
    /// For files that others change while they are open here ([`OpenOptions::lock`] is off), such
    /// as a database that several processes share by locks of their own: to be called when those
    /// say that somebody else has written. A read that is under way meanwhile may bring in old
    /// bytes before this returns, and none after.
    ///
    /// Blocks under `page-read`, `page-change`, `write-back` and, at the end of the file, `file`.
    /// Takes time for each page in the cache.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # let cache = unherd::Cache::builder().build()?;
    /// # let options = unherd::OpenOptions::new().lock(false);
    /// let file = cache.open("shared", options)?;
    /// // When the other process has said that it wrote:
    /// file.invalidate(0..u64::MAX)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotSynced`] if pages hold writes that are not synced: they stay, all others are
    /// forgotten, and the length is as it was. [`Error::WouldDeadlock`], [`Error::BackwardRange`];
    /// [`Error::Io`], if the device does not tell its length.
    ///
    /// [`OpenOptions::lock`]: crate::OpenOptions::lock
    pub fn invalidate(&self, range: Range<u64>) -> Result<(), Error> {
        let core = self.core();
        core.check_not_forked()?;
        self.file.check_has_none_of(&ALL_PAGES)?;
        self.check_forward(&range)?;
        let reaches_end = !range.is_empty() && range.end >= self.file.len();
        self.forget_pages(self.pages_in(range))?;
        if !reaches_end {
            return Ok(());
        }
        let writers = self.file.writers.lock_exclusive(core.waits(), core.reasons().file);
        core.without_write_backs(&self.file, || {
            let taken = self.take_length_of_device();
            // Wakers that are told next may wait for a writer.
            drop(writers);
            taken
        })
    }

    fn forget_pages(&self, range: PageRange) -> Result<(), Error> {
        let (file, pages) = (&self.file, &self.core().pages);
        let mut kept: Option<PageNo> = None;
        for page in pages.index.pages_in(file.id, range, |frame| pages.frames().key(frame)) {
            if !forget_page(pages, file.key(page)) {
                kept = Some(kept.map_or(page, |first| first.min(page)));
            }
        }
        match kept {
            Some(page) => Err(Error::NotSynced { file: file.path.clone(), page: page.0 }),
            None => Ok(()),
        }
    }

    /// Others may have changed the file's length. Padding of our own is no such change: it is cut
    /// off, as a flush alone leaves it. The caller keeps writers and write-backs out.
    fn take_length_of_device(&self) -> Result<(), Error> {
        let (core, file) = (self.core(), &self.file);
        let is_clean = |page: &PageNo| {
            core.pages.word_of(file.key(*page)).is_none_or(|word| word.state() == State::Clean)
        };
        if let Some(page) = file.unclean.lock().iter().find(|page| !is_clean(page)) {
            return Err(Error::NotSynced { file: file.path.clone(), page: page.0 });
        }
        if file.durability.lock().device_len.is_padded() {
            core.cut_padding(file)?;
        }
        let len = core.io.device.len(file.device_file);
        let len = len.map_err(|errno| file.io_error(Operation::Len, 0, errno))?;
        if len == file.len() {
            return Ok(());
        }
        // Pages have zeros beyond the end of the file: of the shorter of the two.
        let (last, _) = core.memory().locate(len.min(file.len()));
        file.durability.lock().device_len = DeviceLen::new(len);
        file.set_len(len);
        // What was read beyond the old end is no longer what the file has there.
        core.drop_pages(file, last.0..u64::MAX, ChangingPages::Awaited);
        Ok(())
    }
}

/// Whether the page is not in the cache any more.
fn forget_page(pages: &Pages, key: PageKey) -> bool {
    loop {
        let shard = pages.shard(key);
        let state = shard.frame().map(|frame| pages.frames().word(frame).state());
        let busy = match state {
            // A page leaves the clean state under the lock alone.
            None | Some(State::Clean) => match pages.detach(shard) {
                Ok(_) => return true,
                Err(busy) => busy,
            },
            Some(state) if state.is_at_rest() => return false,
            // It may come to rest without the lock, and be dirty then.
            Some(_) => {
                drop(shard);
                let Some(busy) = pages.busy(key) else { continue };
                busy
            }
        };
        // A read that fails leaves no page either.
        let _ = pages.wait(key, busy, Want::Read);
    }
}
