//! The read path: pages pinned or looked at, those that are there (`hit.rs`, `peek.rs`) and others.
//!
//! One thread brings a missing page in; it announces this in the index before it even has a frame
//! (a stream of whole pages that is written has the next frame first: see `change.rs`).
//! All others that want the page wait for it alone. If the read fails, each of them gets the error,
//! and none reads again by itself: one bad sector costs one read. The next call will try again.
//!
//! A look goes without a pin as long as it can, and then with one.

use unherd_sys::primitives::Arc;
use unherd_sys::{Errno, Timestamp};

use crate::Error;
use crate::file::Core;
use crate::file::fill::{BegunFill, finish};
use crate::file::queued_read::QueuedRead;
use crate::foreign_code::is_in_foreign_code;
use crate::frames::{Claim, Pin};
use crate::page::{PageKey, PageNo};
use crate::pages::{
    Busy, FillReservation, Lookup, PageGuard, Peek, Seen, TooManyPins, Torn, WakeMessage, Want,
    Work,
};
use crate::state::FileState;
use crate::state::runs::{Fill, Run};
use crate::stats::Count;

/// Looks without a pin, before the page is pinned.
const TRIES: usize = 8;

/// The part of the frame deadline that a waiter does without, to give up together with others.
const LAST_PART: u32 = 16;

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
                    self.continue_readahead(file, page);
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
        self.check_page(file, page)?;
        let key = file.key(page);
        let (mut waited, mut began) = (false, None);
        loop {
            match self.look_up(file, key, waited)? {
                Lookup::Here(pin) => {
                    self.continue_readahead(file, page);
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

    /// Blocks until this busy period ends. Re-check the page afterwards.
    ///
    /// If there was no frame for the page, but this call may wait on, gives when it `began` to wait
    /// for one. Pass that to the next wait.
    ///
    /// # Errors
    /// If it was being brought in, and that failed: each that waited for it gets the error. If the
    /// caller itself holds the page.
    pub(crate) fn wait_for_page(
        &self,
        file: &FileState,
        key: PageKey,
        busy: Busy,
        want: Want,
        began: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Error> {
        file.check_has_none_of(&(key.page.0..key.page.0 + 1))?;
        let began = began.unwrap_or_else(Timestamp::now);
        let told = self.pages.wait(key, busy, want);
        self.after_wait(file, key, told, began)
    }

    /// What follows for one that has waited for a page since `began`, by what it was told: see
    /// [`Core::wait_for_page`].
    ///
    /// The frame deadline is that of the caller, not that of the thread that looked for a frame.
    /// One that has waited for [`LAST_PART`] less gives up with that thread: so however many wait,
    /// they look again [`LAST_PART`] times at most, and not each when the one before gives up.
    pub(crate) fn after_wait(
        &self,
        file: &FileState,
        key: PageKey,
        told: WakeMessage,
        began: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        match told {
            WakeMessage::Look => Ok(None),
            WakeMessage::NoFrames(_) => {
                let waited = Timestamp::now().since(began);
                if waited < self.frame_wait - self.frame_wait / LAST_PART {
                    return Ok(Some(began));
                }
                Err(self.no_frames_as(self.supply().latest_unavailable(), waited))
            }
            WakeMessage::ReadFailed(_, errno) => Err(self.read_error(file, key, errno)),
        }
    }

    /// Brings an announced page into the first of the frames, which has come from
    /// [`Core::frames_for_announced`], with its neighbours, and wakes the waiters for them.
    pub(crate) fn fill(
        &self,
        file: &Arc<FileState>,
        announced: FillReservation,
        claims: Vec<Claim>,
    ) -> Result<Pin, Error> {
        let filled = match Fill::begin(&self.pages, file.clone(), announced, claims) {
            BegunFill::Ended(filled) => filled,
            BegunFill::ToRead(run) => self.read_for_thread(file, announced.key, run),
        };
        filled.map_err(|errno| self.read_error(file, announced.key, errno))
    }

    /// Reads by this thread, or has it queued where enough read by themselves.
    fn read_for_thread(&self, file: &FileState, first: PageKey, run: Run) -> Result<Pin, Errno> {
        let Some(engine) = &self.io.engine else { return self.read_in_thread(run) };
        // Foreign code may run on the thread that ends what is queued. And that one thread would
        // run the hook for all, or copy from the kernel's cache.
        let may_queue = file.direct && file.hook.is_none() && !is_in_foreign_code();
        if let Some(_own) = engine.try_begin_blocking_read(self.memory(), may_queue) {
            return self.read_in_thread(run);
        }
        match QueuedRead::begin(&self.pages, engine, run, first) {
            Ok(read) => read.wait(),
            // The I/O thread has died.
            Err(run) => self.read_in_thread(*run),
        }
    }

    fn read_in_thread(&self, run: Run) -> Result<Pin, Errno> {
        let (device, memory) = (&*self.io.device, self.memory());
        finish(&self.pages, run, |run| run.move_blocking(device, memory))
    }

    /// A frame for a page that the caller has announced. If there is none, the announcement is
    /// taken back, and the waiters for the page are told. As for [`Core::take_frame`], `began`.
    pub(crate) fn frame_for_announced(
        &self,
        announced: FillReservation,
        began: Option<Timestamp>,
    ) -> Result<Claim, Error> {
        self.take_frame(announced.key, began).inspect_err(|_| {
            self.pages.take_back(announced, WakeMessage::NoFrames(announced.generation))
        })
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
        self.counters().add(Count::Misses, 1);
        let claims = self.try_take_with_neighbours(file, announced.key, wanted);
        if !claims.is_empty() {
            return Ok(claims);
        }
        self.frame_for_announced(announced, began).map(|claim| vec![claim])
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
                    self.continue_readahead(file, page);
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unherd_sys::primitives::thread;
    use unherd_testkit::{Seed, SimDevice};

    use super::*;
    use crate::Cache;
    use crate::file::Source;
    use crate::state::OpenOptions;

    /// The failure of one read must not reach the waiters for the next read of the page.
    #[test]
    fn an_earlier_read_fails_no_later_waiter() {
        let device = Arc::new(SimDevice::new(Seed::new(1)));
        device.put("f", &[0; 4096]);
        let cache = Cache::builder().io(crate::Io::Blocking).device(device).build().unwrap();
        let core = &cache.owner.core;
        let options = OpenOptions::new().lock(false);
        let file = core.open_file(Source::Path(Path::new("f")), &options).unwrap();
        let key = file.key(PageNo(0));
        let wait = |announced: FillReservation| {
            let busy = Busy { work: Work::Reading, generation: announced.generation };
            core.wait_for_page(&file, key, busy, Want::Read, None)
        };
        let late = core.pages.shard(key).announce();
        core.pages.shard(key).remove();
        let next = core.pages.shard(key).announce();
        // Who saw the earlier one has no need to wait.
        wait(late).unwrap();
        for (told, fails) in [(late, false), (next, true)] {
            let outcome = thread::scope(|scope| {
                let waiter = scope.spawn(|| wait(next));
                while !waiter.is_finished() {
                    core.pages
                        .wake_failed(key, WakeMessage::ReadFailed(told.generation, Errno::IO));
                    thread::yield_now();
                }
                waiter.join().unwrap()
            });
            assert_eq!(outcome.is_err(), fails, "{outcome:?}");
        }
    }
}
