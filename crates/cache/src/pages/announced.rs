//! Pages that are announced, and then not brought in: somebody reads them, and keeps none.
//!
//! ```text
//!  reads a run, and keeps none               wants one of its pages
//!  ---------------------------               ----------------------
//!  lock: nothing; announce; unlock
//!  read the device                           lock: announced, so wait for that generation; unlock
//!  lock: take the announcement back; unlock
//!  fence; wake the waiters                   lock: nothing; announce; unlock; bring it in
//! ```
//!
//! Excluded: the page is changed, and written back, while it is being read. Who changes a page puts
//! its frame in the index first, and an announcement keeps that out. A page that is dirty, or being
//! written back, is in the index, and ends the run.
//!
//! Those who have waited bring the page in as others do, one of them for all: they do not take
//! turns to read it. All that want to read it are woken, and the first that wants to change it,
//! which wakes the next.
//!
//! A thread that reads the same pages again and again could announce them again before those that
//! it woke have looked. So it brings in the first page that was waited for: its next read of this
//! kind ends there.

use crate::page::{PageKey, PageNo};
use crate::pages::Pages;

/// Pages that follow each other, announced by this value's owner until it ends that.
#[must_use]
pub(crate) struct AnnouncedRun<'a> {
    pages: &'a Pages,
    first: PageKey,
    count: u64,
}

impl Pages {
    /// Announces missing pages from `first` on, up to the first that is known, and `most` of them.
    pub(crate) fn announce_run(&self, first: PageKey, most: u64) -> AnnouncedRun<'_> {
        let mut run = AnnouncedRun { pages: self, first, count: 0 };
        let mut locked = None;
        while run.count < most {
            let shard = self.next_shard(&mut locked, run.key(run.count));
            if shard.get().is_some() {
                break;
            }
            shard.announce();
            run.count += 1;
        }
        run
    }
}

impl AnnouncedRun<'_> {
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    fn key(&self, at: u64) -> PageKey {
        PageKey { page: PageNo(self.first.page.0 + at), ..self.first }
    }

    /// Takes the announcements back. Gives the first page that somebody may have waited for.
    pub(crate) fn end(self) -> Option<PageNo> {
        let mut locked = None;
        for at in 0..self.count {
            self.pages.next_shard(&mut locked, self.key(at)).remove();
        }
        drop(locked);
        self.pages.wake_pages((0..self.count).map(|at| self.key(at)))
    }
}
