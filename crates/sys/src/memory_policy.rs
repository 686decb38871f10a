//! From the memory of which NUMA nodes pages come: mbind(2).
#![expect(unsafe_code, reason = "mbind is raw by nature")]

use std::ptr::NonNull;

use rustix::io::Errno;

use crate::NodeId;

/// Has pages come by `policy` from `nodes`, of which there must be one at least (`EINVAL`). Pages
/// that are there already stay where they are. On memory that is not the caller's own this would
/// be rude, but change nothing else.
pub(crate) fn set(
    start: NonNull<u8>,
    bytes: usize,
    policy: libc::c_int,
    nodes: &[NodeId],
) -> Result<(), Errno> {
    const WORD_BITS: usize = libc::c_ulong::BITS as usize;
    // An empty set would mean "wherever the thread runs" for one policy, an error for another.
    if nodes.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut mask: [libc::c_ulong; NodeId::COUNT_MAX / WORD_BITS] =
        [0; NodeId::COUNT_MAX / WORD_BITS];
    for node in nodes {
        let number = node.number() as usize;
        mask[number / WORD_BITS] |= 1 << (number % WORD_BITS);
    }
    // KERNEL: mbind(2) reads one bit less than it is told that there are.
    let bits = (NodeId::COUNT_MAX + 1) as libc::c_ulong;
    let no_flags: libc::c_uint = 0;
    // SAFETY: it changes no memory, but where pages to come are taken from; the kernel checks the
    // range, and reads the mask during the call.
    let done = unsafe {
        libc::syscall(libc::SYS_mbind, start.as_ptr(), bytes, policy, mask.as_ptr(), bits, no_flags)
    };
    if done == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
