//! Waiting for descriptors until a deadline: poll(2).

use rustix::event::{PollFd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::{Deadline, Timestamp};

/// Blocks until one of `fds` is ready or the deadline has passed, and returns how many are ready (0
/// after the deadline). A signal handler does not end the wait. Errors are those of poll(2).
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<usize, Errno> {
    loop {
        let timeout = deadline.timestamp().map(|at| {
            let left = at.since(Timestamp::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
