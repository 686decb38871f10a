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
use std::path::Path;

use unherd_sys::primitives::{Arc, AtomicUsize, Ordering};

use crate::Error;
use crate::page::{FileId, PageKey, PageNo, PageRange};
use crate::pages::Pages;

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

    fn lsn(&self, page: PageNo) -> Option<u64> {
        self.lsns.get(&page).copied()
    }

    /// Holds a page that the caller is changing, unless `most` pages of all files are held, which
    /// `held` counts. Gives what was before, if that has changed; else how many are held.
    pub(crate) fn hold(
        &mut self,
        page: PageNo,
        lsn: u64,
        held: &AtomicUsize,
        most: usize,
    ) -> Result<Option<HoldBefore>, usize> {
        let before = self.lsn(page);
        if lsn <= self.released.max(before.unwrap_or(0)) {
            return Ok(None);
        }
        if before.is_none() {
            let others = held.fetch_add(1, Ordering::Relaxed);
            if others >= most {
                held.fetch_sub(1, Ordering::Relaxed);
                return Err(others);
            }
        }
        self.lsns.insert(page, lsn);
        Ok(Some(HoldBefore(before)))
    }

    /// The changes under a hold were given up.
    pub(crate) fn give_up(&mut self, page: PageNo, before: HoldBefore, held: &AtomicUsize) {
        match before.0 {
            Some(lsn) if lsn > self.released => {
                self.lsns.insert(page, lsn);
            }
            _ => {
                let gone = self.lsns.remove(&page).is_some();
                held.fetch_sub(usize::from(gone), Ordering::Relaxed);
            }
        }
    }

    /// Lets pages be written that were changed under `lsn` at most. Gives how many.
    pub(crate) fn release_to(&mut self, lsn: u64, file: FileId, pages: &Pages) -> usize {
        self.released = self.released.max(lsn);
        let before = self.lsns.len();
        self.lsns.retain(|&page, &mut lsn| {
            let is_held = lsn > self.released;
            if !is_held && let Some(frame) = pages.shard(PageKey { file, page }).frame() {
                pages.frames().release(frame);
            }
            is_held
        });
        before - self.lsns.len()
    }

    /// The pages are dropped. Gives how many were held.
    pub(crate) fn forget(&mut self, pages: &PageRange) -> usize {
        let before = self.lsns.len();
        self.lsns.retain(|page, _| !pages.contains(&page.0));
        before - self.lsns.len()
    }

    /// A page that is held, if there is one.
    pub(crate) fn first(&self) -> Option<PageNo> {
        self.lsns.keys().next().copied()
    }

    /// That the page of the file at `path` is held.
    pub(crate) fn error(&self, path: &Arc<Path>, page: PageNo) -> Error {
        let lsn = self.lsn(page).unwrap_or(self.released);
        Error::Held { file: path.clone(), page: page.0, lsn, released: self.released }
    }
}
