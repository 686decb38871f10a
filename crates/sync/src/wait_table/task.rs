//! Waiting in a task: a future that stands in the same queue as threads.
//!
//! | stage | left by | to |
//! |---|---|---|
//! | fresh | first poll: `validate` says false, or panics | done: `Invalid` |
//! | fresh | first poll: push, under the lock | queued |
//! | queued | a poll that finds NOTIFIED | done: `Woken` |
//! | queued | drop; if a wake has chosen it, that goes to the next in the queue | gone |
//!
//! The node lies in the future, which is pinned from its first poll on. While it is queued, so does
//! the task's waker, in a cell that is guarded as the node is. Rules for it:
//!
//! - **T1** Cloning and dropping a waker may run anybody's code, and waking does. So none of these
//!   happens under a bucket lock. Under the lock a waker is only moved.
//! - **T2** Who takes the node out takes the waker, and wakes it once. A waker that is still there
//!   when the wait ends is its owner's to drop.
//! - **T3** An owner that holds the lock finds the node queued or notified (C1): polls and drops
//!   never wait for a waker.
//! - **T4** Who polls with another waker replaces it under the lock, unless the task was woken:
//!   then it is ready. Who polls with the same touches no shared line but that of the node. Whether
//!   it is the same is seen by the two pointers of the one in the cell, kept beside: while that
//!   lives, equal ones wake the same task, as [`Waker::will_wake`] has it.
//!
//! ```text
//!  owner drops the future                   waker
//!  ----------------------                   -----
//!                                           lock bucket; NOTIFIED; unlock
//!  lock bucket: queued: unlink; else pass on  wake the task (no more)
//! ```
//!
//! Excluded: that a wake of one is lost. Either the owner finds its node queued, and the waker
//! another; or it finds that it was chosen, and wakes the next itself.
//!
//! # What pinning is for
//!
//! Wakers reach the node by raw pointers while its owner has a unique reference to the future. That
//! is sound because the future is not `Unpin`, for which compilers do not assume that references
//! are unique; it is what the intrusive lists of other runtimes stand on, until Rust has a type to
//! say so (RFC 3467). And because a pinned value's memory is not reused before it was dropped.
#![expect(unsafe_code, reason = "a node inside a pinned future")]

use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, RawWakerVTable, Waker};

use unherd_sys::Timestamp;

use super::node::{Node, Sleeper};
use super::{Outcome, Token, Wait, WaitTable};
use crate::Ledger;

/// What tells wakers apart.
type Name = (*const (), *const RawWakerVTable);

fn name_of(waker: &Waker) -> Name {
    (waker.data(), waker.vtable())
}

#[derive(Clone, Copy)]
enum Stage {
    Fresh,
    Queued { asleep_since: Timestamp, waker: Name },
    Done,
}

/// Waits in a task: [`WaitTable::wait_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct WaitFuture<'a, K: Copy + Eq + Hash, F> {
    table: &'a WaitTable<K>,
    validate: Cell<Option<F>>,
    how: Wait,
    stage: Cell<Stage>,
    node: Node<K>,
    /// That of the node, and a task's.
    sleeper: Sleeper,
    _pinned: PhantomPinned,
}

// SAFETY: while it is queued, the node and the waker are guarded by the bucket lock, whichever
// thread polls; a key goes with it, and is read by other threads.
unsafe impl<K: Copy + Eq + Hash + Send + Sync, F: Send> Send for WaitFuture<'_, K, F> {}

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Waits as [`WaitTable::wait`] does, in a task: the future is ready with [`Outcome::Woken`]
    /// when a wake of `key` has found it, and with [`Outcome::Invalid`] if `validate` said no.
    ///
    /// `validate` says whether to sleep: the opposite of the condition that
    /// [`WaitTable::wait_until`] takes. The future sleeps once, so its caller loops until the
    /// condition is true, and may ignore the [`Outcome`], as in the example.
    ///
    /// Tasks and threads stand in one queue. The first poll validates and queues; before it the
    /// future does nothing. No runtime is needed, and no memory is allocated. Polls, drops and
    /// wakes take the bucket lock, as a thread's wait does, and never sleep for anything else; a
    /// poll that comes for nothing takes none.
    ///
    /// Dropping the future ends the wait. If a wake had chosen it by then, and the task has not
    /// seen that, the wake is passed on to another waiter of the key, with its token: one of
    /// [`WaitTable::wake_one`], or one that [`WaitTable::wake_where`] has chosen by
    /// [`Verdict::WakeAndStop`](super::Verdict::WakeAndStop), to the one that has waited longest
    /// (without a look at the filter), any other to the exclusive one that has, and that only from
    /// an exclusive one. [`WaitTable::wake_all`], and a wake of all shared waiters, left nobody
    /// behind. In the ledger a wait that was dropped counts as timed out, unless it was
    /// chosen.
    ///
    /// **A thread that polls tasks (of an executor, an async runtime) must not block on what these
    /// tasks await**, by [`WaitTable::wait`] of the same key: a wake may choose a task that this
    /// thread alone would poll, and nobody else.
    ///
    /// The deadline of `how` is not looked at, for there is no clock without a runtime: drop the
    /// future when its timer says so.
    ///
    /// # Forgetting it
    /// A pinned future that is never dropped, as by [`std::mem::forget`] of its box, stays in the
    /// queue: it can be chosen once, and that wake reaches nobody. The table may go before it. The
    /// same goes for futures of locks: if another lock of that kind comes to the address of one
    /// that is gone, a future of the first may be given the second, which nobody then unlocks.
    ///
    /// # Panics
    /// A poll panics if `validate` or the key's `Eq` do, and if it comes after the future was
    /// ready. A task's waker that panics does so in the wake, or in the drop that passes it on,
    /// when everybody has been woken; while the thread unwinds already, that panic is dropped.
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use unherd::{Reason, WaitTable};
    /// async fn ready(table: &WaitTable<u64>, ready: &AtomicBool) {
    ///     while !ready.load(Relaxed) {
    ///         let _outcome = table.wait_async(&7, || !ready.load(Relaxed), Reason::OTHER).await;
    ///     }
    /// }
    /// ```
    ///
    /// It borrows the table:
    ///
    /// ```compile_fail,E0597
    /// # use unherd_sync as unherd;
    /// use unherd::{Reason, WaitTable};
    /// let waits = {
    ///     let table = WaitTable::<u64>::builder().build();
    ///     table.wait_async(&7, || true, Reason::OTHER)
    /// };
    /// drop(waits);
    /// ```
    pub fn wait_async<F: FnOnce() -> bool>(
        &self,
        key: &K,
        validate: F,
        how: impl Into<Wait>,
    ) -> WaitFuture<'_, K, F> {
        let how = how.into();
        WaitFuture {
            table: self,
            validate: Cell::new(Some(validate)),
            how,
            stage: Cell::new(Stage::Fresh),
            node: Node::new(*key, self.hash_of(key), how),
            sleeper: Sleeper::task(None),
            _pinned: PhantomPinned,
        }
    }
}

impl<K: Copy + Eq + Hash, F: FnOnce() -> bool> Future for WaitFuture<'_, K, F> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match self.stage.get() {
            Stage::Fresh => {
                // Until it is queued, in case `validate` or the waker panics.
                self.stage.set(Stage::Done);
                // T1.
                let waker = context.waker().clone();
                let name = name_of(&waker);
                // SAFETY: nothing is moved.
                let this = unsafe { self.as_mut().get_unchecked_mut() };
                this.sleeper = Sleeper::task(Some(waker));
                // SAFETY: the sleeper is pinned, as the node is.
                unsafe { this.node.set_sleeper(NonNull::from(&this.sleeper)) };
                self.as_ref().get_ref().begin(name)
            }
            Stage::Queued { asleep_since, waker } => {
                let this = self.as_ref().get_ref();
                if !this.is_woken(asleep_since, waker, context.waker()) {
                    return Poll::Pending;
                }
                this.end(asleep_since, true);
                // SAFETY: it was woken.
                Poll::Ready(Outcome::Woken(unsafe { this.node.token() }))
            }
            Stage::Done => panic!("a wait was polled after it had ended"),
        }
    }
}

impl<K: Copy + Eq + Hash, F: FnOnce() -> bool> WaitFuture<'_, K, F> {
    /// The first poll, with a waker in its place.
    fn begin(&self, waker: Name) -> Poll<Outcome> {
        let validate = || self.validate.take().is_none_or(|validate| validate());
        // SAFETY: the node is its owner's.
        let key = unsafe { self.node.key() };
        // SAFETY: B4: it is pinned, and its drop takes it out.
        if !unsafe { self.table.queue(&self.node, &key, |_| validate()) } {
            return Poll::Ready(Outcome::Invalid);
        }
        // Nothing unwinds between the push and this: a future that is done would not leave.
        let asleep_since = Ledger::asleep(self.table.reason_of(self.how));
        self.stage.set(Stage::Queued { asleep_since, waker });
        Poll::Pending
    }

    /// A later poll: whether it was woken. If not, it is `waker` that will be.
    fn is_woken(&self, asleep_since: Timestamp, before: Name, waker: &Waker) -> bool {
        if self.node.is_notified() {
            return true;
        }
        if before == name_of(waker) {
            return false;
        }
        // T1: before the lock, and the other is dropped after it.
        let waker = waker.clone();
        let name = name_of(&waker);
        let replaced = self.table.with_locked(&self.node, |_, node| {
            if node.links().queued { Ok(node.replace_waker(waker)) } else { Err(waker) }
        });
        if replaced.is_ok() {
            // Before the drop, which may panic: the name is that of the waker in the cell.
            self.stage.set(Stage::Queued { asleep_since, waker: name });
        }
        // T3.
        replaced.is_err()
    }
}

impl<K: Copy + Eq + Hash, F> WaitFuture<'_, K, F> {
    /// Ends the wait, if it is queued: the token, if a wake had chosen it by then. It is the
    /// caller's to pass on or to settle.
    pub(crate) fn leave(&self) -> Option<Token> {
        let Stage::Queued { asleep_since, .. } = self.stage.get() else { return None };
        // T3: it does not wait for the waker.
        let woken = !self.table.unlink(&self.node);
        self.end(asleep_since, woken);
        // The waker, if it is still here, is dropped with the future: T1.
        // SAFETY: it was woken.
        woken.then(|| unsafe { self.node.token() })
    }

    fn end(&self, asleep_since: Timestamp, woken: bool) {
        self.stage.set(Stage::Done);
        self.table.count_end(self.how, asleep_since, woken);
    }
}

impl<K: Copy + Eq + Hash, F> Drop for WaitFuture<'_, K, F> {
    fn drop(&mut self) {
        let Some(token) = self.leave() else { return };
        // SAFETY: it was woken.
        unsafe { self.table.pass_on(&self.node, token) };
    }
}

impl<K: Copy + Eq + Hash, F> fmt::Debug for WaitFuture<'_, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitFuture")
            .field("table", &self.table)
            .field("how", &self.how)
            .field("queued", &matches!(self.stage.get(), Stage::Queued { .. }))
            .finish_non_exhaustive()
    }
}
