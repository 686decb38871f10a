//! An eventfd for each source, asked by poll(2) or by one edge-triggered epoll.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};

use super::Sources;
use crate::LoadError;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn eventfds(sources: usize) -> Result<Vec<OwnedFd>, LoadError> {
    let one = |_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
    (0..sources).map(one).collect::<Result<_, _>>().map_err(|errno| failed("eventfd", errno))
}

fn failed(call: &str, errno: Errno) -> LoadError {
    let message = format!("{call}: {errno}; ask for fewer sources, or raise `ulimit -n`");
    LoadError::Setup { name: "poll".to_owned(), message }
}

/// Adds one to the eventfd of a source.
fn post(fds: &[OwnedFd], source: usize) {
    // It says EAGAIN at 2^64 - 1, which no round reaches.
    let _ = write(&fds[source], &1_u64.to_ne_bytes());
}

/// Takes the event of a source, if nobody else has.
fn take(fds: &[OwnedFd], source: usize) -> Option<usize> {
    let mut count = [0; 8];
    read(&fds[source], &mut count).is_ok().then_some(source)
}

/// poll(2) over all of them, by each waiter: all wake for an event, and one takes it.
pub(super) struct Poll(Vec<OwnedFd>);

impl Poll {
    pub(super) fn new(sources: usize) -> Result<Self, LoadError> {
        Ok(Self(eventfds(sources)?))
    }
}

impl Sources for Poll {
    /// What poll(2) is asked, in the caller's own memory, as it is in a program.
    type Waiter<'s> = Vec<PollFd<'s>>;

    fn waiter(&self) -> Self::Waiter<'_> {
        self.0.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect()
    }

    fn check<'s>(&'s self, waiter: &mut Self::Waiter<'s>) -> usize {
        poll(waiter, Some(&NOW)).unwrap_or(0)
    }

    fn wait<'s>(&'s self, waiter: &mut Self::Waiter<'s>) -> Option<usize> {
        poll(waiter, None).unwrap_or(0);
        let ready = waiter.iter().position(|fd| fd.revents().contains(PollFlags::IN))?;
        take(&self.0, ready)
    }

    fn wait_all<'s>(&'s self, waiter: &mut Self::Waiter<'s>, found: &mut dyn FnMut(usize)) {
        poll(waiter, None).unwrap_or(0);
        let is_ready = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        let ready = waiter.iter().enumerate().filter(|(_, fd)| is_ready(fd));
        ready.filter_map(|(source, _)| take(&self.0, source)).for_each(found);
    }

    fn post(&self, source: usize) {
        post(&self.0, source);
    }
}

/// One epoll for all waiters, edge-triggered: the kernel wakes one for an event.
pub(super) struct Epoll {
    fds: Vec<OwnedFd>,
    epoll: OwnedFd,
}

impl Epoll {
    pub(super) fn new(sources: usize) -> Result<Self, LoadError> {
        let fds = eventfds(sources)?;
        let own = epoll::create(epoll::CreateFlags::CLOEXEC);
        let own = own.map_err(|errno| failed("epoll_create1", errno))?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        for (source, fd) in fds.iter().enumerate() {
            let data = epoll::EventData::new_u64(source as u64);
            epoll::add(&own, fd, data, flags).map_err(|errno| failed("epoll_ctl", errno))?;
        }
        Ok(Self { fds, epoll: own })
    }
}

impl Sources for Epoll {
    type Waiter<'s> = Vec<epoll::Event>;

    fn waiter(&self) -> Self::Waiter<'_> {
        Vec::with_capacity(64)
    }

    fn check(&self, waiter: &mut Self::Waiter<'_>) -> usize {
        waiter.clear();
        let room = rustix::buffer::spare_capacity(waiter);
        epoll::wait(&self.epoll, room, Some(&NOW)).unwrap_or(0)
    }

    fn wait(&self, waiter: &mut Self::Waiter<'_>) -> Option<usize> {
        waiter.clear();
        let room = rustix::buffer::spare_capacity(waiter);
        epoll::wait(&self.epoll, room, None).unwrap_or(0);
        take(&self.fds, waiter.first()?.data.u64() as usize)
    }

    fn wait_all(&self, waiter: &mut Self::Waiter<'_>, found: &mut dyn FnMut(usize)) {
        waiter.clear();
        let room = rustix::buffer::spare_capacity(waiter);
        epoll::wait(&self.epoll, room, None).unwrap_or(0);
        let ready = waiter.iter().map(|event| event.data.u64() as usize);
        ready.filter_map(|source| take(&self.fds, source)).for_each(found);
    }

    fn post(&self, source: usize) {
        post(&self.fds, source);
    }
}
