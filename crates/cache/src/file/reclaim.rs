//! Where frames come from for those who may write pages back, and wait.
//!
//! A thread that finds no frame writes an idle dirty page back (or lets the I/O thread do it), and
//! waits. A frame that becomes free is handed to one waiter; one that becomes idle (it can be
//! evicted or written) makes one waiter look again.
//!
//! How neither misses the other stands in `frames/event_count.rs`; which page is given up, in
//! `pages/evict.rs`.
//!
//! A thread that leaves with an error wakes another, in case the wake was meant for a frame that it
//! did not take.

use std::time::Duration;

use unherd_sync::{Outcome, Wait};
use unherd_sys::primitives::Ordering;
use unherd_sys::{Deadline, Timestamp};

use crate::Error;
use crate::file::Core;
use crate::file::throttle::ThrottleState;
use crate::frames::Claim;
use crate::frames::waiters::LOOK;
use crate::page::{FrameId, PageKey, PageNo};
use crate::pages::Found;
use crate::state::FileState;
use crate::state::durability::RETRY_AFTER;

/// How long a thread waits for a frame, at least, before it is overdue. With twice that the longest
/// random write of 512 threads is a fifth longer.
const OVERDUE_AFTER: Duration = Duration::from_millis(50);

/// What is preallocated is one of this many parts of the frames at most.
const PREALLOCATED_PARTS: usize = 8;

/// What one that has entered the waiters has tried, between its waits.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// The page that wants the frame.
    pub(crate) key: PageKey,
    pub(crate) end: Timestamp,
    /// Whether it was woken, and has found nothing since.
    pub(crate) woken: bool,
}

/// What came of an attempt to have a frame.
#[derive(Debug)]
pub(crate) enum Attempt {
    Frame(Claim),
    /// There is none; a wait for one is to be told what was `seen` of the waiters before.
    Wait {
        seen: u32,
        /// The deadline, or when to look again before that.
        until: Timestamp,
        /// What to count the sleep by, if it is for the frame of a dirty page.
        throttled: Option<ThrottleState>,
    },
}

impl Core {
    /// An empty frame for the page, if there is one or one can be had without a write-back.
    pub(crate) fn try_take_frame(&self, key: PageKey) -> Option<Claim> {
        match self.pages.search(key) {
            Found::Frame { claim, dirty } => {
                self.preclean(dirty);
                Some(claim)
            }
            Found::ToWrite { .. } | Found::Nothing => None,
        }
    }

    fn is_of_failing_file(&self, frame: FrameId) -> bool {
        let file = self.files.get(self.frames().key(frame).file);
        file.is_some_and(|file| file.unwritten.is_failing())
    }

    /// As [`Core::try_take_frame`], up to `wanted` frames for the pages of the file from `page` on,
    /// if nobody waits for a frame.
    pub(crate) fn try_take_run(&self, file: &FileState, page: u64, wanted: u64) -> Vec<Claim> {
        let key = |page| file.key(PageNo(page));
        // What is read once is not to stay because it was read once before.
        if file.no_reuse.load(Ordering::Relaxed) {
            self.supply().pool.lock().forget((page..page + wanted).map(key));
        }
        if wanted == 1 {
            return self.try_take_frame(key(page)).into_iter().collect();
        }
        let (claims, dirty) = self.pages.try_take_run(key(page), wanted as usize);
        self.preclean(dirty);
        claims
    }

    /// Gives `each` frames for pages that the stream which stood at `at` has come to, from that of
    /// `key` on: up to `most`, as far as there are any; it may run under the lock of the file's
    /// write streams. See `preallocated.rs`.
    pub(crate) fn take_for_stream(
        &self,
        file: &FileState,
        at: u64,
        key: PageKey,
        most: usize,
        mut each: impl FnMut(Claim),
    ) {
        let (taken, left) = file.write_streams.lock().take_frames(at, key.page.0, most, &mut each);
        self.files.free_left(left, &self.pages);
        let Err(batch) = taken else { return };
        let batch = batch.max(most);
        // About, as others take at the same time.
        let room = self.supply().len() / PREALLOCATED_PARTS;
        let has = self.files.preallocated.load(Ordering::Relaxed);
        let wanted = batch.min(most + room.saturating_sub(has));
        let (mut claims, dirty) = self.pages.try_take_next(key, wanted);
        let mut rest = claims.split_off(most.min(claims.len()));
        if !rest.is_empty() {
            self.files.preallocated.fetch_add(rest.len(), Ordering::Relaxed);
            rest.reverse();
            file.write_streams.lock().put_frames(at, key.page.0 + most as u64, rest);
            // The fence that this has is the one that counts.
            if !self.supply().waiters.events.is_empty() {
                self.files.give_back_preallocated(file, &self.pages);
            }
        }
        self.preclean(dirty);
        claims.into_iter().for_each(each);
    }

    /// Takes back what streams of all files have for pages to come. Whether there was any.
    #[cold]
    pub(crate) fn take_back_preallocated(&self) -> bool {
        let mut has_any = false;
        if self.files.preallocated.load(Ordering::Relaxed) > 0 {
            for file in self.files.all() {
                has_any |= self.files.give_back_preallocated(&file, &self.pages);
            }
        }
        has_any
    }

    /// Up to `wanted` empty frames, for no page, also if somebody waits for a frame.
    pub(crate) fn take_from_pool(&self, wanted: usize) -> Vec<Claim> {
        let (claims, dirty) = self.pages.take_from_pool(wanted);
        self.preclean(dirty);
        claims
    }

    /// An empty frame for the page. Blocks under `frame` while there is none, and under the device
    /// while it writes a page back; gives up at the cache's frame deadline, counted from when the
    /// caller `began` to wait for a frame, if it did before.
    pub(crate) fn take_frame(
        &self,
        key: PageKey,
        began: Option<Timestamp>,
    ) -> Result<Claim, Error> {
        match self.try_take_frame(key) {
            Some(claim) => Ok(claim),
            None => self.take_slow(key, began),
        }
    }

    #[cold]
    fn take_slow(&self, key: PageKey, began: Option<Timestamp>) -> Result<Claim, Error> {
        let began = began.unwrap_or_else(Timestamp::now);
        let end = began.after(self.frame_wait);
        let taken = self.take_before(key, began, end);
        taken.ok_or_else(|| {
            self.pages.notify_frame_waiters(1);
            self.no_frames(Timestamp::now().since(began))
        })
    }

    /// As [`Core::take_frame`], up to `end`.
    pub(crate) fn take_before(
        &self,
        key: PageKey,
        began: Timestamp,
        end: Timestamp,
    ) -> Option<Claim> {
        let _entered = self.supply().waiters.events.enter();
        let mut attempts = Attempts { key, end, woken: false };
        let mut was_woken = false;
        loop {
            let (seen, until, throttled) = match self.attempt(&mut attempts) {
                Attempt::Frame(claim) => return Some(claim),
                Attempt::Wait { seen, until, throttled } => (seen, until, throttled),
            };
            // No time passes in a simulation.
            let is_late = || cfg!(shuttle) || Timestamp::now().since(began) >= OVERDUE_AFTER;
            let is_overdue = was_woken && is_late();
            let wait = Wait::new(self.reasons().frame).deadline(Deadline::at(until));
            let outcome = self.supply().waiters.wait(self.waits(), seen, is_overdue, wait);
            was_woken |= matches!(outcome, Outcome::Woken(_));
            if let Some(state) = throttled {
                self.note_throttled(state, outcome);
            }
            match outcome {
                Outcome::Woken(LOOK) => attempts.woken = true,
                Outcome::Woken(handed) => {
                    if let Some(claim) = self.supply().take_handed(handed) {
                        self.supply().pool.lock().admit([(claim.id(), key)]);
                        return Some(claim);
                    }
                    attempts.woken = true;
                }
                Outcome::Invalid => attempts.woken = false,
                Outcome::TimedOut if until < end => attempts.woken = false,
                // A frame may be there: a task that nobody polls may have been notified.
                Outcome::TimedOut => return self.try_take_frame(key),
            }
        }
    }

    /// Looks for a frame, and writes pages back as long as that can be done and none is found. The
    /// caller has entered the waiters.
    pub(crate) fn attempt(&self, attempts: &mut Attempts) -> Attempt {
        loop {
            let seen = self.supply().waiters.events.epoch();
            let (mut until, mut throttled) = (attempts.end, None);
            let found = self.pages.search(attempts.key);
            // Before anything is written for a frame.
            if !matches!(found, Found::Frame { .. }) && self.take_back_preallocated() {
                continue;
            }
            match found {
                Found::Frame { claim, dirty } => {
                    self.preclean(dirty);
                    return Attempt::Frame(claim);
                }
                Found::ToWrite { frame, has_failed } if Timestamp::now() < attempts.end => {
                    attempts.woken = false;
                    if self.write_back_frame(frame) || self.keep_busy() {
                        continue;
                    }
                    throttled = self.throttle_state();
                    if throttled.is_none() {
                        continue;
                    }
                    // Nobody is told when its file's writes may be tried again. (A page that has
                    // become dirty since they fail has not failed itself.)
                    let fails = has_failed || self.is_of_failing_file(frame);
                    if fails && cfg!(not(shuttle)) {
                        until = until.min(Timestamp::now().after(RETRY_AFTER));
                    }
                }
                Found::ToWrite { .. } | Found::Nothing => {}
            }
            if attempts.woken {
                self.waits().note_needless(self.reasons().frame);
            }
            return Attempt::Wait { seen, until, throttled };
        }
    }
}

#[cfg(test)]
mod tests;
