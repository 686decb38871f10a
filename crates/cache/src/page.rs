//! Names for pages and for what holds them.

use std::fmt;

use unherd_sync::WaitKey;

/// The number of a page in its file: its offset divided by the cache's page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u64);

impl PageNo {
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One opening of a file by a cache. Numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId(pub(crate) u32);

/// The number of a frame in its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FrameId(pub(crate) u32);

impl FrameId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One time that a page is busy: announced and read, changed, or written back. The number is
/// unique among those that anybody remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BusyGeneration(pub(crate) u32);

/// Which page of which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    pub(crate) file: FileId,
    pub(crate) page: PageNo,
}

impl From<PageKey> for WaitKey {
    fn from(key: PageKey) -> Self {
        Self::Page { file: key.file.0, page: key.page.0 }
    }
}
