//! Threads that make by blocking calls what the driver of a queue does not, or all if it has none.
//!
//! | a transfer is | lies in | its memory is used by |
//! |---|---|---|
//! | given | `State::given` | nobody |
//! | under way | a worker, which took it out under the lock | that worker |
//! | done | the inbox, as a completion | nobody; who reaps it, from then on |
//!
//! There are as many workers as there was work for at a time, [`WORKERS_MAX`] at most, until
//! [`Workers::end`]. Where none can be started, the giver makes the transfer itself.
#![expect(unsafe_code, reason = "transfers are made in the place of the one who queues them")]

use std::collections::VecDeque;

use super::inbox::Inbox;
use crate::file_table::KeptUse;
use crate::primitives::{Arc, Condvar, Mutex, thread};
use crate::{Completion, Transfer, plain};

/// As many as keep a device busy where they make all transfers.
const WORKERS_MAX: usize = 64;

#[derive(Debug, Default)]
struct State {
    given: VecDeque<(Transfer, KeptUse)>,
    idle: usize,
    threads: Vec<thread::JoinHandle<()>>,
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct Workers {
    inbox: Arc<Inbox>,
    state: Mutex<State>,
    /// A transfer was given, or the workers are to end.
    work: Condvar,
}

impl Workers {
    pub(super) fn new(inbox: Arc<Inbox>) -> Arc<Self> {
        Arc::new(Self { inbox, state: Mutex::default(), work: Condvar::new() })
    }

    /// Has a transfer made. It completes in the inbox.
    pub(super) fn give(self: &Arc<Self>, transfer: Transfer, file: KeptUse) {
        let mut state = self.state.lock();
        if state.is_over {
            // The device is gone, and with it who would reap this.
            return self.inbox.files.release(file);
        }
        if state.given.len() >= state.idle && state.threads.len() < WORKERS_MAX {
            let workers = Arc::clone(self);
            let body = move || workers.work();
            match thread::Builder::new().name("unherd-io".into()).spawn(body) {
                Ok(thread) => state.threads.push(thread),
                Err(_) if state.threads.is_empty() => {
                    drop(state);
                    return self.transfer(transfer, file);
                }
                // Those that there are come to it.
                Err(_) => {}
            }
        }
        state.given.push_back((transfer, file));
        drop(state);
        self.work.notify_one();
    }

    /// The body of a worker.
    fn work(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            if let Some((transfer, file)) = state.given.pop_front() {
                drop(state);
                self.transfer(transfer, file);
                state = self.state.lock();
            } else {
                state.idle += 1;
                state = self.work.wait(state);
                state.idle -= 1;
            }
        }
    }

    /// Makes a transfer by a call that blocks.
    fn transfer(&self, transfer: Transfer, file: KeptUse) {
        let Transfer { direction, offset, bufs, tag, .. } = transfer;
        // SAFETY: the caller of `Device::submit` promised the memory until the completion is
        // reaped.
        let result = unsafe { plain::transfer(direction, file.fd(), offset, bufs) };
        self.inbox.files.release(file);
        self.inbox.complete([Completion { tag, result }]);
    }

    /// Ends all workers, waits for what they are at, and forgets what nobody has begun.
    pub(super) fn end(&self) {
        let (threads, given) = {
            let mut state = self.state.lock();
            state.is_over = true;
            (std::mem::take(&mut state.threads), std::mem::take(&mut state.given))
        };
        self.work.notify_all();
        for thread in threads {
            // It does not panic; if it did, there is nothing more to do about it here.
            let _ = thread.join();
        }
        for (_, file) in given {
            self.inbox.files.release(file);
        }
    }
}
