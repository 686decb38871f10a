//! What a wake does with those whom it chooses.
//!
//! A wake takes up to [`BATCH`] waiters out of the queue under the lock, and hands their nodes back
//! to their owners at once: all that is left to do is to send the wakeups, when the lock is free.
//! If there are more waiters, it comes back for the next of them. The bucket gives each waiter a
//! *ticket* when it comes, and the wake notes the next one when it begins: a waiter with that
//! or a later one came after it, and is not woken. So a wake of any number takes no memory, and
//! holds the lock for a bounded number of steps at a time.
//!
//! | | under the lock | without it |
//! |---|---|---|
//! | 1 | note the next ticket; take out up to [`BATCH`] of earlier ones | |
//! | 2 | | send a wakeup to each thread, then to each task |
//! | 3 | take out the next [`BATCH`]; then 2 again | |
//!
//! - **C1** No owner waits for a waker, and no wakeup is sent under a lock: the holder of the
//!   lock finds a node queued or handed back.
//! - **C2** Between two batches a waiter that was not taken out yet is like any other: it may time
//!   out, be woken by another wake, or be moved. It is counted by the one that takes it out.
//! - **C3** A wait for several keys is counted once, by who claims it.
//! - **C4** A task's waker that panics keeps nobody from being woken: the first panic goes on to
//!   the caller when all have been woken, the others are forgotten; so is the first, if the caller
//!   unwinds already (a wake in a `drop`): two panics at once end the process.
//! - **C5** Threads first: a waker may run a task that waits for a thread of the same batch, and
//!   that thread must not sleep on because of it. Beyond the batch there is no such promise: a
//!   waker that blocks holds up all who are left, unless their deadlines pass.
#![expect(unsafe_code, reason = "an array that is written as far as it is used")]

use std::any::Any;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::resume_unwind;

use unherd_sys::primitives::thread;

use super::bucket::BucketGuard;
use super::node::{Heir, Message, NodeRef, Wakeup};
use super::queue::Lists;
use super::{Verdict, Woken};

/// As many as a wake carries at a time.
pub(super) const BATCH: usize = if cfg!(loom) {
    1
} else if cfg!(shuttle) {
    2
} else {
    32
};

/// The wakeups that a wake has to send. Sends them when it is dropped: a panic of a key's code or a
/// filter's strands nobody who was taken out.
pub(super) struct WakeBatch {
    message: Message,
    /// The first `len` are written. No `Option`s, which would all have to be written.
    wakeups: [MaybeUninit<Wakeup>; BATCH],
    len: usize,
    /// How many more exclusive waiters may be woken.
    exclusive_left: usize,
    /// The tickets of those that were not looked at yet, once the wake has begun.
    tickets: Option<Range<u64>>,
    woken: Woken,
    /// The first panic of foreign code, which goes on in the end.
    pub(super) panic: Option<Box<dyn Any + Send>>,
}

impl WakeBatch {
    pub(super) fn new(message: Message, exclusive: usize) -> Self {
        Self {
            message,
            wakeups: [const { MaybeUninit::uninit() }; BATCH],
            len: 0,
            exclusive_left: exclusive,
            tickets: None,
            woken: Woken::NOBODY,
            panic: None,
        }
    }

    /// Takes those of `lists` out that `choose` says, as many as it can carry. Says whether some
    /// that have waited since the wake began were not looked at.
    pub(super) fn fill<'g, K>(
        &mut self,
        guard: &'g BucketGuard<'_, K>,
        mut lists: Lists<'g, K>,
        mut choose: impl FnMut(NodeRef<'g, K>) -> Verdict,
    ) -> bool {
        let mut tickets = self.tickets.take().unwrap_or_else(|| 0..guard.ticket());
        loop {
            if self.exclusive_left == 0 {
                lists.exclusive = None;
            }
            let Some(node) = lists.next() else { return false };
            let ticket = node.links().ticket;
            if ticket < tickets.start || node.is_lost() {
                continue;
            }
            if ticket >= tickets.end {
                return false;
            }
            if self.len == BATCH {
                tickets.start = ticket;
                self.tickets = Some(tickets);
                return true;
            }
            let verdict = choose(node);
            let is_chosen = matches!(verdict, Verdict::Wake | Verdict::WakeAndStop);
            // A filter that stops there has chosen one waiter, and not all of a kind.
            let heir = match verdict {
                Verdict::WakeAndStop => Heir::Anybody,
                _ => self.message.heir,
            };
            // One that another key's wake has claimed meanwhile counts as skipped.
            if is_chosen && !self.take(guard, node, heir) {
                continue;
            }
            if matches!(verdict, Verdict::Stop | Verdict::WakeAndStop) {
                return false;
            }
        }
    }

    /// Takes `node` out and hands it back; false if another wake has claimed it.
    pub(super) fn take<K>(
        &mut self,
        guard: &BucketGuard<'_, K>,
        node: NodeRef<'_, K>,
        heir: Heir,
    ) -> bool {
        if !node.try_claim() {
            return false;
        }
        let shared = node.links().shared;
        guard.unlink(node);
        self.woken.add(shared);
        self.exclusive_left -= usize::from(!shared);
        // SAFETY: it is in no queue; `fill` goes on with the node that was behind it.
        self.wakeups[self.len].write(unsafe { node.hand_back(Message { heir, ..self.message }) });
        self.len += 1;
        true
    }

    /// Sends the wakeups. Called with no bucket locked.
    pub(super) fn send(&mut self) {
        let len = std::mem::take(&mut self.len);
        // C5.
        for wakeup in &self.wakeups[..len] {
            // SAFETY: the first `len` are written.
            unsafe { wakeup.assume_init_ref() }.send_to_thread();
        }
        for wakeup in &self.wakeups[..len] {
            // SAFETY: as above, and each is taken once.
            if let Err(panic) = unsafe { wakeup.assume_init_read() }.send_to_task() {
                // Not dropped, which may panic as well.
                match self.panic {
                    None => self.panic = Some(panic),
                    Some(_) => std::mem::forget(panic),
                }
            }
        }
    }

    /// How many were woken. Panics as the first waker that did (C4).
    pub(super) fn finish(mut self) -> Woken {
        self.send();
        if let Some(panic) = self.panic.take() {
            resume_unless_unwinding(panic);
        }
        self.woken
    }
}

/// Has `panic` go on, or forgets it if another one does (C4).
pub(crate) fn resume_unless_unwinding(panic: Box<dyn Any + Send>) {
    if !thread::panicking() {
        resume_unwind(panic);
    }
    // Not dropped, which may panic as well.
    std::mem::forget(panic);
}

impl Drop for WakeBatch {
    fn drop(&mut self) {
        self.send();
        // C4: unless it is finished, another panic goes on, and was the first.
        std::mem::forget(self.panic.take());
    }
}
