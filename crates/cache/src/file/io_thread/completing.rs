//! What the I/O thread is completing, for `IoThread::give_up` if it dies meanwhile.
//!
//! Nothing that a correct device does makes it die there: a number of bytes beyond what was asked
//! for is cut, a tag that names no operation is ignored, panics of wakers end in
//! `foreign_code.rs`, and failed allocations abort. What is left is a broken invariant. Then the
//! panic unwinds the run, with its claims and loans. So the thread notes the run's frames before:
//! those that are still busy as they were then, nobody else will end. The note is made after the
//! run was taken from its slot, and taken back when its pages are what they shall be and only
//! counts and wakes are missing, which the wait table answers for.

use unherd_sys::Errno;
use unherd_sys::primitives::Arc;

use crate::file::Core;
use crate::file::queued_read::put_slot_result;
use crate::io::{RunBuffer, TransferError};
use crate::page::{BusyGeneration, FrameId, PageNo};
use crate::pages::WakeMessage;
use crate::state::FileState;
use crate::state::runs::{Engine, RunPages, WriteBack};

/// The run that is being completed, if there is one. Kept from one to the next for its memory.
#[derive(Debug, Default)]
pub(super) struct Completing {
    run: Option<Noted>,
    /// Its frames, and when they became busy.
    frames: Vec<(FrameId, BusyGeneration)>,
    /// The buffers of the write-backs that have ended in a group of completions, and the pages of
    /// each.
    buffers: Vec<RunBuffer>,
    pages: Vec<usize>,
}

#[derive(Debug)]
struct Noted {
    at: usize,
    file: Arc<FileState>,
    first: PageNo,
    is_fill: bool,
}

impl Completing {
    pub(super) fn begin(&mut self, core: &Core, at: usize, run: &RunPages) {
        let mut note = |frame| self.frames.push((frame, core.frames().generation(frame)));
        let (file, first, is_fill) = match run {
            RunPages::Fill(fill) => {
                fill.claims.iter().for_each(|claim| note(claim.id()));
                (&fill.file, fill.first, true)
            }
            RunPages::WriteBack(pages) => {
                pages.buffer.frames.iter().for_each(|lent| note(lent.id()));
                (&pages.file, pages.first, false)
            }
        };
        self.run = Some(Noted { at, file: file.clone(), first, is_fill });
        #[cfg(test)]
        super::tests::reach(core, super::tests::Step::Begun);
    }

    pub(super) fn end(&mut self, _core: &Core) {
        #[cfg(test)]
        super::tests::reach(_core, super::tests::Step::Ended);
        self.run = None;
        self.frames.clear();
    }

    /// The pages of a write-back were given back.
    pub(super) fn note_ended(&mut self, (buffer, pages): (RunBuffer, usize)) {
        self.buffers.push(buffer);
        self.pages.push(pages);
    }

    /// Gives the buffers of all write-backs back that have ended, and wakes the waiters for frames:
    /// those may want a buffer.
    pub(super) fn end_group(&mut self, core: &Core) {
        if !self.buffers.is_empty() {
            core.put_buffers(self.buffers.drain(..));
            self.pages.drain(..).for_each(|pages| core.note_write_back_end(pages));
        }
    }

    /// The slot of the run, if there is one.
    pub(super) fn slot(&self) -> Option<usize> {
        self.run.as_ref().map(|run| run.at)
    }

    /// Ends what the dead thread has left of its run. Its transfer is complete: the device has none
    /// of the memory.
    pub(super) fn give_up(&mut self, core: &Core, engine: &Engine, lacks_result: bool) {
        let Some(Noted { at, file, first, is_fill }) = self.run.take() else { return };
        let pages = (first.0..).map(PageNo).zip(&self.frames);
        if !is_fill {
            let lent = |&(frame, since): &_| core.frames().lent_since(frame, since);
            let mut rest = WriteBack::new(file.clone(), first, 0, RunBuffer::default());
            rest.append(self.frames.iter().filter_map(lent));
            // Pages are given back in their order.
            rest.first.0 += (self.frames.len() - rest.len()) as u64;
            core.end_write_back(&mut rest, Err(TransferError::IO));
            for (page, &(frame, _)) in pages {
                core.end_superseded(file.key(page), frame);
            }
            (rest.first, rest.pages) = (first, self.frames.len());
            return self.note_ended(core.leave_write_back(rest));
        }
        if lacks_result {
            put_slot_result(&core.pages, engine, at, Err(Errno::IO));
        }
        for (page, &(frame, since)) in pages {
            let key = file.key(page);
            let mut shard = core.pages.shard(key);
            let mut message = WakeMessage::Look;
            if shard.frame() == Some(frame) && core.frames().is_reading_since(frame, since) {
                shard.remove();
                message = WakeMessage::ReadFailed(since, Errno::IO);
            }
            drop(shard);
            core.pages.wake_failed(key, message);
        }
    }
}
