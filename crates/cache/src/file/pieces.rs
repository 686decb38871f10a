//! Reads and writes of less than a page that go on where the last one ended.
//!
//! Who reads or writes a file from end to end in small pieces touches each page many times, which
//! is one use of it, and not many: else a scan, or a log, would take the place of pages that are
//! wanted again and again. (Linux: `filemap_read` marks a page as used only if the reader has come
//! to it from another.) Each thread remembers where its last reads ended, and its last writes, of a
//! few files, so a hit writes nothing that others read. Threads that append to one file in turn use
//! its pages as often as they touch them.

use std::cell::Cell;

use unherd_sys::primitives::thread_local;

use crate::page::FileId;
use crate::state::FileState;

/// Which calls go on where one of them ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Calls {
    Reads,
    Writes,
}

/// An offset, and the number of the file. A file of another cache may have the same: then one use
/// is not counted.
type Place = (u64, FileId);

/// Files, or parts of one, in which a thread reads, or writes, in turn and is known to go on.
const ENDS: usize = 4;

/// Where the last calls of a thread ended.
struct Ends {
    places: [Cell<Place>; ENDS],
    oldest: Cell<usize>,
}

impl Ends {
    const fn new() -> Self {
        Self { places: [const { Cell::new((0, FileId(0))) }; ENDS], oldest: Cell::new(0) }
    }

    #[inline]
    fn find(&self, place: Place) -> Option<usize> {
        self.places.iter().position(|end| end.get() == place)
    }

    /// A call has ended there: the one that `follows` the one that was found, if any.
    #[inline]
    fn note(&self, follows: Option<usize>, place: Place) {
        let take_oldest = || self.oldest.replace((self.oldest.get() + 1) % ENDS);
        self.places[follows.unwrap_or_else(take_oldest) % ENDS].set(place);
    }
}

thread_local! {
    static LAST: [Ends; 2] = const { [Ends::new(), Ends::new()] };
}

fn place(file: &FileState, offset: u64) -> Place {
    (offset, file.id)
}

impl Calls {
    /// Which of this thread's last ended there. Where the thread's locals are gone, none did.
    #[inline]
    pub(crate) fn ended_at(self, file: &FileState, offset: u64) -> Option<usize> {
        LAST.try_with(|last| last[self as usize].find(place(file, offset))).ok().flatten()
    }

    /// One has ended there, which `follows` the one that [`Calls::ended_at`] has told.
    #[inline]
    pub(crate) fn note_end(self, follows: Option<usize>, file: &FileState, offset: u64) {
        let _ = LAST.try_with(|last| last[self as usize].note(follows, place(file, offset)));
    }
}
