//! Waiting: to queue under the bucket lock, to sleep, and to leave.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::hash::Hash;

use unherd_sys::Timestamp;
use unherd_sys::primitives::fence_after_rmw;

use super::bucket::BucketGuard;
use super::node::{Node, NodeRef};
use super::{Outcome, TimedOut, Wait, WaitTable};
use crate::ledger::Field;
use crate::{Ledger, Reason};

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Sleeps until a wake of `key` finds this thread.
    ///
    /// `validate` says whether there is still reason to sleep. It runs under the bucket lock,
    /// before any waker can find the waiter: if it loads a condition that a waker stores before it
    /// wakes (Relaxed will do for that), either it sees the store or the waker finds the waiter. If
    /// it says false, the result is [`Outcome::Invalid`]. Only [`Outcome::Woken`] makes visible
    /// what the waker wrote before: a caller that uses other data after `Invalid` loads the
    /// condition with Acquire, and the waker stores it with Release.
    ///
    /// `how` is a [`Reason`], a [`Deadline`](unherd_sys::Deadline), or a [`Wait`] with both. Blocks
    /// under its reason. A deadline in the past still validates once. Signals do
    /// not end the wait. Costs the bucket lock, a fence, and a futex wait; with a timeout the
    /// bucket lock once more.
    #[inline]
    pub fn wait(&self, key: &K, validate: impl FnOnce() -> bool, how: impl Into<Wait>) -> Outcome {
        let how = how.into();
        let node = Node::new(*key, self.hash_of(key), how);
        // SAFETY: B4: after it nothing unwinds up to the return, and each return comes after the
        // node was unlinked by this thread or handed back by its waker.
        if !unsafe { self.queue(&node, key, |_| validate()) } {
            return Outcome::Invalid;
        }
        self.sleep(&node, how, |_| {})
    }

    /// As [`WaitTable::wait`], for locks, which keep a note of their waiters in a word of their
    /// own.
    ///
    /// `validate` is also told whether the waiter is the first in the queue of its key.
    /// `before_sleep` runs when the waiter can be found, with no bucket locked: it may use the
    /// table, to unlock a mutex, say. If it panics, the wait ends, a wake that had chosen it is
    /// passed on, and the panic goes on. `timed_out` runs under the bucket lock if no wake has
    /// found the waiter by the deadline, when it is out of the queue: it is given the key, which a
    /// requeue may have changed, and whether nobody else waits for that. It must not panic: the
    /// ledger would count this thread among those that wait for ever.
    pub fn wait_with(
        &self,
        key: &K,
        validate: impl FnOnce(bool) -> bool,
        before_sleep: impl FnOnce(),
        timed_out: impl FnOnce(&K, bool),
        how: impl Into<Wait>,
    ) -> Outcome {
        let how = how.into();
        let node = Node::new(*key, self.hash_of(key), how);
        let validate =
            |guard: &BucketGuard<'_, K>| validate(self.is_empty_of(guard, node.hash_hint(), key));
        // SAFETY: B4: as in `wait`, or `leaving` sees to it.
        if !unsafe { self.queue(&node, key, validate) } {
            return Outcome::Invalid;
        }
        let leaving = LeaveOnPanic { table: self, node: &node };
        before_sleep();
        std::mem::forget(leaving);
        self.sleep(&node, how, |guard| {
            // SAFETY: it is out of the queue.
            let key = unsafe { node.key() };
            timed_out(&key, self.is_empty_of(guard, node.hash_hint(), &key));
        })
    }

    /// Whether nobody waits for `key`, which has that hash, in its bucket.
    fn is_empty_of(&self, guard: &BucketGuard<'_, K>, hash: u64, key: &K) -> bool {
        // As wakes do, it passes by those whom a wake of another key has claimed.
        guard.lists(hash, |other| self.is_key(key, other)).all(NodeRef::is_lost)
    }

    /// Puts a fresh node for `key` into its queue, unless `validate` says no. Panics as that and
    /// `Eq` do; the node is not queued then.
    ///
    /// # Safety
    /// If it says true, the node stays alive and where it is, as B4 says.
    #[inline]
    pub(super) unsafe fn queue(
        &self,
        node: &Node<K>,
        key: &K,
        validate: impl FnOnce(&BucketGuard<'_, K>) -> bool,
    ) -> bool {
        let guard = self.lock(node.hash_hint());
        // ORDER[EMPTY]: SeqCst fence, (A) of the module's race; pairs with (B) in `has_nobody`
        // (loom: `wake_races_with_wait`).
        fence_after_rmw();
        let valid = validate(&guard);
        if valid {
            // SAFETY: the contract.
            unsafe { guard.push(node, |other| self.is_key(key, other)) };
        }
        valid
    }

    /// The second half of a wait: the node is queued. In its caller's frame, always: a thread that
    /// wakes finds its stack cold, and pays for each line of it.
    #[inline(always)]
    fn sleep(
        &self,
        node: &Node<K>,
        how: Wait,
        timed_out: impl FnOnce(&BucketGuard<'_, K>),
    ) -> Outcome {
        let asleep_since = Ledger::asleep(self.reason_of(how));
        let woken = node.park(how.deadline) || !self.unlink_then(node, timed_out);
        self.count_end(how, asleep_since, woken);
        // SAFETY: it was woken.
        if woken { Outcome::Woken(unsafe { node.token() }) } else { Outcome::TimedOut }
    }

    /// Counts the end of a wait that has begun at `asleep_since`.
    pub(super) fn count_end(&self, how: Wait, asleep_since: Timestamp, woken: bool) {
        let reason = self.reason_of(how);
        Ledger::awake(reason, asleep_since);
        Ledger::add(reason, if woken { Field::Wakeups } else { Field::Timeouts }, 1);
    }

    pub(super) fn reason_of(&self, how: Wait) -> Reason {
        how.reason.unwrap_or(self.reason)
    }

    /// Locks the bucket of a node that is queued, or was, and gives both to `then`.
    pub(super) fn with_locked<R>(
        &self,
        node: &Node<K>,
        then: impl FnOnce(&BucketGuard<'_, K>, NodeRef<'_, K>) -> R,
    ) -> R {
        loop {
            let hash = node.hash_hint();
            let guard = self.lock(hash);
            // A requeue may have given it another.
            if node.hash_hint() == hash {
                // SAFETY: the lock of its bucket is held, as long as `then` runs.
                return then(&guard, unsafe { NodeRef::new(node) });
            }
        }
    }

    /// Takes the node of an owner that wants to wait no more out of its queue, and says whether it
    /// was there. If not, it was woken.
    pub(super) fn unlink(&self, node: &Node<K>) -> bool {
        self.unlink_then(node, |_| {})
    }

    /// As [`WaitTable::unlink`]; calls `then` under the lock, if it was there.
    #[cold]
    fn unlink_then(&self, node: &Node<K>, then: impl FnOnce(&BucketGuard<'_, K>)) -> bool {
        self.with_locked(node, |guard, node| {
            let queued = node.links().queued;
            if queued {
                guard.unlink(node);
                then(guard);
            }
            queued
        })
    }

    /// Sleeps until `condition` is true, however often it is woken before.
    ///
    /// `condition` is looked at once without a lock, then in each wait (its negation is the
    /// `validate`) and after each wakeup; what it reads must be stored before the wake. Relaxed
    /// accesses suffice for the wake not to be lost. To use other data afterwards, store with
    /// Release and load with Acquire: the first look takes no lock that the waker has held. A
    /// wakeup after which it is false is counted as needless.
    ///
    /// # Errors
    /// [`TimedOut`] if it is still false at the deadline.
    pub fn wait_until(
        &self,
        key: &K,
        mut condition: impl FnMut() -> bool,
        how: impl Into<Wait>,
    ) -> Result<(), TimedOut> {
        let how = how.into();
        let mut met = condition();
        while !met {
            match self.wait(key, || !condition(), how) {
                Outcome::Invalid => met = true,
                Outcome::TimedOut => return if condition() { Ok(()) } else { Err(TimedOut) },
                Outcome::Woken(_) => {
                    met = condition();
                    if !met {
                        self.note_needless(self.reason_of(how));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The node of a thread that does not sleep yet. Takes it out if `before_sleep` panics.
struct LeaveOnPanic<'a, K: Copy + Eq + Hash> {
    table: &'a WaitTable<K>,
    node: &'a Node<K>,
}

impl<K: Copy + Eq + Hash> Drop for LeaveOnPanic<'_, K> {
    fn drop(&mut self) {
        if !self.table.unlink(self.node) {
            // SAFETY: it was woken.
            let token = unsafe { self.node.token() };
            // SAFETY: as above.
            unsafe { self.table.pass_on(self.node, token) };
        }
    }
}
