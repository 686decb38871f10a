//! epoll(7), with an eventfd by which other threads end a wait.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use super::{EPOLL_EVENTS_MAX, Interest};
use crate::{Deadline, ForkMark, Timestamp};

/// The token of the eventfd.
const INTERRUPT: u64 = u64::MAX;
/// A longer sleep is begun again: more milliseconds may not fit what the kernel takes.
const SLEEP_S_MAX: i64 = 3600;

/// Descriptors, and a place to wait for events of any of them. Two descriptors of its own.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
    interrupt: OwnedFd,
    mark: ForkMark,
}

impl Epoll {
    /// One without descriptors. Errors are those of epoll_create1(2), eventfd(2), epoll_ctl(2) and
    /// mmap(2).
    pub fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &interrupt, EventData::new_u64(INTERRUPT), flags)?;
        Ok(Self { epoll, interrupt, mark: ForkMark::new()? })
    }

    /// Adds a descriptor, whose events come with `token`: each *edge* is one, that is, each time it
    /// becomes ready, and once if it is now. `token` is not `u64::MAX`. Errors are those of
    /// epoll_ctl(2); `PERM` is said of what is always ready, such as regular files. Not for a child
    /// of fork(2), whose parent would get the events.
    pub fn add(&self, fd: BorrowedFd<'_>, interest: Interest, token: u64) -> Result<(), Errno> {
        let interest = match interest {
            Interest::Readable => EventFlags::IN | EventFlags::RDHUP,
            Interest::Writable => EventFlags::OUT,
            Interest::Both => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
        };
        epoll::add(&self.epoll, fd, EventData::new_u64(token), interest | EventFlags::ET)
    }

    /// Whether this is a child of the process that made it by fork(2). The epoll is its parent's.
    pub fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    /// Removes a descriptor. An event of it that a wait has found already still comes. In a child
    /// of fork(2) does nothing: the epoll is its parent's as well.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.mark.is_forked() { Ok(()) } else { epoll::delete(&self.epoll, fd) }
    }

    /// Blocks until there are events, it is interrupted, or the deadline has passed (rounded up to
    /// a millisecond). Calls `found` for the token of each, and says how many: up to
    /// [`EPOLL_EVENTS_MAX`], one less with an interrupt. A signal handler does not end the wait.
    /// One system call, if nothing interrupts it. Panics if its descriptor was closed behind its
    /// back.
    pub fn wait(&self, deadline: Deadline, mut found: impl FnMut(u64)) -> usize {
        let mut events = [const { std::mem::MaybeUninit::<Event>::uninit() }; EPOLL_EVENTS_MAX];
        loop {
            let timeout = deadline.timestamp().map(|at| {
                let left = at.since(Timestamp::now());
                let tv_sec = left.as_secs().min(SLEEP_S_MAX as u64) as i64;
                Timespec { tv_sec, tv_nsec: i64::from(left.subsec_nanos()) }
            });
            match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok(([], _)) if !deadline.has_passed(Timestamp::now()) => {}
                Ok((events, _)) => {
                    let tokens = events.iter().map(|event| event.data.u64());
                    return tokens.filter(|token| *token != INTERRUPT).map(&mut found).count();
                }
                Err(Errno::INTR) => {}
                // The program has closed all its descriptors, perhaps.
                Err(error) => panic!("a ready set's epoll_wait(2) failed: {error}"),
            }
        }
    }

    /// Ends a wait, or the next one.
    pub fn interrupt(&self) {
        // A write is an edge, and what was written is never read. The sum is full after 2^64 - 2.
        let _ = rustix::io::write(&self.interrupt, &1_u64.to_ne_bytes());
    }
}
