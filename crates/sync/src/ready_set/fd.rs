//! Descriptors as sources of a set.

#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use unherd_sys::{Errno, Interest};

use super::{LEAD, ReadySet, SetFull, Source, SourceToken};

/// A descriptor cannot be a source of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FdError {
    /// The set has no room for another source.
    Full(SetFull),
    /// Nothing is open under this number.
    Closed {
        /// The number.
        fd: RawFd,
    },
    /// The set has this descriptor already. A duplicate, by dup(2), is another descriptor.
    Registered {
        /// Its number.
        fd: RawFd,
    },
    /// The kernel refuses it: too many descriptors are open (`MFILE`, `NFILE`) or watched by
    /// epolls of this user (`NOSPC`), there is no memory (`NOMEM`), or it is an epoll that this
    /// set's own is inside of (`INVAL`, `LOOP`).
    Refused {
        /// The number.
        fd: RawFd,
        /// The kernel's error.
        errno: Errno,
    },
    /// This is a child of fork(2), and the set has descriptors of its parent's.
    Forked,
}

impl fmt::Display for FdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::Closed { fd } => write!(f, "descriptor {fd} is not open"),
            Self::Registered { fd } => {
                write!(f, "descriptor {fd} is a source of the ready set already: use that, or dup")
            }
            Self::Refused { fd, errno } => {
                write!(f, "the kernel refuses descriptor {fd} for a ready set: {errno}")
            }
            Self::Forked => f.write_str(
                "this process was forked from the one whose descriptors the ready set has; make a \
                 set of its own",
            ),
        }
    }
}

impl Error for FdError {}

impl ReadySet {
    /// Makes a source of a descriptor: a socket, a pipe, an eventfd, whatever poll(2) takes.
    ///
    /// The source posts each time that the descriptor becomes ready for `interest`, and once now
    /// if it is. These are edges: who takes the event reads or writes until `WouldBlock`, or
    /// [rearms](ReadySet::rearm) the token. A descriptor that is always ready, such as a regular
    /// file, posts once.
    ///
    /// Events are found while a thread is in [`ReadySet::wait`]; as a rule at most two milliseconds
    /// after they came, if a thread that has led handles other events meanwhile. Where threads come
    /// and go with events of other sources faster than that, it is after 32 waits at the latest. A
    /// set takes two descriptors for itself when it gets its first.
    ///
    /// The source owns `fd`, which may be a reference, and takes it out of the set before it
    /// closes it. So a number that is used again is never taken for its predecessor, even if it
    /// was closed by other means; but then, while a duplicate is open, its edges still wake a
    /// thread for nothing. Nor is a descriptor taken out in whose place `as_fd` gives another by
    /// then.
    ///
    /// A child of fork(2) has the kernel's queue of events together with its parent: it may drop
    /// the set and its sources, but not wait, as it would take its parent's events, and adds none.
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// use std::io::{Read, Write};
    /// use unherd::{Deadline, Interest, ReadyBatch, ReadySet};
    ///
    /// let (mut sender, receiver) = std::os::unix::net::UnixStream::pair()?;
    /// receiver.set_nonblocking(true)?;
    /// let set = ReadySet::new(1024);
    /// let receiver = set.fd(receiver, Interest::Readable)?;
    /// sender.write_all(b"hello")?;
    /// let mut batch = ReadyBatch::with_capacity(64);
    /// set.wait(&mut batch, Deadline::NEVER);
    /// assert_eq!(batch.tokens(), [receiver.token()]);
    /// let mut bytes = [0; 64];
    /// while let Ok(count @ 1..) = receiver.get_ref().read(&mut bytes) {
    ///     assert_eq!(&bytes[..count], b"hello");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`FdError`]; `fd` is dropped.
    pub fn fd<F: AsFd>(&self, fd: F, interest: Interest) -> Result<FdSource<F>, FdError> {
        // Asked once, and without a lock: that is the caller's code.
        let asked = fd.as_fd();
        let number = asked.as_raw_fd();
        let refused = |errno| FdError::Refused { fd: number, errno };
        let source = self.source().map_err(FdError::Full)?;
        let mut places = self.0.places.lock();
        let epoll = self.0.lead.descriptors().map_err(refused)?;
        if epoll.is_forked() {
            return Err(FdError::Forked);
        }
        let added = epoll.add(asked, interest, source.token().to_kernel());
        if added.is_ok() {
            places.numbers.insert(number, source.token());
        }
        drop(places);
        match added {
            Ok(()) => {}
            Err(Errno::PERM) => _ = source.post(),
            Err(Errno::BADF) => return Err(FdError::Closed { fd: number }),
            Err(Errno::EXIST) => return Err(FdError::Registered { fd: number }),
            Err(errno) => return Err(refused(errno)),
        }
        // Those that slept before the first descriptor came.
        if !self.0.lead.is_covered() {
            self.call_thread(LEAD);
        }
        Ok(FdSource { source, is_always_ready: added.is_err(), number, fd })
    }
}

/// A descriptor that is a source of a [`ReadySet`]: [`ReadySet::fd`].
pub struct FdSource<F: AsFd> {
    // Dropped before the descriptor.
    source: Source,
    is_always_ready: bool,
    number: RawFd,
    fd: F,
}

impl<F: AsFd> fmt::Debug for FdSource<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FdSource")
            .field("fd", &self.number)
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

impl<F: AsFd> FdSource<F> {
    /// What a waiter gets for an event of this descriptor.
    pub fn token(&self) -> SourceToken {
        self.source.token()
    }

    /// The descriptor.
    pub fn get_ref(&self) -> &F {
        &self.fd
    }

    /// Whether the kernel says that it is always ready, as regular files are. Such a source has
    /// posted once.
    pub fn is_always_ready(&self) -> bool {
        self.is_always_ready
    }

    /// Posts an event as if the descriptor had become ready: see [`Source::post`].
    pub fn post(&self) -> bool {
        self.source.post()
    }
}

impl<F: AsFd> Drop for FdSource<F> {
    fn drop(&mut self) {
        let set = &self.source.set.0;
        let (fd, token) = (self.fd.as_fd(), self.token());
        let mut places = set.places.lock();
        if places.numbers.get(&self.number) == Some(&token) {
            places.numbers.remove(&self.number);
            // An `AsFd` may give another one by now.
            if fd.as_raw_fd() == self.number {
                // It fails only if the descriptor was closed by other means.
                let _ = set.lead.descriptors().map(|epoll| epoll.remove(fd));
            }
        }
    }
}
