//! The write path: pages changed in memory.
//!
//! | the page is | then |
//! |---|---|
//! | dirty and unpinned | it is changed in place, mostly without a lock (`overwrite.rs`) |
//! | at rest and unpinned | it is changed in place |
//! | at rest and pinned | a copy takes its place; the pins keep the old page |
//! | in write-back | the same; the device gets the old page as a whole, and then the new one |
//! | in write-back, and there is no frame for a copy | the writer waits for the end of that |
//! | being read or changed | the writer waits, then looks again |
//! | missing; all of it is written, or it lies beyond the end | it is made without a read |
//! | missing otherwise | it is read first |
//!
//! A writer never waits for pins, so a thread that writes to a page it has pinned itself does not
//! stand in its own way.

use std::ops::Range;

use unherd_sys::primitives::{Arc, Ordering};

use crate::Error;
use crate::file::Core;
#[cfg(test)]
use crate::file::steps;
use crate::frames::{Claim, Pin, State, Word, spin_retry};
use crate::page::{FrameId, PageKey, PageNo};
use crate::pages::{Busy, Entry, FillReservation, ShardGuard, Want, Work};
use crate::state::FileState;
use crate::state::dirty_limit::DirtyReservation;
use crate::stats::Count;

/// How often a writer looks at a page at rest that is pinned. Most pins are gone after some loads,
/// and a copy costs a frame, and to copy a page.
const LOOKS_AT_PINS: usize = 8;

/// What stands between a writer and its page.
enum WriteAccess {
    Ready(Claim),
    /// The copy is in place of the page; its content is still to be copied.
    Copy(Claim, Pin),
    /// Pinned: a frame is needed for a copy.
    NeedsSpare,
    /// In write-back: a frame for a copy would do, or to wait.
    InWriteBack(Busy),
    Busy(Busy),
    /// Not there. The caller has announced that it brings the page in.
    Miss(FillReservation),
}

/// A frame in hand, in case that a copy is needed. Given back on drop.
#[derive(Debug)]
struct Spare<'a> {
    core: &'a Core,
    claim: Option<Claim>,
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.core.pages.free_frame(claim);
        }
    }
}

impl Core {
    /// Writes `bytes` at `at` in the page, and makes the file reach at least to their end. The page
    /// may be one of a stream, which stood at page `stream` before the call. What `goes_on` with
    /// the last write is no further use of the page.
    ///
    /// Blocks under `page-read`, `page-change`, `write-back` and `frame`, or on the device. The
    /// caller holds `file.writers` shared.
    #[inline]
    pub(crate) fn write_page(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        at: usize,
        bytes: &[u8],
        stream: Option<u64>,
        goes_on: bool,
    ) -> Result<(), Error> {
        let key = file.key(page);
        // What all of is written need not be read.
        let covers_page = bytes.len() == self.memory().page_bytes();
        let mut claim = self.claim_page(file, key, covers_page, stream)?;
        if goes_on {
            claim.goes_on();
        }
        // Of a page that was there, much is in the processor's caches.
        if covers_page && stream.is_some() && claim.before() == State::Empty {
            self.memory().write_pages(std::slice::from_mut(&mut claim), bytes);
        } else {
            self.memory().write(&mut claim, at, bytes);
        }
        file.grow(self.memory().offset(page) + (at + bytes.len()) as u64);
        self.end_change(file, key, claim);
        Ok(())
    }

    /// Writes zeros in one page. The caller keeps writers out.
    pub(crate) fn write_zeros(&self, file: &Arc<FileState>, part: Range<u64>) -> Result<(), Error> {
        if !part.is_empty() {
            let (page, at) = self.memory().locate(part.start);
            let zeros = vec![0; (part.end - part.start) as usize];
            self.write_page(file, page, at, &zeros, None, false)?;
        }
        Ok(())
    }

    /// State of a page that was changed.
    fn changed_state(file: &FileState) -> State {
        if file.unwritten.is_failing() { State::Failed } else { State::Dirty }
    }

    /// As [`Core::end_change`], of pages that were missing, from `first` on.
    pub(crate) fn end_changes(&self, file: &FileState, first: PageNo, claims: Vec<Claim>) {
        let (count, pages) = (claims.len(), (first.0..).map(PageNo));
        file.unclean.lock().insert_all(pages.clone().take(count));
        let state = Self::changed_state(file);
        // As in `publish_change`. None of them is held back: such a page is in the index until it
        // is released, or dropped with writers kept out.
        debug_assert!(!pages.clone().take(count).any(|page| file.holds.lock().has(page)));
        self.supply().note_dirty();
        claims.into_iter().for_each(|claim| self.frames().publish(claim, state));
        let is_frame_wanted = !self.supply().waiters.events.is_empty_after_rmw();
        let is_page_wanted = !self.supply().dirty_waiters.events.is_empty_after_rmw();
        self.pages.wake_pages(pages.take(count).map(|page| file.key(page)));
        if is_frame_wanted {
            self.pages.notify_frame_waiters(count);
        }
        if is_page_wanted {
            self.notify_of_dirty_pages(count);
        }
    }

    /// Pages have become dirty, and somebody waits for room: those that have waited longest are to
    /// write them back. But not where they could not begin: see `frames/dirty_waiters.rs`.
    #[cold]
    fn notify_of_dirty_pages(&self, count: usize) {
        if !self.supply().is_busy() && self.io.runs.has_free_or_miss() {
            self.supply().dirty_waiters.notify_of_pages(self.waits(), count);
        }
    }

    /// The page was changed: publishes it, and wakes the waiters for it, or for a frame.
    #[inline]
    pub(crate) fn end_change(&self, file: &FileState, key: PageKey, claim: Claim) {
        // A page that was unclean is in the set, and does not leave it while it is changing.
        if !claim.was_unclean() {
            file.unclean.lock().insert(key.page);
        }
        debug_assert!(file.unclean.lock().contains(key.page), "no sync would write it");
        self.publish_change(file, key, claim, Self::changed_state(file));
    }

    /// Publishes a page in `state`, or held.
    #[inline]
    fn publish_change(&self, file: &FileState, key: PageKey, claim: Claim, mut state: State) {
        // Invariant 1 of `holds.rs`.
        let is_any_held = self.files.held.load(Ordering::Relaxed) > 0;
        // Before others can see the page: see `expiry.rs`.
        if state.is_unwritten() || is_any_held {
            self.supply().note_dirty();
        }
        let holds = is_any_held.then(|| file.holds.lock());
        if holds.as_ref().is_some_and(|holds| holds.has(key.page)) {
            state = State::Held;
        }
        self.frames().publish(claim, state);
        drop(holds);
        let is_frame_wanted = !self.supply().waiters.events.is_empty_after_rmw();
        let is_dirty = matches!(state, State::Dirty | State::Failed);
        let is_page_wanted = is_dirty && !self.supply().dirty_waiters.events.is_empty_after_rmw();
        self.pages.wake_page_after_rmw(key);
        if is_frame_wanted {
            self.pages.notify_frame_waiters(1);
        }
        if is_page_wanted {
            self.notify_of_dirty_pages(1);
        }
    }

    /// The page was not changed: it is what it was before. One that was made for the change goes.
    pub(crate) fn give_up_change(&self, file: &FileState, key: PageKey, claim: Claim) {
        match claim.before() {
            State::Empty => {
                self.pages.shard(key).remove();
                let claim = self.frames().clear(claim);
                self.pages.wake_page_after_rmw(key);
                self.pages.free_frame(claim);
            }
            State::Unstable => {
                // A flush that failed meanwhile has not found the page.
                let durability = file.durability.lock();
                let is_lost = durability.is_broken(self.frames().period(claim.id()));
                if is_lost {
                    self.files.add_unwritten(file, 1);
                }
                self.frames().publish(claim, if is_lost { State::Dirty } else { State::Unstable });
                drop(durability);
                self.pages.wake_page_after_rmw(key);
                if is_lost {
                    self.supply().note_dirty();
                    self.pages.notify_writable();
                } else {
                    self.pages.notify_frame_waiters(1);
                }
            }
            // The copy of a page in write-back is written once more. A held page may have been
            // released meanwhile.
            State::WriteBack | State::Held => self.publish_change(file, key, claim, State::Dirty),
            before => self.publish_change(file, key, claim, before),
        }
    }

    /// The page, for this thread alone. Its content is there unless the caller `covers_page`. If it
    /// is one of a stream, its frame is, if possible, a neighbour of that of the page before.
    pub(crate) fn claim_page(
        &self,
        file: &Arc<FileState>,
        key: PageKey,
        covers_page: bool,
        stream: Option<u64>,
    ) -> Result<Claim, Error> {
        let mut reserved = DirtyReservation::new(&self.files, self.supply(), file);
        loop {
            let may = reserved.pages > 0
                || self.files.fits_dirty_limit(self.supply(), file, 1)
                || self.may_be_counted(file, key.page);
            let made = if may { Ok(()) } else { self.wait_for_dirty_limit(file, &mut reserved) };
            let claimed = made
                .and_then(|()| self.try_claim_page(file, key, covers_page, stream, &mut reserved));
            let made = match claimed {
                Ok(claim) if claim.was_unwritten() || reserved.use_up(1) => return Ok(claim),
                Ok(claim) => {
                    self.give_up_change(file, key, claim);
                    self.wait_for_dirty_limit(file, &mut reserved)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = made {
                // This thread may have been woken to change the page, and does not.
                self.pages.wake_next_changer(key);
                return Err(error);
            }
        }
    }

    fn try_claim_page(
        &self,
        file: &Arc<FileState>,
        key: PageKey,
        covers_page: bool,
        stream: Option<u64>,
        reserved: &mut DirtyReservation<'_>,
    ) -> Result<Claim, Error> {
        let (mut spare, mut began) = (Spare { core: self, claim: None }, None);
        if let Some(at) = stream
            && self.pages.index.lookup(key).is_none()
        {
            // Most likely it is missing. With a frame in hand it need not be announced.
            self.take_for_stream(file, at, key, 1, |claim| spare.claim = Some(claim));
        }
        loop {
            match self.try_acquire_write(key, covers_page, &mut spare.claim) {
                WriteAccess::Ready(claim) => return Ok(claim),
                WriteAccess::Copy(mut claim, old) => {
                    self.counters().add(Count::Copies, 1);
                    self.memory().copy(&mut claim, &old, self.memory().page_bytes());
                    self.supply().note_copied(&old, &claim);
                    self.pages.unpin(old);
                    return Ok(claim);
                }
                // The room is kept meanwhile: who could do with room alone has a page at rest, and
                // this thread would have had its frame.
                WriteAccess::NeedsSpare => spare.claim = Some(self.take_frame(key, began)?),
                WriteAccess::InWriteBack(busy) => {
                    // To wait for a frame would be no better: it may take as many write-backs.
                    spare.claim = self.try_take_frame(key);
                    if spare.claim.is_none() {
                        reserved.give_back();
                        began = self.wait_for_page(file, key, busy, Want::Change, began)?;
                    }
                }
                WriteAccess::Busy(busy) => {
                    // The thread that works on the page may be waiting for a frame.
                    if let Some(claim) = spare.claim.take() {
                        self.pages.free_frame(claim);
                    }
                    // And the page may rest only when others have room.
                    reserved.give_back();
                    began = self.wait_for_page(file, key, busy, Want::Change, began)?;
                }
                WriteAccess::Miss(announced) => {
                    self.counters().add(Count::WriteMisses, 1);
                    let mut claim = match spare.claim.take() {
                        Some(claim) => claim,
                        None => self.frame_for_announced(announced, began)?,
                    };
                    // As the page is announced, nobody can have it reach into the file meanwhile.
                    if covers_page || self.memory().offset(key.page) >= file.len() {
                        self.pages.install(announced, &claim, State::Changing);
                        if !covers_page {
                            self.memory().zero_from(&mut claim, 0);
                        }
                        return Ok(claim);
                    }
                    let pin = self.fill(file, announced, vec![claim])?;
                    self.pages.unpin(pin);
                }
            }
        }
    }

    fn try_acquire_write(
        &self,
        key: PageKey,
        covers_page: bool,
        spare: &mut Option<Claim>,
    ) -> WriteAccess {
        let mut shard = self.pages.shard(key);
        let frame = match shard.get() {
            Some(Entry::Frame(frame)) => frame,
            Some(Entry::Announced(generation)) => {
                return WriteAccess::Busy(Busy { work: Work::Reading, generation });
            }
            None => {
                let Some(claim) = spare.take_if(|_| covers_page) else {
                    return WriteAccess::Miss(shard.announce());
                };
                self.counters().add(Count::WriteMisses, 1);
                let is_installed = shard.install_missing(self.frames(), &claim, State::Changing);
                debug_assert!(is_installed);
                return WriteAccess::Ready(claim);
            }
        };
        let generation = shard.begin_busy();
        // Who has a frame in hand for the copy does not hope any longer.
        let looks = if spare.is_some() { 1 } else { LOOKS_AT_PINS };
        let is_only_pinned = |word: Word| word.state().is_at_rest();
        let change = || self.frames().try_change(frame, generation);
        let word = match spin_retry(looks, is_only_pinned, change) {
            Ok(claim) => return WriteAccess::Ready(claim),
            Err(word) => word,
        };
        let in_write_back = word.state() == State::WriteBack;
        if !word.state().is_at_rest() && !in_write_back {
            return WriteAccess::Busy(Busy::in_frame(self.frames(), frame, word));
        }
        let Some(mut copy) = spare.take() else {
            return if in_write_back {
                WriteAccess::InWriteBack(Busy::in_frame(self.frames(), frame, word))
            } else {
                WriteAccess::NeedsSpare
            };
        };
        #[cfg(test)]
        steps::reach(self, steps::Step::Replace, key.page);
        // A write-back may have ended meanwhile. Or another change of a dirty page has begun.
        match self.replace(&mut shard, key, frame, &mut copy) {
            Ok(old) => WriteAccess::Copy(copy, old),
            Err(word) => {
                *spare = Some(copy);
                WriteAccess::Busy(Busy::in_frame(self.frames(), frame, word))
            }
        }
    }

    /// Puts the claimed frame `copy`, to be changed, in the place of the page in `frame`, whose
    /// content is still to be copied from the pin. Gives the word if the page is neither at rest
    /// nor in write-back.
    pub(crate) fn replace(
        &self,
        shard: &mut ShardGuard<'_>,
        key: PageKey,
        frame: FrameId,
        copy: &mut Claim,
    ) -> Result<Pin, Word> {
        let generation = shard.begin_busy();
        let old = self.frames().replace(frame, copy, key, generation)?;
        shard.set_frame(copy.id());
        Ok(old)
    }
}
