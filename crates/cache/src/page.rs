//! Names for pages and for what holds them.

use std::fmt;
use std::ops::Range;

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

/// Neighbouring pages of a file, by their numbers.
pub(crate) type PageRange = Range<u64>;

/// All pages of a file.
pub(crate) const ALL_PAGES: PageRange = 0..u64::MAX;

/// The same pages in ranges that are in order and apart.
pub(crate) fn joined(mut ranges: Vec<PageRange>) -> Vec<PageRange> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let touches = next.start <= range.end;
        if touches {
            range.end = range.end.max(next.end);
        }
        touches
    });
    ranges
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

impl BusyGeneration {
    /// The next number for a page that becomes busy without the lock of its shard. Bit 31 keeps it
    /// apart from the numbers that the shard gives soon.
    pub(crate) fn next_without_lock(self) -> Self {
        Self(self.0.wrapping_add(1) | 1 << 31)
    }
}

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_joined() {
        assert_eq!(joined(vec![5..6, 0..2, 2..3, 1..2, 8..9, 5..9]), [0..3, 5..9]);
        assert_eq!(joined(vec![3..4, ALL_PAGES]), [ALL_PAGES]);
        assert_eq!(joined(vec![]), []);
    }
}
