//! Readahead, carried out: pages that nobody waits for are read by the I/O thread.
//!
//! What to read is planned by `readahead.rs`. It is read as far as it is missing and frames can be
//! had at once, and only while the device has little to do: see [`Engine::may_read_ahead`]. A cache
//! without an I/O thread reads ahead only what is next to a missing page, with that page.
//!
//! Of a file that is read once (`Advice::NoReuse`) the pages behind the reader are given up here,
//! too.

use std::ops::Range;

use unherd_sys::primitives::{Arc, Ordering};

use crate::file::Core;
use crate::file::fill::finish;
use crate::frames::Claim;
use crate::io::TransferError;
use crate::page::{PageKey, PageNo};
use crate::state::FileState;
use crate::state::readahead::{Limits, behind, is_readahead_trigger, step_len};
use crate::state::runs::{Engine, Fill};

impl Core {
    /// Frames for a missing page, and for those that follow it and are to be read with it, as far
    /// as they are missing and frames are there; `wanted` pages are wanted now. Begins to read what
    /// is to come in besides.
    pub(crate) fn try_take_with_neighbours(
        &self,
        file: &Arc<FileState>,
        key: PageKey,
        wanted: u64,
    ) -> Vec<Claim> {
        let (page, file_pages) = (key.page.0, self.file_pages(file));
        self.give_up_behind(file, page);
        let limits = self.limits(file_pages);
        let engine = self.engine_to_read_ahead();
        let most = limits.run.min(file_pages.saturating_sub(page));
        // As far as none of them is there.
        let next = |pages: u64| 1 + self.missing(file, page + 1..page + pages.min(most).max(1));
        let all = |pages: u64| pages.min(most).max(1);
        let possible = |pages| if engine.is_some() { all(pages) } else { next(pages) };
        let was_read = |page| self.was_read(file, page);
        let wanted = wanted.clamp(1, limits.run);
        let ahead = || self.most_ahead();
        let plan = file.read_streams.lock().miss(page, wanted, limits, ahead, was_read, possible);
        let pages = next(plan.pages);
        let claims = self.try_take_run(file, page, pages);
        // Where frames are scarce, none are taken for what nobody has asked for.
        if let Some(engine) = engine
            && claims.len() as u64 == pages
        {
            let rest = page + pages..page + plan.pages;
            let ranges =
                plan.ahead.into_iter().flat_map(|ahead| ahead.ranges(limits.run, file_pages));
            self.read_ahead(engine, file, ranges.chain([rest]));
        }
        claims
    }

    /// A page was used for the first time that had been brought in ahead, or that the caller has
    /// waited for: the next window of its stream, if it is time.
    #[inline]
    pub(crate) fn continue_readahead(&self, file: &Arc<FileState>, page: PageNo) {
        if is_readahead_trigger(page.0, self.step_len()) {
            self.ask(file, page);
        }
    }

    #[cold]
    fn ask(&self, file: &Arc<FileState>, page: PageNo) {
        if self.fork().is_forked() {
            return;
        }
        self.give_up_behind(file, page.0);
        let Some(engine) = self.engine_to_read_ahead() else { return };
        let file_pages = self.file_pages(file);
        let limits = self.limits(file_pages);
        let ahead = file.read_streams.lock().used(page.0, limits, || self.most_ahead());
        if let Some(ahead) = ahead {
            self.read_ahead(engine, file, ahead.ranges(limits.run, file_pages));
        }
    }

    /// If each page is read once: a reader has come to `page`, and some before it can go.
    fn give_up_behind(&self, file: &FileState, page: u64) {
        if file.no_reuse.load(Ordering::Relaxed) {
            let pages = behind(page, self.step_len());
            self.pages.give_up_early(pages.map(|page| file.key(PageNo(page))));
        }
    }

    /// Begins to read those of the pages that are missing. Gives how many were looked at, from the
    /// first on.
    pub(crate) fn prefetch(&self, file: &Arc<FileState>, pages: &[PageNo]) -> usize {
        let Some(engine) = self.io.engine.as_ref().filter(|_| !self.fork().is_forked()) else {
            return 0;
        };
        let file_pages = self.file_pages(file);
        let most = self.most_ahead() as usize;
        let (mut missing, mut seen) = (Vec::new(), 0);
        for page in pages {
            if page.0 < file_pages && self.is_missing(file, page.0) {
                if missing.len() == most {
                    break;
                }
                missing.push(page.0);
            }
            seen += 1;
        }
        missing.sort_unstable();
        missing.dedup();
        let runs = missing.chunk_by(|page, next| page + 1 == *next);
        self.read_ahead(engine, file, runs.map(|run| run[0]..run[0] + run.len() as u64));
        seen
    }

    fn engine_to_read_ahead(&self) -> Option<&Engine> {
        let run_pages = self.io.runs.pages_max;
        self.io.engine.as_ref().filter(|engine| engine.may_read_ahead(run_pages))
    }

    /// Of pages ahead all streams together hold a quarter of the cache. Reads cache lines that
    /// others write.
    fn most_ahead(&self) -> u64 {
        let quarter = self.supply().len() as u64 / 4;
        let unread = self.counters().unread_ahead().saturating_sub(self.frames().ahead_pinned());
        quarter.saturating_sub(unread)
    }

    fn limits(&self, file_pages: u64) -> Limits {
        // The cache may have fewer frames now than it was built for.
        let run = self.io.runs.pages_max.min(self.supply().len() / 16).max(1) as u64;
        Limits { run, file: file_pages, step: self.step_len() }
    }

    fn step_len(&self) -> u64 {
        step_len(self.memory().page_bytes())
    }

    fn file_pages(&self, file: &FileState) -> u64 {
        file.len().div_ceil(self.memory().page_bytes() as u64)
    }

    /// How many of the pages are missing, from the first on.
    pub(crate) fn missing(&self, file: &FileState, pages: Range<u64>) -> u64 {
        self.pages.index.prefetch_slots(file.id, pages.clone());
        pages.take_while(|&page| self.is_missing(file, page)).count() as u64
    }

    fn is_missing(&self, file: &FileState, page: u64) -> bool {
        self.pages.index.lookup(file.key(PageNo(page))).is_none()
    }

    /// How many of the pages are there, or announced, from the first on.
    fn known(&self, file: &FileState, pages: Range<u64>) -> u64 {
        let mut locked = None;
        let mut is_known = |&page: &u64| {
            let shard = self.pages.next_shard(&mut locked, file.key(PageNo(page)));
            shard.get().is_some()
        };
        pages.take_while(|page| is_known(page)).count() as u64
    }

    /// Whether the page is there, and was used or is being read.
    fn was_read(&self, file: &FileState, page: u64) -> bool {
        let frame = self.pages.index.lookup(file.key(PageNo(page)));
        frame.is_some_and(|frame| !self.frames().word(frame).is_unread())
    }

    /// Begins to read pages, as far as they are missing and frames can be had at once.
    fn read_ahead(
        &self,
        engine: &Engine,
        file: &Arc<FileState>,
        ranges: impl Iterator<Item = Range<u64>>,
    ) {
        let run_pages = self.io.runs.pages_max as u64;
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let missing = self.missing(file, at..range.end.min(at + run_pages));
                if missing == 0 {
                    at += 1;
                    continue;
                }
                let first = PageNo(at);
                if self.supply().waiters.events.count() > 0 {
                    return;
                }
                let claims = self.try_take_run(file, at, missing);
                let has_all = claims.len() as u64 == missing;
                let fill = Fill { is_ahead: true, ..Fill::new(file.clone(), first, claims) };
                let fill = fill.install(&self.pages);
                // One that is announced, or there by now, ends the run.
                if fill.claims.is_empty() {
                    at += self.known(file, at..at + missing).max(1);
                } else {
                    at += (fill.claims.len() as u64 + 1).min(missing);
                    let (count, run) = (fill.claims.len(), fill.into_run(&self.pages));
                    if let Err(run) = engine.begin_ahead(self.memory(), run, count) {
                        let _ = finish(&self.pages, *run, |_| Err(TransferError::IO));
                    }
                }
                if !has_all {
                    return;
                }
            }
        }
    }
}
