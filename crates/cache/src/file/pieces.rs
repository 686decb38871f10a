//! Reads and writes of less than a page that go on where the last one ended.
//!
//! Who reads or writes a file from end to end in small pieces touches each page many times, which
//! is one use of it, and not many: else a scan, or a log, would take the place of pages that are
//! wanted again and again. (Linux: `filemap_read` marks a page as used only if the reader has come
//! to it from another.) Each thread remembers where its last read ended, and its last write,
//! so a hit writes nothing that others read. A thread that reads several files in turn, piece by
//! piece, and threads that append to one file in turn, use the pages as often as they touch them.

use std::cell::Cell;

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

thread_local! {
    /// Where this thread's last read ended, and its last write.
    static LAST_ENDS: [Cell<Place>; 2] = const { [Cell::new((0, 0)), Cell::new((0, 0))] };
}

fn place(file: &FileState, offset: u64) -> Place {
    (std::ptr::from_ref(file).addr(), offset)
}

impl Calls {
    /// Whether the last of this thread's ended there. Where the thread's locals are gone, none did.
    #[inline]
    pub(crate) fn last_ended_at(self, file: &FileState, offset: u64) -> bool {
        LAST_ENDS.try_with(|ends| ends[self as usize].get()) == Ok(place(file, offset))
    }

    /// One has ended there.
    #[inline]
    pub(crate) fn note_end(self, file: &FileState, offset: u64) {
        let _ = LAST_ENDS.try_with(|ends| ends[self as usize].set(place(file, offset)));
    }
}
