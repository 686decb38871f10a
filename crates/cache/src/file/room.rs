//! Room for pages that are newer than the device: counted, and made; the rule stands in
//! `unwritten.rs`.

use std::cmp::Reverse;

use unherd_sync::{Outcome, Wait};
use unherd_sys::primitives::{Arc, Ordering};
use unherd_sys::{Deadline, Timestamp};

use crate::Error;
use crate::file::core::Core;
use crate::file::state::FileState;
use crate::page::PageNo;

/// Unclean pages that are looked at under one lock.
const CHUNK: usize = 64;

impl Core {
    pub(crate) fn add_unwritten(&self, file: &FileState, pages: usize) {
        self.files.add_unwritten(file, pages);
    }

    pub(crate) fn remove_unwritten(&self, file: &FileState, pages: usize) {
        if pages > 0 {
            let before = file.unwritten.pages.fetch_sub(pages, Ordering::Relaxed);
            debug_assert!(before >= pages, "more pages were written than were newer");
            self.files.unwritten.fetch_sub(pages, Ordering::Relaxed);
        }
    }

    /// Whether a file may have `own` such pages, of `all`.
    fn fits(&self, own: usize, all: usize) -> bool {
        let others = all.saturating_sub(own);
        own <= self.supply().len_to_be().saturating_sub(others) * 3 / 4
    }

    /// Counts one page more, if that is allowed.
    pub(crate) fn reserve_unwritten(&self, file: &FileState) -> bool {
        let own = file.unwritten.pages.fetch_add(1, Ordering::Relaxed) + 1;
        let all = self.files.unwritten.fetch_add(1, Ordering::Relaxed) + 1;
        let fits = self.fits(own, all);
        if !fits {
            self.remove_unwritten(file, 1);
        }
        fits
    }

    pub(crate) fn has_room(&self, file: &FileState) -> bool {
        let own = file.unwritten.pages.load(Ordering::Relaxed) + 1;
        self.fits(own, self.files.unwritten.load(Ordering::Relaxed) + 1)
    }

    /// Writes pages back until one more of the file may be newer than the device. Blocks on the
    /// device or, under `frame`, until a write-back or change by others has ended; up to the
    /// cache's frame deadline.
    ///
    /// # Errors
    /// That of the file's writes, if they fail; [`Error::NoFrames`].
    #[cold]
    pub(crate) fn make_room(&self, file: &Arc<FileState>) -> Result<(), Error> {
        let began = Timestamp::now();
        let end = began.after(self.frame_wait);
        let waiters = &self.supply().waiters;
        let _entered = waiters.enter_for_room();
        let mut passed = None;
        let made = loop {
            let seen = waiters.idled();
            if self.has_room(file) {
                break Ok(());
            }
            if let Some(error) = file.durability.lock().refusal() {
                break Err(error);
            }
            if self.write_for_room(file) && self.io.engine.is_none() {
                continue;
            }
            let wait = Wait::new(self.reasons().frame).deadline(Deadline::at(end));
            match waiters.wait_for_room(self.waits(), seen, wait) {
                Outcome::Woken(_) => waiters.pass_on(self.waits(), &mut passed),
                Outcome::Invalid => {}
                Outcome::TimedOut => break Err(self.no_frames(Timestamp::now().since(began))),
            }
        };
        // What woke this thread may have been meant for one that wants a frame.
        self.pages.notify_idle(1);
        made
    }

    /// Writes a page back, or begins to, if there is one: of the file, or, where others leave it no
    /// room, of the one that has most.
    fn write_for_room(&self, file: &Arc<FileState>) -> bool {
        if self.write_any_page(file) {
            return true;
        }
        let is_refused = |other: &FileState| {
            other.unwritten.is_failing() && other.durability.lock().refusal().is_some()
        };
        let mut others = self.files.all();
        others.retain(|other| other.id != file.id && !is_refused(other));
        others.sort_unstable_by_key(|other| Reverse(other.unwritten.pages.load(Ordering::Relaxed)));
        others.iter().any(|other| self.write_any_page(other))
    }

    /// Writes a page of the file back, or begins to, if there is one.
    fn write_any_page(&self, file: &Arc<FileState>) -> bool {
        let mut from = PageNo(file.unwritten.next.load(Ordering::Relaxed));
        let mut left = file.unclean.lock().len();
        while left > 0 {
            let chunk: Vec<PageNo> = {
                let unclean = file.unclean.lock();
                unclean.iter_from(from).chain(unclean.iter()).take(CHUNK.min(left)).collect()
            };
            let Some(&last) = chunk.last() else { return false };
            left -= chunk.len();
            from = last.next();
            for page in chunk {
                if self.is_unwritten(file, page) && self.write_back_page(file, page) {
                    file.unwritten.next.store(page.0 + 1, Ordering::Relaxed);
                    return true;
                }
            }
        }
        false
    }
}
