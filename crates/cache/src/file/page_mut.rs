//! A page that one thread changes, for as long as it holds it.
//!
//! While a [`PageMut`] lives, its page is *changing*: who else would wait for it, and what becomes
//! of its own thread there, stands in `own_pages.rs`.
//!
//! The handle cannot be dropped meanwhile: the guard borrows it. Two threads that each hold a
//! page and want the other's wait for each other, as with any two locks.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use unherd_sys::primitives::{Arc, thread};

use crate::Error;
use crate::file::Core;
use crate::frames::Claim;
use crate::latch::SharedGuard;
use crate::page::{PageKey, PageNo};
use crate::state::FileState;
use crate::state::holds::HoldBefore;
use crate::state::own_pages::OwnPage;

/// A page that this thread alone may read and write, until it drops it; see
/// [`File::page_mut`](crate::File::page_mut).
///
/// Read it as a slice; change it by [`write`](Self::write), [`fill`](Self::fill),
/// [`copy_within`](Self::copy_within) and the calls for numbers. It gives no `&mut [u8]`: a thread
/// that began to look before ([`File::peek`](crate::File::peek)) may still be reading, and will
/// throw away what it saw, so each store to the page must be an atomic one. What a write replaces
/// is kept until the drop, for [`abandon`](Self::abandon), so a write costs a second copy.
///
/// It stays with its thread. This does not compile:
///
/// ```compile_fail,E0277
/// # use unherd_cache as unherd;
/// fn needs_send<T: Send>() {}
/// needs_send::<unherd::PageMut<'static>>();
/// ```
pub struct PageMut<'a> {
    core: &'a Core,
    file: &'a Arc<FileState>,
    key: PageKey,
    /// There until the guard is dropped.
    claim: Option<Claim>,
    /// Given back after the page was published.
    writers: Option<SharedGuard<'a>>,
    /// What was there before each write, and where.
    undo: Vec<(usize, Box<[u8]>)>,
    undo_bytes: usize,
    /// Where in the page the last byte that was written ends.
    end: usize,
    /// What held the page before this guard did.
    hold: Option<HoldBefore>,
    /// The thread was unwinding when it took the page: that it still is says nothing.
    was_panicking: bool,
    /// Not `Send`: what a thread holds is remembered by thread.
    thread: PhantomData<*const ()>,
}

impl fmt::Debug for PageMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMut").field("page", &self.key.page).finish_non_exhaustive()
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];

    /// What the page holds now. Bytes beyond the end of the file are zero.
    fn deref(&self) -> &[u8] {
        self.claim.as_ref().map_or(&[], |claim| self.core.memory().claimed_bytes(claim))
    }
}

impl<'a> PageMut<'a> {
    /// The page, for the caller alone until it drops it.
    pub(crate) fn new(
        core: &'a Core,
        file: &'a Arc<FileState>,
        page: PageNo,
    ) -> Result<Self, Error> {
        let writers = file.lock_writers_shared(&core.pages);
        let key = file.key(page);
        let claim = core.claim_page(file, key, false, None)?;
        OwnPage::new(file, key).begin();
        Ok(Self {
            core,
            file,
            key,
            claim: Some(claim),
            writers: Some(writers),
            undo: Vec::new(),
            undo_bytes: 0,
            end: 0,
            hold: None,
            was_panicking: thread::panicking(),
            thread: PhantomData,
        })
    }
}

impl PageMut<'_> {
    /// Writes `bytes` at `at` in the page. When the guard is dropped, the file reaches at least to
    /// their end.
    ///
    /// # Panics
    /// If they do not fit into the page, as a slice would.
    #[track_caller]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len()).filter(|&end| end <= self.core.memory().page_bytes());
        let Some(end) = end else {
            panic!(
                "a write of {} bytes at {at} of page {} of {}: the page has {} bytes",
                bytes.len(),
                self.key.page.0,
                self.file.path.display(),
                self.core.memory().page_bytes()
            );
        };
        if bytes.is_empty() {
            return;
        }
        self.remember(at..end);
        if let Some(claim) = &mut self.claim {
            self.core.memory().write(claim, at, bytes);
            self.end = self.end.max(end);
        }
    }

    /// Writes `value` to each byte of `range`; as [`PageMut::write`].
    ///
    /// # Panics
    /// If the range does not lie in the page.
    #[track_caller]
    pub fn fill(&mut self, range: Range<usize>, value: u8) {
        let len = self[range.clone()].len();
        self.write(range.start, &vec![value; len]);
    }

    /// Writes what stands in `from` at `to`, which may overlap; as [`PageMut::write`].
    ///
    /// # Panics
    /// If one of them does not lie in the page.
    #[track_caller]
    pub fn copy_within(&mut self, from: Range<usize>, to: usize) {
        let bytes = self[from].to_vec();
        self.write(to, &bytes);
    }

    /// Writes a number at `at`, little-endian, as [`Peek::get_u16`](crate::Peek::get_u16) reads it.
    ///
    /// # Panics
    /// If it does not fit into the page.
    #[track_caller]
    pub fn write_u16(&mut self, at: usize, number: u16) {
        self.write(at, &number.to_le_bytes());
    }

    /// As [`PageMut::write_u16`].
    ///
    /// # Panics
    /// If it does not fit into the page.
    #[track_caller]
    pub fn write_u32(&mut self, at: usize, number: u32) {
        self.write(at, &number.to_le_bytes());
    }

    /// As [`PageMut::write_u16`].
    ///
    /// # Panics
    /// If it does not fit into the page.
    #[track_caller]
    pub fn write_u64(&mut self, at: usize, number: u64) {
        self.write(at, &number.to_le_bytes());
    }

    /// Keeps what is to be overwritten. It is never more than two pages.
    fn remember(&mut self, range: Range<usize>) {
        let page_bytes = self.len();
        let has_all = self.undo.first().is_some_and(|(_, bytes)| bytes.len() == page_bytes);
        if has_all {
            return;
        }
        if self.undo_bytes + range.len() > page_bytes {
            let mut before = self.to_vec();
            for (at, bytes) in self.undo.drain(..).rev() {
                before[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            self.undo.push((0, before.into()));
            return;
        }
        self.undo_bytes += range.len();
        self.undo.push((range.start, self[range].into()));
    }

    /// Holds the page back: what is written under this guard does not reach the device, by whatever
    /// way, before [`File::release_to`](crate::File::release_to) was called with `lsn` or more. So
    /// a page may be changed before the log record that describes the change is durable: the rule
    /// of write-ahead logging is kept if `release_to` is called after a sync of the log. Log
    /// sequence numbers are the caller's; they rise, and 0 holds nothing.
    ///
    /// All of the page is held, with changes that were made before, until the highest number under
    /// which it was changed; changes by other ways leave it held. Nothing is held if the guard is
    /// not written to, or given up. Does not block.
    ///
    /// While a page is held
    /// - a sync that covers it syncs all else, and returns [`Error::Held`] at once: the caller may
    ///   be the one who is to release it;
    /// - reads, writes and `set_len` go on as with any dirty page; a page that is cut off, or in a
    ///   hole ([`File::punch_hole`](crate::File::punch_hole)), is held no more;
    /// - [`File::close`](crate::File::close) returns [`Error::Held`]; the drop of the last handle
    ///   loses it, as it would lose a page that cannot be written: the next handle for writing is
    ///   told ([`Error::LostWrites`]), and the log has what it takes.
    ///
    /// So a page that is changed again and again, each time before its last number is released, is
    /// never written, and the log never gets shorter. A checkpoint keeps changes out for a moment:
    /// it takes the lock under which the program makes them, syncs the log, calls
    /// [`File::release_to`](crate::File::release_to) with the last number, and
    /// [`File::sync_all`](crate::File::sync_all); then the log may be cut. (So does the example
    /// `kv`.) Release a number only once all records up to it are durable, those of other threads
    /// too.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # fn append(log: &unherd::File, record: &[u8]) -> Result<u64, unherd::Error> { Ok(1) }
    /// # let cache = unherd::Cache::builder().build()?;
    /// # let options = unherd::OpenOptions::new().write(true);
    /// # let (log, data) = (cache.open("log", options.clone())?, cache.open("data", options)?);
    /// let lsn = append(&log, b"page 0: 7 at 3")?;
    /// let mut page = data.page_mut(unherd::PageNo(0))?;
    /// page.hold_until(lsn)?;
    /// page.write(3, &[7]);
    /// drop(page); // others see it; the device does not
    /// log.sync_all()?;
    /// data.release_to(lsn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyHeld`] if a quarter of the cache's frames have held pages, of all files
    /// together: what was written under this guard so far is given up. Make the log durable,
    /// release, and begin again.
    pub fn hold_until(&mut self, lsn: u64) -> Result<(), Error> {
        self.core.check_not_forked()?;
        let most = (self.core.supply().len_to_be() / 4).max(1);
        let page = self.key.page;
        let hold = self.file.holds.lock().hold(page, lsn, &self.core.files.held, most);
        match hold {
            Ok(before) => {
                self.hold = self.hold.or(before);
                Ok(())
            }
            Err(held) => {
                self.undo();
                Err(Error::TooManyHeld { file: self.file.path.clone(), page: page.0, held })
            }
        }
    }

    /// Gives up what was written: the page is what it was before.
    pub fn abandon(mut self) {
        self.undo();
    }

    fn undo(&mut self) {
        let Some(claim) = &mut self.claim else { return };
        for (at, bytes) in self.undo.drain(..).rev() {
            self.core.memory().write(claim, at, &bytes);
        }
        (self.end, self.undo_bytes) = (0, 0);
    }
}

impl Drop for PageMut<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking && !self.core.fork().is_forked() {
            self.undo();
        }
        let Some(claim) = self.claim.take() else { return };
        if self.core.fork().is_forked() {
            // The parent holds the page, too, and publishes it there. Those whom the latch would
            // wake are there as well, and the lock under which they wait may be held for ever.
            return std::mem::forget(self.writers.take());
        }
        OwnPage::new(self.file, self.key).end();
        if self.undo.is_empty() {
            // Nothing was written, or it was given up.
            if let Some(before) = self.hold {
                self.file.holds.lock().give_up(self.key.page, before, &self.core.files.held);
            }
            if !claim.was_unwritten() {
                self.core.files.remove_unwritten(self.core.supply(), self.file, 1);
            }
            return self.core.give_up_change(self.file, self.key, claim);
        }
        self.file.grow(self.core.memory().offset(self.key.page) + self.end as u64);
        self.core.end_change(self.file, self.key, claim);
    }
}
