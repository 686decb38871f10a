//! The server: connections in slots, and threads that serve whichever has something to do.

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use unherd::{Deadline, Timestamp};
use unherd_sys::primitives::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::connection::{Connection, Next, turn_away};
use super::site::Site;

/// With this many connections open, the next client is turned away.
pub(super) const CONNECTIONS_MAX: usize = 16 << 10;

/// Slow clients are looked for so often.
const SWEEP: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });

/// How threads learn which connection has something to do. Connections are named by small numbers,
/// which the implementation gives.
pub(super) trait Readiness: Sync {
    /// What keeps a connection in the set.
    type Registration: Send;
    /// What a thread keeps.
    type Waiter<'s>
    where
        Self: 's;

    fn waiter(&self) -> Self::Waiter<'_>;

    /// Adds a connection. What it has to do already need not be told.
    fn add(
        &self,
        waiter: &mut Self::Waiter<'_>,
        stream: &Arc<TcpStream>,
    ) -> io::Result<(usize, Self::Registration)>;

    /// The thread has served it: what it waits for now. `None` before it is closed.
    fn served(&self, _: &mut Self::Waiter<'_>, _key: usize, _next: Option<Next>) {}

    /// Blocks until there are connections to serve, [`LISTENER`] among them, or until the deadline.
    fn wait(&self, waiter: &mut Self::Waiter<'_>, deadline: Deadline, ready: &mut Vec<usize>);

    /// Ends all waits from now on.
    fn stop(&self);
}

/// The listening socket's name.
pub(super) const LISTENER: usize = usize::MAX;

pub(super) struct Server<'a, R: Readiness> {
    site: &'a Site,
    listener: TcpListener,
    readiness: R,
    slots: Box<[Place<R::Registration>]>,
    counts: Box<[Count]>,
    stopped: AtomicBool,
    next_sweep_ns: AtomicU64,
    /// Given up to turn a client away when there are no more descriptors.
    spare: Mutex<Option<File>>,
}

/// Where a connection is, if one is there.
type Place<G> = Mutex<Option<Slot<G>>>;

struct Slot<G> {
    // In this order: it leaves the set before it is closed.
    _registration: G,
    connection: Connection,
}

/// Of one thread, in a line of its own. Relaxed: statistics.
#[derive(Default)]
#[repr(align(64))]
struct Count(AtomicU64);

impl<'a, R: Readiness> Server<'a, R> {
    pub(super) fn new(site: &'a Site, listener: TcpListener, readiness: R, threads: usize) -> Self {
        Self {
            site,
            listener,
            readiness,
            slots: (0..CONNECTIONS_MAX).map(|_| Mutex::new(None)).collect(),
            counts: (0..threads).map(|_| Count::default()).collect(),
            stopped: AtomicBool::new(false),
            next_sweep_ns: AtomicU64::new(0),
            spare: Mutex::new(File::open("/dev/null").ok()),
        }
    }

    /// Responses sent whole, by all threads.
    pub(super) fn transactions(&self) -> u64 {
        self.counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    /// Ends [`Server::run`] in all threads.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.readiness.stop();
    }

    /// What one thread does until [`Server::stop`].
    pub(super) fn run(&self, thread: usize) {
        let mut waiter = self.readiness.waiter();
        let mut ready = Vec::new();
        while !self.stopped.load(Ordering::Relaxed) {
            self.readiness.wait(&mut waiter, Deadline::after(SWEEP), &mut ready);
            for key in ready.drain(..) {
                match key {
                    LISTENER => self.accept(thread, &mut waiter),
                    key => self.serve(thread, &mut waiter, key),
                }
            }
            self.sweep();
        }
    }

    fn accept(&self, thread: usize, waiter: &mut R::Waiter<'_>) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.begin(thread, waiter, stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_out_of_descriptors(&error) => {
                    if !self.turn_one_away() {
                        return;
                    }
                }
                // The client has gone already.
                Err(_) => {}
            }
        }
    }

    /// There is no descriptor left for a client: it gets the spare one, and an answer. False if
    /// there is nothing to do.
    fn turn_one_away(&self) -> bool {
        let mut spare = self.spare.lock();
        *spare = None;
        let accepted = self.listener.accept();
        if let Ok((stream, _)) = &accepted {
            turn_away(stream);
        }
        let is_done = accepted.is_ok();
        drop(accepted);
        *spare = File::open("/dev/null").ok();
        is_done
    }

    fn begin(&self, thread: usize, waiter: &mut R::Waiter<'_>, stream: TcpStream) {
        let is_set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let stream = Arc::new(stream);
        let added = is_set.and_then(|()| self.readiness.add(waiter, &stream));
        let Ok((key, registration)) = added else { return turn_away(&stream) };
        let Some(slot) = self.slots.get(key) else {
            self.readiness.served(waiter, key, None);
            return turn_away(&stream);
        };
        let connection = Connection::new(stream);
        *slot.lock() = Some(Slot { _registration: registration, connection });
        // An event that came before the slot was full has found nobody.
        self.serve(thread, waiter, key);
    }

    fn serve(&self, thread: usize, waiter: &mut R::Waiter<'_>, key: usize) {
        let mut slot = self.slots[key].lock();
        let Some(open) = slot.as_mut() else { return };
        let next = open.connection.advance(self.site);
        let done = std::mem::take(&mut open.connection.transactions);
        self.counts[thread].0.fetch_add(done, Ordering::Relaxed);
        match next {
            Next::Wait { .. } => self.readiness.served(waiter, key, Some(next)),
            Next::Close => {
                self.readiness.served(waiter, key, None);
                *slot = None;
            }
        }
    }

    /// Ends connections that are too slow, once in a while.
    fn sweep(&self) {
        let (now, order) = (Timestamp::now(), Ordering::Relaxed);
        let due_ns = self.next_sweep_ns.load(order);
        let next_ns = now.after(SWEEP).as_ns();
        let is_mine = || self.next_sweep_ns.compare_exchange(due_ns, next_ns, order, order).is_ok();
        if now.as_ns() >= due_ns && is_mine() {
            for slot in &self.slots {
                if let Some(open) = slot.lock().as_mut() {
                    open.connection.expire(now);
                }
            }
        }
    }

    #[cfg(test)]
    fn connections(&self) -> usize {
        self.slots.iter().filter(|slot| slot.lock().is_some()).count()
    }

    /// Makes all requests that are under way older than is allowed.
    #[cfg(test)]
    fn age_all(&self) {
        for slot in &self.slots {
            if let Some(open) = slot.lock().as_mut() {
                open.connection.age(2 * super::connection::PATIENCE);
            }
        }
        self.next_sweep_ns.store(0, Ordering::Relaxed);
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests;
