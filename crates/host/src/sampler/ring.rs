//! perf_event_open(2) and the ring that one event on one processor fills.
//!
//! The kernel writes records and moves `head`; we read them and move `tail`. Both count bytes and
//! never wrap; the place in the ring is the count modulo its size, a power of two. A record that
//! does not fit is dropped by the kernel, which says so with a record when there is room again.
#![expect(unsafe_code, reason = "the kernel's shared ring and its raw system call")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::abi::TYPE_SOFTWARE;
use unherd_sys::primitives::{AtomicU64, Ordering};

/// `struct perf_event_attr` of version 5 (Linux 4.1), which every later kernel takes.
#[repr(C)]
#[derive(Debug, Default, Clone)]
pub(super) struct EventAttr {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) sample_period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup: u32,
    pub(super) breakpoint_kind: u32,
    pub(super) config1: u64,
    pub(super) config2: u64,
    pub(super) branch_sample_type: u64,
    pub(super) sample_regs_user: u64,
    pub(super) sample_stack_user: u32,
    pub(super) clock: i32,
    pub(super) sample_regs_intr: u64,
    pub(super) aux_watermark: u32,
    pub(super) sample_stack_max: u16,
    pub(super) reserved: u16,
}

const _: () = assert!(size_of::<EventAttr>() == 112, "the kernel knows versions by their size");

impl EventAttr {
    /// A software event, all else zero.
    pub(super) fn software() -> Self {
        Self { kind: TYPE_SOFTWARE, size: size_of::<Self>() as u32, ..Self::default() }
    }
}

/// Data pages of a ring: 1 MiB with 4 KiB pages. A power of two. Those who may lock less memory get
/// a half, and a half of that.
const DATA_PAGES: usize = 256;
const DATA_PAGES_MIN: usize = 16;
/// Where `data_head` and `data_tail` are in the ring's first page.
const HEAD_OFFSET: usize = 1024;
const TAIL_OFFSET: usize = 1032;

/// One event on one processor.
#[derive(Debug)]
pub(super) struct Event {
    fd: OwnedFd,
    cpu: u32,
}

/// One event on one processor with its ring.
#[derive(Debug)]
pub(super) struct EventRing {
    event: Event,
    pages: NonNull<u8>,
    len: usize,
    data_len: u64,
}

// SAFETY: the ring is the kernel's and this value's alone, whichever thread holds it.
unsafe impl Send for EventRing {}

/// A record: its kind, its flags and what follows the header.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: u32,
    pub(super) misc: u16,
    pub(super) body: &'a [u8],
}

impl Event {
    /// Opens the event for `target` (a thread, 0 for the calling one, -1 for all) on one processor.
    pub(super) fn open(attr: &EventAttr, target: i32, cpu: u32) -> Result<Self, Errno> {
        const CLOEXEC: libc::c_ulong = 8;
        // SAFETY: the attribute says its own size and lives for the call.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, attr, target, cpu as i32, -1, CLOEXEC)
        };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the call has just made this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Self { fd, cpu })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn cpu(&self) -> u32 {
        self.cpu
    }

    pub(super) fn enable(&self, enabled: bool) -> Result<(), Errno> {
        const ENABLE: libc::c_ulong = 0x2400;
        const DISABLE: libc::c_ulong = 0x2401;
        self.control(if enabled { ENABLE } else { DISABLE }, 0)
    }

    /// Lets the event write its records into the ring of another, of the same processor.
    pub(super) fn write_into(&self, ring: &EventRing) -> Result<(), Errno> {
        const SET_OUTPUT: libc::c_ulong = 0x2405;
        self.control(SET_OUTPUT, ring.event.fd.as_raw_fd())
    }

    fn control(&self, request: libc::c_ulong, value: i32) -> Result<(), Errno> {
        // SAFETY: the requests above take numbers and no memory.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, value) };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// What the event has counted, in inheriting threads too.
    pub(super) fn count(&self) -> Result<u64, Errno> {
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl EventRing {
    /// Gives the event a ring: the largest that may be locked in memory.
    pub(super) fn new(event: Event) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mut data_pages = DATA_PAGES;
        loop {
            let len = (1 + data_pages) * page;
            // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
            let pages = unsafe {
                mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &event.fd, 0)
            };
            match pages {
                Err(Errno::PERM) if data_pages > DATA_PAGES_MIN => data_pages /= 2,
                pages => {
                    let pages = NonNull::new(pages?.cast()).ok_or(Errno::NOMEM)?;
                    return Ok(Self { event, pages, len, data_len: (data_pages * page) as u64 });
                }
            }
        }
    }

    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    /// A quarter of the usual ring: time to be read, also where the ring is only half as large.
    pub(super) fn watermark_bytes() -> u32 {
        (DATA_PAGES * rustix::param::page_size() / 4) as u32
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets are within the first page.
        let word = unsafe { self.pages.add(offset) };
        // SAFETY: mapped while `self` lives, aligned, and written by the kernel as whole words.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// Gives each record that is there to `see`, and frees its room. `record` is scratch space.
    pub(super) fn drain(&mut self, record: &mut Vec<u8>, mut see: impl FnMut(Record<'_>)) {
        // ORDER[PERF-head]: Acquire; pairs with the kernel's barrier before it moves the head: what
        // stands before the head was written before.
        let head = self.word(HEAD_OFFSET).load(Ordering::Acquire);
        // Relaxed: only this side writes the tail.
        let mut tail = self.word(TAIL_OFFSET).load(Ordering::Relaxed);
        while tail < head {
            self.copy(tail, 8, record);
            let kind = u32_at(record, 0);
            let misc = u32_at(record, 4) as u16;
            let len = u64::from(u32_at(record, 4) >> 16);
            if len < 8 {
                // No record is so short; never loop on a broken one.
                tail = head;
                break;
            }
            self.copy(tail + 8, len as usize - 8, record);
            see(Record { kind, misc, body: record });
            tail += len;
        }
        // ORDER[PERF-tail]: Release; pairs with the kernel's control dependency on the tail: it
        // writes over a record only after we have copied it.
        self.word(TAIL_OFFSET).store(tail, Ordering::Release);
    }

    /// Copies `len` bytes from the count `at`, over the ring's end where they cross it.
    fn copy(&self, at: u64, len: usize, to: &mut Vec<u8>) {
        to.clear();
        to.resize(len, 0);
        let data_start = self.len - self.data_len as usize;
        let place = (at % self.data_len) as usize;
        let first = len.min(self.data_len as usize - place);
        let (until_end, rest) = to.split_at_mut(first);
        for (offset, part) in [(place, until_end), (0, rest)] {
            // SAFETY: within the data pages, as `offset` and the part's length are.
            let from = unsafe { self.pages.add(data_start + offset) };
            // SAFETY: the kernel does not write between tail and head (PERF-head, PERF-tail).
            unsafe { from.as_ptr().copy_to_nonoverlapping(part.as_mut_ptr(), part.len()) };
        }
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `open` mapped; no reference into it is left.
        let unmapped = unsafe { munmap(self.pages.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole map cannot fail");
    }
}

/// The number at `offset` of a record, 0 beyond its end.
pub(super) fn u32_at(body: &[u8], offset: usize) -> u32 {
    body.get(offset..offset + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_ne_bytes)
}

/// The number at `offset` of a record, 0 beyond its end.
pub(super) fn u64_at(body: &[u8], offset: usize) -> u64 {
    body.get(offset..offset + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_ne_bytes)
}
