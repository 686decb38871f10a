//! Stopping early: what Ctrl-C, SIGTERM and SIGHUP set, and what every wait of the lab listens to.
//!
//! The flag is an eventfd that is never read, so once it is raised it stays ready, and any wait for
//! other descriptors can wait for it too: an interrupt ends the wait at once and nothing polls. A
//! second interrupt, while the first is being cleaned up after, ends the process; what it leaves
//! behind is cleared away by the next start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unherd_sys::primitives::{Arc, thread};
use unherd_sys::{Deadline, Timestamp, poll_until};

use crate::error::INTERRUPTED;

/// A flag that ends waits. Clones are the same flag.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<OwnedFd>);

impl Interrupt {
    /// A flag that only [`Interrupt::raise`] sets.
    ///
    /// # Errors
    ///
    /// Where no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    /// A flag that the signals set which ask a process to end. A second one ends it at once.
    ///
    /// # Errors
    ///
    /// What the kernel says to the registration.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::new()?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let raised = interrupt.clone();
        thread::spawn(move || {
            for _ in signals.forever() {
                if raised.is_raised() {
                    // The children die with the thread that started them.
                    std::process::exit(INTERRUPTED.into());
                }
                raised.raise();
            }
        });
        Ok(interrupt)
    }

    /// Sets the flag and ends all waits.
    pub fn raise(&self) {
        // It fails where the counter is full: then it is raised already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Whether it is set.
    pub fn is_raised(&self) -> bool {
        !self.pause(Deadline::at(Timestamp::default()))
    }

    /// Blocks for `deadline`'s sake alone; says whether it passed without an interrupt.
    pub(crate) fn pause(&self, deadline: Deadline) -> bool {
        poll_until(&mut [PollFd::new(self, PollFlags::IN)], deadline) == Ok(0)
    }
}

impl AsFd for Interrupt {
    /// Readable once the flag is set.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
