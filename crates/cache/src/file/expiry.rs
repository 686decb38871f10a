//! Dirty pages that get old: the I/O thread writes them back. So a killed process loses little.
//!
//! The first page that becomes dirty sets the alarm (`frames/alarm.rs`). When it rings, the I/O
//! thread writes back all that is dirty: so no page is dirty for much longer than the alarm takes,
//! unless the device is busy, and a page is written at most once in that time. What cannot be
//! written then (it is held back, is being changed, or fails) sets the alarm again, and so does
//! each page that becomes dirty later.
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
//! writer's third. A dirty page that is changed again without the lock (`overwrite.rs`) is dirty or
//! changing all the time: the other writes it, or sets the alarm. A page in write-back is passed
//! over: it is written, or it is dirty again when that ends, and then the alarm is set; or a writer
//! puts a copy in its place, by these steps.

use std::time::Duration;

use unherd_sys::primitives::Arc;

use crate::file::Core;
use crate::frames::State;
use crate::page::PageNo;
use crate::state::FileState;

/// Pages that are looked at before the I/O thread sees to transfers that have ended.
const LOOKS: usize = 256;

/// When the I/O thread goes on, if the device was busy and none of the queued transfers ends
/// before. (Others may write by themselves, of which the end is not told to it.)
const BUSY_WAIT: Duration = Duration::from_millis(100);

/// What is still to be written back.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    files: Vec<Arc<FileState>>,
    /// The file that is being looked at, and from which page on.
    current: Option<(Arc<FileState>, PageNo)>,
    /// The alarm has rung since the files were listed.
    is_due: bool,
}

impl Expired {
    pub(crate) fn is_over(&self) -> bool {
        self.files.is_empty() && self.current.is_none() && !self.is_due
    }

    /// The alarm has rung. What is left comes first: pages that change all the time keep no others
    /// from the device.
    pub(crate) fn ring(&mut self) {
        self.is_due = true;
    }

    /// Begins to write the pages back while the device is not busy; `at_least_one` run also if it
    /// is. Waits for nothing: it is the I/O thread that gives buffers back. Gives after what time
    /// it goes on, unless it is done.
    pub(crate) fn resume(&mut self, core: &Core, mut at_least_one: bool) -> Option<Duration> {
        for _ in 0..LOOKS {
            let Some((file, from)) = &mut self.current else {
                match self.files.pop() {
                    Some(file) => {
                        core.files.give_back_preallocated(&file, &core.pages);
                        self.current = Some((file, PageNo(0)));
                    }
                    None if std::mem::take(&mut self.is_due) => self.files = core.files.all(),
                    None => return None,
                }
                continue;
            };
            let Some(page) = file.unclean.lock().iter_from(*from).next() else {
                self.current = None;
                continue;
            };
            *from = page.next();
            match core.pages.word_of(file.key(page)).map(|word| word.state()) {
                Some(State::Dirty | State::Failed | State::Changing) if !file.is_refused() => {}
                Some(state) if state.is_unwritten() || state == State::Changing => {
                    core.supply().note_dirty();
                    continue;
                }
                // Most were written with a neighbour.
                _ => continue,
            }
            let may_begin = at_least_one || !core.supply().is_busy();
            let Some(buffer) = may_begin.then(|| core.io.runs.try_take()).flatten() else {
                *from = page;
                return Some(BUSY_WAIT);
            };
            match core.write_back_by(file, page, buffer) {
                Ok(()) => at_least_one = false,
                Err(buffer) => {
                    core.put_buffers([buffer]);
                    core.supply().note_dirty();
                }
            }
        }
        Some(Duration::ZERO)
    }
}
