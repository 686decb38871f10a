//! The kernel's AIO, io_submit(2), as the driver of a queue: where io_uring is forbidden.
//!
//! Direct transfers alone are asynchronous, and some block the caller even so: writes that make a
//! file longer or fill a hole, transfers whose blocks have to be looked up on the disk first. All
//! are asked not to (`RWF_NOWAIT`): those that would come back, as io_uring has them too, and are
//! made elsewhere. What the kernel does not take, for whatever reason, is treated the same: the
//! plain call tells why.
#![expect(unsafe_code, reason = "control blocks carry raw memory and descriptors")]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::null;
use std::time::Duration;

use rustix::io::Errno;

use super::driver::{
    BELL, Driver, ENTRIES, Outcome, SEVERAL_WAIT_US, Settled, TRANSFER_BYTES_MAX, Wait,
};
use crate::{Direction, IoBuf, IoBufs, Transfer};

/// `struct iocb` of `linux/aio_abi.h`, where the low half of a word comes first.
#[cfg(target_endian = "little")]
#[derive(Debug, Default)]
#[repr(C)]
struct ControlBlock {
    mark: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

// `enum` in `linux/aio_abi.h`.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const POLL: u16 = 5;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;

/// `struct io_event`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Event {
    mark: u64,
    control_block: u64,
    result: i64,
    result2: i64,
}

/// An AIO context, which any thread of the process may use.
#[derive(Debug)]
pub(super) struct Aio {
    context: libc::c_ulong,
    pushed: VecDeque<ControlBlock>,
    /// The marks of what the kernel did not take.
    refused: VecDeque<u64>,
    /// Those up to `taken` are the kernel's latest, those before `next` have been given out.
    events: Vec<Event>,
    next: usize,
    taken: usize,
}

impl Aio {
    /// `EAGAIN` where the system has no more of them (`fs.aio-max-nr`), `ENOSYS` where it has none.
    pub(super) fn new() -> Result<Self, Errno> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup(2) writes the context's number, which lives during the call.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ENTRIES, &raw mut context) };
        checked(made)?;
        let (pushed, refused) = Default::default();
        let events = vec![Event::default(); ENTRIES as usize];
        Ok(Self { context, pushed, refused, events, next: 0, taken: 0 })
    }

    /// Whether this process may use it, also to wait for the bell.
    pub(super) fn is_usable(bell: &OwnedFd) -> bool {
        Self::new().is_ok_and(|mut aio| {
            aio.push_bell(bell.as_raw_fd());
            aio.enter(None);
            // KERNEL: 4.18, POLL; before that it is refused.
            aio.refused.is_empty() && aio.pushed.is_empty()
        })
    }

    /// Gives the kernel all that was pushed.
    fn submit(&mut self) -> Settled {
        while !self.pushed.is_empty() {
            let blocks: Vec<*const ControlBlock> =
                self.pushed.iter().map(|block| &raw const *block).collect();
            // SAFETY: good control blocks, as `push` says; the kernel is done with them when it
            // returns. Of the memory they name, the caller of `Device::submit` has promised what
            // belongs to it until the completion is reaped.
            let taken = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, blocks.len(), blocks.as_ptr())
            };
            match checked(taken) {
                Ok(taken) => drop(self.pushed.drain(..taken)),
                Err(Errno::AGAIN | Errno::NOMEM) => return Settled::Short,
                // It is the first one's.
                Err(_) => self.refused.extend(self.pushed.pop_front().map(|block| block.mark)),
            }
        }
        Settled::Well
    }

    /// Takes what has completed, `wanted` at least unless the time is over before. What was taken
    /// before comes first.
    fn take_events(&mut self, wanted: usize, timeout: Option<Duration>) -> Settled {
        if self.next < self.taken {
            return Settled::Well;
        }
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as libc::c_long,
        });
        let timeout = timeout.as_ref().map_or(null(), |timeout| &raw const *timeout);
        // SAFETY: the kernel writes at most as many events as there is room for, and reads the
        // timeout, which lives during the call.
        let taken = unsafe {
            let (events, room) = (self.events.as_mut_ptr(), self.events.len());
            libc::syscall(libc::SYS_io_getevents, self.context, wanted, room, events, timeout)
        };
        (self.next, self.taken) = (0, 0);
        match checked(taken) {
            Ok(taken) => self.taken = taken,
            Err(Errno::INTR) => {}
            Err(_) => return Settled::Short,
        }
        Settled::Well
    }
}

/// What a system call has returned.
fn checked(returned: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(returned)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

impl Driver for Aio {
    fn push(&mut self, mark: u64, fd: RawFd, transfer: &Transfer) {
        let (buf, len, opcode) = match (transfer.bufs, transfer.direction) {
            (IoBufs::One(IoBuf { start, len }), direction) => {
                let opcode = if direction == Direction::Read { PREAD } else { PWRITE };
                (start.as_ptr().expose_provenance(), len.min(TRANSFER_BYTES_MAX), opcode)
            }
            // An `IoBuf` is laid out as an `iovec`.
            (IoBufs::List(first, count), direction) => {
                let opcode = if direction == Direction::Read { PREADV } else { PWRITEV };
                (first.as_ptr().expose_provenance(), count, opcode)
            }
        };
        self.pushed.push_back(ControlBlock {
            mark,
            opcode,
            fd: fd as u32,
            buf: buf as u64,
            len: len as u64,
            offset: transfer.offset as i64,
            // KERNEL: 4.13.
            rw_flags: libc::RWF_NOWAIT,
            ..ControlBlock::default()
        });
    }

    fn push_bell(&mut self, bell: RawFd) {
        let buf = libc::POLLIN as u64;
        let block = ControlBlock {
            mark: BELL,
            opcode: POLL,
            fd: bell as u32,
            buf,
            ..ControlBlock::default()
        };
        self.pushed.push_back(block);
    }

    fn has_pushed(&self) -> bool {
        !self.pushed.is_empty()
    }

    fn enter(&mut self, wait: Option<Wait>) -> Settled {
        let submitted = self.submit();
        let Some(Wait { wanted, timeout }) = wait else {
            self.take_events(0, Some(Duration::ZERO));
            return submitted;
        };
        // What was refused is to be seen to at once, what the kernel is short of after a pause.
        if submitted == Settled::Short || !self.refused.is_empty() {
            self.take_events(0, Some(Duration::ZERO));
            return submitted;
        }
        let moment = Duration::from_micros(u64::from(SEVERAL_WAIT_US));
        if wanted > 1 && timeout.is_none_or(|timeout| timeout > moment) {
            let settled = self.take_events(wanted, Some(moment));
            if settled == Settled::Short || self.taken > 0 {
                return settled;
            }
        }
        self.take_events(1, timeout)
    }

    fn next_done(&mut self) -> Option<(u64, Outcome)> {
        if let Some(mark) = self.refused.pop_front() {
            return Some((mark, Outcome::WouldBlock));
        }
        let event = self.events[..self.taken].get(self.next)?;
        self.next += 1;
        let outcome = match event.result {
            bytes @ 0.. => Outcome::Done(Ok(bytes as usize)),
            negative if negative == -i64::from(libc::EAGAIN) => Outcome::WouldBlock,
            negative => Outcome::Done(Err(Errno::from_raw_os_error(-negative as i32))),
        };
        Some((event.mark, outcome))
    }

    fn is_broken(&self) -> bool {
        false
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is this one's. The call waits for what is under way, and cancels the
        // wait for the bell.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
