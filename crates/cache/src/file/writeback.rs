//! Write-back: from dirty pages to the device.
//!
//! A dirty page whose frame is wanted, or that is to be durable, is written together with its dirty
//! neighbours in the file (see `runs.rs`). Whole pages are written; the last one may make the file
//! longer on the device than it is, with zeros, until these are cut off (`device_len.rs`).
//!
//! A failed write leaves all pages of its run *failed*: dirty, to be tried again, and recorded for
//! every handle of the file.
use std::ops::Range;

use unherd_sys::primitives::Arc;

use crate::Error;
use crate::error::Operation;
use crate::file::Core;
#[cfg(test)]
use crate::file::steps;
use crate::frames::{Lent, State, Word, spin_retry};
use crate::io::{Moved, RunBuffer, TransferError, call_device};
use crate::page::{ALL_PAGES, FrameId, PageKey, PageNo, PageRange};
use crate::pages::{ShardGuard, Want};
use crate::state::FileState;
use crate::state::dirty_limit::tag_of;
use crate::state::runs::{Run, RunPages, SyncRun, SyncRuns, WriteBack};
use crate::state::write_behind::Joined;
use crate::stats::Count;

/// A page whose write-back has begun.
struct Loan {
    lent: Lent,
    /// Whether the last attempt failed.
    has_failed: bool,
    /// The length of the file then.
    file_len: u64,
}

/// What is done about pages that a call, guard or future is changing, and may never give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangingPages {
    Awaited,
    Skipped,
}

/// Pages that are too few to be written behind.
const WRITE_BEHIND_MIN: u64 = 4;

/// How often one that writes a page back looks at it, if it is being changed. Most changes have
/// ended after some loads.
const LOOKS_AT_CHANGES: usize = 16;

/// What became of a run, and of its buffer.
enum WriteBackBegun {
    /// It was written, or that failed.
    Ended(RunBuffer),
    /// The I/O thread will put the buffer back.
    UnderWay,
    /// The page is not there, not dirty, or the file's write-backs are held up.
    Refused(RunBuffer),
}
use WriteBackBegun::{Ended, Refused, UnderWay};

/// Writes pages of a file back, by buffers that it takes, and gives back in the end.
struct FileCleaner<'a> {
    core: &'a Core,
    file: &'a Arc<FileState>,
    /// Whether the runs are queued, or this thread moves them.
    queues: bool,
    /// How many buffers it still needs, about: it takes as many at a time, but a batch at most.
    needed: usize,
    taken: Vec<RunBuffer>,
    /// How many writes of the file had failed when it began as all others would.
    refusals: u64,
    /// Those that are queued, if it is to wait for them.
    runs: Option<Arc<SyncRuns>>,
}

impl<'a> FileCleaner<'a> {
    fn new(core: &'a Core, file: &'a Arc<FileState>, queues: bool, needed: usize) -> Self {
        Self { core, file, queues, needed, taken: Vec::new(), refusals: 0, runs: None }
    }

    /// One that writes by itself needs one buffer, and keeps it: passing it on after each run would
    /// make every run wait for a thread to wake up.
    fn for_sync(core: &'a Core, file: &'a Arc<FileState>, queues: bool, runs: usize) -> Self {
        let mut this = Self::new(core, file, queues, if queues { runs } else { 1 });
        this.refusals = file.unwritten.refusals();
        this
    }

    /// Waits under `write-back` until what it has begun has ended. What it writes then comes page
    /// by page.
    fn wait(&mut self) {
        self.needed = 1;
        if let Some(runs) = self.runs.take() {
            self.give_back();
            runs.wait(self.core.reasons().write_back);
        }
    }

    /// Whether a write has failed since as all others would.
    fn is_refused(&self) -> bool {
        self.file.unwritten.refusals() != self.refusals
    }

    /// Waits for it under `write-back`.
    fn next_buffer(&mut self) -> RunBuffer {
        loop {
            if let Some(buffer) = self.taken.pop() {
                return buffer;
            }
            let most = self.needed.clamp(1, self.core.io.runs.batch);
            if self.core.io.runs.take(most, &mut self.taken) {
                self.core.pages.notify_writable();
            }
        }
    }

    fn give_back(&mut self) {
        if !self.taken.is_empty() {
            self.core.put_buffers(self.taken.drain(..));
        }
    }

    /// Writes the run around `page` back, or begins to; whether it could. If not, somebody changes
    /// it just now, or writes it back, or it is no longer dirty. The caller has entered the file's
    /// `write_backs`.
    fn write_run(&mut self, buffer: RunBuffer, page: PageNo, within: &PageRange) -> bool {
        let sync = self.runs.as_ref().map(SyncRuns::begin);
        let run = self.core.write_run_from(self.file, page, buffer, self.queues, within, sync);
        let (buffer, is_begun) = match run {
            UnderWay => return true,
            Ended(buffer) => (buffer, true),
            Refused(buffer) => (buffer, false),
        };
        self.taken.push(buffer);
        is_begun
    }

    /// As [`FileCleaner::write_run`]. Waits under `write-back` and `file`.
    fn write_page(&mut self, page: PageNo, within: &PageRange) -> bool {
        let buffer = self.next_buffer();
        if !self.file.write_backs.try_lock_shared() {
            // Others may need them meanwhile.
            self.give_back();
            self.file.write_backs.lock_shared(self.core.waits(), self.core.reasons().file);
        }
        self.write_run(buffer, page, within)
    }

    /// If they are to be queued: begins to write the dirty ones of the pages back, and notes for
    /// which it has.
    fn begin(&mut self, pages: &mut [(PageNo, &PageRange, bool)]) {
        if self.queues {
            let is_unwritten = |page| {
                // `finish` writes what this misses.
                let word = self.core.pages.peek_word(self.file.key(page));
                word.is_some_and(|word| word.state().is_unwritten())
            };
            for (page, within, begun) in pages {
                if is_unwritten(*page) && !self.is_refused() {
                    *begun = self.write_page(*page, within);
                    self.needed = self.needed.saturating_sub(1);
                }
            }
        }
    }

    /// Sees to it that what the page has now has been written, or that this was `tried`. False if
    /// it is held back.
    fn finish(
        &mut self,
        page: PageNo,
        within: &PageRange,
        mut tried: bool,
        changing: ChangingPages,
    ) -> bool {
        let Self { core, file, .. } = *self;
        let key = file.key(page);
        if core.is_written(key) {
            return true;
        }
        while let Some(word) = core.pages.word_of(key) {
            let busy = match word.state() {
                // The older version may be the one that was to be written, or was tried.
                State::Dirty | State::Failed | State::Held
                    if word.is_awaiting_older_writeback() =>
                {
                    core.pages.busy_awaiting_older_writeback(key)
                }
                // What lies beyond the end is refused, and about to be dropped.
                State::Dirty | State::Failed
                    if !tried && core.memory().offset(page) < file.len() =>
                {
                    tried = self.write_page(page, within);
                    continue;
                }
                State::WriteBack => core.pages.busy(key),
                State::Changing if changing == ChangingPages::Awaited => core.pages.busy(key),
                // An entry that has gone since: it is dirty now, or something else.
                State::Held if !tried && file.holds.lock().has(page) => return false,
                State::Held if !tried => continue,
                _ => return true,
            };
            if let Some(busy) = busy {
                // Who has the page may be waiting for a frame, and another for a buffer to make
                // one free.
                self.give_back();
                // If it is being read again meanwhile, it was clean, and the read may fail.
                let _ = core.pages.wait(key, busy, Want::Read);
            }
        }
        true
    }
}

impl Drop for FileCleaner<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Core {
    /// Writes the page in `frame` back, or begins to. False if that cannot be done now: then it
    /// will be told when a frame becomes idle.
    pub(crate) fn write_back_frame(&self, frame: FrameId) -> bool {
        let key = self.frames().key(frame);
        let Some(file) = self.files.get(key.file) else {
            return false;
        };
        // Everybody in want of a frame comes by here: they do not all repeat what fails.
        if file.is_refused() {
            return false;
        }
        let Some(buffer) = self.io.runs.try_take() else {
            return false;
        };
        let written = self.write_back_by(&file, key.page, buffer);
        written.map_err(|buffer| self.put_buffers([buffer])).is_ok()
    }

    /// Writes the page back, or begins to; gives the buffer back if that cannot be done now.
    pub(crate) fn write_back_by(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        buffer: RunBuffer,
    ) -> Result<(), RunBuffer> {
        if !file.write_backs.try_lock_shared() {
            return Err(buffer);
        }
        match self.write_run_from(file, page, buffer, true, &ALL_PAGES, None) {
            UnderWay => Ok(()),
            Ended(buffer) => {
                self.put_buffers([buffer]);
                Ok(())
            }
            Refused(buffer) => Err(buffer),
        }
    }

    /// Gives buffers back. Somebody may have wanted to write a page back and found none.
    pub(crate) fn put_buffers(&self, buffers: impl IntoIterator<Item = RunBuffer>) {
        if self.io.runs.put(buffers) {
            self.pages.notify_writable();
        }
    }

    /// With queued I/O: begins to write the page in `frame` back, if there is one, so that the
    /// policy finds it clean when it comes round again.
    pub(crate) fn preclean(&self, frame: Option<FrameId>) {
        if let Some(frame) = frame
            && self.io.engine.is_some()
        {
            self.write_back_frame(frame);
        }
    }

    /// A call is about to write `pages` to their ends. Where a stream stands, if it goes on there;
    /// before that waits for its turn under `write-back`, if it is to have one. The caller
    /// holds no latch.
    pub(crate) fn join_stream(&self, file: &FileState, pages: &Range<u64>) -> Option<u64> {
        let joined = file.write_streams.lock().join(pages);
        if joined == Joined::AfterTurn {
            let (small, large, frames) = self.write_behind_pages();
            if small < large {
                let turn = self.turns.begin(frames);
                file.write_streams.lock().set_turn(turn);
            }
        }
        (joined != Joined::No).then_some(pages.start)
    }

    /// Pages were written to their ends: writes back what a stream has filled, or, with queued I/O
    /// and little under way, begins to. A writer that is faster than the device waits here, under
    /// `write-back` or on the device. Nothing is done if the file's writes fail or are held up.
    pub(crate) fn write_behind(&self, file: &Arc<FileState>, pages: Range<u64>) {
        let (small, large, frames) = self.write_behind_pages();
        let run = {
            let mut streams = file.write_streams.lock();
            let has_turn = streams.turn().is_some_and(|turn| self.turns.has(frames, turn));
            streams.filled(pages, if has_turn { small.max(large) } else { small })
        };
        let Some(run) = run else { return };
        if file.unwritten.is_failing() {
            return;
        }
        let _writing = (small < large).then(|| self.turns.write(frames));
        let mut cleaner = FileCleaner::new(self, file, false, 1);
        let mut page = run.start;
        while page < run.end {
            // KERNEL: a write that extends a file holds its inode's lock alone. io_uring gives each
            // such write a worker, and the workers spin for that lock. Nor is a busy device faster
            // for what is queued: this thread would wait with its next run all the same.
            let has_write_back = file.write_backs.has_shared();
            let buffer = cleaner.next_buffer();
            if !file.write_backs.try_lock_shared() {
                return cleaner.taken.push(buffer);
            }
            let end = run.end.min(page + self.written_pages_max(file) as u64);
            self.pages.prefetch_words((page..end).map(|page| file.key(PageNo(page))));
            cleaner.queues = !has_write_back && !self.supply().is_busy();
            cleaner.write_run(buffer, PageNo(page), &ALL_PAGES);
            page = end;
        }
        if small < large {
            file.write_streams.lock().note_run();
        }
    }

    /// The most pages of the file that are written in one transfer.
    fn written_pages_max(&self, file: &FileState) -> usize {
        let runs = &self.io.runs;
        if file.hook.is_some() { runs.copied_pages_max } else { runs.pages_max }
    }

    /// How many pages a stream fills before they are written back: so few that all open files
    /// together then have half of the frames at most; in the file's turn as many as make a large
    /// transfer. Gives both, and how many frames there are.
    fn write_behind_pages(&self) -> (u64, u64, usize) {
        let frames = self.supply().len();
        let share = frames / 2 / self.files.open_files().max(1);
        let large = self.io.runs.pages_max as u64;
        let small = large.min(share as u64);
        // Small transfers cost more than they spare.
        (if small >= WRITE_BEHIND_MIN { small } else { u64::MAX }, large, frames)
    }

    /// Writes the run around `page` back, as far as it lies `within` those pages, or, with queued
    /// I/O and if it `queues`, begins to. The caller has entered `file.write_backs`; the end of
    /// the run leaves it.
    fn write_run_from(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        buffer: RunBuffer,
        queues: bool,
        within: &PageRange,
        sync: Option<SyncRun>,
    ) -> WriteBackBegun {
        let period = file.durability.lock().period();
        let Some(loan) = self.lend(file, page, false, &mut None) else {
            file.write_backs.unlock_shared(self.waits());
            return Refused(buffer);
        };
        self.supply().waiters.begin_write_back();
        let mut pages = WriteBack::new(file.clone(), page, period, buffer);
        pages.append([loan.lent]);
        pages.file_len = loan.file_len;
        pages.sync = sync;
        // What has failed is tried by itself: of its neighbours some may be good.
        if !loan.has_failed {
            self.extend(file, within, &mut pages);
        }
        let hooked = pages.hook_before_write(self.memory(), self.io.runs.copied_pages_max);
        let mut run = Run::new(RunPages::WriteBack(pages), self.memory().page_bytes());
        let moved = match (hooked, &self.io.engine) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(engine)) if queues => match engine.begin(self.memory(), run) {
                Ok(_) => return UnderWay,
                Err(given_back) => {
                    run = *given_back;
                    Err(TransferError::IO)
                }
            },
            // The device may still hold an older version of these pages, from before the I/O thread
            // died. `is_over` was set before that version's loan ended, and these were lent later.
            (Ok(()), Some(engine)) if engine.is_over() => Err(TransferError::IO),
            (Ok(()), _) => run.move_blocking(&*self.io.device, self.memory()),
        };
        let RunPages::WriteBack(mut pages) = run.into_payload() else {
            unreachable!("a write-back ends as one")
        };
        self.end_write_back(&mut pages, moved);
        let (buffer, written) = self.leave_write_back(pages);
        self.note_write_back_end(written);
        Ended(buffer)
    }

    /// Takes the dirty neighbours of the only page in.
    fn extend(&self, file: &FileState, within: &PageRange, pages: &mut WriteBack) {
        let pages_max = self.written_pages_max(file);
        let mut locked = None;
        let mut next = pages.first.next();
        while pages.len() < pages_max && next.0 < within.end {
            let Some(loan) = self.lend(file, next, true, &mut locked) else { break };
            pages.append([loan.lent]);
            pages.file_len = loan.file_len;
            next = next.next();
        }
        let mut first = pages.first;
        let left = pages_max - pages.len();
        let before = std::iter::from_fn(|| {
            let before = first.previous().filter(|before| before.0 >= within.start)?;
            let loan = self.lend(file, before, true, &mut locked)?;
            first = before;
            Some(loan.lent)
        });
        pages.prepend(before.take(left));
    }

    /// Begins the write-back of a page, if it is dirty and part of the file, and, if so asked, has
    /// not failed; that may miss a page which is being moved in the index.
    fn lend<'a>(
        &'a self,
        file: &FileState,
        page: PageNo,
        not_failed: bool,
        locked: &mut Option<ShardGuard<'a>>,
    ) -> Option<Loan> {
        let key = file.key(page);
        // Pages at random have no neighbours: a look without the lock tells.
        if not_failed && locked.is_none() && self.pages.index.lookup(key).is_none() {
            return None;
        }
        let shard = self.pages.next_shard(locked, key);
        let frame = shard.frame()?;
        let has_failed = self.frames().word(frame).state() == State::Failed;
        // What lies beyond the end is about to be dropped; it must not make the file longer.
        if self.memory().offset(page) >= file.len() || has_failed && not_failed {
            return None;
        }
        #[cfg(test)]
        steps::reach(self, steps::Step::Lend, page);
        let generation = shard.begin_busy();
        let lend = || self.frames().lend(frame, generation);
        // Who writes to a dirty page again and again leaves it at rest for a moment at a time.
        let is_changing = |word: Word| word.state() == State::Changing;
        let lent = spin_retry(LOOKS_AT_CHANGES, is_changing, lend).ok()?;
        // Not before: who changes the page in place makes the file longer before the change ends,
        // and has no lock then. Nor does the page grow meanwhile: a writer that puts a copy in its
        // place needs this lock first.
        Some(Loan { lent, has_failed, file_len: file.len() })
    }

    /// The transfer of a run has ended. Gives its pages back. [`Core::leave_write_back`] follows.
    pub(crate) fn end_write_back(&self, write_back: &mut WriteBack, moved: Moved) {
        write_back.pages = write_back.len();
        let WriteBack { file, first, pages, buffer, period, file_len, .. } = write_back;
        let wanted = *pages * self.memory().page_bytes();
        let written = moved == Ok(wanted);
        self.count_write_back(file, *pages, written);
        let (mut began_to_fail, mut failed_pages) = (false, !written);
        let end = self.memory().offset(*first) + wanted as u64;
        let len = || self.io.device.len(file.device_file);
        // At once, before others append. What a hook has refused has left nothing.
        let is_refused = file.hook.is_some() && !buffer.is_copied;
        let left = if written || is_refused { None } else { call_device(len).ok() };
        {
            let mut durability = file.durability.lock();
            // A flush that has failed since it began may have been about this write.
            let lost = durability.has_failed_since(*period);
            failed_pages |= lost;
            let period = (written && !lost).then_some(durability.period());
            durability.note_change();
            let mut written_pages = 0;
            buffer.take_apart(*first, |lent| {
                let word = self.frames().give_back(lent, period);
                written_pages += usize::from(word.state() == State::Unstable);
                word
            });
            self.files.forget_unwritten(file, written_pages);
            if written {
                durability.device_len.written(end, *file_len);
                durability.write_succeeded();
            } else {
                durability.device_len.failed(self.memory().offset(*first)..end, left);
                let error = self.write_error(file, *first, wanted, moved);
                *self.write_error.lock() = Some(Arc::new(error.clone()));
                file.unwritten.note_failure(&error);
                began_to_fail = durability.write_failed(error);
            }
            file.unwritten.set_failing(!written);
        }
        if began_to_fail {
            self.fail_dirty_pages(file);
        }
        if !written {
            self.supply().dirty_waiters.notify_file(self.waits(), tag_of(file));
        }
        if failed_pages {
            self.supply().note_dirty();
        }
        for &(page, frame) in &buffer.superseded {
            self.end_superseded(file.key(page), frame);
        }
        self.supply().note_written(&buffer.evictable);
    }

    /// Writes of the file fail: its other dirty pages count as tried.
    pub(crate) fn fail_dirty_pages(&self, file: &FileState) {
        let pages: Vec<PageNo> = file.unclean.lock().iter().collect();
        for page in pages {
            let shard = self.pages.shard(file.key(page));
            if let Some(frame) = shard.frame() {
                self.frames().fail(frame);
            }
        }
    }

    /// After [`Core::end_write_back`]: wakes the waiters for its pages, or for the file. The caller
    /// puts the buffer back, or uses it again, and ends the write of that many pages.
    pub(crate) fn leave_write_back(&self, write_back: WriteBack) -> (RunBuffer, usize) {
        let WriteBack { file, first, pages, buffer, .. } = write_back;
        file.write_backs.unlock_shared(self.waits());
        let pages_of_run = first.0..first.0 + pages as u64;
        self.pages.wake_pages(pages_of_run.map(|page| file.key(PageNo(page))));
        (buffer, pages)
    }

    /// The write-back of a page has ended that another frame has by now: that one may be written.
    pub(crate) fn end_superseded(&self, key: PageKey, frame: FrameId) {
        let shard = self.pages.shard(key);
        if let Some(newer) = shard.frame() {
            self.frames().set_awaiting_older_writeback(newer, false);
        }
        drop(shard);
        if let Some(claim) = self.frames().free_detached(frame) {
            self.pages.free_frame(claim);
        }
    }

    /// A write-back of these pages has ended. Its waiters for room, and for frames, are told.
    pub(crate) fn note_write_back_end(&self, pages: usize) {
        self.pages.note_write_back_end(pages);
        self.files.hand_out_reservations(self.supply(), pages);
    }

    fn count_write_back(&self, file: &FileState, pages: usize, written: bool) {
        self.counters().add(Count::WriteTransfers, 1);
        if written {
            self.counters().add(Count::WriteBacks, pages as u64);
            file.unflushed.note_written((pages * self.memory().page_bytes()) as u64);
        } else {
            self.counters().add(Count::IoErrors, 1);
        }
    }

    fn write_error(&self, file: &FileState, first: PageNo, wanted: usize, moved: Moved) -> Error {
        let offset = self.memory().offset(first);
        match moved {
            Err(TransferError { errno, moved }) => {
                file.io_error(Operation::Write, offset + moved as u64, errno)
            }
            Ok(moved) => Error::ShortTransfer { file: file.path.clone(), offset, wanted, moved },
        }
    }

    /// Writes back every page of these ranges that is dirty now, and no other, and waits until that
    /// has ended. The ranges are in order and apart. What fails stays dirty. After a failure that
    /// all other writes would share, as there is no space left, the others are not tried. Gives the
    /// pages that are held back, and so were not written.
    pub(crate) fn write_back(
        &self,
        file: &Arc<FileState>,
        ranges: &[PageRange],
        changing: ChangingPages,
    ) -> Vec<PageNo> {
        self.files.give_back_preallocated(file, &self.pages);
        file.write_streams.lock().note_sync();
        let mut pages = self.unwritten_in(file, ranges);
        // What is one run is best written by the thread that waits for it, which is woken once
        // then, and not twice.
        let runs = self.count_runs(file, &pages);
        let queues = runs > 1 && self.io.engine.is_some();
        let mut cleaner = FileCleaner::for_sync(self, file, queues, runs);
        cleaner.runs = queues.then(|| SyncRuns::new(self.supply().waits.clone()));
        cleaner.begin(&mut pages);
        cleaner.wait();
        let mut held = Vec::new();
        for (page, within, begun) in pages {
            let tried = begun || cleaner.is_refused();
            if !cleaner.finish(page, within, tried, changing) {
                held.push(page);
            }
        }
        held
    }

    /// Begins to write back what a sync would, and waits for none of it. Without queued I/O nobody
    /// could go on with it.
    pub(crate) fn begin_sync(&self, file: &Arc<FileState>) {
        if self.io.engine.is_some() {
            let mut pages = self.unwritten_in(file, &[ALL_PAGES]);
            let runs = self.count_runs(file, &pages);
            FileCleaner::for_sync(self, file, true, runs).begin(&mut pages);
        }
    }

    /// The unclean pages of the ranges, each with its range, and that no write-back of it has
    /// begun. Without those that were written by now: what comes later is not this sync's.
    fn unwritten_in<'r>(
        &self,
        file: &FileState,
        ranges: &'r [PageRange],
    ) -> Vec<(PageNo, &'r PageRange, bool)> {
        let mut pages: Vec<_> = {
            let unclean = file.unclean.lock();
            let pages_of = |range| unclean.iter_in(range).map(move |page| (page, range, false));
            ranges.iter().flat_map(pages_of).collect()
        };
        pages.retain(|(page, ..)| !self.is_written(file.key(*page)));
        pages
    }

    /// Whether the page was seen to be written. This may miss one.
    fn is_written(&self, key: PageKey) -> bool {
        let is_written = |word: Word| matches!(word.state(), State::Clean | State::Unstable);
        self.pages.peek_word(key).is_some_and(is_written)
    }

    /// How many runs these pages of a sync are, in order.
    fn count_runs(&self, file: &FileState, pages: &[(PageNo, &PageRange, bool)]) -> usize {
        let most = self.written_pages_max(file);
        let neighbours = pages.chunk_by(|(page, ..), (next, ..)| page.next() == *next);
        neighbours.map(|pages| pages.len().div_ceil(most)).sum()
    }

    /// Whether the page may be counted as newer than the device: who changes it now may have found
    /// it so.
    pub(crate) fn may_be_counted(&self, file: &FileState, page: PageNo) -> bool {
        let is_counted = |state: State| state.is_unwritten() || state == State::Changing;
        self.pages.word_of(file.key(page)).is_some_and(|word| is_counted(word.state()))
    }
}

#[cfg(test)]
mod tests;
