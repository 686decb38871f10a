//! Room for pages that are newer than the device: counted, and made; the rule stands in
//! `unwritten.rs`.

use std::cmp::Reverse;

use unherd_sync::{Outcome, Wait};
use unherd_sys::primitives::{Arc, Ordering};
use unherd_sys::{Deadline, Timestamp};

use crate::Error;
use crate::file::core::Core;
use crate::file::durability::RETRY_AFTER;
use crate::file::state::FileState;
use crate::page::PageNo;

/// Unclean pages that are looked at under one lock.
const CHUNK: usize = 64;

/// What came of a try to write a page back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Some,
    Nothing,
    /// Nothing, and the pages of a file are not to be tried so soon.
    Refused,
}

impl Core {
    pub(crate) fn add_unwritten(&self, file: &FileState, pages: usize) {
        self.files.add_unwritten(file, pages);
    }

    pub(crate) fn remove_unwritten(&self, file: &FileState, pages: usize) {
        if pages > 0 {
            let before = file.unwritten.pages.fetch_sub(pages, Ordering::Relaxed);
            debug_assert!(before >= pages, "more pages were written than were newer");
            self.files.unwritten.fetch_sub(pages, Ordering::Relaxed);
            self.supply().waiters.tell_room(self.waits(), pages);
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
        let (mut was_told, mut passed) = (false, None);
        loop {
            let seen = waiters.room_told();
            if self.has_room(file) {
                return Ok(());
            }
            let refusal = file.durability.lock().refusal();
            let written = match refusal {
                None => self.write_for_room(file),
                Some(_) => Written::Refused,
            };
            if was_told && written != Written::Some {
                waiters.pass_room_on(self.waits(), &mut passed);
            }
            if let Some(error) = refusal {
                return Err(error);
            }
            let now = Timestamp::now();
            if written == Written::Some && self.io.engine.is_none() && now < end {
                continue;
            }
            // Nobody is told when the writes of a file may be tried again.
            let looks_again = written == Written::Refused && cfg!(not(shuttle));
            let until = if looks_again { end.min(now.after(RETRY_AFTER)) } else { end };
            let wait = Wait::new(self.reasons().frame).deadline(Deadline::at(until));
            let outcome = waiters.wait_for_room(self.waits(), seen, wait);
            was_told = matches!(outcome, Outcome::Woken(_));
            if outcome == Outcome::TimedOut && until == end {
                return Err(self.no_frames(Timestamp::now().since(began)));
            }
        }
    }

    /// Writes a page back, or begins to, if there is one: of the file, or, where others leave it no
    /// room, of the one that has most.
    fn write_for_room(&self, file: &Arc<FileState>) -> Written {
        if self.write_any_page(file) {
            return Written::Some;
        }
        let files = self.files.all().into_iter().filter(|other| other.id != file.id);
        // Counted once: others change it.
        let count = |other: Arc<FileState>| (other.unwritten.pages.load(Ordering::Relaxed), other);
        let mut others: Vec<_> = files.map(count).filter(|(pages, _)| *pages > 0).collect();
        others.sort_unstable_by_key(|(pages, _)| Reverse(*pages));
        let mut written = Written::Nothing;
        for (_, other) in others {
            if other.unwritten.is_failing() && other.durability.lock().refusal().is_some() {
                written = Written::Refused;
            } else if self.write_any_page(&other) {
                return Written::Some;
            }
        }
        written
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
