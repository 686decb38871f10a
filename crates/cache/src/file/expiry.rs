//! Dirty pages that get old: the I/O thread writes them back. So a killed process loses little.
//!
//! The first page that becomes dirty sets the alarm (`frames/alarm.rs`). When it rings, the I/O
//! thread writes back all that is dirty: so no page is dirty for longer than the alarm takes, and a
//! page is written at most once in that time. What cannot be written then (it is held back, is
//! being changed, or fails) sets the alarm again, and so does each page that becomes dirty later.
//! While nothing is dirty, the alarm is not set, and nobody wakes.
//!
//! ```text
//!  makes a page dirty                       the alarm rings
//!  ------------------                       ---------------
//!  claim the page (shard lock)              the alarm is not set
//!  put it into the set (its lock)           is the page in the set of unclean ones? (its lock)
//!  is the alarm set? else set it            is it dirty, or changing? (shard lock)
//!  publish it: dirty
//! ```
//!
//! Excluded: that the page stays dirty and the alarm is not set. If the other finds the page not in
//! the set, or neither dirty nor changing, then one of the locks orders its first step before the
//! writer's third. A page in write-back is passed over: it is written, or it is dirty again when
//! that ends, and then the alarm is set; or a writer puts a copy in its place, by these steps.

use unherd_sys::primitives::Arc;

use crate::file::core::Core;
use crate::file::state::FileState;
use crate::frames::frame::State;
use crate::page::PageNo;

/// Pages that are looked at before the I/O thread sees to transfers that have ended.
const LOOKS: usize = 256;

/// What is still to be written back.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    files: Vec<Arc<FileState>>,
    /// The file that is being looked at, and those of its pages that are left, the next one last.
    current: Option<(Arc<FileState>, Vec<PageNo>)>,
}

/// When the I/O thread goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoesOn {
    /// It is done.
    Never,
    Soon,
    /// When the device may be less busy.
    Later,
}

impl Core {
    /// A page has become dirty, or stays so.
    pub(crate) fn note_dirty(&self) {
        if let Some(alarm) = &self.supply().alarm {
            alarm.note_dirty();
        }
    }

    /// Files whose dirty pages are to be written back now.
    pub(crate) fn collect_expired(&self) -> Expired {
        Expired { files: self.files.all(), current: None }
    }

    /// Begins to write the pages back, one run, and more as long as the device is not busy. Waits
    /// for nothing: it is the I/O thread that gives buffers back.
    pub(crate) fn write_expired(&self, expired: &mut Expired) -> GoesOn {
        let mut has_begun = false;
        for _ in 0..LOOKS {
            let Some((file, pages)) = &mut expired.current else {
                let Some(file) = expired.files.pop() else { return GoesOn::Never };
                let mut pages: Vec<PageNo> = file.unclean.lock().iter().collect();
                pages.reverse();
                expired.current = Some((file, pages));
                continue;
            };
            let Some(page) = pages.pop() else {
                expired.current = None;
                continue;
            };
            match self.word_of(file, page).map(|word| word.state()) {
                Some(State::Dirty | State::Failed) if !file.is_refused() => {}
                Some(state) if state.is_unwritten() || state == State::Changing => {
                    self.note_dirty();
                    continue;
                }
                // Most were written with a neighbour.
                _ => continue,
            }
            let may_begin = !has_begun || !self.is_busy();
            let Some(buffer) = may_begin.then(|| self.io.runs.try_take()).flatten() else {
                pages.push(page);
                return GoesOn::Later;
            };
            has_begun = true;
            if let Err(buffer) = self.write_back_by(file, page, buffer) {
                self.put_buffers([buffer]);
                self.note_dirty();
            }
        }
        GoesOn::Soon
    }
}
