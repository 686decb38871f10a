//! Reads and writes of less than a page that go on where the last one ended.
//!
//! Who reads or writes a file from end to end in small pieces touches each page many times, which
//! is one use of it, and not many: else a scan, or a log, would take the place of pages that are
//! wanted again and again. (Linux: `filemap_read` marks a page as used only where the reader has
//! come to it from another.) Each thread remembers where its last piece ended, so a hit writes
//! nothing that others read.

use std::cell::Cell;

use unherd_sys::primitives::thread_local;

use crate::file::FileState;

thread_local! {
    /// The file, by its address, and the offset at which this thread's last piece ended. Another
    /// file may come to lie there: then one use is not counted.
    static LAST_END: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

fn place(file: &FileState, offset: u64) -> (usize, u64) {
    (std::ptr::from_ref(file).addr(), offset)
}

/// Whether this thread's last piece ended there. Where the thread's locals are gone, none has.
pub(crate) fn last_ended_at(file: &FileState, offset: u64) -> bool {
    LAST_END.try_with(Cell::get) == Ok(place(file, offset))
}

/// A piece has ended there, in the middle of a page.
pub(crate) fn note_end(file: &FileState, offset: u64) {
    let _ = LAST_END.try_with(|last| last.set(place(file, offset)));
}
