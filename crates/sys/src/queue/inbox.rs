//! What is submitted to a queue, what was done elsewhere than in its driver, and the bell.
//!
//! A submitter pushes onto the inbox under a short lock and, only if the reaping thread sleeps,
//! rings the bell (an eventfd that the sleeper polls).
//!
//! **Sleep and wake.** The flag `asleep` stands under the lock, so that the lock is all the order
//! there is:
//!
//! ```text
//! submitter, worker                  reaper
//! lock                               lock
//! push                               take all
//! was_asleep = asleep                asleep = true
//! asleep = false                     unlock
//! unlock                             sleep until a completion or the bell
//! if was_asleep: ring the bell
//! ```
//!
//! Whichever locks first: either the reaper takes the push, or the submitter sees `asleep` and
//! rings. The bell is a counter: rung before the reaper sleeps, it ends the sleep at once. So there
//! is no sleep with a push that was not announced, and one ring of the bell for each sleep at most.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;

use crate::file_table::{FileTable, KeptUse};
use crate::primitives::Mutex;
use crate::readiness::poll_until;
use crate::{Completion, Deadline, Transfer};

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) transfer: Transfer,
    pub(super) file: Result<KeptUse, Errno>,
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) queue: VecDeque<Queued>,
    /// What was done by workers, and what a former owner of the driver waited for before it ended.
    pub(super) done: Vec<Completion>,
    pub(super) asleep: bool,
    pub(super) interrupted: bool,
}

#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) files: FileTable,
    pub(super) pending: Mutex<Pending>,
    /// There is none for want of descriptors; then nothing is queued.
    pub(super) bell: Result<OwnedFd, Errno>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Self { files: FileTable::new(), pending: Mutex::default(), bell }
    }

    pub(crate) fn submit(&self, transfer: Transfer) {
        let file = self.files.enter(transfer.file).map(|file| file.keep());
        self.push(|pending| pending.queue.push_back(Queued { transfer, file }));
    }

    pub(crate) fn interrupt(&self) {
        self.push(|pending| pending.interrupted = true);
    }

    pub(super) fn complete(&self, done: impl IntoIterator<Item = Completion>) {
        self.push(|pending| pending.done.extend(done));
    }

    fn push(&self, push: impl FnOnce(&mut Pending)) {
        let was_asleep = {
            let mut pending = self.pending.lock();
            push(&mut pending);
            std::mem::take(&mut pending.asleep)
        };
        if was_asleep {
            self.ring_bell();
        }
    }

    #[cold]
    pub(super) fn ring_bell(&self) {
        if let Ok(bell) = &self.bell {
            // It fails only when the counter is full, and then the bell is ringing already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes the bell back to zero.
    pub(super) fn silence_bell(&self) {
        if let Ok(bell) = &self.bell {
            // EAGAIN: it was silent.
            let _ = rustix::io::read(bell.as_fd(), &mut [0; 8]);
        }
    }

    /// Sleeps without a driver until the bell or the deadline.
    pub(super) fn sleep_on_bell(&self, deadline: Deadline) {
        match &self.bell {
            Ok(bell) => {
                let mut ready = [PollFd::new(bell, PollFlags::IN)];
                if poll_until(&mut ready, deadline).is_ok_and(|ready| ready > 0) {
                    self.silence_bell();
                }
            }
            // Only the deadline ends this.
            Err(_) => drop(poll_until(&mut [], deadline)),
        }
    }
}
