//! Flushing behind: the device is flushed while much is written, not only by the next sync.
//!
//! A device with a cache of its own takes writes faster than it can keep. What it has taken it
//! writes when it is flushed, and many a device serves nobody meanwhile: after 1 GiB of writes, the
//! first sync of any file holds up all others for a second. So who writes a page to its end flushes
//! the file once so much has been written back since the latest flush of any file. No call needs
//! that to have happened: it is only about when the device works. PostgreSQL
//! (`checkpoint_flush_after`) and RocksDB (`bytes_per_sync`) start the write-back of the kernel's
//! pages early for the like.
//!
//! A flush of one file makes its device write all, so the files of a device share the count.

use unherd_sys::primitives::{AtomicU64, Ordering};

/// Bytes that are written, and then flushed.
pub(crate) const FLUSH_BEHIND_BYTES: u64 = 64 << 20;

/// What was written to a device since its latest flush. On a cache line of its own: each transfer
/// writes here.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Unflushed {
    /// Relaxed: a count.
    bytes: AtomicU64,
}

impl Unflushed {
    pub(crate) fn note_written(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A flush of some file begins.
    pub(crate) fn note_flush(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Whether a flush is due: `every_bytes` were written back, and no less than the file has
    /// dirty, as a flush looks at all of that.
    pub(crate) fn is_due(&self, every_bytes: u64, dirty_bytes: impl FnOnce() -> u64) -> bool {
        let written = self.bytes.load(Ordering::Relaxed);
        written >= every_bytes && written >= dirty_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_due_after_so_many_bytes() {
        let unflushed = Unflushed::default();
        unflushed.note_written(60);
        assert!(!unflushed.is_due(100, || 0));
        unflushed.note_written(60);
        assert!(unflushed.is_due(100, || 120));
        assert!(!unflushed.is_due(100, || 121));
        unflushed.note_flush();
        unflushed.note_written(60);
        assert!(!unflushed.is_due(100, || 0));
    }

    #[test]
    fn never_is_never() {
        let unflushed = Unflushed::default();
        unflushed.note_written(u64::MAX / 2);
        assert!(!unflushed.is_due(u64::MAX, || 0));
    }
}
