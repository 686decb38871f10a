//! Requeueing: to have waiters of one key wait for another, without waking them.
//!
//! A signal of a condition variable to many waiters would wake them all, and all except one would
//! sleep again at once, for the mutex. Instead one is woken, and the others are moved to the queue
//! of the mutex: the same nodes, with another hash and another key.
//!
//! A requeue holds the locks of both buckets while it changes a node, so the node is in a queue
//! whenever one of them is free. Its owner, if it gives up, does not know which one to lock:
//!
//! ```text
//!  requeue                                  owner whose deadline passes
//!  -------                                  ---------------------------
//!                                           h = the node's hash              (Relaxed: a hint)
//!  lock the buckets of `from` and `to`
//!  unlink; hash = that of `to`; push
//!  unlock both
//!                                           lock the bucket of h
//!                                           the node's hash is not h: unlock, again
//! ```
//!
//! Excluded: that the owner unlinks the node from a queue in which it is not. The hash of a node is
//! changed under the locks of its old bucket and of its new one. So who holds the bucket of h and
//! reads h in the node knows that it stays h, and that the node is in that queue, if in any.
//!
//! # Requeue and a wake of the target
//!
//! [`WaitTable::requeue_if`] waits on behalf of those that it moves: it is to a wake of `to` what a
//! wait is, by the same two fences.
//!
//! ```text
//!  requeue_if                               waker of `to`
//!  ----------                               -------------
//!  lock both buckets (sets LOCKED)          store the condition        (the caller)
//!  fence(SeqCst)                 (A)        fence(SeqCst)              (B)
//!  validate: load the condition             load the word of `to`
//!  move; unlock (sets its class's bit)      neither LOCKED nor the bit: return 0
//! ```
//!
//! Excluded: nodes are moved, and the waker that made that pointless does not find them.

use std::hash::Hash;

use unherd_sys::primitives::fence_after_rmw;

use super::bucket::BucketGuard;
use super::node::{Heir, Message, NodeRef};
use super::wake_batch::WakeBatch;
use super::{Requeued, Token, Verdict, WaitTable};
use crate::Ledger;
use crate::ledger::Field;

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Wakes all shared waiters of `from` and up to `wake_n` exclusive ones, as [`WaitTable::wake`]
    /// does (see [`Wait::shared`](super::Wait::shared)), and has the next `move_n` exclusive ones
    /// wait for `to`, behind all that do already. Shared waiters are never moved.
    ///
    /// They keep their order, deadlines and tags. From a key to itself nobody moves. Promises
    /// nothing about a wake of `to` that is on its way meanwhile: see [`WaitTable::requeue_if`].
    ///
    /// With nobody there it costs what such a wake costs; else the locks of two buckets, and a
    /// step under both for each that is moved.
    pub fn requeue(&self, from: &K, to: &K, wake_n: usize, move_n: usize) -> Requeued {
        self.requeue_if(from, to, wake_n, move_n, || true).unwrap_or_default()
    }

    /// As [`WaitTable::requeue`], if `validate` says so. `None`, and nothing is done, if its first
    /// answer is no; if nobody waits for `from`, it is not asked, and `Some` of zeros is returned.
    ///
    /// `validate` says whether there is still reason to wait for `to`. It runs under the locks of
    /// both buckets, if anybody waits for `from`: the rules for the `validate` of
    /// [`WaitTable::wait`] apply to it, for wakes of `to`. It is asked again after every 32 that
    /// are woken; if it says no then, `Some` says how many were, and nobody is moved.
    pub fn requeue_if(
        &self,
        from: &K,
        to: &K,
        wake_n: usize,
        move_n: usize,
        mut validate: impl FnMut() -> bool,
    ) -> Option<Requeued> {
        let hashes = [from, to].map(|key| self.hash_of(key));
        if self.has_nobody(hashes[0]) {
            return Some(Requeued::default());
        }
        // All of a bucket are one key's, if nobody tells them apart.
        let wake_n = if self.filtered { wake_n } else { usize::MAX };
        let heir = if wake_n == usize::MAX { Heir::Nobody } else { Heir::Exclusive };
        let message = Message { token: Some(Token(0)), heir };
        // Dropped after the locks, as in a wake.
        let mut batch = WakeBatch::new(message, wake_n);
        let (mut moved, mut is_first) = (0, true);
        // Nothing is counted yet, but the thread is registered: not under the locks.
        Ledger::add(self.reason, Field::Locks, 0);
        loop {
            let (home, other) = self.buckets.lock_two(hashes);
            for guard in [Some(&home), other.as_ref()].into_iter().flatten() {
                Ledger::add(self.reason, Field::Locks, 1);
                self.count_contended(guard);
            }
            // ORDER[EMPTY]: SeqCst fence, (A) of the module's second race; pairs with (B) in
            // `has_nobody` (loom: `requeue_meets_wake_of_target`).
            fence_after_rmw();
            let lists = home.lists(hashes[0], |key| self.is_key(from, key));
            if lists.is_empty() {
                break;
            }
            if !validate() {
                if is_first {
                    return None;
                }
                break;
            }
            let more = batch.fill(&home, lists, |_| Verdict::Wake);
            if !more {
                let target = other.as_ref().unwrap_or(&home);
                moved = self.move_waiters([from, to], hashes, move_n, [&home, target]);
            }
            drop((home, other));
            batch.send();
            is_first = false;
            if !more {
                break;
            }
        }
        let woken = batch.finish();
        self.count_wake(woken);
        Some(Requeued { woken, moved })
    }

    /// Has up to `n` exclusive waiters of `from` wait for `to`; says how many. The guards are those
    /// of their buckets, or twice the same.
    fn move_waiters(
        &self,
        [from, to]: [&K; 2],
        hashes: [u64; 2],
        n: usize,
        [home, target]: [&BucketGuard<'_, K>; 2],
    ) -> usize {
        // All of the keys' code that runs before anything is changed.
        let mut waiters = home.lists(hashes[0], |key| self.is_key(from, key));
        waiters.shared = None;
        let behind = target.lists(hashes[1], |key| self.is_key(to, key)).exclusive;
        // From a key to itself. Not asked of the keys: their `Eq` may say one thing now and another
        // in the queue, and a list that is moved behind itself has no end.
        if behind.map(NodeRef::link) == waiters.exclusive.map(NodeRef::link) {
            return 0;
        }
        // Those whom another key's wake has woken wait no more, and take themselves out.
        let movable = waiters.filter(|node| !node.is_lost()).take(n);
        let (mut first, mut moved) = (behind, 0);
        for node in movable {
            home.unlink(node);
            node.rekey(*to, hashes[1]);
            target.push_behind(first, node);
            first = first.or(Some(node));
            moved += 1;
        }
        moved
    }
}
