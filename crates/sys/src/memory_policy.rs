//! Memory from all NUMA nodes in turn: mbind(2).
#![expect(unsafe_code, reason = "mbind is raw by nature")]

use std::ptr::NonNull;

use rustix::io::Errno;

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
    let no_flags: libc::c_uint = 0;
    // SAFETY: it changes no memory, but where pages to come are taken from; the kernel checks the
    // range, and reads the mask during the call.
    let done = unsafe {
        let (start, mask) = (start.as_ptr(), mask.as_ptr());
        libc::syscall(
            libc::SYS_mbind,
            start,
            bytes,
            libc::MPOL_INTERLEAVE,
            mask,
            MASK_BITS,
            no_flags,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// KERNEL: 2.6.24, `linux/mempolicy.h`, which the crate libc does not have.
const MPOL_F_MEMS_ALLOWED: libc::c_ulong = 1 << 2;

const WORD_BITS: usize = libc::c_ulong::BITS as usize;
/// How many nodes a kernel can be built for.
const NODES_MAX: usize = 1024;
const MASK_WORDS: usize = NODES_MAX / WORD_BITS;
/// KERNEL: both calls take one bit less than they are told that there are.
const MASK_BITS: libc::c_ulong = (NODES_MAX + 1) as libc::c_ulong;

/// A bit for each node.
type Mask = [libc::c_ulong; MASK_WORDS];

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
