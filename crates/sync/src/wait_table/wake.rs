//! Waking: to look without the lock, to claim under it, and to notify after it.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::hash::{BuildHasher, Hash};

use unherd_sys::primitives::{Ordering, fence};

use super::bucket::Claimed;
use super::{Tag, Token, Verdict, WaitTable};
use crate::Ledger;
use crate::ledger::Field;

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Wakes up to `n` waiters of `key`, the longest waiting first, and says how many.
    ///
    /// Never sleeps but for the bucket lock. With nobody waiting, or nobody of the key's class, of
    /// 16 in a bucket, it costs the hash, a fence and one load. The wakes are sent after the bucket
    /// is unlocked.
    #[inline]
    pub fn wake(&self, key: &K, n: usize) -> usize {
        self.wake_with(key, n, Token(0))
    }

    /// Wakes all waiters of `key`, and says how many.
    #[inline]
    pub fn wake_all(&self, key: &K) -> usize {
        self.wake(key, usize::MAX)
    }

    /// As [`WaitTable::wake`]; each that is woken gets `token`.
    ///
    /// If the table does not filter, all waiters of the bucket are woken, and those of other keys,
    /// as those beyond `n`, get `Token(0)`.
    #[inline]
    pub fn wake_with(&self, key: &K, n: usize, token: Token) -> usize {
        let mut left = n;
        if left == 0 {
            return 0;
        }
        self.wake_claiming(key, token, move |_| {
            left -= 1;
            if left > 0 { Verdict::Wake } else { Verdict::WakeAndStop }
        })
    }

    /// Shows `filter` the waiters of `key` one after the other, the longest waiting first, wakes
    /// those that it chooses with `token`, and says how many.
    pub fn wake_where(&self, key: &K, filter: impl FnMut(Tag) -> Verdict, token: Token) -> usize {
        self.wake_claiming(key, token, filter)
    }

    #[inline]
    fn wake_claiming(&self, key: &K, token: Token, filter: impl FnMut(Tag) -> Verdict) -> usize {
        let hash = self.hasher.hash_one(key);
        // ORDER[EMPTY]: SeqCst fence, (B) of the module's race; pairs with (A) in `wait` (loom:
        // `wake_races_with_wait`).
        #[cfg(not(mutant = "EMPTY-wake"))]
        fence(Ordering::SeqCst);
        if self.buckets.is_quiet(hash) {
            Ledger::add(self.reason, Field::EmptyWakes, 1);
            return 0;
        }
        let woken = self.wake_slow(key, hash, token, filter);
        Ledger::add(self.reason, if woken > 0 { Field::Wakes } else { Field::EmptyWakes }, 1);
        woken
    }

    #[cold]
    fn wake_slow(
        &self,
        key: &K,
        hash: u64,
        token: Token,
        mut filter: impl FnMut(Tag) -> Verdict,
    ) -> usize {
        // Dropped in reverse order, also by a panic: first the lock, then the wakes are sent.
        let mut claimed = Claimed::new();
        // Nothing is counted yet, but the thread is registered: not under the lock.
        Ledger::add(self.reason, Field::Locks, 0);
        let Some(mut guard) = self.buckets.lock_unless_quiet(hash) else { return 0 };
        Ledger::add(self.reason, Field::Locks, 1);
        self.count_contended(&guard);
        let mut next = guard.first_of(hash);
        // SAFETY: null, or a node that is queued under the lock (B4).
        while let Some(node) = unsafe { next.as_ref() } {
            // SAFETY: B1.
            next = unsafe { node.next() };
            let verdict = if node.waits_for(key) { filter(node.tag()) } else { Verdict::Skip };
            if matches!(verdict, Verdict::Wake | Verdict::WakeAndStop) {
                // SAFETY: it was reached under the lock.
                unsafe { guard.claim(node, token, &mut claimed) };
            }
            if matches!(verdict, Verdict::Stop | Verdict::WakeAndStop) {
                break;
            }
        }
        if !self.filtered {
            // SAFETY: not null, so a node that is queued under the lock (B4).
            while let Some(node) = guard.roots().find_map(|root| unsafe { root.as_ref() }) {
                // SAFETY: it was reached under the lock.
                unsafe { guard.claim(node, Token(0), &mut claimed) };
            }
        }
        claimed.len()
    }
}
