//! A transfer by one system call that blocks.
#![expect(unsafe_code, reason = "pread and pwrite on memory that is promised by contract")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::{Direction, IoBuf, IoBufs};

/// One preadv(2) or pwritev(2), begun again only if a signal interrupted it.
///
/// # Safety
/// The memory of `bufs` is the caller's, as [`IoBuf`] says.
pub(crate) unsafe fn transfer(
    direction: Direction,
    fd: impl AsFd,
    offset: u64,
    bufs: IoBufs,
) -> Result<usize, Errno> {
    let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let fd = fd.as_fd().as_raw_fd();
    loop {
        // Libc calls rather than slices: memory in the hands of a device is never behind a
        // reference.
        let moved = match (direction, bufs) {
            (Direction::Read, IoBufs::One(IoBuf { start, len })) => {
                // SAFETY: the caller's promise.
                unsafe { libc::pread64(fd, start.as_ptr().cast(), len, offset) }
            }
            (Direction::Write, IoBufs::One(IoBuf { start, len })) => {
                // SAFETY: the caller's promise.
                unsafe { libc::pwrite64(fd, start.as_ptr().cast(), len, offset) }
            }
            (Direction::Read, IoBufs::List(first, count)) => {
                // SAFETY: the caller's promise; an `IoBuf` is laid out as an `iovec`.
                unsafe { libc::preadv64(fd, first.as_ptr().cast(), count as i32, offset) }
            }
            (Direction::Write, IoBufs::List(first, count)) => {
                // SAFETY: as above.
                unsafe { libc::pwritev64(fd, first.as_ptr().cast(), count as i32, offset) }
            }
        };
        match transferred(moved) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// The bytes moved, or the thread's `errno` if the call returned -1.
fn transferred(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
