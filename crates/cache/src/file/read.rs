//! The read path: pages pinned or looked at, those that are there (`hit.rs`, `peek.rs`) and others.
//!
//! One thread brings a missing page in; it announces this in the index before it even has a frame
//! (a stream of whole pages that is written has the next frame first: see `change.rs`).
//! All others that want the page wait for it alone. If the read fails, each of them gets the error,
//! and none reads again by itself: one bad sector costs one read. The next call will try again.
//!
//! A look goes without a pin as long as it can, and then with one.

use unherd_sys::Timestamp;
use unherd_sys::primitives::Arc;

use crate::Error;
use crate::file::{Core, FileState};
use crate::frames::{Claim, Pin};
use crate::page::{PageKey, PageNo};
use crate::pages::{
    FillReservation, Lookup, PageGuard, Peek, Seen, TooManyPins, Torn, WakeMessage, Want, Work,
};
use crate::stats::Count;

/// Looks without a pin, before the page is pinned.
const TRIES: usize = 8;

/// The page itself is as it was: a version never comes back, so neither does what was torn. To look
/// again would not mend the other page, perhaps for ever.
#[cold]
fn torn_elsewhere(file: &FileState, page: PageNo) -> Error {
    Error::TornElsewhere { file: file.path.clone(), page: page.0 }
}

impl Core {
    /// The page, pinned, for a caller that wants `pages` pages, from this one on.
    #[inline(always)]
    pub(crate) fn find_and_pin(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        pages: u64,
    ) -> Result<Pin, Error> {
        match self.pages.try_hit(file.key(page)) {
            Some(hit) => {
                if hit.was_unread {
                    self.read_on(file, page);
                }
                Ok(hit.pin)
            }
            None => self.pin(file, page, pages),
        }
    }

    /// As [`Core::find_and_pin`], with the guard.
    #[inline(always)]
    pub(crate) fn guard(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        pages: u64,
    ) -> Result<PageGuard<'_>, Error> {
        Ok(PageGuard::new(&self.pages, self.find_and_pin(file, page, pages)?))
    }

    /// The page, pinned, for a caller that has tried `Pages::try_hit`, and wants `pages` pages
    /// from it on; it is read if it is not there, with the pages that follow. Blocks under
    /// `page-read`, `page-change` and `frame`, or on the device.
    #[cold]
    pub(crate) fn pin(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        pages: u64,
    ) -> Result<Pin, Error> {
        self.check_not_forked()?;
        self.check_page(page)?;
        let key = file.key(page);
        let (mut waited, mut began) = (false, None);
        loop {
            match self.look_up(file, key, waited)? {
                Lookup::Here(pin) => {
                    self.read_on(file, page);
                    return Ok(pin);
                }
                Lookup::Busy(busy) => {
                    began = self.wait_for_page(file, key, busy, Want::Read, began)?;
                }
                Lookup::Miss(announced) => {
                    let claims = self.frames_for_announced(file, announced, pages, began)?;
                    return self.fill(file, announced, claims);
                }
            }
            waited = true;
        }
    }

    /// Decides what is there and what is missing. A hit gets here only if its page was being moved
    /// in the index, or changed, when it looked without the lock. Who has `waited` was counted.
    pub(crate) fn look_up(
        &self,
        file: &FileState,
        key: PageKey,
        waited: bool,
    ) -> Result<Lookup, Error> {
        let found = self.pages.shard(key).look_up(self.frames()).map_err(|TooManyPins| {
            Error::TooManyPins { file: file.path.clone(), page: key.page.0 }
        })?;
        match &found {
            _ if waited => {}
            Lookup::Here(_) => self.counters().add(Count::Hits, 1),
            Lookup::Busy(busy) if busy.work == Work::Reading => {
                self.counters().add(Count::DeduplicatedMisses, 1);
            }
            Lookup::Busy(_) | Lookup::Miss(_) => {}
        }
        Ok(found)
    }

    /// A frame for a page that the caller has announced. If there is none, the announcement is
    /// taken back, and the waiters for the page are told. As for [`Core::take_frame`], `began`.
    pub(crate) fn frame_for_announced(
        &self,
        announced: FillReservation,
        began: Option<Timestamp>,
    ) -> Result<Claim, Error> {
        self.counters().add(Count::Misses, 1);
        self.take_frame(announced.key, began)
            .inspect_err(|_| self.take_back(announced, WakeMessage::NoFrames(announced.generation)))
    }

    /// Frames for a page that the caller has announced, and for those that follow it and are to be
    /// read with it, as far as they are missing and frames are there; `wanted` pages are wanted
    /// now.
    pub(crate) fn frames_for_announced(
        &self,
        file: &Arc<FileState>,
        announced: FillReservation,
        wanted: u64,
        began: Option<Timestamp>,
    ) -> Result<Vec<Claim>, Error> {
        let claims = self.try_take_with_neighbours(file, announced.key, wanted);
        if !claims.is_empty() {
            self.counters().add(Count::Misses, 1);
            return Ok(claims);
        }
        self.frame_for_announced(announced, began).map(|claim| vec![claim])
    }

    /// Takes an announcement back, with a message for those that wait for the page.
    pub(crate) fn take_back(&self, announced: FillReservation, message: WakeMessage) {
        self.pages.shard(announced.key).remove();
        self.pages.wake_failed(announced.key, message);
    }

    /// As [`File::peek`](crate::File::peek).
    #[inline(always)]
    pub(crate) fn peek<R>(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        mut look: impl FnMut(&Peek<'_>) -> Result<R, Torn>,
    ) -> Result<R, Error> {
        match self.pages.try_peek(file.key(page), &mut look) {
            Seen::Whole { seen: Ok(value), was_unread } => {
                if was_unread {
                    self.read_on(file, page);
                }
                Ok(value)
            }
            other => self.peek_slow(file, page, look, other),
        }
    }

    /// Looks on, after a first look that ended so.
    #[cold]
    #[inline(never)]
    fn peek_slow<R>(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        mut look: impl FnMut(&Peek<'_>) -> Result<R, Torn>,
        first: Seen<R>,
    ) -> Result<R, Error> {
        let mut seen = first;
        let mut tries = 1;
        loop {
            match seen {
                Seen::Whole { seen, .. } => {
                    return seen.map_err(|_: Torn| torn_elsewhere(file, page));
                }
                Seen::Torn if tries < TRIES => tries += 1,
                Seen::Torn | Seen::Nothing => break,
            }
            seen = self.pages.try_peek(file.key(page), &mut look);
        }
        let pinned = self.guard(file, page, 1)?;
        look(&Peek::pinned(pinned.racy())).map_err(|_: Torn| torn_elsewhere(file, page))
    }
}
