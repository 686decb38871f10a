//! The read path: pages brought in. Those that are there are found by `hit.rs`.
//!
//! One thread brings a missing page in; it announces this in the index before it even has a frame
//! (a stream of whole pages that is written has the next frame first: see `change.rs`).
//! All others that want the page wait for it alone. If the read fails, each of them gets the error,
//! and none reads again by itself: one bad sector costs one read. The next call will try again.
//!
//! A page at or beyond the end of the file needs no read: it is zeros. So are bytes that the device
//! has not been given yet, where this cache has made the file longer. But bytes that the device has
//! had are read, or the read fails: others may have cut the file (`device_len.rs`).

use unherd_sys::primitives::Arc;
use unherd_sys::{Errno, Timestamp};

use crate::Error;
use crate::file::runs::{Engine, Fill, Run, RunPages};
use crate::file::{Core, FileState, TRUNCATED};
use crate::foreign_code::is_in_foreign_code;
use crate::frames::{Claim, Pin, State};
use crate::io::{Moved, TransferError};
use crate::page::{FrameId, PageKey, PageNo};
use crate::pages::{FillReservation, Lookup, PageGuard, TooManyPins, WakeMessage, Want, Work};
use crate::stats::Count;

/// What became of a page that is brought in.
enum BegunFill {
    Ended(Result<Pin, Errno>),
    ToRead(Run),
}

fn delivered(ended: Option<Result<Pin, Errno>>) -> Result<Pin, Errno> {
    match ended {
        Some(filled) => filled,
        None => unreachable!("a fill that has ended was delivered"),
    }
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

    /// A frame for a page that the caller has announced, if there is one a neighbour of the frame
    /// `before`. If there is none, the announcement is taken back, and the waiters for the page are
    /// told. As for [`Core::take_frame`], `began`.
    pub(crate) fn frame_for_announced(
        &self,
        announced: FillReservation,
        before: Option<FrameId>,
        began: Option<Timestamp>,
    ) -> Result<Claim, Error> {
        self.counters().add(Count::Misses, 1);
        if let Some(claim) = before.and_then(|before| self.try_take_next(announced.key, before)) {
            return Ok(claim);
        }
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
        self.frame_for_announced(announced, None, began).map(|claim| vec![claim])
    }

    /// Takes an announcement back, with a message for those that wait for the page.
    pub(crate) fn take_back(&self, announced: FillReservation, message: WakeMessage) {
        self.pages.shard(announced.key).remove();
        self.pages.wake_failed(announced.key, message);
    }

    /// Puts a claimed frame in the place of its page's announcement.
    pub(crate) fn install(&self, announced: FillReservation, claim: &Claim, state: State) {
        self.pages.shard(announced.key).install(self.frames(), announced, claim, state);
    }

    /// Brings an announced page into the first of the frames, which has come from
    /// [`Core::frames_for_announced`], with its neighbours, and wakes the waiters for them.
    pub(crate) fn fill(
        &self,
        file: &Arc<FileState>,
        announced: FillReservation,
        claims: Vec<Claim>,
    ) -> Result<Pin, Error> {
        let filled = match self.begin_fill(file, announced, claims) {
            BegunFill::Ended(filled) => filled,
            BegunFill::ToRead(run) => self.read_for_thread(file, announced.key, run),
        };
        filled.map_err(|errno| self.read_error(file, announced.key, errno))
    }

    /// As [`Core::fill`], in a task of a cache with queued I/O.
    #[cfg(feature = "async")]
    pub(crate) async fn fill_async(
        &self,
        engine: &Engine,
        file: &Arc<FileState>,
        announced: FillReservation,
        claims: Vec<Claim>,
    ) -> Result<Pin, Error> {
        let filled = match self.begin_fill(file, announced, claims) {
            BegunFill::Ended(filled) => filled,
            BegunFill::ToRead(run) => match self.begin_read(engine, run, announced.key) {
                Ok(ticket) => ticket.wait_async().await,
                Err(run) => delivered(self.finish_fill(*run, |_| Err(TransferError::IO))),
            },
        };
        filled.map_err(|errno| self.read_error(file, announced.key, errno))
    }

    /// Puts the frames in the index; where that needs no read, it is all.
    fn begin_fill(
        &self,
        file: &Arc<FileState>,
        announced: FillReservation,
        mut claims: Vec<Claim>,
    ) -> BegunFill {
        let first = announced.key.page;
        self.install(announced, &claims[0], State::Reading);
        if self.offset(first) >= file.len() {
            claims.drain(1..).for_each(|claim| self.pages.free_frame(claim));
            let mut ended = None;
            let fill = Fill::new(file.clone(), first, claims);
            self.publish_fill(fill, 0, |filled| ended = Some(filled));
            return BegunFill::Ended(delivered(ended));
        }
        self.install_missing(file, first, &mut claims, 1);
        BegunFill::ToRead(self.run_to_read(Fill::new(file.clone(), first, claims)))
    }

    /// The run of pages that are in the index, with their frames.
    pub(crate) fn run_to_read(&self, fill: Fill) -> Run {
        self.counters().add(Count::Reads, fill.claims.len() as u64);
        if fill.ahead() > 0 {
            self.counters().add(Count::ReadAhead, fill.ahead() as u64);
        }
        Run::new(RunPages::Fill(fill), self.memory().page_bytes())
    }

    /// Reads by this thread, or has it queued where enough read by themselves.
    fn read_for_thread(&self, file: &FileState, first: PageKey, run: Run) -> Result<Pin, Errno> {
        let Some(engine) = &self.io.engine else { return self.read_in_thread(run) };
        // Foreign code may run on the thread that ends what is queued. And that one thread would
        // run the hook for all, or copy from the kernel's cache.
        let may_queue = file.direct && file.hook.is_none() && !is_in_foreign_code();
        if let Some(_own) = engine.try_begin_own_read(may_queue) {
            return self.read_in_thread(run);
        }
        match self.begin_read(engine, run, first) {
            Ok(ticket) => ticket.wait(),
            // The I/O thread has died.
            Err(run) => self.read_in_thread(*run),
        }
    }

    fn read_in_thread(&self, run: Run) -> Result<Pin, Errno> {
        let device = &*self.io.device;
        delivered(self.finish_fill(run, |run| run.move_blocking(device, self.memory())))
    }

    /// Ends the run, and those that take its place, by what `transfer` gives. Gives what came of
    /// the first page, if somebody has asked for it.
    pub(crate) fn finish_fill(
        &self,
        run: Run,
        mut transfer: impl FnMut(&mut Run) -> Moved,
    ) -> Option<Result<Pin, Errno>> {
        let (mut next, mut ended) = (Some(run), None);
        while let Some(mut run) = next {
            let moved = transfer(&mut run);
            let RunPages::Fill(fill) = run.into_payload() else {
                unreachable!("a fill ends as one")
            };
            next = self.end_fill(fill, moved, |filled| ended = Some(filled));
        }
        ended
    }

    /// Puts the frames in the index, for the pages from `first` on, of which some are `installed`,
    /// up to one that is there. Gives those back that are left.
    pub(crate) fn install_missing(
        &self,
        file: &FileState,
        first: PageNo,
        claims: &mut Vec<Claim>,
        installed: usize,
    ) {
        let page_at = |at: usize| PageNo(first.0 + at as u64);
        let (asked_for, mut installed) = (installed, installed);
        let mut locked = None;
        for at in installed..claims.len() {
            self.pages.index.prefetch(file.key(page_at(at)));
        }
        while installed < claims.len() {
            let shard = self.pages.next_shard(&mut locked, file.key(page_at(installed)));
            if !shard.install_missing(self.frames(), &claims[installed], State::Reading) {
                break;
            }
            installed += 1;
        }
        drop(locked);
        claims.drain(installed..).for_each(|claim| self.pages.free_frame(claim));
        // Somebody may have cut the file before the last of them were in the index, and then has
        // not seen them there.
        while claims.len() > asked_for
            && self.offset(page_at(claims.len() - 1)) >= file.len()
            && let Some(claim) = claims.pop()
        {
            self.give_up_fill(file.key(page_at(claims.len())), claim);
        }
    }

    /// The page is not brought in after all. The waiters for it look again.
    fn give_up_fill(&self, key: PageKey, claim: Claim) {
        self.pages.shard(key).remove();
        self.pages.free_frame(self.frames().clear(claim));
        self.pages.wake_failed(key, WakeMessage::Look);
    }

    /// The device may go on for ever with the read: its frames are lost, and all who want the pages
    /// get an error.
    pub(crate) fn lose_fill(&self, fill: &Fill, deliver: impl FnOnce(Result<Pin, Errno>)) {
        let lose = |(at, claim): (usize, &Claim)| {
            let key = fill.key(at);
            let mut shard = self.pages.shard(key);
            shard.remove();
            (key, self.frames().generation(claim.id()))
        };
        let lost: Vec<_> = fill.claims.iter().enumerate().map(lose).collect();
        self.counters().add(Count::ReadAheadWasted, fill.ahead() as u64);
        deliver(Err(Errno::IO));
        for (key, generation) in lost {
            self.pages.wake_failed(key, WakeMessage::ReadFailed(generation, Errno::IO));
        }
    }

    /// A read has ended: publishes its pages, or gives the frames back. If somebody has asked for
    /// the first page, it is delivered with a pin before anybody is woken.
    ///
    /// If several pages could not be read, gives the first, to be read by itself: what is wrong
    /// with one need not be wrong with the others. Those come in when they are asked for. If the
    /// device moved less than it has by now, gives all of them, to be read again: if it then has
    /// less than it had before, the file was cut, and zeros would be no bytes of it.
    pub(crate) fn end_fill(
        &self,
        mut fill: Fill,
        read: Moved,
        deliver: impl FnOnce(Result<Pin, Errno>),
    ) -> Option<Run> {
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return self.end_failed_fill(fill, error.errno, deliver),
        };
        let page_bytes = self.memory().page_bytes();
        let end = self.offset(fill.first) + bytes as u64;
        if bytes < fill.claims.len() * page_bytes {
            let now = fill.file.durability.lock().device_len.data();
            match fill.on_device {
                // What is missing may have come to the device since the read began.
                None if end < now => {
                    fill.on_device = Some(now);
                    return Some(Run::new(RunPages::Fill(fill), page_bytes));
                }
                // Others have cut the file, unless this cache has.
                Some(before) if end < before.min(now) => {
                    let whole = bytes / page_bytes;
                    if whole == 0 {
                        return self.end_failed_fill(fill, TRUNCATED, deliver);
                    }
                    self.give_up_ahead(&mut fill, whole);
                }
                _ => {}
            }
        }
        if let Err((at, errno)) = fill.hook_after_read(self.memory(), bytes) {
            if at == 0 {
                return self.end_failed_fill(fill, errno, deliver);
            }
            self.counters().add(Count::IoErrors, 1);
            self.give_up_ahead(&mut fill, at);
        }
        if fill.file.hook.is_some() {
            // The rest of the last one is as the hook has left it.
            bytes = bytes.next_multiple_of(page_bytes);
        }
        self.publish_fill(fill, bytes, deliver);
        None
    }

    /// The pages of the claims are there: `bytes` bytes were read of them, the rest is zeros.
    fn publish_fill(&self, mut fill: Fill, bytes: usize, deliver: impl FnOnce(Result<Pin, Errno>)) {
        let (pages, page_bytes) = (fill.claims.len(), self.memory().page_bytes());
        let (mut pin, ahead) = (None, fill.ahead());
        for (at, mut claim) in fill.claims.drain(..).enumerate() {
            // What the file has beyond its length, up to the end of a block, is zeros too.
            let from = bytes.saturating_sub(at * page_bytes);
            if from < page_bytes {
                self.memory().zero_from(&mut claim, from);
            }
            if at == 0 && !fill.is_ahead {
                pin = Some(self.frames().publish_pinned(claim, State::Clean));
            } else {
                self.frames().publish_ahead(claim);
            }
        }
        if let Some(pin) = pin {
            deliver(Ok(pin));
        }
        self.pages.wake_pages((0..pages).map(|at| fill.key(at)));
        self.pages.notify_idle(ahead);
    }

    /// The pages after the first `kept` are not brought in. They come in when they are asked for.
    fn give_up_ahead(&self, fill: &mut Fill, kept: usize) {
        self.counters().add(Count::ReadAheadWasted, (fill.claims.len() - kept) as u64);
        for (at, claim) in (kept..).zip(fill.claims.split_off(kept)) {
            self.give_up_fill(fill.key(at), claim);
        }
    }

    fn end_failed_fill(
        &self,
        mut fill: Fill,
        errno: Errno,
        deliver: impl FnOnce(Result<Pin, Errno>),
    ) -> Option<Run> {
        self.counters().add(Count::IoErrors, 1);
        if fill.is_ahead {
            // Who asks for one of them reads it, and gets the error.
            self.give_up_ahead(&mut fill, 0);
            return None;
        }
        let was_alone = fill.claims.len() == 1;
        self.give_up_ahead(&mut fill, 1);
        if !was_alone {
            fill.on_device = None;
            return Some(Run::new(RunPages::Fill(fill), self.memory().page_bytes()));
        }
        if let Some(claim) = fill.claims.pop() {
            let key = fill.key(0);
            let generation = {
                let mut shard = self.pages.shard(key);
                shard.remove();
                self.frames().generation(claim.id())
            };
            self.pages.free_frame(self.frames().clear(claim));
            deliver(Err(errno));
            self.pages.wake_failed(key, WakeMessage::ReadFailed(generation, errno));
        }
        None
    }
}
