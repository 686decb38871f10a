//! Waiting: to queue under the bucket lock, to sleep, and to leave.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::hash::Hash;

use unherd_sys::primitives::fence_after_rmw;
use unherd_sys::{Deadline, Timestamp};

use super::bucket::{BucketGuard, Removed};
use super::waiter::Waiter;
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
    /// what the waker wrote before: whoever uses other data after `Invalid` loads the condition
    /// with Acquire, and the waker stores it with Release.
    ///
    /// Blocks under the reason of `how`. A deadline in the past still validates once. Signals do
    /// not end the wait. Costs the bucket lock, a fence, and a futex wait; with a timeout the
    /// bucket lock once more.
    #[inline]
    pub fn wait(&self, key: &K, validate: impl FnOnce() -> bool, how: impl Into<Wait>) -> Outcome {
        let how = how.into();
        let waiter = Waiter::new(*key, self.hash_in_queue(self.hash_of(key)), how);
        // SAFETY: B4: after it nothing unwinds up to the return, and each return comes after the
        // node was unlinked by this thread or handed back by its waker.
        if !unsafe { self.queue(&waiter, key, validate) } {
            return Outcome::Invalid;
        }
        self.sleep(&waiter, how)
    }

    /// Puts a fresh node for `key` into its queue, unless `validate` says no. Panics as that and
    /// `Eq` do; the node is not queued then.
    ///
    /// # Safety
    /// If it says true, the node stays alive and where it is, as B4 says.
    #[inline]
    pub(super) unsafe fn queue(
        &self,
        waiter: &Waiter<K>,
        key: &K,
        validate: impl FnOnce() -> bool,
    ) -> bool {
        let mut guard = self.lock(waiter.hash_hint());
        // ORDER[EMPTY]: SeqCst fence, (A) of the module's race; pairs with (B) in `has_nobody`
        // (loom: `wake_races_with_wait`).
        fence_after_rmw();
        let valid = validate();
        if valid {
            // SAFETY: the contract.
            unsafe { guard.push(waiter, |other| self.is_key(key, other)) };
        }
        valid
    }

    /// The second half of a wait: the node is queued. In its caller's frame, always: a thread that
    /// wakes finds its stack cold, and pays for each line of it.
    #[inline(always)]
    fn sleep(&self, waiter: &Waiter<K>, how: Wait) -> Outcome {
        let reason = self.reason_of(how);
        let asleep_since = Ledger::asleep(reason);
        let removed =
            if waiter.park(how.deadline) { Removed::Claimed } else { self.leave_queue(waiter) };
        self.count_end(how, asleep_since, removed != Removed::Waiting);
        match removed {
            // SAFETY: `park` said true.
            Removed::Claimed => Outcome::Woken(unsafe { waiter.token() }),
            Removed::Chosen(token) => Outcome::Woken(token),
            Removed::Waiting => Outcome::TimedOut,
        }
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

    /// The lock of the home of a node that is queued, or was.
    pub(super) fn lock_of(&self, waiter: &Waiter<K>) -> BucketGuard<'_, K> {
        loop {
            let hash = waiter.hash_hint();
            let guard = self.lock(hash);
            // A requeue may have given it another.
            if waiter.hash_hint() == hash {
                return guard;
            }
        }
    }

    /// Takes the node of a thread that wants to wait no more out of its queue. If it was claimed
    /// meanwhile, it returns when it was handed back: the waker still needs the node, and its wake
    /// counts.
    #[cold]
    pub(super) fn leave_queue(&self, waiter: &Waiter<K>) -> Removed {
        let removed = self.lock_of(waiter).remove(waiter);
        if removed == Removed::Claimed {
            waiter.park(Deadline::NEVER);
        }
        removed
    }

    /// Sleeps until `condition` is true, however often it is woken before.
    ///
    /// `condition` is looked at once without a lock, then as the `validate` of each wait and after
    /// each wakeup; what it reads must be stored before the wake. That finds the waiter with
    /// Relaxed accesses; to use other data afterwards, store with Release and load with Acquire,
    /// since the first look has no other tie to the waker. A wakeup after which it is false is
    /// counted as needless.
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
