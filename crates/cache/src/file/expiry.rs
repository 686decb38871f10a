//! Dirty pages that get old: the I/O thread writes them back. So a killed process loses little.
//!
//! The first page that becomes dirty sets the alarm (`frames/alarm.rs`). When it rings, the I/O
//! thread writes back all that is dirty: so no page is dirty for longer than the alarm takes, and a
//! page is written at most once in that time. What cannot be written then (it is held back, is
//! being changed, or fails) sets the alarm again, and so does each page that becomes dirty later.
//! While nothing is dirty, the alarm is not set, and nobody wakes. Temporary files are left out.
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
//! writer's third.

use unherd_sys::primitives::Arc;

use crate::file::core::Core;
use crate::file::state::FileState;
use crate::frames::frame::State;
use crate::page::PageNo;

/// Pages that are still to be written back, the next one last.
#[derive(Debug, Default)]
pub(crate) struct Expired(Vec<(Arc<FileState>, PageNo)>);

impl Core {
    /// A page has become dirty, or stays so.
    pub(crate) fn note_dirty(&self) {
        if let Some(alarm) = &self.supply().alarm {
            alarm.note_dirty();
        }
    }

    /// All pages that are dirty now.
    pub(crate) fn collect_expired(&self) -> Expired {
        let (mut pages, mut is_any_kept) = (Vec::new(), false);
        for file in self.files.all().into_iter().filter(|file| file.writes_at_close()) {
            let unclean: Vec<PageNo> = file.unclean.lock().iter().collect();
            for page in unclean {
                match self.word_of(&file, page).map(|word| word.state()) {
                    Some(State::Dirty | State::Failed) => pages.push((file.clone(), page)),
                    Some(State::Changing | State::Held) => is_any_kept = true,
                    _ => {}
                }
            }
        }
        if is_any_kept {
            self.note_dirty();
        }
        pages.reverse();
        Expired(pages)
    }

    /// Begins to write the pages back, as long as the device is not busy. Waits for nothing: it is
    /// the I/O thread that gives buffers back. Whether it has begun all.
    pub(crate) fn write_expired(&self, expired: &mut Expired) -> bool {
        while let Some((file, page)) = expired.0.last() {
            // Most were written with a neighbour.
            if self.is_unwritten(file, *page) && file.is_refused() {
                self.note_dirty();
            } else if self.is_unwritten(file, *page) {
                let buffer = if self.is_busy() { None } else { self.io.runs.try_take() };
                let Some(buffer) = buffer else { return false };
                if let Err(buffer) = self.write_back_by(file, *page, buffer) {
                    self.put_buffers([buffer]);
                    self.note_dirty();
                }
            }
            expired.0.pop();
        }
        true
    }
}
