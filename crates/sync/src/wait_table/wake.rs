//! Waking: to look without the lock, to choose under it, and to notify after it.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_sys::primitives::{Ordering, fence, fence_after_rmw};

use super::node::{Heir, Message, Node, NodeRef};
use super::wake_batch::{WakeBatch, resume_unless_unwinding};
use super::{Chosen, Tag, Token, Verdict, WaitTable, Woken};
use crate::Ledger;
use crate::ledger::Field;

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Wakes all shared waiters of `key` and up to `n` exclusive ones, the longest waiting first,
    /// and says how many.
    ///
    /// Waiters are exclusive unless they asked for [`Wait::shared`](super::Wait::shared): a wake
    /// finds all shared ones, however few it is for. Those that come later are not woken.
    ///
    /// Never sleeps except for the bucket lock. Where nobody waits, or nobody with a
    /// similar hash (a bucket tells 16 groups of hashes apart; 6, if many wait), it costs the hash,
    /// a fence, a load of the bucket's word, and a count in the ledger. Waiters are woken 32 at a
    /// time, after the bucket is unlocked, so a wake takes a bounded number of steps for each time
    /// it holds the lock; those whose turn has not come may time out meanwhile, or be woken by
    /// others, and are not counted then. Of each 32 the threads are woken before the tasks; a
    /// task's waker that blocks holds up the tasks behind it, and all of the next 32.
    #[inline]
    pub fn wake(&self, key: &K, n: usize) -> Woken {
        self.wake_with(key, n, Token(0))
    }

    /// Wakes all waiters of `key`, and says how many.
    #[inline]
    pub fn wake_all(&self, key: &K) -> Woken {
        self.wake(key, usize::MAX)
    }

    /// As [`WaitTable::wake`]; each that is woken gets `token`.
    #[inline]
    pub fn wake_with(&self, key: &K, n: usize, token: Token) -> Woken {
        let hash = self.hash_of(key);
        if self.has_nobody(hash) {
            return Woken::NOBODY;
        }
        self.wake_up_to(key, hash, n, token)
    }

    /// Wakes the waiter of `key` that has waited longest, shared or exclusive, with the token that
    /// `decide` gives, and says whether there was one.
    ///
    /// `decide` runs once, under the bucket lock, when the waiter is chosen, or when there is none:
    /// nobody joins the queue meanwhile or leaves it. So a lock can keep a bit in its word that
    /// says whether anybody waits, or hand itself over to the waiter, which learns it by the token.
    /// Takes the bucket lock even if nobody waits. If `decide` panics, the waiter is woken with
    /// `Token(0)`, and the panic goes on.
    pub fn wake_one(&self, key: &K, decide: impl FnOnce(Option<Chosen>) -> Token) -> bool {
        let hash = self.hash_of(key);
        // Dropped in reverse order, also by a panic: first the lock, then the wake is sent.
        let mut batch = WakeBatch::new(Message { token: None, heir: Heir::Anybody }, 1);
        let guard = self.lock(hash);
        let mut waiters = guard.lists(hash, |other| self.is_key(key, other));
        // In a table built with `filtered(false)`, a list is the whole bucket's.
        let is_key = |node: NodeRef<'_, K>| self.filtered || node.has_key(|other| other == key);
        let node = waiters.find(|node| is_key(*node) && node.try_claim());
        let choose = || {
            decide(node.map(|node| {
                let more = waiters.any(|node| is_key(node) && !node.is_lost());
                Chosen { tag: node.tag(), more }
            }))
        };
        let token = catch_unwind(AssertUnwindSafe(choose));
        if let Some(node) = node {
            node.set_token(*token.as_ref().unwrap_or(&Token(0)));
            batch.take(&guard, node, Heir::Anybody);
        }
        drop(guard);
        batch.panic = token.err();
        let woken = batch.finish();
        self.count_wake(woken);
        woken > 0
    }

    /// Counts a wake that took the lock.
    pub(super) fn count_wake(&self, woken: Woken) {
        let field = if woken > 0 { Field::Wakes } else { Field::EmptyWakes };
        Ledger::add(self.reason, field, 1);
    }

    /// Wakes up to `n` exclusive waiters, if anybody waits.
    #[cold]
    fn wake_up_to(&self, key: &K, hash: u64, n: usize, token: Token) -> Woken {
        // Of those whom a wake of all wakes nobody is left behind.
        let heir = if n == usize::MAX { Heir::Nobody } else { Heir::Exclusive };
        if self.filtered {
            let message = Message { token: Some(token), heir };
            return self.wake_slow(key, hash, message, n, |_| Verdict::Wake);
        }
        let mut left = n;
        let filter = |_| {
            let Some(fewer) = left.checked_sub(1) else { return Verdict::Stop };
            left = fewer;
            Verdict::Wake
        };
        self.wake_filtered(key, hash, filter, token)
    }

    /// Shows `filter` the waiters of `key` one after the other, the longest waiting first, wakes
    /// those that it chooses with `token`, and says how many.
    ///
    /// Those that come after the call began are not shown. After every 32 woken it walks the queue
    /// from the start, past those that `filter` has seen, without asking it again. One that is
    /// chosen, but that a wake of another key has claimed meanwhile
    /// ([`wait_any`](WaitTable::wait_any)), is not woken, and the next is shown, also after
    /// [`Verdict::WakeAndStop`].
    pub fn wake_where(&self, key: &K, filter: impl FnMut(Tag) -> Verdict, token: Token) -> Woken {
        let hash = self.hash_of(key);
        if self.has_nobody(hash) {
            return Woken::NOBODY;
        }
        self.wake_filtered(key, hash, filter, token)
    }

    /// Wakes those whom `is_chosen` chooses, up to `n` exclusive ones, in a table built with
    /// `filtered(true)`. One that a wake of another key has claimed meanwhile is none of the `n`.
    pub(crate) fn wake_chosen(
        &self,
        key: &K,
        n: usize,
        mut is_chosen: impl FnMut(Tag) -> bool,
    ) -> Woken {
        debug_assert!(self.filtered, "a table that tells its waiters apart");
        let hash = self.hash_of(key);
        if self.has_nobody(hash) {
            return Woken::NOBODY;
        }
        let message = Message { token: Some(Token(0)), heir: Heir::Exclusive };
        let choose = |node: NodeRef<'_, K>| {
            if is_chosen(node.tag()) { Verdict::Wake } else { Verdict::Skip }
        };
        self.wake_slow(key, hash, message, n, choose)
    }

    /// As [`WaitTable::wake_where`], with a token for each that `choose` wakes, in a table built
    /// with `filtered(true)`.
    pub(crate) fn wake_each(
        &self,
        key: &K,
        mut choose: impl FnMut(Tag) -> (Verdict, Token),
    ) -> Woken {
        debug_assert!(self.filtered, "a table that tells its waiters apart");
        let hash = self.hash_of(key);
        if self.has_nobody(hash) {
            return Woken::NOBODY;
        }
        let choose = |node: NodeRef<'_, K>| {
            let (verdict, token) = choose(node.tag());
            // In place of the tag, which one that stays keeps.
            if matches!(verdict, Verdict::Wake | Verdict::WakeAndStop) {
                node.set_token(token);
            }
            verdict
        };
        let message = Message { token: None, heir: Heir::Exclusive };
        self.wake_slow(key, hash, message, usize::MAX, choose)
    }

    /// Shows `f` the tags of those that wait for `key`, the longest waiting first, under the bucket
    /// lock.
    pub(crate) fn for_each_tag(&self, key: &K, mut f: impl FnMut(Tag)) {
        let hash = self.hash_of(key);
        let guard = self.lock(hash);
        guard.lists(hash, |other| self.is_key(key, other)).for_each(|node| f(node.tag()));
    }

    /// Wakes whom `filter` chooses. In a table built with `filtered(false)`: all, with `token`
    /// those that `filter` chose, with no token the others.
    fn wake_filtered(
        &self,
        key: &K,
        hash: u64,
        mut filter: impl FnMut(Tag) -> Verdict,
        token: Token,
    ) -> Woken {
        if self.filtered {
            let message = Message { token: Some(token), heir: Heir::Exclusive };
            return self.wake_slow(key, hash, message, usize::MAX, |node| filter(node.tag()));
        }
        let mut stopped = false;
        let choose = |node: NodeRef<'_, K>| {
            let mut mark = Token(0);
            if !stopped && node.has_key(|other| other == key) {
                let verdict = filter(node.tag());
                stopped = matches!(verdict, Verdict::Stop | Verdict::WakeAndStop);
                if matches!(verdict, Verdict::Wake | Verdict::WakeAndStop) {
                    mark = token;
                }
            }
            node.set_token(mark);
            Verdict::Wake
        };
        // Each gets its token when it is chosen.
        let message = Message { token: None, heir: Heir::Nobody };
        self.wake_slow(key, hash, message, usize::MAX, choose)
    }

    /// Passes the wake that has woken `node` on, with its token, to the one that has waited longest
    /// of its [heirs](Heir), if there is one. For owners that end their wait without a look
    /// at it, in a `drop`: the node has its hash, so none of the key's code runs except `Eq`. If
    /// that panics, nobody gets the wake; the panic, as a waker's, goes on as C4 says.
    ///
    /// # Safety
    /// The node is its owner's, who was woken.
    #[cold]
    pub(super) unsafe fn pass_on(&self, node: &Node<K>, token: Token) {
        // SAFETY: the contract.
        let (is_shared, heir) = unsafe { node.shared_and_heir() };
        if heir == Heir::Nobody || heir == Heir::Exclusive && is_shared {
            return;
        }
        // SAFETY: as above.
        let key = unsafe { node.key() };
        let hash = node.hash_hint();
        if self.has_nobody(hash) {
            return;
        }
        // In a table built with `filtered(false)`, a list is the whole bucket's.
        let is_key = |node: NodeRef<'_, K>| self.filtered || node.has_key(|other| *other == key);
        let choose = |node: NodeRef<'_, K>| match heir {
            _ if !is_key(node) => Verdict::Skip,
            Heir::Anybody => Verdict::WakeAndStop,
            _ if node.links().shared => Verdict::Skip,
            _ => Verdict::Wake,
        };
        let message = Message { token: Some(token), heir };
        let wake = || self.wake_slow(&key, hash, message, 1, choose);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(wake)) {
            resume_unless_unwinding(panic);
        }
    }

    /// Of `keys`, whose conditions the caller has changed before this call, those that somebody may
    /// wait for: the others need no wake. One fence is for all of them, where a wake of each has a
    /// fence of its own. The keys that are left out count as wakes without a waiter; they do when
    /// the iterator comes to them.
    #[inline]
    pub fn waited_for(&self, keys: impl IntoIterator<Item = K>) -> impl Iterator<Item = K> {
        // ORDER[EMPTY]: SeqCst fence, (B) of the module's race, for many keys; pairs with (A) in
        // `queue` (loom: `wakes_of_many_race_with_a_wait`).
        fence(Ordering::SeqCst);
        keys.into_iter().filter(|key| !self.has_nobody_after_fence(self.hash_of(key)))
    }

    /// Whether somebody may wait for `key`, whose condition the caller has changed by an atomic
    /// read-modify-write just before this call: on x86-64 that is the fence which a wake needs. If
    /// not, it counts as a wake without a waiter.
    #[inline]
    pub fn is_waited_for_after_rmw(&self, key: &K) -> bool {
        // ORDER[EMPTY]: SeqCst fence, (B) of the module's race, of which the read-modify-write is a
        // part; pairs with (A) in `queue` (loom: `wake_after_rmw_races_with_wait`).
        fence_after_rmw();
        !self.has_nobody_after_fence(self.hash_of(key))
    }

    /// The look without a lock: whether a wake of `hash` has nothing to do.
    #[inline]
    pub(super) fn has_nobody(&self, hash: u64) -> bool {
        // ORDER[EMPTY]: SeqCst fence, (B) of the module's race; pairs with (A) in `queue` (loom:
        // `wake_races_with_wait`).
        fence(Ordering::SeqCst);
        self.has_nobody_after_fence(hash)
    }

    #[inline]
    fn has_nobody_after_fence(&self, hash: u64) -> bool {
        let nobody = self.buckets.is_empty(hash);
        if nobody {
            Ledger::add(self.reason, Field::EmptyWakes, 1);
        }
        nobody
    }

    /// Wakes whom `choose` chooses among all shared waiters of `key` and the exclusive ones, of
    /// these up to `n`.
    #[cold]
    fn wake_slow(
        &self,
        key: &K,
        hash: u64,
        message: Message,
        n: usize,
        mut choose: impl FnMut(NodeRef<'_, K>) -> Verdict,
    ) -> Woken {
        // Dropped in reverse order, also by a panic: first the lock, then the wakes are sent.
        let mut batch = WakeBatch::new(message, n);
        // Nothing is counted yet, but the thread is registered: not under the lock.
        Ledger::add(self.reason, Field::Locks, 0);
        while let Some(guard) = self.buckets.lock_unless_empty(hash) {
            Ledger::add(self.reason, Field::Locks, 1);
            self.count_contended(&guard);
            let lists = guard.lists(hash, |other| self.is_key(key, other));
            let more = batch.fill(&guard, lists, &mut choose);
            drop(guard);
            batch.send();
            if !more {
                break;
            }
        }
        let woken = batch.finish();
        self.count_wake(woken);
        woken
    }
}
