//! Whether this process is a child of the one that made something.
//!
//! A page of memory that the kernel wipes in the child of a fork(2) tells it by one load; to ask
//! for the number of the process would take a system call each time.
#![expect(unsafe_code, reason = "a mapped page is advised, written and read")]

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::map::{HugePages, Map};

/// Made by one process; its children by fork(2) can tell that they did not make it.
///
/// ```
/// let mark = unherd_sys::ForkMark::new()?;
/// assert!(!mark.is_forked());
/// # Ok::<(), unherd_sys::Errno>(())
/// ```
#[derive(Debug)]
pub struct ForkMark {
    page: Map,
    /// The process, where the kernel does not wipe pages.
    made_by: Option<u32>,
}

impl ForkMark {
    /// Takes a page of memory.
    ///
    /// # Errors
    /// `ENOMEM` where there is none.
    pub fn new() -> Result<Self, Errno> {
        let page = Map::new(1, HugePages::AsConfigured)?;
        // SAFETY: the first byte of a map that nobody else has yet.
        unsafe { page.start().write(1) };
        // KERNEL: 4.14, MADV_WIPEONFORK; EINVAL before.
        // SAFETY: the range is the map's own, and nothing changes in this process.
        let advised =
            unsafe { madvise(page.start().as_ptr().cast(), page.len(), Advice::LinuxWipeOnFork) };
        let made_by = advised.is_err().then(std::process::id);
        Ok(Self { page, made_by })
    }

    /// Whether the calling process is another than the one that made this. A thread that shares
    /// the memory of its maker (`CLONE_VM`) is not. Costs a load.
    #[inline]
    pub fn is_forked(&self) -> bool {
        if let Some(maker) = self.made_by {
            return std::process::id() != maker;
        }
        // SAFETY: the first byte of the map, which nobody writes any more. Volatile, since it
        // changes in a way that the compiler does not know.
        unsafe { self.page.start().read_volatile() == 0 }
    }
}
