//! Sync, and the end of a file's time in the cache.

use unherd_sys::primitives::{Arc, Ordering};

use crate::Error;
use crate::error::Operation;
use crate::file::{ChangingPages, Core};
use crate::frames::State;
use crate::io::call_device;
use crate::latch::ExclusiveGuard;
use crate::page::{ALL_PAGES, FrameId, PageNo, PageRange, joined};
use crate::state::{DeviceLen, Failure, FileState};
use crate::stats::Count;

/// How often a close, and the end of the last handle, try to write back what fails.
const LAST_ATTEMPTS: usize = 3;

/// Pages of a flush that are settled while the set of unclean pages is locked.
const SETTLED_AT_ONCE: usize = 256;

impl Core {
    /// Writes dirty pages back, those in `pages`, and flushes. Errors are recorded with the file;
    /// if there were any meanwhile, gives the latest, and how many the file has had then.
    ///
    /// Pages that are written while it runs may or may not be part of it.
    ///
    /// Those who call it while it runs share the next run. It does nothing if the pages are on
    /// stable storage.
    pub(crate) fn sync_pages(
        &self,
        file: &Arc<FileState>,
        pages: &PageRange,
    ) -> Result<(), Failure> {
        self.check_not_forked().map_err(|error| (error, 0))?;
        while !file.is_synced(pages) {
            let run = |wanted| self.sync_round(file, wanted);
            let held = file.syncs.run(|| pages.clone(), run)?;
            if file.is_done(pages, &held)? {
                break;
            }
        }
        Ok(())
    }

    /// Syncs what the callers want who share a round. Gives the pages that are held back.
    pub(crate) fn sync_round(
        &self,
        file: &Arc<FileState>,
        wanted: Vec<PageRange>,
    ) -> Result<Vec<PageNo>, Failure> {
        // The round before may have covered it.
        if wanted.iter().all(|pages| file.is_synced(pages)) {
            return Ok(Vec::new());
        }
        let before = file.durability.lock().begin_sync();
        let held = self.write_back_and_trim(file, &joined(wanted));
        if file.durability.lock().needs_flush() {
            self.flush(file);
        }
        file.durability.lock().outcome_since(before).map(|()| held)
    }

    /// Writes back what was written to those pages before, as a sync does, and does not flush.
    pub(crate) fn write_back_pages(
        &self,
        file: &Arc<FileState>,
        pages: &PageRange,
    ) -> Result<(), Failure> {
        self.check_not_forked().map_err(|error| (error, 0))?;
        loop {
            let before = file.durability.lock().begin_sync();
            let held = self.write_back_and_trim(file, std::slice::from_ref(pages));
            file.durability.lock().outcome_since(before)?;
            if file.is_done(pages, &held)? {
                return Ok(());
            }
        }
    }

    /// As [`Core::write_back`]. The file has its length on the device then; an error of that is
    /// recorded.
    fn write_back_and_trim(&self, file: &Arc<FileState>, ranges: &[PageRange]) -> Vec<PageNo> {
        let held = self.write_back(file, ranges, ChangingPages::Awaited);
        if let Err(error) = self.trim(file) {
            file.durability.lock().record(error);
        }
        held
    }

    /// Cuts off what write-backs of whole pages have added to the file on the device.
    ///
    /// What others append between the look at its length and the cut is cut off as well: there is
    /// no call that does both.
    fn trim(&self, file: &FileState) -> Result<(), Error> {
        if !file.durability.lock().device_len.is_padded() {
            return Ok(());
        }
        // A write-back that is under way could make it longer again.
        self.without_write_backs(file, || self.cut_padding(file))
    }

    /// As [`Core::trim`], of a file that is padded. The caller keeps write-backs out.
    pub(crate) fn cut_padding(&self, file: &FileState) -> Result<(), Error> {
        let device = &self.io.device;
        let on_device = device.len(file.device_file);
        let on_device = on_device.map_err(|errno| file.io_error(Operation::Len, 0, errno))?;
        let device_len = file.durability.lock().device_len;
        if let Some(len) = device_len.cut(on_device) {
            let cut = device.set_len(file.device_file, len);
            cut.map_err(|errno| file.io_error(Operation::SetLen, len, errno))?;
        }
        let mut durability = file.durability.lock();
        durability.note_resize();
        durability.device_len = DeviceLen::new(device_len.data());
        Ok(())
    }

    /// Runs `run` while no write-back of the file is under way. Waits under `file` until that is
    /// so.
    pub(crate) fn without_write_backs<T>(&self, file: &FileState, run: impl FnOnce() -> T) -> T {
        let done = {
            let _held = ExclusiveGuard::new(&file.write_backs, self.waits(), self.reasons().file);
            run()
        };
        // Somebody may have wanted a frame and found the file's write-backs held up.
        self.pages.notify_writable();
        done
    }

    /// The caller runs a round of the file's syncs.
    pub(crate) fn flush(&self, file: &FileState) {
        file.unflushed.note_flush();
        let period = file.durability.lock().begin_flush();
        self.counters().add(Count::Flushes, 1);
        let synced = call_device(|| self.io.device.sync(file.device_file));
        let (last, state) = {
            let mut durability = file.durability.lock();
            match synced {
                Ok(()) => {
                    durability.flush_succeeded(period);
                    (period, State::Clean)
                }
                Err(errno) => {
                    let broken = durability.period();
                    durability.flush_failed(file.io_error(Operation::Sync, 0, errno));
                    (broken, State::Dirty)
                }
            }
        };
        self.settle_pages(file, last, state);
        if state == State::Dirty {
            self.supply().note_dirty();
            self.pages.notify_writable();
        }
    }

    /// To be called by one who has written a page of the file to its end. If a flush is due, blocks
    /// on the device; waits for nobody, as the caller may have pages that others wait for. An error
    /// is recorded for the file's handles, as that of any flush.
    pub(crate) fn flush_behind(&self, file: &FileState) {
        let dirty_bytes = || {
            let pages = file.unwritten.pages.load(Ordering::Relaxed);
            (pages * self.memory().page_bytes()) as u64
        };
        let is_due = || {
            file.unflushed.is_due(self.flush_behind_bytes, dirty_bytes)
                && file.durability.lock().needs_flush()
        };
        if is_due() {
            // Flushes of one file come one at a time, as the kernel tells of a failure once: so
            // this is a round of its own. If a sync runs or is about to, that flushes.
            file.syncs.run_alone(|| {
                // Another may have begun a flush since.
                if is_due() {
                    self.flush(file);
                }
            });
        }
    }

    /// Gives the state to unstable pages that were written up to the end of the period `last`, and
    /// takes those that are clean, or gone, out of the set of unclean ones.
    fn settle_pages(&self, file: &FileState, last: u64, settled: State) {
        // What comes later was not written before the flush.
        let mut left = file.unclean.lock().range();
        loop {
            // Writers of the file wait for the set, so a few at a time.
            let mut unclean = file.unclean.lock();
            let pages: Vec<PageNo> = unclean.iter_in(&left).take(SETTLED_AT_ONCE).collect();
            let Some(end) = pages.last() else { return };
            left.start = end.next().0;
            let mut locked = None;
            for page in pages {
                let shard = self.pages.next_shard(&mut locked, file.key(page));
                // A page that is being changed enters the set before the change ends: it is kept.
                if shard.frame().is_none_or(|frame| self.settle_page(file, frame, last, settled)) {
                    unclean.remove(page);
                }
            }
        }
    }

    /// As [`Core::settle_pages`], of one page, whose shard is locked. Whether it is clean then.
    fn settle_page(&self, file: &FileState, frame: FrameId, last: u64, settled: State) -> bool {
        let state = self.frames().word(frame).state();
        if state != State::Unstable || self.frames().period(frame) > last {
            return state == State::Clean;
        }
        self.frames().settle(frame, settled);
        if settled == State::Dirty {
            self.files.add_unwritten(file, 1);
        }
        settled == State::Clean
    }

    /// Writes back what is dirty, and says what could not be. For a close, and for a file whose
    /// last handle has gone.
    pub(crate) fn write_back_for_good(&self, file: &Arc<FileState>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for _ in 0..LAST_ATTEMPTS {
            let before = file.durability.lock().errors();
            self.write_back(file, &[ALL_PAGES], ChangingPages::Skipped);
            outcome = self.trim(file);
            if outcome.is_ok() {
                let durability = file.durability.lock();
                match durability.unseen(before) {
                    None => return Ok(()),
                    Some((error, _)) => outcome = Err(error),
                }
            }
        }
        outcome
    }
}
