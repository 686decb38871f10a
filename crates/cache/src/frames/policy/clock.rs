//! CLOCK: a hand goes round over the frames; one used since it last came by is passed over once.
//!
//! F. J. Corbató, "A Paging Experiment with the Multics System" (1968). It keeps nothing but the
//! hand, and a scan of more pages than there are frames flushes everything.

use super::{Frames, Look, Policy, Search, Uses};

/// CLOCK: a hand goes round over the frames.
#[derive(Debug)]
pub struct Clock {
    frames: u32,
    hand: u32,
}

impl Clock {
    /// A hand over this many frames.
    pub fn new(frames: u32) -> Self {
        Self { frames, hand: 0 }
    }
}

impl Policy for Clock {
    // The hand sees by itself what is in a frame.
    fn admit(&mut self, _frame: u32, _page: u64, _came_back: bool) {}

    fn evicted(&mut self, _frame: u32) -> Option<u64> {
        None
    }

    fn remove(&mut self, _frame: u32) {}
    fn transfer(&mut self, _from: u32, _to: u32) {}

    fn may_go_early(&self, _frame: u32, uses: u32) -> bool {
        uses == 0
    }

    // The hand passes over the others.
    fn set_frames(&mut self, _frames: u32) {}

    fn propose(&mut self, search: &mut Search, frames: &mut dyn Frames) -> Option<u32> {
        while let Some(look) = search.look(self.hand, frames) {
            let at = self.hand;
            self.hand = if at + 1 < self.frames { at + 1 } else { 0 };
            match look {
                Look::Busy => {}
                Look::Idle { uses: 0, page } => {
                    if search.can_have(at, page) {
                        return Some(at);
                    }
                }
                Look::Idle { .. } => frames.forget(at, Uses::All),
            }
        }
        None
    }
}
