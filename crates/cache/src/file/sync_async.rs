//! Syncs in a task.
//!
//! A sync writes, waits for pages and flushes: calls that block, of which the device's queue has
//! only the first. So a task joins a round (`group_commit.rs`), which a thread runs. The thread
//! lives as long as tasks sync the file, and has a handle of it.

use std::ops::Range;

use unherd_sys::primitives::thread;

use crate::Error;
use crate::file::File;
use crate::page::{ALL_PAGES, PageRange};

impl File {
    /// As [`File::sync_all`], for tasks: shares rounds with all who sync the file, and flushes.
    ///
    /// No poll blocks: a thread syncs the file for all its tasks, and ends when none wants more
    /// (if the system gives no thread, a poll does it). The future may be dropped at any time; what
    /// it has begun goes on, with a handle of the file until it is done. The thread's handle may
    /// outlive the future for a moment too: call [`File::close`], and do not rely on the drop of
    /// the last handle, if what was written since is to be written back at once.
    ///
    /// # Errors
    /// As [`File::sync_all`]; [`Error::AsyncNeedsIoThread`] with
    /// [`Io::Blocking`](crate::Io::Blocking), except where everything is synced;
    /// [`Error::WouldDeadlock`] if the thread that polls has a [`PageMut`](crate::PageMut) of the
    /// file.
    pub async fn sync_all_async(&self) -> Result<(), Error> {
        self.sync_pages_async(ALL_PAGES).await
    }

    /// As [`File::sync_range`], for tasks: see [`File::sync_all_async`].
    ///
    /// # Errors
    /// As [`File::sync_all_async`]; [`Error::BackwardRange`].
    pub async fn sync_range_async(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_forward(&range)?;
        self.sync_pages_async(self.pages_in(range)).await
    }

    async fn sync_pages_async(&self, pages: PageRange) -> Result<(), Error> {
        let (core, file) = (self.core(), &self.file);
        self.check_sync()?;
        core.check_not_forked()?;
        if !file.writable || file.is_synced(&pages) {
            return self.told(Ok(()));
        }
        if core.io.engine.is_none() {
            return Err(Error::AsyncNeedsIoThread { file: file.path.clone(), page: None });
        }
        loop {
            let (round, starts) = file.syncs.join(pages.clone());
            if starts {
                let handle = self.another();
                let runner = thread::Builder::new().name("unherd-sync".into());
                if runner.spawn(move || handle.run_for_tasks()).is_err() {
                    self.run_for_tasks();
                }
            }
            let outcome = file.syncs.ended(&round).await;
            let is_done = outcome.map(|held| held.and_then(|held| file.is_done(&pages, &held)));
            match is_done {
                // It has unwound, or a page was released since.
                None | Some(Ok(false)) => {}
                Some(done) => return self.told(done.map(|_| ())),
            }
        }
    }

    fn run_for_tasks(&self) {
        let (core, file) = (self.core(), &self.file);
        file.syncs.run_for_tasks(|wanted| core.sync_round(file, wanted));
    }
}
