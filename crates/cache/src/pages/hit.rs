//! The hit: a page that is there is pinned, used and unpinned without a lock.
//!
//! | step | shared writes |
//! |---|---|
//! | the index names a frame, perhaps a wrong one | 0 |
//! | its word gets a pin and a hit; then its state and key are looked at | 1 |
//! | if nobody else had it pinned, what tells the thread is stored beside the word | 1, to the same line |
//! | it loses the pin; if that was the last, a load says whether anybody waits for a frame | 1 |
//!
//! Whatever does not fit sends the caller to the path with the lock, which alone decides what is
//! missing (`read.rs`). `frames/frame.rs` shows that nobody writes a page that is pinned so, and
//! `frames/event_count.rs` that no waiter for a frame is forgotten.

use crate::frames::{Hit, Pin, State, Word};
use crate::page::{FrameId, PageKey};
use crate::pages::Pages;

impl Pages {
    /// The page, pinned, if it is there and may be pinned. That there is none means nothing.
    #[inline(always)]
    pub(crate) fn try_hit(&self, key: PageKey) -> Option<Hit> {
        let frame = self.index.lookup(key)?;
        match self.frames().try_hit(frame, key) {
            Ok(hit) => Some(hit),
            Err(before) => {
                self.after_unpin(frame, before);
                None
            }
        }
    }

    #[inline(always)]
    pub(crate) fn unpin(&self, pin: Pin) {
        let frame = pin.id();
        let before = self.frames().unpin(pin);
        self.after_unpin(frame, before);
    }

    /// A pin was taken off the frame, whose word was `before`. The pin of one that has only looked
    /// may have been in the way of others as well.
    #[inline(always)]
    fn after_unpin(&self, frame: FrameId, before: Word) {
        if before.pins() == 1
            && (!self.supply.waiters.events.is_empty_after_rmw()
                || before.state() == State::Detached)
        {
            self.after_last_unpin(frame, before.state());
        }
    }

    #[cold]
    fn after_last_unpin(&self, frame: FrameId, state: State) {
        if self.fork.is_forked() {
            // A waiter for the frame waits in the parent, and there it is still pinned.
            return;
        }
        if state == State::Detached {
            if let Some(claim) = self.frames().free_detached(frame) {
                self.free_frame(claim);
            }
        } else if state.is_at_rest() {
            self.notify_frame_waiters(1);
        }
    }
}
