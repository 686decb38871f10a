//! Fills: frames on their way from the index to pages that are there.
//!
//! A page at or beyond the end of the file needs no read: it is zeros. So are bytes that the device
//! has not been given yet, where this cache has made the file longer. But bytes that the device has
//! had are read, or the read fails: others may have cut the file (`device_len.rs`).

use unherd_sys::Errno;
use unherd_sys::primitives::Arc;

use crate::frames::{Claim, Pin, State};
use crate::io::Moved;
use crate::page::PageKey;
use crate::pages::{FillReservation, Pages, WakeMessage};
use crate::state::runs::{Fill, Run, RunPages};
use crate::state::{FileState, TRUNCATED};
use crate::stats::Count;

/// The page is not brought in after all. The waiters for it look again.
fn give_up(pages: &Pages, key: PageKey, claim: Claim) {
    pages.shard(key).remove();
    pages.free_frame(pages.frames().clear(claim));
    pages.wake_failed(key, WakeMessage::Look);
}

/// What became of a page that is brought in.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each miss")]
pub(crate) enum BegunFill {
    Ended(Result<Pin, Errno>),
    ToRead(Run),
}

impl Fill {
    /// Puts the frames in the index: the first in the place of the page's announcement, the others
    /// as far as the pages that follow are missing. Where that needs no read, it is all.
    pub(crate) fn begin(
        pages: &Pages,
        file: Arc<FileState>,
        announced: FillReservation,
        mut claims: Vec<Claim>,
    ) -> BegunFill {
        let first = announced.key.page;
        pages.install(announced, &claims[0], State::Reading);
        if pages.memory().offset(first) >= file.len() {
            claims.drain(1..).for_each(|claim| pages.free_frame(claim));
            let mut filled = Err(Errno::IO);
            Self::new(file, first, claims).publish(pages, 0, |first| filled = first);
            return BegunFill::Ended(filled);
        }
        BegunFill::ToRead(Self::new(file, first, claims).install(pages).into_run(pages))
    }

    /// Puts the frames in the index, as far as their pages are missing from the first on, and gives
    /// the others back, which may be all. A page that was asked for is there already.
    pub(crate) fn install(mut self, pages: &Pages) -> Self {
        let asked_for = usize::from(!self.is_ahead);
        let (mut installed, mut locked) = (asked_for, None);
        while installed < self.claims.len() {
            let shard = pages.next_shard(&mut locked, self.key(installed));
            if !shard.install_missing(pages.frames(), &self.claims[installed], State::Reading) {
                break;
            }
            installed += 1;
        }
        drop(locked);
        self.claims.drain(installed..).for_each(|claim| pages.free_frame(claim));
        // Somebody may have cut the file before the last of them were in the index, and then has
        // not seen them there.
        while self.claims.len() > asked_for
            && pages.memory().offset(self.key(self.claims.len() - 1).page) >= self.file.len()
            && let Some(claim) = self.claims.pop()
        {
            give_up(pages, self.key(self.claims.len()), claim);
        }
        self
    }

    /// The run that reads the pages, of which there are some.
    pub(crate) fn into_run(self, pages: &Pages) -> Run {
        pages.counters.add(Count::Reads, self.claims.len() as u64);
        if self.ahead() > 0 {
            pages.counters.add(Count::ReadAhead, self.ahead() as u64);
        }
        self.run(pages)
    }

    fn run(self, pages: &Pages) -> Run {
        Run::new(RunPages::Fill(self), pages.memory().page_bytes())
    }

    /// The device may go on for ever with the read: its frames are lost, and all who want the pages
    /// get an error.
    pub(crate) fn lose(&self, pages: &Pages, deliver: impl FnOnce(Result<Pin, Errno>)) {
        let lose = |(at, claim): (usize, &Claim)| {
            let key = self.key(at);
            let mut shard = pages.shard(key);
            shard.remove();
            (key, pages.frames().generation(claim.id()))
        };
        let lost: Vec<_> = self.claims.iter().enumerate().map(lose).collect();
        pages.counters.add(Count::ReadAheadWasted, self.ahead() as u64);
        deliver(Err(Errno::IO));
        for (key, generation) in lost {
            pages.wake_failed(key, WakeMessage::ReadFailed(generation, Errno::IO));
        }
    }

    /// The read has ended: publishes the pages, or gives the frames back. If somebody has asked for
    /// the first page, it is delivered with a pin before anybody is woken.
    ///
    /// If several pages could not be read, gives the first, to be read by itself: what is wrong
    /// with one need not be wrong with the others. Those come in when they are asked for. If the
    /// device moved fewer bytes than it has by now, gives all pages, to be read once more. If bytes
    /// that it once had are missing then, the file was cut: that is an error, and no zeros.
    pub(crate) fn end(
        mut self,
        pages: &Pages,
        read: Moved,
        deliver: impl FnOnce(Result<Pin, Errno>),
    ) -> Option<Run> {
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return self.end_failed(pages, error.errno, deliver),
        };
        let page_bytes = pages.memory().page_bytes();
        let end = pages.memory().offset(self.first) + bytes as u64;
        if bytes < self.claims.len() * page_bytes {
            let now = self.file.durability.lock().device_len.data();
            match self.on_device {
                // What is missing may have come to the device since the read began.
                None if end < now => {
                    self.on_device = Some(now);
                    return Some(self.run(pages));
                }
                // Others have cut the file, unless this cache has.
                Some(before) if end < before.min(now) => {
                    let whole = bytes / page_bytes;
                    if whole == 0 {
                        return self.end_failed(pages, TRUNCATED, deliver);
                    }
                    self.give_up_ahead(pages, whole);
                }
                _ => {}
            }
        }
        if let Err((at, errno)) = self.hook_after_read(pages.memory(), bytes) {
            if at == 0 {
                return self.end_failed(pages, errno, deliver);
            }
            pages.counters.add(Count::IoErrors, 1);
            self.give_up_ahead(pages, at);
        }
        if self.file.hook.is_some() {
            // The rest of the last one is as the hook has left it.
            bytes = bytes.next_multiple_of(page_bytes);
        }
        self.publish(pages, bytes, deliver);
        None
    }

    /// The pages are there: `bytes` bytes were read of them, the rest is zeros.
    fn publish(mut self, pages: &Pages, bytes: usize, deliver: impl FnOnce(Result<Pin, Errno>)) {
        let (count, page_bytes) = (self.claims.len(), pages.memory().page_bytes());
        let (mut pin, ahead) = (None, self.ahead());
        // Their words have left the processor's cache during the transfer.
        self.claims.iter().for_each(|claim| pages.frames().prefetch_word(claim.id()));
        for (at, mut claim) in self.claims.drain(..).enumerate() {
            // What the file has beyond its length, up to the end of a block, is zeros too.
            let from = bytes.saturating_sub(at * page_bytes);
            if from < page_bytes {
                pages.memory().zero_from(&mut claim, from);
            }
            if at == 0 && !self.is_ahead {
                pin = Some(pages.frames().publish_pinned(claim, State::Clean));
            } else {
                pages.frames().publish_ahead(claim);
            }
        }
        if let Some(pin) = pin {
            deliver(Ok(pin));
        }
        pages.wake_pages((0..count).map(|at| self.key(at)));
        pages.notify_frame_waiters(ahead);
    }

    /// The pages after the first `kept` are not brought in. They come in when they are asked for.
    fn give_up_ahead(&mut self, pages: &Pages, kept: usize) {
        pages.counters.add(Count::ReadAheadWasted, (self.claims.len() - kept) as u64);
        for (at, claim) in (kept..).zip(self.claims.split_off(kept)) {
            give_up(pages, self.key(at), claim);
        }
    }

    fn end_failed(
        mut self,
        pages: &Pages,
        errno: Errno,
        deliver: impl FnOnce(Result<Pin, Errno>),
    ) -> Option<Run> {
        pages.counters.add(Count::IoErrors, 1);
        if self.is_ahead {
            // Who asks for one of them reads it, and gets the error.
            self.give_up_ahead(pages, 0);
            return None;
        }
        let was_alone = self.claims.len() == 1;
        self.give_up_ahead(pages, 1);
        if !was_alone {
            self.on_device = None;
            return Some(self.run(pages));
        }
        if let Some(claim) = self.claims.pop() {
            let key = self.key(0);
            let generation = {
                let mut shard = pages.shard(key);
                shard.remove();
                pages.frames().generation(claim.id())
            };
            pages.free_frame(pages.frames().clear(claim));
            deliver(Err(errno));
            pages.wake_failed(key, WakeMessage::ReadFailed(generation, errno));
        }
        None
    }
}

/// Ends the run of a fill, and those that take its place, by what `transfer` gives. Gives what came
/// of the first page; if nobody has asked for it, an error.
pub(crate) fn finish(
    pages: &Pages,
    run: Run,
    mut transfer: impl FnMut(&mut Run) -> Moved,
) -> Result<Pin, Errno> {
    let (mut next, mut filled) = (Some(run), Err(Errno::IO));
    while let Some(mut run) = next {
        let moved = transfer(&mut run);
        let RunPages::Fill(fill) = run.into_payload() else { unreachable!("a fill ends as one") };
        next = fill.end(pages, moved, |first| filled = first);
    }
    filled
}
