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
    // An empty set would mean "wherever the thread runs" for one policy, an error for another.
    if nodes.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut mask: Mask = [0; MASK_WORDS];
    for node in nodes {
        let number = node.number() as usize;
        mask[number / WORD_BITS] |= 1 << (number % WORD_BITS);
    }
    mbind(start, bytes, policy, &mask)
}

/// Has pages come in turn from all nodes whose memory this process may use, if there are several.
pub(crate) fn interleave(start: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    let mut mask: Mask = [0; MASK_WORDS];
    let no_policy = std::ptr::null_mut::<libc::c_int>();
    let no_address = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel writes the mask, of the bits given, and nothing else.
    let done = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            no_policy,
            mask.as_mut_ptr(),
            MASK_BITS,
            no_address,
            MPOL_F_MEMS_ALLOWED,
        )
    };
    if done != 0 {
        return Err(last_error());
    }
    if mask.iter().map(|word| word.count_ones()).sum::<u32>() < 2 {
        return Ok(());
    }
    mbind(start, bytes, libc::MPOL_INTERLEAVE, &mask)
}

/// KERNEL: 2.6.24, `linux/mempolicy.h`, which the crate libc does not have.
const MPOL_F_MEMS_ALLOWED: libc::c_ulong = 1 << 2;

const WORD_BITS: usize = libc::c_ulong::BITS as usize;
const MASK_WORDS: usize = NodeId::COUNT_MAX / WORD_BITS;
/// KERNEL: both calls take one bit less than they are told that there are.
const MASK_BITS: libc::c_ulong = (NodeId::COUNT_MAX + 1) as libc::c_ulong;

/// A bit for each node.
type Mask = [libc::c_ulong; MASK_WORDS];

fn mbind(start: NonNull<u8>, bytes: usize, policy: libc::c_int, mask: &Mask) -> Result<(), Errno> {
    let no_flags: libc::c_uint = 0;
    // SAFETY: it changes no memory, but where pages to come are taken from; the kernel checks the
    // range, and reads the mask during the call.
    let done = unsafe {
        let (start, mask) = (start.as_ptr(), mask.as_ptr());
        libc::syscall(libc::SYS_mbind, start, bytes, policy, mask, MASK_BITS, no_flags)
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
