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
use std::ops::Range;

use unherd_sys::primitives::thread_local;

use crate::file::FileState;

/// Which calls go on where one of them ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Calls {
    Reads,
    Writes,
}

/// A file, by its address, and an offset. Another file may come to lie there: then one use is not
/// counted.
type Place = (usize, u64);

/// Files, or parts of one, to which a thread writes in turn, and is known to go on.
const WRITES: usize = 4;

/// Where the last calls of a thread ended.
struct Ends<const N: usize> {
    places: [Cell<Place>; N],
    oldest: Cell<usize>,
}

impl<const N: usize> Ends<N> {
    const fn new() -> Self {
        Self { places: [const { Cell::new((0, 0)) }; N], oldest: Cell::new(0) }
    }

    #[inline]
    fn position(&self, place: Place) -> Option<usize> {
        self.places.iter().position(|end| end.get() == place)
    }

    /// A call that began at `begin` has ended at `end`.
    #[inline]
    fn note(&self, begin: Place, end: Place) {
        let at =
            if N == 1 { 0 } else { self.position(begin).unwrap_or_else(|| self.take_oldest()) };
        self.places[at].set(end);
    }

    fn take_oldest(&self) -> usize {
        let oldest = self.oldest.get();
        self.oldest.set((oldest + 1) % N);
        oldest
    }
}

thread_local! {
    static LAST_READ: Ends<1> = const { Ends::new() };
    static LAST_WRITES: Ends<WRITES> = const { Ends::new() };
}

fn place(file: &FileState, offset: u64) -> Place {
    (std::ptr::from_ref(file).addr(), offset)
}

impl Calls {
    /// Whether one of this thread's last ended there. Where the thread's locals are gone, none did.
    #[inline]
    pub(crate) fn last_ended_at(self, file: &FileState, offset: u64) -> bool {
        let place = place(file, offset);
        match self {
            Self::Reads => LAST_READ.try_with(|ends| ends.position(place)),
            Self::Writes => LAST_WRITES.try_with(|ends| ends.position(place)),
        }
        .is_ok_and(|at| at.is_some())
    }

    /// One has moved these bytes.
    #[inline]
    pub(crate) fn note(self, file: &FileState, bytes: Range<u64>) {
        let (begin, end) = (place(file, bytes.start), place(file, bytes.end));
        let _ = match self {
            Self::Reads => LAST_READ.try_with(|ends| ends.note(begin, end)),
            Self::Writes => LAST_WRITES.try_with(|ends| ends.note(begin, end)),
        };
    }
}
