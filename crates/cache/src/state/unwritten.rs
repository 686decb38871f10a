//! Pages that are newer than the device, and the bound on them.
//!
//! A page that cannot be written keeps its frame until it can. So that files which fail leave
//! frames to all others, a file has at most three quarters of the frames that no other file has for
//! such pages: of 64, one that fails keeps 48, the next 12, the third 3, and so on.
//!
//! A page is counted from its claim for a change on, unless it was newer than the device before,
//! until it has been written or dropped. A writer that finds the bound reached writes pages of its
//! file back, or of others where it has none, or fails with the error of the write that did.
//!
//! If writes of a file fail, its dirty pages are *failed*: reclaim takes others first, and tries
//! these again only some time after the latest failure (`RETRY_AFTER` in `durability.rs`). A sync
//! or close tries at once.

use unherd_sys::Errno;
use unherd_sys::primitives::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::Error;

/// Of one file. Relaxed, all: counts and hints.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    /// Counted in those of all files as well.
    pub(crate) pages: AtomicUsize,
    /// Whether the latest write-back has failed.
    is_failing: AtomicBool,
    /// Write-backs that failed for a reason that would fail all others too, such as a full disk.
    refusals: AtomicU64,
    /// The page from which on a writer in want of room looks for one to write back.
    pub(crate) next: AtomicU64,
}

impl Unwritten {
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// A write-back has failed.
    pub(crate) fn note_failure(&self, error: &Error) {
        let all_would_fail = matches!(
            error,
            Error::Io {
                errno: Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::NODEV | Errno::NXIO,
                ..
            }
        );
        self.refusals.fetch_add(u64::from(all_would_fail), Ordering::Relaxed);
    }

    pub(crate) fn set_failing(&self, is_failing: bool) {
        // Mostly it is so already, and a store would take the line from those who read it.
        if self.is_failing() != is_failing {
            self.is_failing.store(is_failing, Ordering::Relaxed);
        }
    }
}
