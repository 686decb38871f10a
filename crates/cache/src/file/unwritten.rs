//! Pages that are newer than the device, and the bound on them.
//!
//! A page that cannot be written keeps its frame until it can. So that files which fail leave
//! frames to all others, a file has at most three quarters of the frames that no other file has for
//! such pages: of 64, one that fails keeps 48, the next 12, the third 3, and so on.
//!
//! A page is counted from its claim for a change on, unless it was newer than the device before,
//! until it has been written or dropped. A writer that finds the bound reached writes pages of its
//! file back, or fails with the error of the write that did.
//!
//! If writes of a file fail, its dirty pages are *failed*: reclaim takes others first, and tries
//! these again only [`RETRY_AFTER`] the latest failure. A sync or close tries at once.

use std::time::Duration;

use unherd_sync::{Outcome, Token, Wait};
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use unherd_sys::{Deadline, Timestamp};

use crate::Error;
use crate::file::core::Core;
use crate::file::files::FileState;
use crate::frames::waiters::LOOK;
use crate::page::{FrameId, PageNo};

/// How long nobody but a sync or close repeats writes of a file after one has failed.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Unclean pages that are looked at under one lock.
const CHUNK: usize = 64;

/// Of one file. Relaxed, all: counts and hints.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    pages: AtomicUsize,
    /// Whether the latest write-back has failed.
    is_failing: AtomicBool,
    /// The page from which on a writer in want of room looks for one to write back.
    next: AtomicU64,
}

impl Unwritten {
    /// Counts pages more; the file's table counts them too.
    pub(crate) fn add(&self, pages: usize) {
        self.pages.fetch_add(pages, Ordering::Relaxed);
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_failing(&self, is_failing: bool) {
        // Mostly it is so already, and a store would take the line from those who read it.
        if self.is_failing() != is_failing {
            self.is_failing.store(is_failing, Ordering::Relaxed);
        }
    }
}

impl Core {
    pub(crate) fn add_unwritten(&self, file: &FileState, pages: usize) {
        self.files.add_unwritten(file, pages);
    }

    pub(crate) fn remove_unwritten(&self, file: &FileState, pages: usize) {
        if pages > 0 {
            let before = file.unwritten.pages.fetch_sub(pages, Ordering::Relaxed);
            debug_assert!(before >= pages, "more pages were written than were newer");
            self.files.unwritten.fetch_sub(pages, Ordering::Relaxed);
        }
    }

    /// Whether a file may have `own` such pages, of `all`.
    fn fits(&self, own: usize, all: usize) -> bool {
        let others = all.saturating_sub(own);
        own <= self.frames().len().saturating_sub(others) * 3 / 4
    }

    /// Counts one page more, if that is allowed.
    pub(crate) fn reserve_unwritten(&self, file: &FileState) -> bool {
        let own = file.unwritten.pages.fetch_add(1, Ordering::Relaxed) + 1;
        let all = self.files.unwritten.fetch_add(1, Ordering::Relaxed) + 1;
        let fits = self.fits(own, all);
        if !fits {
            self.remove_unwritten(file, 1);
        }
        fits
    }

    pub(crate) fn has_room(&self, file: &FileState) -> bool {
        let own = file.unwritten.pages.load(Ordering::Relaxed) + 1;
        self.fits(own, self.files.unwritten.load(Ordering::Relaxed) + 1)
    }

    /// Writes pages of the file back until one more may be newer than the device. Blocks on the
    /// device or, under `frame`, until a write-back or change by others has ended; up to the
    /// cache's frame deadline.
    ///
    /// # Errors
    /// That of the file's writes, if they fail; [`Error::NoFrames`].
    #[cold]
    pub(crate) fn make_room(&self, file: &Arc<FileState>) -> Result<(), Error> {
        let began = Timestamp::now();
        let end = began.after(self.frame_wait);
        let waiters = &self.supply().waiters;
        let _entered = waiters.enter();
        let made = loop {
            let seen = waiters.idled();
            if self.has_room(file) {
                break Ok(());
            }
            if let Some(error) = file.durability.lock().refusal() {
                break Err(error);
            }
            if self.write_any_page(file) && self.io.engine.is_none() {
                continue;
            }
            let wait = Wait::new(self.reasons().frame).deadline(Deadline::at(end));
            match waiters.wait(self.waits(), seen, wait) {
                Outcome::Woken(LOOK) | Outcome::Invalid => {}
                // It wants none.
                Outcome::Woken(Token(frame)) => {
                    let handed = self.frames().take_over(FrameId((frame - 1) as u32));
                    handed.into_iter().for_each(|claim| self.pages.free_frame(claim));
                }
                Outcome::TimedOut => break Err(self.no_frames(Timestamp::now().since(began))),
            }
        };
        // What woke this thread may have been meant for one that wants a frame.
        self.pages.notify_idle(1);
        made
    }

    /// Writes a page of the file back, or begins to, if there is one.
    fn write_any_page(&self, file: &Arc<FileState>) -> bool {
        let mut from = PageNo(file.unwritten.next.load(Ordering::Relaxed));
        let mut left = file.unclean.lock().len();
        while left > 0 {
            let chunk: Vec<PageNo> = {
                let unclean = file.unclean.lock();
                unclean.iter_from(from).chain(unclean.iter()).take(CHUNK.min(left)).collect()
            };
            let Some(&last) = chunk.last() else { return false };
            left -= chunk.len();
            from = last.next();
            for page in chunk {
                if self.is_unwritten(file, page) && self.write_back_page(file, page) {
                    file.unwritten.next.store(page.0 + 1, Ordering::Relaxed);
                    return true;
                }
            }
        }
        false
    }

    /// Writes of the file fail: its other dirty pages count as tried.
    pub(crate) fn fail_dirty_pages(&self, file: &FileState) {
        let pages: Vec<PageNo> = file.unclean.lock().iter().collect();
        for page in pages {
            let shard = self.pages.shard(self.key(file, page));
            if let Some(frame) = shard.frame() {
                self.frames().fail(frame);
            }
        }
    }
}
