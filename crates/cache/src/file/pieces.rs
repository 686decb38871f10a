//! Reads and writes of less than a page that go on where the last one ended.
//!
//! Who reads or writes a file from end to end in small pieces touches each page many times, which
//! is one use of it, and not many: else a scan, or a log, would take the place of pages that are
//! wanted again and again. (Linux: `filemap_read` marks a page as used only if the reader has come
//! to it from another.) Each thread remembers where its last read ended, and its last writes, of a
//! few files, so a hit writes nothing that others read. A thread that reads several files in turn,
//! piece by piece, and threads that append to one file in turn, use the pages as often as they
//! touch them.

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

/// Files, or parts of one, to which a thread writes in turn, and is known to go on.
const WRITES: usize = 4;

/// Where the last calls of a thread ended.
struct Ends<const N: usize> {
    places: [Cell<Place>; N],
    oldest: Cell<usize>,
}

impl<const N: usize> Ends<N> {
    const fn new() -> Self {
        Self { places: [const { Cell::new((0, FileId(0))) }; N], oldest: Cell::new(0) }
    }

    #[inline]
    fn find(&self, place: Place) -> Option<usize> {
        self.places.iter().position(|end| end.get() == place)
    }

    /// A call has ended there: the one that `follows` the one that was found, if any.
    #[inline]
    fn note(&self, follows: Option<usize>, place: Place) {
        let take_oldest = || self.oldest.replace((self.oldest.get() + 1) % N);
        self.places[follows.unwrap_or_else(take_oldest) % N].set(place);
    }
}

thread_local! {
    static LAST_READ: Ends<1> = const { Ends::new() };
    static LAST_WRITES: Ends<WRITES> = const { Ends::new() };
}

fn place(file: &FileState, offset: u64) -> Place {
    (offset, file.id)
}

impl Calls {
    /// Which of this thread's last ended there. Where the thread's locals are gone, none did.
    #[inline]
    pub(crate) fn ended_at(self, file: &FileState, offset: u64) -> Option<usize> {
        let place = place(file, offset);
        match self {
            Self::Reads => LAST_READ.try_with(|ends| ends.find(place)),
            Self::Writes => LAST_WRITES.try_with(|ends| ends.find(place)),
        }
        .ok()
        .flatten()
    }

    /// One has ended there, which `follows` the one that [`Calls::ended_at`] has told.
    #[inline]
    pub(crate) fn note_end(self, follows: Option<usize>, file: &FileState, offset: u64) {
        let place = place(file, offset);
        let _ = match self {
            // It has one place.
            Self::Reads => LAST_READ.try_with(|ends| ends.note(Some(0), place)),
            Self::Writes => LAST_WRITES.try_with(|ends| ends.note(follows, place)),
        };
    }
}
