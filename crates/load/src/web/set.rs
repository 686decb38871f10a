//! Readiness by a [`ReadySet`].

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use unherd::{Deadline, FdSource, Interest, ReadyBatch, ReadySet, Reason, Source};

use super::server::{CONNECTIONS_MAX, LISTENER, Readiness};

pub(super) struct Set {
    set: ReadySet,
    listener: FdSource<TcpListener>,
    stop: Source,
    batch: usize,
}

impl Set {
    pub(super) fn new(listener: &TcpListener, batch: usize) -> io::Result<Self> {
        // Besides the connections, the listening socket and the stop.
        let set = ReadySet::builder(CONNECTIONS_MAX + 2).reason(Reason::register("web"));
        let set = set.build();
        let stop = set.source().map_err(io::Error::other)?;
        let listener = listener.try_clone()?;
        let listener = set.fd(listener, Interest::Readable).map_err(io::Error::other)?;
        Ok(Self { set, listener, stop, batch })
    }
}

impl Readiness for Set {
    type Registration = FdSource<Arc<TcpStream>>;
    type Waiter<'s> = ReadyBatch;

    fn waiter(&self) -> ReadyBatch {
        ReadyBatch::with_capacity(self.batch)
    }

    fn add(
        &self,
        _: &mut ReadyBatch,
        stream: &Arc<TcpStream>,
    ) -> io::Result<(usize, Self::Registration)> {
        let source = self.set.fd(Arc::clone(stream), Interest::Both).map_err(io::Error::other)?;
        // Two places are taken by others.
        Ok((source.token().place() - 2, source))
    }

    fn wait(&self, waiter: &mut ReadyBatch, deadline: Deadline, ready: &mut Vec<usize>) {
        self.set.wait(waiter, deadline);
        for token in &*waiter {
            if token == self.listener.token() {
                ready.push(LISTENER);
            } else if token == self.stop.token() {
                // For the next thread.
                self.stop.post();
            } else {
                ready.push(token.place() - 2);
            }
        }
    }

    fn stop(&self) {
        self.stop.post();
    }
}
