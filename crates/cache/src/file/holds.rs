//! Pages that are not to be written yet: the rule of write-ahead logging, that the log record of a
//! change is durable before the changed page is.
//!
//! Log sequence numbers (LSNs) are the caller's, and rise. A page is *held* while the highest LSN
//! that it was changed under lies above what its file was released to:
//!
//! | event | the page's entry here | its frame |
//! |---|---|---|
//! | `PageMut::hold_until`, above what is released | made, or raised | changing |
//! | the guard is dropped, with changes | stays | held; dirty if there is no entry any more |
//! | without changes | as before the guard | as before, by the same rule |
//! | another change of a held page | stays | held |
//! | `File::release_to`, as far as the entry | goes | held becomes dirty |
//! | the page is cut off or in a hole, or the file closed | goes | dropped |
//!
//! 1. A frame becomes held under the lock of the entries, and only with one. A release takes the
//!    entry and leaves the held state under that lock. So no page stays held without an entry.
//! 2. Nobody lends a held frame to the device: write-back of every kind goes by `Word::lent`.
//! 3. Of all files together at most a quarter of the frames has an entry, so that reclaim always
//!    finds others.
//!
//! ```text
//!  drops its guard (lock)                   releases (lock)
//!  ----------------------                   ---------------
//!  is there an entry?                       take the entry
//!  publish the page: held, or dirty         the frame is held: dirty
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use unherd_sys::primitives::Ordering;

use crate::Error;
use crate::file::{Core, Failure, FileState};
use crate::page::{PageNo, PageRange};

/// Of one file.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    released: u64,
    lsns: BTreeMap<PageNo, u64>,
}

/// What a guard has made of a page's entry: what to go back to, if its changes are given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HoldBefore(Option<u64>);

impl Holds {
    pub(crate) fn has(&self, page: PageNo) -> bool {
        self.lsns.contains_key(&page)
    }

    pub(crate) fn lsn(&self, page: PageNo) -> Option<u64> {
        self.lsns.get(&page).copied()
    }

    /// The pages that are not held any more.
    fn release_to(&mut self, lsn: u64) -> Vec<PageNo> {
        self.released = self.released.max(lsn);
        let mut pages = Vec::new();
        self.lsns.retain(|&page, &mut lsn| {
            let is_held = lsn > self.released;
            if !is_held {
                pages.push(page);
            }
            is_held
        });
        pages
    }
}

impl Core {
    /// Holds a page that the caller is changing. Gives what was before, if that has changed.
    pub(crate) fn hold(
        &self,
        file: &FileState,
        page: PageNo,
        lsn: u64,
    ) -> Result<Option<HoldBefore>, Error> {
        let mut holds = file.holds.lock();
        let before = holds.lsn(page);
        if lsn <= holds.released.max(before.unwrap_or(0)) {
            return Ok(None);
        }
        if before.is_none() {
            let most = (self.supply().len_to_be() / 4).max(1);
            let held = self.files.held.fetch_add(1, Ordering::Relaxed);
            if held >= most {
                self.files.held.fetch_sub(1, Ordering::Relaxed);
                return Err(Error::TooManyHeld { file: file.path.clone(), page: page.0, held });
            }
        }
        holds.lsns.insert(page, lsn);
        Ok(Some(HoldBefore(before)))
    }

    /// The changes under a hold were given up.
    pub(crate) fn give_up_hold(&self, file: &FileState, page: PageNo, before: HoldBefore) {
        let mut holds = file.holds.lock();
        match before.0 {
            Some(lsn) if lsn > holds.released => {
                holds.lsns.insert(page, lsn);
            }
            _ => {
                let gone = holds.lsns.remove(&page).is_some();
                self.files.held.fetch_sub(usize::from(gone), Ordering::Relaxed);
            }
        }
    }

    /// Lets the file's pages be written that were changed under `lsn` at most.
    pub(crate) fn release_holds(&self, file: &FileState, lsn: u64) {
        let released = {
            let mut holds = file.holds.lock();
            let released = holds.release_to(lsn);
            for &page in &released {
                let shard = self.pages.shard(file.key(page));
                if let Some(frame) = shard.frame() {
                    self.frames().release(frame);
                }
            }
            released.len()
        };
        if released > 0 {
            self.files.held.fetch_sub(released, Ordering::Relaxed);
            self.pages.notify_writable();
        }
    }

    /// The pages are dropped.
    pub(crate) fn drop_holds(&self, file: &FileState, pages: Range<PageNo>) {
        if self.files.held.load(Ordering::Relaxed) > 0 {
            let mut holds = file.holds.lock();
            let before = holds.lsns.len();
            holds.lsns.retain(|page, _| !pages.contains(page));
            self.files.held.fetch_sub(before - holds.lsns.len(), Ordering::Relaxed);
        }
    }

    /// The outcome of a sync for one who wants those pages; it has left out the `held` ones.
    pub(crate) fn outcome_of(
        &self,
        file: &FileState,
        pages: &PageRange,
        held: &[PageNo],
    ) -> Result<(), Failure> {
        match held.iter().find(|page| pages.contains(&page.0)) {
            // No error of the file: nobody else is to be told.
            Some(&page) => Err((self.held_error(file, page), 0)),
            None => Ok(()),
        }
    }

    /// Refuses a file that has held pages.
    pub(crate) fn check_released(&self, file: &FileState) -> Result<(), Error> {
        let first = file.holds.lock().lsns.keys().next().copied();
        first.map_or(Ok(()), |page| Err(self.held_error(file, page)))
    }

    fn held_error(&self, file: &FileState, page: PageNo) -> Error {
        let holds = file.holds.lock();
        let lsn = holds.lsn(page).unwrap_or(holds.released);
        Error::Held { file: file.path.clone(), page: page.0, lsn, released: holds.released }
    }
}
