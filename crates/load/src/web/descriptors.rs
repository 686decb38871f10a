//! Readiness by poll(2), for each thread its own, and by an epoll that all threads share.
#![expect(unsafe_code, reason = "poll(2) on descriptors that are known by their numbers")]

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use unherd::{Deadline, Timestamp};

use super::connection::Next;
use super::server::{LISTENER, Readiness};

/// The name of what ends the waits.
const STOP: u64 = u64::MAX - 1;

fn stop_descriptor() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn timeout(deadline: Deadline) -> std::time::Duration {
    deadline.timestamp().map_or(std::time::Duration::MAX, |at| at.since(Timestamp::now()))
}

/// poll(2): each thread asks about its own connections, and all about the listening socket.
pub(super) struct Poll {
    listener: RawFd,
    stop: OwnedFd,
}

impl Poll {
    pub(super) fn new(listener: &TcpListener) -> io::Result<Self> {
        Ok(Self { listener: listener.as_raw_fd(), stop: stop_descriptor()? })
    }
}

fn asked(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

impl Readiness for Poll {
    type Registration = ();
    /// The stop, the listening socket, the connections.
    type Waiter<'s> = Vec<libc::pollfd>;

    fn waiter(&self) -> Vec<libc::pollfd> {
        vec![asked(self.stop.as_raw_fd(), libc::POLLIN), asked(self.listener, libc::POLLIN)]
    }

    fn add(
        &self,
        waiter: &mut Vec<libc::pollfd>,
        stream: &Arc<TcpStream>,
    ) -> io::Result<(usize, ())> {
        waiter.push(asked(stream.as_raw_fd(), libc::POLLIN));
        Ok((stream.as_raw_fd() as usize, ()))
    }

    fn served(&self, waiter: &mut Vec<libc::pollfd>, key: usize, next: Option<Next>) {
        let Some(at) = waiter.iter().position(|asked| asked.fd as usize == key) else { return };
        match next {
            Some(Next::Wait { to_write: true }) => waiter[at].events = libc::POLLOUT,
            Some(_) => waiter[at].events = libc::POLLIN,
            None => _ = waiter.swap_remove(at),
        }
    }

    fn wait(&self, waiter: &mut Vec<libc::pollfd>, deadline: Deadline, ready: &mut Vec<usize>) {
        let timeout_ms = timeout(deadline).as_millis().min(60_000) as i32 + 1;
        // SAFETY: an array of that length, which is ours.
        let count = unsafe { libc::poll(waiter.as_mut_ptr(), waiter.len() as u64, timeout_ms) };
        if count > 0 {
            let is_ready = |asked: &&libc::pollfd| asked.revents != 0;
            let name = |fd| if fd == self.listener { LISTENER } else { fd as usize };
            ready.extend(waiter[1..].iter().filter(is_ready).map(|asked| name(asked.fd)));
        }
    }

    fn stop(&self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

/// One epoll, edge-triggered.
pub(super) struct SharedEpoll {
    epoll: OwnedFd,
    stop: OwnedFd,
    batch: usize,
}

impl SharedEpoll {
    pub(super) fn new(listener: &TcpListener, batch: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let stop = stop_descriptor()?;
        let name = EventData::new_u64(LISTENER as u64);
        epoll::add(&epoll, listener, name, EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        Ok(Self { epoll, stop, batch })
    }
}

impl Readiness for SharedEpoll {
    type Registration = ();
    type Waiter<'s> = Vec<Event>;

    fn waiter(&self) -> Vec<Event> {
        Vec::with_capacity(self.batch)
    }

    fn add(&self, _: &mut Vec<Event>, stream: &Arc<TcpStream>) -> io::Result<(usize, ())> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let key = stream.as_raw_fd() as usize;
        epoll::add(&self.epoll, stream, EventData::new_u64(key as u64), flags)?;
        Ok((key, ()))
    }

    fn wait(&self, waiter: &mut Vec<Event>, deadline: Deadline, ready: &mut Vec<usize>) {
        let timeout = Timespec::try_from(timeout(deadline)).ok();
        waiter.clear();
        let space = rustix::buffer::spare_capacity(waiter);
        if epoll::wait(&self.epoll, space, timeout.as_ref()).is_ok() {
            let names = waiter.iter().map(|event| event.data.u64());
            ready.extend(names.filter(|name| *name != STOP).map(|name| name as usize));
        }
    }

    fn stop(&self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}
