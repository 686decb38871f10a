//! The right to the page of a read that is queued, and the wait for it.

use unherd_sync::{Outcome, Wait, WaitKey};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, AtomicBool, Ordering};

use crate::frames::Pin;
use crate::page::PageKey;
use crate::pages::{Pages, Want};
use crate::state::runs::{Engine, Run};

/// The right to what a read will put into its slot: a pin, or an error.
#[must_use]
pub(crate) struct QueuedRead<'a> {
    pages: &'a Pages,
    engine: &'a Engine,
    at: usize,
    page: WaitKey,
    has_result: Arc<AtomicBool>,
    is_taken: bool,
}

impl Drop for QueuedRead<'_> {
    fn drop(&mut self) {
        // In a child of fork(2) the read is the parent's.
        if !self.is_taken
            && !self.pages.fork.is_forked()
            && let Some(pin) = self.engine.abandon(self.at)
        {
            self.pages.unpin(pin);
        }
    }
}

impl<'a> QueuedRead<'a> {
    /// Begins to read a run. Gives the right to its first page, or the run, if the I/O thread has
    /// died.
    pub(crate) fn begin(
        pages: &'a Pages,
        engine: &'a Engine,
        run: Run,
        first: PageKey,
    ) -> Result<Self, Box<Run>> {
        let (at, has_result) = engine.begin_read(pages.memory(), run)?;
        Ok(Self { pages, engine, at, page: first.into(), has_result, is_taken: false })
    }

    /// Shared, as all readers are woken at a time: who is dropped leaves nobody behind.
    fn how(&self) -> Wait {
        Wait::new(self.pages.reasons.page_read).tag(Want::Read.tag()).shared()
    }

    fn lacks_result(&self) -> bool {
        !self.has_result.load(Ordering::Relaxed)
    }

    /// The result, after a wait.
    fn take(&mut self, outcome: Outcome) -> Option<Result<Pin, Errno>> {
        let result = self.engine.take_result(self.at);
        self.is_taken = result.is_some();
        if result.is_none() && matches!(outcome, Outcome::Woken(_)) {
            self.pages.waits.note_needless(self.pages.reasons.page_read);
        }
        result
    }

    /// Blocks until the end of the read, under `page-read`.
    pub(crate) fn wait(mut self) -> Result<Pin, Errno> {
        loop {
            let waits = &self.pages.waits;
            let outcome = waits.wait(&self.page, || self.lacks_result(), self.how());
            if let Some(result) = self.take(outcome) {
                return result;
            }
        }
    }

    /// As [`QueuedRead::wait`], in a task.
    #[cfg(feature = "async")]
    pub(crate) async fn wait_async(mut self) -> Result<Pin, Errno> {
        loop {
            let waits = &self.pages.waits;
            let outcome = waits.wait_async(&self.page, || self.lacks_result(), self.how()).await;
            if let Some(result) = self.take(outcome) {
                return result;
            }
        }
    }
}

/// Puts the result into the slot of a fill that has ended. A pin that nobody will come for is given
/// back.
pub(crate) fn put_slot_result(
    pages: &Pages,
    engine: &Engine,
    at: usize,
    result: Result<Pin, Errno>,
) {
    if let Some(pin) = engine.put_result(pages.memory(), at, result) {
        pages.unpin(pin);
    }
}
