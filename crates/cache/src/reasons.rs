//! The names of the cache's waits.

use unherd_sync::Reason;

/// See [`File`](crate::File) for what each means to a caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reasons {
    /// For a page that is being read.
    pub(crate) page_read: Reason,
    /// For a page that another thread changes.
    pub(crate) page_change: Reason,
    /// For a page in write-back, or a buffer to write back with.
    pub(crate) write_back: Reason,
    /// For a free frame.
    pub(crate) frame: Reason,
    /// For a file whose length is being changed, or that is being opened, closed or synced.
    pub(crate) file: Reason,
    /// For the next look at a file's lock that another cache or process holds.
    pub(crate) file_lock: Reason,
}

impl Reasons {
    pub(crate) fn register() -> Self {
        Self {
            page_read: Reason::register("page-read"),
            page_change: Reason::register("page-change"),
            write_back: Reason::register("write-back"),
            frame: Reason::register("frame"),
            file: Reason::register("file"),
            file_lock: Reason::register("file-lock"),
        }
    }
}
