//! Reads in a task: futures that stand in the same queues as threads, and may be dropped.
//!
//! A future goes through these states; it may be dropped in each, as its owner likes. What it has
//! then is given back by a guard that lies in it.
//!
//! | | state | it has | its drop |
//! |---|---|---|---|
//! | 0 | fresh, or in a poll | nothing, between polls | does nothing |
//! | 1 | waits for a page that others read or change | a place in the page's queue | leaves the queue |
//! | 2 | has announced the page, and waits for a frame | the announcement ([`FillReservationGuard`]), a place in the frames' queue, the count of one waiter | leaves the queue; a wake that had chosen it goes to the next there; the announcement is taken back, and the waiters for the page look again |
//! | 3 | waits for its read | the right to the pin (`queued_read.rs`), a place in the page's queue | leaves; the read ends by itself, and the page comes in for the others |
//! | 4 | its read has ended, and it was not polled since | the same, with a pin | the pin is given back |
//! | 5 | ready | the guard is the caller's | |
//!
//! 1. No claim lies in a future: from the poll in which it gets a frame, the slot of the engine has
//!    it, until the transfer is complete. So nothing is freed that the device still writes, and no
//!    frame is lost with a future.
//! 2. An announcement lies in a guard until a frame is put in its place. So no page stays announced
//!    that nobody brings in.
//! 3. A wake of one reaches one that uses it. The waits for a page are shared: whenever they are
//!    woken, so are all others of their kind, and who leaves takes nothing along. The wait for a
//!    frame is not: the wait table passes the wake on (`ASYNC` there), which is enough, because a
//!    task is never handed the frame itself (`frames/waiters.rs`).
//! 4. Polls and drops take mutexes for a few steps, and sleep for nothing else. A poll that fails
//!    for want of frames says what holds them: it looks at all, or waits for the look of another.
//!
//! ```text
//!  the future is dropped in state 2         somebody frees a frame
//!  --------------------------------         ----------------------
//!                                           put the frame to the free ones
//!                                           choose the first in the queue
//!  leave the queue:
//!    was not chosen: nothing                chosen is another
//!    was chosen: choose the next            (no more)
//!    nobody is next: nothing
//!  count one waiter less
//!  take the announcement back
//!  wake the waiters for the page
//! ```
//!
//! Excluded: a frame lies free while one waits for it that was in the queue before. Either the
//! other chose that one, or the drop does; one that comes later than both finds the frame in its
//! search, or that the epoch has changed. Nor is a frame lost if nobody is next: it
//! is among the free ones. The races of a drop with the end of a read and of a drop with the wake
//! of a page stand in `io/engine.rs` and in the wait table's `task.rs`.
//!
//! The deadline of state 2 is kept by the I/O thread: see `frames/alarm.rs`.

use std::future::poll_fn;
use std::pin::pin;

use unherd_sync::{Outcome, Tag};
use unherd_sys::Timestamp;
use unherd_sys::primitives::Arc;

use crate::Error;
use crate::file::Core;
use crate::file::fill::{BegunFill, finish};
use crate::file::queued_read::QueuedRead;
use crate::file::reclaim::{Attempt, Attempts};
use crate::frames::{Claim, Pin};
use crate::io::TransferError;
use crate::page::{PageKey, PageNo};
use crate::pages::{Busy, FillReservation, Lookup, PageGuard, WakeMessage, Want};
use crate::state::FileState;
use crate::state::runs::{Engine, Fill};
use crate::stats::Count;

/// A page that a task has announced, and has no frame for yet.
#[must_use]
struct FillReservationGuard<'a> {
    core: &'a Core,
    announced: FillReservation,
    /// What the waiters for the page are told, if the announcement is taken back.
    message: WakeMessage,
}

impl<'a> FillReservationGuard<'a> {
    fn new(core: &'a Core, announced: FillReservation) -> Self {
        Self { core, announced, message: WakeMessage::Look }
    }

    /// There is a frame to put in the place of the announcement.
    fn pass_on(self) -> FillReservation {
        let announced = self.announced;
        std::mem::forget(self);
        announced
    }
}

impl Drop for FillReservationGuard<'_> {
    fn drop(&mut self) {
        // In a child of fork(2) nobody is there to bring it in, and the locks may be held for ever.
        if !self.core.fork().is_forked() {
            self.core.pages.take_back(self.announced, self.message);
        }
    }
}

impl Core {
    /// As [`Core::guard`], in a task.
    pub(crate) async fn guard_async(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        pages: u64,
    ) -> Result<PageGuard<'_>, Error> {
        let pin = match self.pages.try_hit(file.key(page)) {
            Some(hit) => {
                if hit.was_unread {
                    self.continue_readahead(file, page);
                }
                hit.pin
            }
            None => self.pin_async(file, page, pages).await?,
        };
        Ok(PageGuard::new(&self.pages, pin))
    }

    /// As [`Core::pin`], in a task.
    pub(crate) async fn pin_async(
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
                    began = self.wait_for_page_async(file, key, busy, began).await?;
                }
                Lookup::Miss(announced) => {
                    let guard = FillReservationGuard::new(self, announced);
                    return self.bring_in_async(file, guard, pages, began).await;
                }
            }
            waited = true;
        }
    }

    /// As [`Core::wait_for_page`], in a task that wants to read.
    async fn wait_for_page_async(
        &self,
        file: &FileState,
        key: PageKey,
        busy: Busy,
        began: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Error> {
        file.check_has_none_of(&(key.page.0..key.page.0 + 1))?;
        let began = began.unwrap_or_else(Timestamp::now);
        let how = self.pages.how_to_wait(busy, Want::Read).shared();
        let still = || self.pages.is_still(key, busy);
        let outcome = self.pages.waits.wait_async(&key.into(), still, how).await;
        self.after_wait(file, key, self.pages.told(key, busy, outcome), began)
    }

    async fn bring_in_async(
        &self,
        file: &Arc<FileState>,
        mut guard: FillReservationGuard<'_>,
        pages: u64,
        began: Option<Timestamp>,
    ) -> Result<Pin, Error> {
        let key = guard.announced.key;
        let Some(engine) = &self.io.engine else {
            let page = Some(key.page.0);
            return Err(Error::AsyncNeedsIoThread { file: file.path.clone(), page });
        };
        self.counters().add(Count::Misses, 1);
        let mut claims = self.try_take_with_neighbours(file, key, pages);
        if claims.is_empty() {
            let claim = self.take_frame_async(engine, key, began).await.inspect_err(|_| {
                guard.message = WakeMessage::NoFrames(guard.announced.generation);
            })?;
            claims.push(claim);
        }
        self.fill_async(engine, file, guard.pass_on(), claims).await
    }

    /// As [`Core::fill`], in a task.
    async fn fill_async(
        &self,
        engine: &Engine,
        file: &Arc<FileState>,
        announced: FillReservation,
        claims: Vec<Claim>,
    ) -> Result<Pin, Error> {
        let filled = match Fill::begin(&self.pages, file.clone(), announced, claims) {
            BegunFill::Ended(filled) => filled,
            BegunFill::ToRead(run) => {
                match QueuedRead::begin(&self.pages, engine, run, announced.key) {
                    Ok(read) => read.wait_async().await,
                    Err(run) => finish(&self.pages, *run, |_| Err(TransferError::IO)),
                }
            }
        };
        filled.map_err(|errno| self.read_error(file, announced.key, errno))
    }

    /// As [`Core::take_frame`], in a task.
    async fn take_frame_async(
        &self,
        engine: &Engine,
        key: PageKey,
        began: Option<Timestamp>,
    ) -> Result<Claim, Error> {
        let began = began.unwrap_or_else(Timestamp::now);
        let end = began.after(self.frame_wait);
        let taken = self.take_before_async(engine, key, end).await;
        taken.ok_or_else(|| {
            self.pages.notify_frame_waiters(1);
            self.no_frames(Timestamp::now().since(began))
        })
    }

    async fn take_before_async(
        &self,
        engine: &Engine,
        key: PageKey,
        end: Timestamp,
    ) -> Option<Claim> {
        let waiters = &self.supply().waiters;
        let _entered = waiters.events.enter();
        let mut attempts = Attempts { key, end, woken: false };
        loop {
            let (seen, until) = match self.attempt(&mut attempts) {
                Attempt::Frame(claim) => return Some(claim),
                Attempt::Wait { seen, until, .. } => (seen, until),
            };
            // Without an I/O thread nobody keeps the deadline.
            if Timestamp::now() >= end || engine.is_over() {
                return None;
            }
            let deadline = Tag(until.as_ns());
            let mut wait =
                pin!(waiters.wait_async(self.waits(), seen, self.reasons().frame, deadline));
            let mut is_alarm_set = false;
            let outcome = poll_fn(|context| {
                let poll = wait.as_mut().poll(context);
                // It is in the queue now.
                if poll.is_pending() && !is_alarm_set {
                    is_alarm_set = true;
                    self.supply().alarm.iter().for_each(|alarm| alarm.set_deadline(until));
                }
                poll
            })
            .await;
            // Who is woken at the deadline was not woken in vain.
            attempts.woken = matches!(outcome, Outcome::Woken(_)) && Timestamp::now() < until;
        }
    }
}
