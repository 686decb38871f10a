//! Requeueing: to have waiters of one key wait for another, without waking them.
//!
//! Whoever gives up a condition variable's mutex to many would wake them all to have all but one
//! sleep again at once. Instead one is woken, and the others are moved behind the mutex: the same
//! nodes, with another hash and another key.
//!
//! A requeue holds the locks of both homes while it changes a node, so the node is in a queue
//! whenever one of them is free. Its owner, if it gives up, does not know which home to lock:
//!
//! ```text
//!  requeue                                  owner whose deadline passes
//!  -------                                  ---------------------------
//!                                           h = the node's hash              (Relaxed: a hint)
//!  lock the homes of `from` and `to`
//!  unlink; hash = that of `to`; push
//!  unlock both
//!                                           lock the home of h
//!                                           the node's hash is not h: unlock, again
//! ```
//!
//! Excluded: that the owner unlinks the node from a queue in which it is not. The hash of a node is
//! changed under the locks of its old home and of its new one. So who holds the home of h and reads
//! h in the node knows that it stays h, and that the node is in that home's queue, if in any.
//!
//! # Requeue and a wake of the target
//!
//! [`WaitTable::requeue_if`] waits on behalf of those that it moves: it is to a wake of `to` what a
//! wait is, by the same two fences.
//!
//! ```text
//!  requeue_if                               waker of `to`
//!  ----------                               -------------
//!  lock both homes (sets LOCKED)            store the condition        (the caller)
//!  fence(SeqCst)                 (A)        fence(SeqCst)              (B)
//!  validate: load the condition             load the word of `to`
//!  move; unlock (sets its class's bit)      neither LOCKED nor the bit: return 0
//! ```
//!
//! Excluded: nodes are moved, and the waker that made that pointless does not find them.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::hash::Hash;
use std::ptr;

use unherd_sys::primitives::fence_after_rmw;

use super::claimed::{Claimed, Closer};
use super::{Requeued, Token, WaitTable};
use crate::Ledger;
use crate::ledger::Field;

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Wakes all shared waiters of `from` and up to `wake_n` exclusive ones, as [`WaitTable::wake`]
    /// does, and has the next `move_n` exclusive ones wait for `to`, behind all that do already.
    /// Shared waiters are never moved.
    ///
    /// They keep their order, deadlines and tags. From a key to itself nobody moves, and in a table
    /// that does not filter all of the bucket are woken, and nobody moves. Promises nothing about
    /// a wake of `to` that is on its way meanwhile: see [`WaitTable::requeue_if`].
    ///
    /// With nobody there it costs what such a wake costs; else the locks of two buckets, and a
    /// step under both for each that is moved.
    pub fn requeue(&self, from: &K, to: &K, wake_n: usize, move_n: usize) -> Requeued {
        self.requeue_if(from, to, wake_n, move_n, || true).unwrap_or_default()
    }

    /// As [`WaitTable::requeue`], if `validate` says so; `None`, and nothing is done, if not.
    ///
    /// `validate` says whether there is still reason to wait for `to`. It runs under the locks of
    /// both buckets, if anybody may wait for `from`: what holds of [`WaitTable::wait`]'s holds of
    /// it and of wakes of `to`.
    pub fn requeue_if(
        &self,
        from: &K,
        to: &K,
        wake_n: usize,
        move_n: usize,
        validate: impl FnOnce() -> bool,
    ) -> Option<Requeued> {
        let hashes = [from, to].map(|key| self.hash_of(key));
        if self.has_nobody(hashes[0]) {
            return Some(Requeued::default());
        }
        // All of a bucket are one key's, if nobody tells them apart.
        let wake_n = if self.filtered { wake_n } else { usize::MAX };
        let hashes = hashes.map(|hash| self.hash_in_queue(hash));
        let closer = Closer::new(Some(Token(0)), wake_n != usize::MAX);
        // Dropped after the locks, as in a wake.
        let mut chosen = Claimed::new(self, hashes[0], &closer);
        let moved =
            self.requeue_locked([from, to], hashes, [wake_n, move_n], validate, &mut chosen)?;
        let woken = chosen.finish();
        Ledger::add(self.reason, if woken > 0 { Field::Wakes } else { Field::EmptyWakes }, 1);
        Some(Requeued { woken, moved })
    }

    /// What is done under the locks; says whom it moved.
    fn requeue_locked(
        &self,
        [from, to]: [&K; 2],
        hashes: [u64; 2],
        [wake_n, move_n]: [usize; 2],
        validate: impl FnOnce() -> bool,
        chosen: &mut Claimed<'_, K>,
    ) -> Option<usize> {
        // Nothing is counted yet, but the thread is registered: not under the locks.
        Ledger::add(self.reason, Field::Locks, 0);
        let (mut home, mut other) = self.buckets.lock_two(hashes);
        for guard in [Some(&home), other.as_ref()].into_iter().flatten() {
            Ledger::add(self.reason, Field::Locks, 1);
            self.count_contended(guard);
        }
        // ORDER[EMPTY]: SeqCst fence, (A) of the module's second race; pairs with (B) in
        // `has_nobody` (loom: `requeue_meets_wake_of_target`).
        fence_after_rmw();
        if !validate() {
            return None;
        }
        // All of the keys' code runs before anything is changed.
        // SAFETY: the lock is held.
        let first = unsafe { home.queue().open_list(hashes[0], |key| self.is_key(from, key)) };
        let queue = other.as_mut().unwrap_or(&mut home).queue();
        // SAFETY: the lock is held.
        let mut target = unsafe { queue.open_list(hashes[1], |key| self.is_key(to, key)) };
        // SAFETY: null or in the queue, under the lock.
        let Some(node) = (unsafe { first.as_ref() }) else { return Some(0) };
        // From a key to itself. Not asked of the keys: their `Eq` may say one thing now and another
        // in the queue, and a list that is moved behind itself has no end.
        let move_n = if ptr::eq(first, target) { 0 } else { move_n };
        // SAFETY: the lock is held.
        let number = unsafe { node.look(|links| links.list) };
        // SAFETY: the list is open, and in the queue of `home`.
        unsafe { chosen.choose(&mut home, first, wake_n) };
        // SAFETY: the lock is held.
        let mut next = unsafe { home.queue().open_list_of(hashes[0], number) };
        let mut moved = 0;
        while moved < move_n {
            // SAFETY: null or in the queue, under the lock.
            let Some(node) = (unsafe { next.as_ref() }) else { break };
            let has_sleeper;
            // SAFETY: the lock is held.
            (next, has_sleeper) = unsafe { node.look(|links| (links.next, links.has_sleeper)) };
            if has_sleeper && node.is_lost() {
                // It waits for this key no more, and takes itself out.
                continue;
            }
            // SAFETY: the lock is held; it is in this queue.
            unsafe { home.queue().unlink(node) };
            // SAFETY: both locks are held.
            unsafe { node.rekey(*to, hashes[1]) };
            let home = other.as_mut().unwrap_or(&mut home);
            // SAFETY: the lock is held, and it is in no queue.
            unsafe { home.queue().push(target, node) };
            home.announce(hashes[1]);
            if target.is_null() {
                target = node;
            }
            moved += 1;
        }
        Some(moved)
    }
}
