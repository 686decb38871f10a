//! The size of the kernel's table of this process's futexes.
#![expect(unsafe_code, reason = "prctl(2) is raw by nature")]

use std::io;

// KERNEL: 6.16, linux/prctl.h.
const PR_FUTEX_HASH: libc::c_int = 78;
const PR_FUTEX_HASH_SET_SLOTS: libc::c_ulong = 1;

/// Gives the process a table of `slots`, a power of two; 0 is the table that all processes share.
pub(super) fn set(slots: u64) -> io::Result<()> {
    let flags: libc::c_ulong = 0;
    // SAFETY: it takes numbers alone.
    let done = unsafe { libc::prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, slots, flags, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
