//! Waking: to look without the lock, to choose under it, and to notify after it.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_sys::primitives::{Ordering, fence};

use super::bucket::BucketGuard;
use super::claimed::{Claimed, Closer, resume_unless_unwinding};
use super::waiter::Waiter;
use super::{Tag, Token, Verdict, WaitTable, Woken};
use crate::Ledger;
use crate::ledger::Field;

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Wakes all shared waiters of `key` and up to `n` exclusive ones, the longest waiting first,
    /// and says how many.
    ///
    /// Waiters are exclusive unless they asked for [`super::Wait::shared`]. All are chosen at
    /// once: who comes later is not woken, and of those that are chosen none times out, but for
    /// waits for any of several keys beyond the first 32, which are taken when their turn comes.
    ///
    /// Never sleeps but for the bucket lock. With nobody waiting, or nobody of the key's class, of
    /// 16 in a bucket (since others of its tree came, of 7), it costs the hash, a fence, a load of
    /// the bucket's word, and a count in the ledger. The wakes
    /// are sent after the bucket is unlocked, 32 at a time, so that a wake of all takes a bounded
    /// number of steps for each time it holds the lock; one of `n` from among more takes about as
    /// many searches at once as it wakes, and a step for each that it passes by. Of each 32 the
    /// threads are woken before the tasks; a task's waker that blocks holds up the tasks behind
    /// it, and all of the next 32.
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
    ///
    /// If the table does not filter, all waiters of the bucket are woken, and those of other keys,
    /// as those beyond `n`, get `Token(0)`.
    #[inline]
    pub fn wake_with(&self, key: &K, n: usize, token: Token) -> Woken {
        let hash = self.hash_of(key);
        if self.has_nobody(hash) {
            return Woken::NOBODY;
        }
        self.wake_up_to(key, hash, n, token)
    }

    /// Wakes up to `n` exclusive waiters, if anybody waits.
    #[cold]
    fn wake_up_to(&self, key: &K, hash: u64, n: usize, token: Token) -> Woken {
        // Those whom a wake of all has chosen have nobody to pass it on to.
        let (key, passes_on) = (*key, n != usize::MAX);
        self.wake_slow(key, hash, token, passes_on, move |chosen, guard, first| {
            if self.filtered {
                // SAFETY: the contract of `wake_slow`.
                return unsafe { chosen.choose(guard, first, n) };
            }
            let mut left = n;
            let filter = |_| {
                let Some(fewer) = left.checked_sub(1) else { return Verdict::Stop };
                left = fewer;
                Verdict::Wake
            };
            // SAFETY: as above.
            unsafe { chosen.choose_where(guard, first, self.verdict(&key, token, filter)) };
        })
    }

    /// Shows `filter` the waiters of `key` one after the other, the longest waiting first, wakes
    /// those that it chooses with `token`, and says how many.
    pub fn wake_where(&self, key: &K, filter: impl FnMut(Tag) -> Verdict, token: Token) -> Woken {
        let hash = self.hash_of(key);
        if self.has_nobody(hash) {
            return Woken::NOBODY;
        }
        let key = *key;
        self.wake_slow(key, hash, token, true, move |chosen, guard, first| {
            // SAFETY: the contract of `wake_slow`.
            unsafe { chosen.choose_where(guard, first, self.verdict(&key, token, filter)) };
        })
    }

    /// Passes the wake that has chosen `node` on, with its token, to the exclusive waiter of its
    /// key that has waited longest, and to nobody else: the shared ones were woken with it, or came
    /// later. For owners that end their wait without a look at it, in a `drop`: the node has its
    /// hash, so none of the key's code runs but `Eq`. If that panics, nobody gets the wake; the
    /// panic, as a waker's, goes on as C4 says.
    ///
    /// # Safety
    /// The node is its owner's, who was woken.
    #[cold]
    pub(super) unsafe fn pass_on(&self, node: &Waiter<K>, token: Token) {
        // SAFETY: the contract.
        let key = unsafe { node.with_key(|key| *key) };
        // SAFETY: the contract.
        let hash = unsafe { node.hash() };
        if self.has_nobody(hash) {
            return;
        }
        let wake = || {
            self.wake_slow(key, hash, token, true, |chosen, guard, first| {
                let choose = |node: &Waiter<K>, _| {
                    // SAFETY: in the queue, under the lock.
                    let shared = unsafe { node.look(|links| links.shared) };
                    if shared { Verdict::Skip } else { Verdict::WakeAndStop }
                };
                // SAFETY: the contract of `wake_slow`.
                unsafe { chosen.choose_where(guard, first, choose) };
            });
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(wake)) {
            resume_unless_unwinding(panic);
        }
    }

    /// What to do with each of a list in which somebody waits for `key`, as `filter` says. If the
    /// table does not filter: wake it, with `token` if the filter chose it, with no token else.
    fn verdict(
        &self,
        key: &K,
        token: Token,
        mut filter: impl FnMut(Tag) -> Verdict,
    ) -> impl FnMut(&Waiter<K>, Woken) -> Verdict {
        let mut stopped = false;
        move |node, _| {
            // SAFETY: in the queue, under the lock.
            let tag = unsafe { node.tag() };
            if self.filtered {
                return filter(tag);
            }
            let mut mark = Token(0);
            // SAFETY: in the queue, under the lock.
            if !stopped && unsafe { node.with_key(|other| other == key) } {
                let verdict = filter(tag);
                stopped = matches!(verdict, Verdict::Stop | Verdict::WakeAndStop);
                if matches!(verdict, Verdict::Wake | Verdict::WakeAndStop) {
                    mark = token;
                }
            }
            // SAFETY: in the queue, under the lock, and chosen.
            unsafe { node.set_token(mark) };
            Verdict::Wake
        }
    }

    /// The look without a lock: whether a wake of `hash` has nothing to do.
    #[inline]
    pub(super) fn has_nobody(&self, hash: u64) -> bool {
        // ORDER[EMPTY]: SeqCst fence, (B) of the module's race; pairs with (A) in `queue` (loom:
        // `wake_races_with_wait`).
        fence(Ordering::SeqCst);
        let nobody = self.buckets.is_empty(hash);
        if nobody {
            Ledger::add(self.reason, Field::EmptyWakes, 1);
        }
        nobody
    }

    /// Has `choose` choose, and wakes whom it chose. It gets a locked bucket, and the first of the
    /// key's open list there, or null.
    #[cold]
    fn wake_slow(
        &self,
        key: K,
        hash: u64,
        token: Token,
        passes_on: bool,
        choose: impl FnOnce(&mut Claimed<'_, K>, &mut BucketGuard<'_, K>, *const Waiter<K>),
    ) -> Woken {
        let hash = self.hash_in_queue(hash);
        // Without a filter all are woken, and each gets its token when it is chosen.
        let closer = Closer::new(self.filtered.then_some(token), self.filtered && passes_on);
        // Dropped in reverse order, also by a panic: first the lock, then the wakes are sent.
        let mut chosen = Claimed::new(self, hash, &closer);
        // Nothing is counted yet, but the thread is registered: not under the lock.
        Ledger::add(self.reason, Field::Locks, 0);
        if let Some(mut guard) = self.buckets.lock_unless_empty(hash) {
            Ledger::add(self.reason, Field::Locks, 1);
            self.count_contended(&guard);
            // SAFETY: the lock is held.
            let first = unsafe { guard.queue().open_list(hash, |other| self.is_key(&key, other)) };
            choose(&mut chosen, &mut guard, first);
        }
        let woken = chosen.finish();
        let field = if woken > 0 { Field::Wakes } else { Field::EmptyWakes };
        Ledger::add(self.reason, field, 1);
        woken
    }
}
