//! Descriptors under loom and shuttle: what the kernel promises of edges. A scene raises events.
//!
//! As with the futex's models, a wait with a deadline ends at once, and with `--cfg model_yield`
//! every wait may: then no protocol can lean on an order that the sleep brings.

use crate::primitives::{Condvar, Mutex, thread};
use crate::{Deadline, Timestamp};

/// See the kernel's version.
#[derive(Debug)]
pub struct Epoll {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug)]
struct Pending {
    tokens: Vec<u64>,
    interrupted: bool,
}

impl Epoll {
    /// One without events.
    pub fn new() -> Result<Self, rustix::io::Errno> {
        let pending = Pending { tokens: Vec::new(), interrupted: false };
        Ok(Self { pending: Mutex::new(pending), changed: Condvar::new() })
    }

    /// An edge of the descriptor with `token`.
    pub fn raise(&self, token: u64) {
        self.pending.lock().tokens.push(token);
        self.changed.notify_all();
    }

    /// As the kernel's.
    pub fn wait(&self, deadline: Deadline, found: impl FnMut(u64)) -> usize {
        let passes = deadline.timestamp().is_some_and(|at| at < Timestamp::from_ns(u64::MAX));
        let mut pending = self.pending.lock();
        if cfg!(model_yield) || passes {
            if pending.tokens.is_empty() {
                drop(pending);
                thread::yield_now();
                pending = self.pending.lock();
            }
        } else {
            while pending.tokens.is_empty() && !pending.interrupted {
                pending = self.changed.wait(pending);
            }
        }
        pending.interrupted = false;
        let tokens = std::mem::take(&mut pending.tokens);
        drop(pending);
        tokens.into_iter().map(found).count()
    }

    /// As the kernel's.
    pub fn interrupt(&self) {
        if cfg!(model_yield) {
            return;
        }
        self.pending.lock().interrupted = true;
        self.changed.notify_all();
    }
}
