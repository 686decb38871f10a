//! Direct reads of pages with several under way, by one thread: what a device gives to a program
//! that knows which pages it wants next, and the I/O of a read without a thread that sleeps for it.
#![expect(unsafe_code, reason = "a device writes to memory while its reads are under way")]

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use unherd_sys::{
    Completion, Deadline, Device, DeviceFile, DirectDevice, Direction, HugePages, IoBuf, Map,
    OpenHow, QueueKind, Transfer,
};

use super::PAGE_BYTES;
use crate::LoadError;

const PAGE: usize = PAGE_BYTES as usize;

/// Reads of one file through an io_uring.
///
/// 1. Slot n is the n-th page of the map. A slot has at most one read, and is in `idle` unless it
///    has one or is being looked at; its bytes are looked at when no read of it is under way.
pub(crate) struct QueuedReads {
    device: DirectDevice,
    file: DeviceFile,
    memory: Map,
    depth: usize,
}

/// A read in the order of the pages.
struct Read {
    page: u64,
    slot: usize,
    result: Option<io::Result<()>>,
}

impl QueuedReads {
    /// Opens the file for up to `depth` reads at a time.
    pub(crate) fn open(path: &Path, depth: usize) -> io::Result<Self> {
        let device = DirectDevice::new();
        if device.queue() != Some(QueueKind::IoUring) || !device.claim_queue() {
            return Err(io::Error::other("io_uring is not available, which these reads need"));
        }
        let opened = device.open(path, OpenHow::default()).map_err(io::Error::other)?;
        let memory = Map::new(depth * PAGE, HugePages::AsConfigured)?;
        Ok(Self { device, file: opened.file, memory, depth })
    }

    /// Reads `pages` with up to `depth` of them under way, and shows each to `see` in their order.
    pub(crate) fn read(
        &mut self,
        mut pages: impl Iterator<Item = u64>,
        mut see: impl FnMut(u64, &[u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let mut idle: Vec<usize> = (0..self.depth).collect();
        let mut reads: VecDeque<Read> = VecDeque::with_capacity(self.depth);
        let mut completed = Vec::with_capacity(self.depth);
        let mut failed = None;
        loop {
            while failed.is_none()
                && let Some(slot) = idle.pop()
            {
                let Some(page) = pages.next() else { break };
                self.submit(page, slot);
                reads.push_back(Read { page, slot, result: None });
            }
            let Some(first) = reads.front_mut() else { break };
            match first.result.take() {
                None => self.reap(&mut completed, &mut reads),
                Some(result) => {
                    let read = result.map_err(|error| LoadError::file("reading", 0, &error));
                    let seen = read.and_then(|()| {
                        // All that is under way must end before the memory goes.
                        if failed.is_none() {
                            see(first.page, self.bytes(first.slot))
                        } else {
                            Ok(())
                        }
                    });
                    failed = failed.or(seen.err());
                    idle.push(first.slot);
                    reads.pop_front();
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn start(&self, slot: usize) -> std::ptr::NonNull<u8> {
        assert!(slot < self.depth);
        // SAFETY: the map has `depth` pages.
        unsafe { self.memory.start().add(slot * PAGE) }
    }

    fn submit(&self, page: u64, slot: usize) {
        let buf = IoBuf { start: self.start(slot), len: PAGE };
        // SAFETY: invariant 1: nobody looks at the slot until its read has been reaped, which
        // `read` does before it returns, and the map outlives it.
        unsafe {
            self.device.submit(Transfer {
                direction: Direction::Read,
                file: self.file,
                offset: page * PAGE_BYTES,
                bufs: buf.into(),
                tag: slot as u64,
            });
        }
    }

    fn reap(&self, completed: &mut Vec<Completion>, reads: &mut VecDeque<Read>) {
        self.device.reap(completed, Deadline::NEVER);
        for Completion { tag, result } in completed.drain(..) {
            let read = reads.iter_mut().find(|read| read.slot == tag as usize);
            let result = match result {
                Ok(PAGE) => Ok(()),
                Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(errno) => Err(errno.into()),
            };
            if let Some(read) = read {
                read.result = Some(result);
            }
        }
    }

    fn bytes(&self, slot: usize) -> &[u8] {
        // SAFETY: invariant 1: the slot's read has been reaped, and the next is not submitted while
        // these bytes are borrowed.
        unsafe { std::slice::from_raw_parts(self.start(slot).as_ptr(), PAGE) }
    }
}

impl Drop for QueuedReads {
    fn drop(&mut self) {
        self.device.release_queue();
        self.device.close(self.file);
    }
}
