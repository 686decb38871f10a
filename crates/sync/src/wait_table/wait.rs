//! Waiting: to queue under the bucket lock, to sleep, and to leave.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::hash::{BuildHasher, Hash};

use unherd_sys::Deadline;
use unherd_sys::primitives::fence_after_rmw;

use super::bucket::Removed;
use super::waiter::Waiter;
use super::{Outcome, TimedOut, Wait, WaitTable};
use crate::Ledger;
use crate::ledger::Field;

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
    pub fn wait(&self, key: &K, validate: impl FnOnce() -> bool, how: impl Into<Wait>) -> Outcome {
        let how = how.into();
        let hash = self.hash_in_queue(self.hasher.hash_one(key));
        let waiter = Waiter::new(*key, hash, how);
        {
            let mut guard = self.lock(hash);
            // ORDER[EMPTY]: SeqCst fence, (A) of the module's race; pairs with (B) in
            // `wake_claiming` (loom: `wake_races_with_wait`).
            #[cfg(not(mutant = "EMPTY-wait"))]
            fence_after_rmw();
            if !validate() {
                return Outcome::Invalid;
            }
            // SAFETY: B4: after it nothing unwinds up to the return, and each return comes after
            // the node was unlinked by this thread or handed back by its waker.
            unsafe { guard.push(&waiter, |other| self.is_key(key, other)) };
        }
        let node = std::ptr::from_ref(&waiter).addr();
        self.buckets.arrive(node);
        let outcome = self.sleep(&waiter, how);
        self.buckets.leave(node);
        outcome
    }

    /// The second half of a wait: the node is queued.
    fn sleep(&self, waiter: &Waiter<K>, how: Wait) -> Outcome {
        let reason = how.reason.unwrap_or(self.reason);
        let asleep_since = Ledger::asleep(reason);
        let removed =
            if waiter.park(how.deadline) { Removed::Claimed } else { self.leave_queue(waiter) };
        Ledger::awake(reason, asleep_since);
        let outcome = match removed {
            // SAFETY: `park` said true.
            Removed::Claimed => Outcome::Woken(unsafe { waiter.token() }),
            Removed::Chosen(token) => Outcome::Woken(token),
            Removed::Waiting => Outcome::TimedOut,
        };
        let timed_out = outcome == Outcome::TimedOut;
        Ledger::add(reason, if timed_out { Field::Timeouts } else { Field::Wakeups }, 1);
        outcome
    }

    /// Takes the node of a thread that wants to wait no more out of its queue. If it was claimed
    /// meanwhile, it returns when it was handed back: the waker still needs the node, and its wake
    /// counts.
    #[cold]
    pub(super) fn leave_queue(&self, waiter: &Waiter<K>) -> Removed {
        let removed = loop {
            let hash = waiter.hash_hint();
            let mut guard = self.lock(hash);
            // A requeue may have given it another.
            if cfg!(mutant = "CANCEL-rehash") || waiter.hash_hint() == hash {
                break guard.remove(waiter);
            }
        };
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
                        self.note_needless(how.reason.unwrap_or(self.reason));
                    }
                }
            }
        }
        Ok(())
    }
}
