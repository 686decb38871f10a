//! Fills: announced pages brought into frames, and their neighbours with them.
//!
//! A page at or beyond the end of the file needs no read: it is zeros. So are bytes that the device
//! has not been given yet, where this cache has made the file longer. But bytes that the device has
//! had are read, or the read fails: others may have cut the file (`device_len.rs`).

use unherd_sys::Errno;
use unherd_sys::primitives::Arc;

use crate::Error;
use crate::file::runs::{Engine, Fill, Run, RunPages};
use crate::file::{Core, FileState, TRUNCATED};
use crate::foreign_code::is_in_foreign_code;
use crate::frames::{Claim, Pin, State};
use crate::io::{Moved, TransferError};
use crate::page::{PageKey, PageNo};
use crate::pages::{FillReservation, WakeMessage};
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
        if let Some(_own) = engine.try_begin_own_read(self.memory(), may_queue) {
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
