//! Waiting for any of many descriptors: epoll(7), edge-triggered, and its model under the checkers.

#[cfg(not(any(loom, shuttle)))]
mod kernel;
#[cfg(any(loom, shuttle))]
mod model;

#[cfg(not(any(loom, shuttle)))]
pub use kernel::Epoll;
#[cfg(any(loom, shuttle))]
pub use model::Epoll;

/// As many events as one [`Epoll::wait`] returns.
pub const EPOLL_EVENTS_MAX: usize = 64;

/// What one waits for at a descriptor. Errors and hang-ups are events with either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// That there is something to read, to accept, or the end.
    Readable,
    /// That there is room to write.
    Writable,
    /// Both.
    Both,
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use rustix::io::Errno;

    use super::*;
    use crate::{Deadline, Timestamp};

    fn now(epoll: &Epoll) -> Vec<u64> {
        let mut found = Vec::new();
        epoll.wait(Deadline::at(Timestamp::from_ns(0)), |token| found.push(token));
        found
    }

    #[test]
    fn each_edge_is_told_once() {
        let epoll = Epoll::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        epoll.add(reader.as_fd(), Interest::Readable, 7).unwrap();
        assert_eq!(now(&epoll), []);
        for _ in 0..2 {
            rustix::io::write(&writer, b"x").unwrap();
            assert_eq!(now(&epoll), [7]);
            assert_eq!(now(&epoll), [], "the byte was not read, and it is told again");
        }
        epoll.remove(reader.as_fd()).unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(now(&epoll), []);
    }

    #[test]
    fn an_interrupt_ends_one_wait() {
        let epoll = Epoll::new().unwrap();
        epoll.interrupt();
        assert_eq!(epoll.wait(Deadline::NEVER, |token| panic!("found {token}")), 0);
        assert_eq!(now(&epoll), []);
    }

    #[test]
    fn a_regular_file_is_refused() {
        let epoll = Epoll::new().unwrap();
        let file = File::open("Cargo.toml").unwrap();
        assert_eq!(epoll.add(file.as_fd(), Interest::Both, 0), Err(Errno::PERM));
    }
}
