//! Writers that are slowed down to the device: one that finds no room for a dirty page writes pages
//! back, as long as the device would be faster with more of them to do, and then waits for room.

use std::cmp::Reverse;

use unherd_sync::{Outcome, Wait};
use unherd_sys::primitives::{Arc, Ordering};
use unherd_sys::{Deadline, Timestamp};

use crate::Error;
use crate::file::Core;
use crate::frames::Word;
use crate::frames::dirty_waiters::{BUSY, is_handed_reservation};
use crate::page::PageNo;
use crate::state::FileState;
use crate::state::dirty_limit::{DirtyReservation, tag_of};
use crate::state::durability::RETRY_AFTER;
use crate::stats::Count;

/// Unclean pages that are looked at under one lock.
const CHUNK: usize = 64;
/// And at first: most often that one will do.
const FIRST_CHUNK: usize = 1;

/// What came of a try to write a page back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Some,
    Nothing,
    /// Nothing, and the pages of a file are not to be tried so soon.
    Refused,
}

/// What is under way, and what is dirty, as a caller finds it that goes to sleep for dirty pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThrottleState {
    write_backs: u32,
    dirty_pages: usize,
}

impl Core {
    /// Writes pages back until one more of the file may be newer than the device, and reserves it.
    /// Blocks on the device or, under `frame`, until a write-back or change by others has ended; up
    /// to the cache's frame deadline.
    ///
    /// # Errors
    /// That of the file's writes, if they fail; [`Error::NoFrames`].
    #[cold]
    pub(crate) fn wait_for_dirty_limit(
        &self,
        file: &Arc<FileState>,
        reserved: &mut DirtyReservation<'_>,
    ) -> Result<(), Error> {
        let began = Timestamp::now();
        let end = began.after(self.frame_wait);
        let (waiters, tag) = (&self.supply().dirty_waiters, tag_of(file));
        let _entered = waiters.events.enter();
        let (mut was_notified, mut has_begun, mut is_over) = (false, false, false);
        'look: loop {
            let seen = waiters.events.epoch();
            if self.files.fits_dirty_limit(self.supply(), file, 1) && reserved.reserve(1) {
                self.leave_dirty_waiters(was_notified, has_begun);
                return Ok(());
            }
            let now = Timestamp::now();
            let mut error = file.durability.lock().refusal();
            if error.is_none() && (is_over || now >= end) {
                error = Some(self.no_frames(now.since(began)));
            }
            if let Some(error) = error {
                if was_notified {
                    self.files.hand_out_reservations(self.supply(), 1);
                }
                return Err(error);
            }
            // Of an earlier one the room may be gone by now.
            has_begun = false;
            let mut own = Some(file);
            // The device is to be busy while this thread sleeps.
            let (written, state) = loop {
                let written = self.write_for_dirty_limit(own);
                if written == Written::Some && self.io.engine.is_none() {
                    was_notified = false;
                    continue 'look;
                }
                has_begun |= written == Written::Some;
                if let Some(state) = self.throttle_state() {
                    break (written, state);
                }
                // What fails is not repeated here.
                own = Some(file).filter(|file| !file.unwritten.is_failing());
            };
            if !has_begun && was_notified {
                self.waits().note_needless(self.reasons().frame);
            }
            // Nobody is told when the writes of a file may be tried again.
            let looks_again = written == Written::Refused && cfg!(not(shuttle));
            let until = if looks_again { end.min(now.after(RETRY_AFTER)) } else { end };
            let wait = Wait::new(self.reasons().frame).deadline(Deadline::at(until)).tag(tag);
            let outcome = waiters.wait(self.waits(), seen, wait);
            self.note_throttled(state, outcome);
            was_notified = matches!(outcome, Outcome::Woken(_));
            if is_handed_reservation(outcome) {
                reserved.pages = 1;
                self.leave_dirty_waiters(was_notified, has_begun);
                return Ok(());
            }
            // It looks once more then; not by the clock, which stands still in a simulation.
            is_over = outcome == Outcome::TimedOut && until == end;
        }
    }

    /// A waiter takes room, and leaves; whether it was told before, and has begun a write since.
    fn leave_dirty_waiters(&self, was_notified: bool, has_begun: bool) {
        let is_writing = has_begun && self.supply().waiters.writing() > 0;
        self.supply().dirty_waiters.leave(self.waits(), was_notified, is_writing);
    }

    /// To be called just before the sleep. None if the device could have more to do by now: then
    /// it is too early to sleep.
    pub(crate) fn throttle_state(&self) -> Option<ThrottleState> {
        let write_backs = self.supply().waiters.writing();
        let dirty_pages = self.files.unwritten.load(Ordering::Relaxed);
        let is_due = write_backs >= BUSY || !self.can_begin_write();
        is_due.then_some(ThrottleState { write_backs, dirty_pages })
    }

    /// Counts a sleep that began in that state, unless it did not begin after all.
    pub(crate) fn note_throttled(&self, state: ThrottleState, outcome: Outcome) {
        if outcome != Outcome::Invalid {
            let ThrottleState { write_backs, dirty_pages } = state;
            self.counters().add(Count::ThrottleSleeps, 1);
            self.counters().add(Count::ThrottleWriteBacks, write_backs.into());
            self.counters().add(Count::ThrottleDirtyPages, dirty_pages as u64);
        }
    }

    /// Whether there is a page that could be written, and a buffer for it.
    fn can_begin_write(&self) -> bool {
        let has_page = |file: Arc<FileState>| self.writable_pages(&file).next().is_some();
        let may_be_tried = |file: &Arc<FileState>| {
            file.unwritten.pages.load(Ordering::Relaxed) > 0 && !file.unwritten.is_failing()
        };
        self.io.runs.has_free() && self.files.all().into_iter().filter(may_be_tried).any(has_page)
    }

    /// Begins to write a page of any file back, unless the device is busy. For one that waits for a
    /// frame.
    pub(crate) fn keep_busy(&self) -> bool {
        !self.supply().is_busy() && self.write_for_dirty_limit(None) == Written::Some
    }

    /// Writes a page back, or begins to, if there is one: of the file, or, where others leave it no
    /// room, of the one that has most.
    fn write_for_dirty_limit(&self, file: Option<&Arc<FileState>>) -> Written {
        if let Some(written) = file.and_then(|file| self.write_page_of(file)) {
            return written;
        }
        let is_other = |other: &Arc<FileState>| file.is_none_or(|file| other.id != file.id);
        let files = self.files.all().into_iter().filter(is_other);
        // Counted once: others change it.
        let count = |other: Arc<FileState>| (other.unwritten.pages.load(Ordering::Relaxed), other);
        let mut others: Vec<_> = files.map(count).filter(|(pages, _)| *pages > 0).collect();
        others.sort_unstable_by_key(|(pages, _)| Reverse(*pages));
        let mut written = Written::Nothing;
        for (_, other) in others {
            if other.is_refused() {
                written = Written::Refused;
            } else if let Some(written) = self.write_page_of(&other) {
                return written;
            }
        }
        written
    }

    /// Writes a page of the file back, or begins to. `None` if there is no page. If there is no
    /// buffer, no other file needs to be tried.
    fn write_page_of(&self, file: &Arc<FileState>) -> Option<Written> {
        for page in self.writable_pages(file) {
            // Not before: one that finds no page takes no buffer from others, which would have it
            // look again when they are told.
            let Some(buffer) = self.io.runs.try_take() else { return Some(Written::Nothing) };
            match self.write_back_by(file, page, buffer) {
                Ok(()) => {
                    file.unwritten.next.store(page.0 + 1, Ordering::Relaxed);
                    return Some(Written::Some);
                }
                Err(buffer) => self.put_buffers([buffer]),
            }
        }
        None
    }

    /// The pages of the file that can be written back now, at a glance; first those behind the one
    /// that was written last.
    fn writable_pages<'a>(&'a self, file: &'a FileState) -> impl Iterator<Item = PageNo> + 'a {
        let mut from = PageNo(file.unwritten.next.load(Ordering::Relaxed));
        let (mut left, mut most) = (usize::MAX, FIRST_CHUNK);
        let chunks = std::iter::from_fn(move || {
            let unclean = file.unclean.lock();
            left = left.min(unclean.len());
            let mut chunk = Vec::with_capacity(most.min(left));
            chunk.extend(unclean.iter_from(from).chain(unclean.iter()).take(most.min(left)));
            left -= chunk.len();
            from = chunk.last().copied().map(PageNo::next)?;
            most = CHUNK;
            Some(chunk)
        });
        chunks.flatten().filter(|&page| self.is_writable(file, page))
    }

    /// Whether the page can be written back now, at a glance.
    fn is_writable(&self, file: &FileState, page: PageNo) -> bool {
        let key = file.key(page);
        let found = self.pages.index.lookup(key).filter(|&frame| self.frames().key(frame) == key);
        let can_be_lent = |word: Word| word.lent().is_some();
        // Most often it is where a look without the lock finds it.
        (found.is_some_and(|frame| can_be_lent(self.frames().word(frame)))
            || self.pages.word_of(key).is_some_and(can_be_lent))
            && self.memory().offset(page) < file.len()
            && !file.write_backs.is_blocked()
    }
}
