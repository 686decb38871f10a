//! What the caller does to pages on their way to the device and back.
//!
//! A page that is written is copied first, and the hook changes the copy: the frame may be pinned,
//! and who reads it sees what was written to the file. A page that was read is given to the hook
//! before it is published, in a copy as well: one who peeks may look at a frame at any time.

use std::fmt;

use unherd_sys::Errno;
use unherd_sys::primitives::Arc;

use crate::foreign_code::run_foreign;
use crate::page::PageNo;
use crate::state::TRUNCATED;

/// What is done to each page of a file before it is written to the device, and after it was read
/// from it: a checksum, encryption; see [`OpenOptions::page_hook`](crate::OpenOptions::page_hook).
///
/// ```no_run
/// # use unherd_cache as unherd;
/// use std::sync::Arc;
/// use unherd::{Cache, Errno, OpenOptions, PageHook, PageNo};
///
/// /// The last four bytes of a page are a checksum of the others, and of the page's number.
/// struct Checksums;
///
/// fn checksum(page: PageNo, bytes: &[u8]) -> u32 {
///     let add = |sum: u32, &byte: &u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
///     bytes.iter().fold(page.0 as u32 ^ 0x811c_9dc5, add)
/// }
///
/// impl PageHook for Checksums {
///     fn before_write(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno> {
///         if bytes.iter().all(|&byte| byte == 0) {
///             return Ok(()); // as a hole
///         }
///         let (content, sum) = bytes.split_at_mut(bytes.len() - 4);
///         sum.copy_from_slice(&checksum(page, content).to_le_bytes());
///         Ok(())
///     }
///
///     fn after_read(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno> {
///         let (content, sum) = bytes.split_at(bytes.len() - 4);
///         let is_hole = bytes.iter().all(|&byte| byte == 0);
///         let is_good = is_hole || *sum == checksum(page, content).to_le_bytes();
///         if is_good { Ok(()) } else { Err(Errno::BADMSG) }
///     }
/// }
///
/// let cache = Cache::builder().build()?;
/// let options = OpenOptions::new().write(true).create(true).page_hook(Arc::new(Checksums));
/// let file = cache.open("tree", options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Both methods get the page's number and all its bytes, as many as the cache's
/// [`page_bytes`](crate::Cache::page_bytes).
///
/// - They may be called by any thread that uses the cache and by its own, by several at a time, out
///   of order, and once for each attempt: also where nothing is written after. They must not use
///   the cache, nor take a lock that somebody holds in a call of the cache. While one runs on the
///   I/O thread, no other queued transfer ends.
/// - What they return as an error is that of the transfer: [`Error::Io`](crate::Error::Io) with the
///   page's offset. It is treated as one of the device: after `ENOSPC`, for instance, a sync does
///   not try the other pages. A hook that panics counts as `EIO`.
/// - A page of zeros must stay one, both ways: holes ([`File::set_len`](crate::File::set_len),
///   [`File::punch_hole`](crate::File::punch_hole), what a crash leaves) are zeros on the device,
///   and not all of them are read from there.
/// - Bytes that the hook changes are its own. Memory has them as the program wrote them until the
///   page is given up, and as `after_read` has left them when it was read again.
/// - A hook does not own a [`File`](crate::File) of the file that it serves, which would never be
///   closed.
pub trait PageHook: Send + Sync {
    /// The page is about to be written: what is left in `bytes` is what the device gets. They are a
    /// copy, so memory stays as it is.
    ///
    /// # Errors
    /// The write has failed: the page stays dirty, and is tried again as after any failed write.
    fn before_write(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno>;

    /// The page was read: what is left in `bytes` is what the cache has. If the device had less
    /// than the page, the rest is zeros.
    ///
    /// # Errors
    /// The page could not be read; who asked for it gets the error, and the next who asks has it
    /// read again. `EBADMSG` is what file systems give for a wrong checksum.
    fn after_read(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno>;
}

/// The hook of a file. Two are alike if they are the same object.
#[derive(Clone)]
pub(crate) struct Hook(pub(crate) Arc<dyn PageHook>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageHook")
    }
}

impl PartialEq for Hook {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

impl Eq for Hook {}

impl Hook {
    pub(crate) fn run(
        &self,
        hook: impl FnOnce(&dyn PageHook) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let result = run_foreign(|| hook(&*self.0)).unwrap_or(Err(Errno::IO));
        result.map_err(|errno| if errno == TRUNCATED { Errno::IO } else { errno })
    }
}
