//! An io_uring as the driver of a queue.
#![expect(unsafe_code, reason = "submission entries carry raw memory and descriptors")]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::io::Errno;

use super::driver::{
    BELL, Driver, ENTRIES, Outcome, SEVERAL_WAIT_US, Settled, TRANSFER_BYTES_MAX, Wait,
};
use crate::{Direction, IoBuf, IoBufs, Transfer};

/// The completion ring has twice as many entries as the submission ring, so it cannot overflow.
pub(super) struct Ring {
    ring: IoUring,
    /// A wait may ask for several completions, and still end early.
    waits_for_several: bool,
    /// The marks of what the kernel has not taken out of the submission ring, oldest first.
    unsubmitted: VecDeque<u64>,
    /// What the kernel has refused, for a reason that does not pass: those marks, and the reason.
    /// They are still in the submission ring, so nothing may be submitted any more.
    refused: Option<(VecDeque<u64>, Errno)>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("refused", &self.refused).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring with the best flags that this kernel takes.
    pub(super) fn new() -> Result<Self, Errno> {
        let with_one_driver = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES);
        // KERNEL: 6.1, DEFER_TASKRUN; before that EINVAL.
        let ring = match with_one_driver {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(ENTRIES),
            other => other,
        };
        let ring = ring.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // KERNEL: 5.11, EXT_ARG: a timeout for the wait.
        if !ring.params().is_feature_ext_arg() {
            return Err(Errno::NOSYS);
        }
        // KERNEL: 6.12, MIN_TIMEOUT.
        let waits_for_several = ring.params().is_feature_min_timeout();
        Ok(Self { ring, waits_for_several, unsubmitted: VecDeque::new(), refused: None })
    }

    fn push_entry(&mut self, mark: u64, entry: squeue::Entry) {
        // SAFETY: for a transfer, the caller of `Device::submit` keeps the memory until the
        // completion is reaped, and the queue keeps the descriptor until then; the bell's entry has
        // no memory.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(mark)) };
        // In flight and bell together never exceed the entries; see `IN_FLIGHT_MAX`.
        debug_assert!(pushed.is_ok(), "the submission ring has room");
        self.unsubmitted.push_back(mark);
    }

    /// Submits, if it may, and lets the kernel post what has completed; does not wait. With
    /// DEFER_TASKRUN only such a call posts completions.
    fn post(&mut self) -> std::io::Result<usize> {
        let submitted = if self.is_broken() { 0 } else { self.ring.submission().len() };
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: that many entries are in the ring, good ones as `push_entry` says; the call has
        // no argument that it could read memory by.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(submitted as u32, 0, flags, None) }
    }

    fn wait(&mut self, wait: Wait) -> std::io::Result<usize> {
        let timeout = wait.timeout.map(Timespec::from);
        let mut args = match &timeout {
            Some(timeout) => SubmitArgs::new().timespec(timeout),
            None => SubmitArgs::new(),
        };
        let wanted = if self.waits_for_several { wait.wanted } else { 1 };
        if wanted > 1 {
            args = args.min_wait_usec(SEVERAL_WAIT_US);
        }
        self.ring.submitter().submit_with_args(wanted, &args)
    }
}

impl Driver for Ring {
    fn push(&mut self, mark: u64, fd: BorrowedFd<'_>, transfer: &Transfer) {
        self.push_entry(mark, entry_of(transfer, Fd(fd.as_raw_fd())));
    }

    fn push_bell(&mut self, bell: BorrowedFd<'_>) {
        let bell = Fd(bell.as_raw_fd());
        self.push_entry(BELL, opcode::PollAdd::new(bell, libc::POLLIN as u32).build());
    }

    fn has_pushed(&self) -> bool {
        !self.unsubmitted.is_empty()
    }

    fn enter(&mut self, wait: Option<Wait>) -> Settled {
        let entered = match wait {
            Some(wait) if !self.is_broken() => self.wait(wait),
            _ => self.post(),
        };
        let taken = self.unsubmitted.len().saturating_sub(self.ring.submission().len());
        self.unsubmitted.drain(..taken.min(self.unsubmitted.len()));
        let Err(error) = entered else { return Settled::Well };
        match error.raw_os_error() {
            // A failed call leaves its entries in the ring for the next one.
            Some(libc::EINTR | libc::ETIME) => Settled::Well,
            Some(libc::EAGAIN | libc::ENOMEM | libc::EBUSY) => Settled::Short,
            _ if self.is_broken() => Settled::Short,
            _ => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                self.refused = Some((std::mem::take(&mut self.unsubmitted), errno));
                Settled::Well
            }
        }
    }

    fn next_done(&mut self) -> Option<(u64, Outcome)> {
        if let Some((marks, errno)) = &mut self.refused
            && let Some(mark) = marks.pop_front()
        {
            return Some((mark, Outcome::Done(Err(*errno))));
        }
        let entry = self.ring.completion().next()?;
        let result = match entry.result() {
            bytes @ 0.. => Ok(bytes as usize),
            negative => Err(Errno::from_raw_os_error(-negative)),
        };
        Some((entry.user_data(), Outcome::Done(result)))
    }

    fn is_broken(&self) -> bool {
        self.refused.is_some()
    }

    fn is_of_one_thread(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn ring_fd(&self) -> Option<std::os::fd::RawFd> {
        Some(self.ring.as_raw_fd())
    }
}

fn entry_of(transfer: &Transfer, fd: Fd) -> squeue::Entry {
    let Transfer { direction, offset, bufs, .. } = *transfer;
    match bufs {
        IoBufs::One(IoBuf { start, len }) => {
            let (start, len) = (start.as_ptr(), len.min(TRANSFER_BYTES_MAX) as u32);
            match direction {
                Direction::Read => opcode::Read::new(fd, start, len).offset(offset).build(),
                Direction::Write => opcode::Write::new(fd, start, len).offset(offset).build(),
            }
        }
        // An `IoBuf` is laid out as an `iovec`.
        IoBufs::List(first, count) => {
            let (first, count) = (first.as_ptr().cast(), count as u32);
            match direction {
                Direction::Read => opcode::Readv::new(fd, first, count).offset(offset).build(),
                Direction::Write => opcode::Writev::new(fd, first, count).offset(offset).build(),
            }
        }
    }
}
