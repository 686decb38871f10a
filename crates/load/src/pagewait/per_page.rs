//! `per-page`: a wait queue for each page that could be waited for.
//!
//! There are no collisions and so no herd. It is what report 000 calls the space footprint that
//! hashed queues save: the queues stand there for all pages, though few are waited for at once.

use super::{PageWaits, Tally, WaitPoint};

pub(super) struct PageCondvars(Vec<WaitPoint>);

impl PageCondvars {
    pub(super) fn new(pages: usize) -> Self {
        Self((0..pages).map(|_| WaitPoint::default()).collect())
    }
}

impl PageWaits for PageCondvars {
    fn wait(&self, page: usize, tally: &Tally, pending: impl Fn() -> bool) {
        self.0[page].wait(tally, pending);
    }

    fn complete(&self, page: usize, publish: impl FnOnce()) {
        let point = &self.0[page];
        let guard = point.lock.lock();
        publish();
        drop(guard);
        // All waiters for the page: there may be several in a real program.
        point.wakeups.notify_all();
    }

    fn wait_bytes(&self, _threads: usize) -> usize {
        self.0.len() * size_of::<WaitPoint>()
    }
}
