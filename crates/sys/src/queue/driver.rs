//! What a queue gives its transfers to the kernel by: io_uring, or the older AIO.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::Transfer;

/// What may be with the kernel at a time. One is kept for the bell.
pub(super) const ENTRIES: u32 = 256;
pub(super) const IN_FLIGHT_MAX: usize = ENTRIES as usize - 1;

/// The mark of the bell; transfers are marked by their place, which is small.
pub(super) const BELL: u64 = u64::MAX;

/// After that time, in microseconds, one completion ends a wait for several, or the bell.
pub(super) const SEVERAL_WAIT_US: u32 = 100;

/// The most bytes that one system call moves (`MAX_RW_COUNT`), a whole number of pages.
pub(super) const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// For how many completions to wait, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// More than one only for [`SEVERAL_WAIT_US`].
    pub(super) wanted: usize,
    /// `None`: for ever.
    pub(super) timeout: Option<Duration>,
}

/// How a call ended that may have given the kernel something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// There is no reason not to call again at once.
    Well,
    /// The kernel lacks memory or room just now.
    Short,
}

/// How a transfer, or the bell, has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was moved, or has failed.
    Done(Result<usize, Errno>),
    /// It was not moved, or not all of it: the call would block, which this driver does not.
    WouldBlock,
}

/// Entries are pushed, given to the kernel by [`Driver::enter`], and come back one by one, each
/// once. Used by one thread at a time.
pub(super) trait Driver: Debug + Send {
    /// Pushes a transfer of this descriptor. There are [`IN_FLIGHT_MAX`] at most in flight.
    fn push(&mut self, mark: u64, fd: BorrowedFd<'_>, transfer: &Transfer);

    /// Pushes a wait, marked [`BELL`], until this descriptor can be read.
    fn push_bell(&mut self, bell: BorrowedFd<'_>);

    /// Whether [`Driver::enter`] has something to do for what was pushed.
    fn has_pushed(&self) -> bool;

    /// Gives the kernel what was pushed, lets it post what has completed, and waits for that if it
    /// is to.
    fn enter(&mut self, wait: Option<Wait>) -> Settled;

    /// The next that has completed, if one was posted. No system call.
    fn next_done(&mut self) -> Option<(u64, Outcome)>;

    /// Whether the kernel takes nothing more: it is to be given up when nothing is in flight.
    fn is_broken(&self) -> bool;

    /// Whether the thread that made it must drive it.
    fn is_of_one_thread(&self) -> bool;

    /// The descriptor of a ring.
    #[cfg(test)]
    fn ring_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}
