//! The kernel's AIO, io_submit(2), as the driver of a queue: where io_uring is forbidden.
//!
//! Direct transfers alone are asynchronous, and some block the caller even so: writes that make a
//! file longer or fill a hole, transfers whose blocks have to be looked up on the disk first. They
//! are asked not to (`RWF_NOWAIT`). Those that would block come back, and workers make them, as
//! io_uring's do in the kernel. Workers make what the kernel does not take, too: the plain call
//! tells why.
//!
//! | a file | its transfers |
//! |---|---|
//! | open for direct I/O | are asked not to block |
//! | the same, on XFS | reads are asked; writes may block |
//! | the same, on a file system that knows no `RWF_NOWAIT` | workers make them |
//! | the same, on overlayfs, which does not know it either, but passes direct AIO on | may block |
//! | of the page cache | workers make them: they would always block |
#![expect(unsafe_code, reason = "control blocks carry raw memory and descriptors")]

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fstatfs};
use rustix::io::Errno;

use super::driver::{
    BELL, Driver, ENTRIES, Outcome, SEVERAL_WAIT_US, Settled, TRANSFER_BYTES_MAX, Wait,
};
use crate::{DeviceFile, Direction, IoBuf, IoBufs, Transfer};

/// `struct iocb` of `linux/aio_abi.h`.
#[derive(Debug, Default)]
#[repr(C)]
struct ControlBlock {
    mark: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
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

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<Event>() == 32);

/// How the transfers of a file are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    NotBlocking,
    /// KERNEL: 6.0 (66fa3cedf16a), XFS refuses a write that must not block where it would change
    /// the file's times, and so nearly each one at random. One that may block does so for the file
    /// system's locks and its log, but not for the data.
    WritesBlocking,
    Blocking,
    ByWorkers,
}

impl Manner {
    fn of(fd: BorrowedFd<'_>) -> Self {
        let is_direct = fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        if !is_direct {
            return Self::ByWorkers;
        }
        match fstatfs(fd).map_or(0, |stat| stat.f_type as u64) {
            OVERLAYFS_MAGIC => Self::Blocking,
            XFS_MAGIC => Self::WritesBlocking,
            _ => Self::NotBlocking,
        }
    }

    fn may_block(self, direction: Direction) -> bool {
        self == Self::Blocking || self == Self::WritesBlocking && direction == Direction::Write
    }
}

const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
const XFS_MAGIC: u64 = 0x5846_5342;

/// How many files' manners are remembered. Those of closed files are among them.
const FILES_MAX: usize = 4096;

/// An AIO context, which any thread of the process may use.
#[derive(Debug)]
pub(super) struct Aio {
    context: libc::c_ulong,
    manners: HashMap<DeviceFile, Manner>,
    pushed: VecDeque<(ControlBlock, Option<DeviceFile>)>,
    /// The marks of what the kernel did not take.
    refused: VecDeque<u64>,
    /// Those up to `taken` are the kernel's latest, those before `next` have been given out.
    events: Vec<Event>,
    next: usize,
    taken: usize,
    is_broken: bool,
}

impl Aio {
    /// `EAGAIN` where the system has no more of them (`fs.aio-max-nr`), `ENOSYS` where it has none.
    fn new() -> Result<Self, Errno> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup(2) writes the context's number, which lives during the call.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ENTRIES, &raw mut context) };
        checked(made)?;
        let (manners, pushed, refused) = Default::default();
        let events = vec![Event::default(); ENTRIES as usize];
        Ok(Self { context, manners, pushed, refused, events, next: 0, taken: 0, is_broken: false })
    }

    /// As [`Aio::new`], with a wait for the bell begun, if this process may do all that.
    pub(super) fn with_bell(bell: BorrowedFd<'_>) -> Option<Self> {
        let mut aio = Self::new().ok()?;
        aio.push_bell(bell);
        let settled = aio.enter(None);
        // KERNEL: 4.19, POLL; before that it is refused.
        (settled == Settled::Well && !aio.is_broken).then_some(aio)
    }

    /// Gives the kernel all that was pushed.
    fn submit(&mut self) -> Settled {
        let pushed = self.pushed.make_contiguous();
        let blocks: Vec<*mut ControlBlock> =
            pushed.iter_mut().map(|(block, _)| &raw mut *block).collect();
        let (mut done, mut settled) = (0, Settled::Well);
        while done < blocks.len() {
            let (left, first) = (blocks.len() - done, blocks[done..].as_ptr());
            // SAFETY: good control blocks, as `push` says; the kernel is done with them when it
            // returns. Of the memory they name, the caller of `Device::submit` has promised what
            // belongs to it until the completion is reaped.
            let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, left, first) };
            match checked(taken) {
                Ok(taken) => done += taken,
                Err(Errno::AGAIN | Errno::NOMEM) => {
                    settled = Settled::Short;
                    break;
                }
                // It is the first one's.
                Err(errno) => {
                    let (block, file) = &mut pushed[done];
                    if errno == Errno::OPNOTSUPP
                        && let Some(manner) = file.and_then(|file| self.manners.get_mut(&file))
                    {
                        *manner = Manner::ByWorkers;
                    }
                    // No worker can wait for the bell in the driver's place.
                    self.is_broken |= block.mark == BELL;
                    self.refused.push_back(block.mark);
                    done += 1;
                }
            }
        }
        self.pushed.drain(..done);
        settled
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
            Err(_) => {
                self.is_broken = true;
                return Settled::Short;
            }
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
    fn push(&mut self, mark: u64, fd: BorrowedFd<'_>, transfer: &Transfer) {
        if self.manners.len() == FILES_MAX {
            self.manners.clear();
        }
        let manner = *self.manners.entry(transfer.file).or_insert_with(|| Manner::of(fd));
        if manner == Manner::ByWorkers {
            return self.refused.push_back(mark);
        }
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
        let block = ControlBlock {
            mark,
            opcode,
            fd: fd.as_raw_fd() as u32,
            buf: buf as u64,
            len: len as u64,
            offset: transfer.offset as i64,
            // KERNEL: 4.13.
            rw_flags: if manner.may_block(transfer.direction) { 0 } else { libc::RWF_NOWAIT },
            ..ControlBlock::default()
        };
        self.pushed.push_back((block, Some(transfer.file)));
    }

    fn push_bell(&mut self, bell: BorrowedFd<'_>) {
        let (fd, buf) = (bell.as_raw_fd() as u32, libc::POLLIN as u64);
        let block = ControlBlock { mark: BELL, opcode: POLL, fd, buf, ..ControlBlock::default() };
        self.pushed.push_back((block, None));
    }

    fn has_pushed(&self) -> bool {
        !self.pushed.is_empty() || !self.refused.is_empty()
    }

    fn enter(&mut self, wait: Option<Wait>) -> Settled {
        let submitted = self.submit();
        // What was refused is to be seen to at once, what the kernel is short of after a pause.
        let is_to_return = submitted == Settled::Short || !self.refused.is_empty();
        let Some(Wait { wanted, timeout }) = wait.filter(|_| !is_to_return) else {
            let taken = self.take_events(0, Some(Duration::ZERO));
            return if taken == Settled::Well { submitted } else { taken };
        };
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
            negative => match Errno::from_raw_os_error(-negative as i32) {
                // The last two where the kernel goes by its page cache after all; of others the
                // plain call tells the error again.
                Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL => Outcome::WouldBlock,
                errno => Outcome::Done(Err(errno)),
            },
        };
        Some((event.mark, outcome))
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn is_of_one_thread(&self) -> bool {
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
