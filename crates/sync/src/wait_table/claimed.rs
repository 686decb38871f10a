//! Whom a wake has chosen: out of the queue, into the waker's hands, and back to their owners.
//!
//! A wake chooses all of its waiters under the bucket lock, at once: they are woken, whatever
//! comes, and are counted. It can carry [`BATCH`] of them, whom it *claims*: they leave the queue,
//! and are the waker's (B5). If there are more, the others are left behind in a *closed list*,
//! which nobody else looks into; when the lock is free and the first have been notified, it comes
//! back for the next of them. So a wake of any number takes no memory, and holds the lock for a
//! bounded number of steps at a time.
//!
//! | | under the lock | without it |
//! |---|---|---|
//! | 1 | choose all; claim up to [`BATCH`]; close the list of the others | |
//! | 2 | | phase 1: hand back each of the batch |
//! | 3 | | phase 2: send a wakeup to each |
//! | 4 | claim the next from the closed list; then 2 again | |
//!
//! - **C1** Between 1 and 2 nothing runs that could wait for an owner: what is claimed is handed
//!   back within so many stores. What an owner's wakeup may run comes in phase 2, when no node is
//!   claimed.
//! - **C2** An owner that finds its node in a closed list does not wait for the closer: it takes
//!   the node out under the lock, and is woken; the closer, who has counted it already, finds it
//!   gone. What the closer wrote before the wake is visible to it by the bucket lock.
//!
//! ```text
//!  closer                                   owner whose deadline passes
//!  ------                                   ---------------------------
//!  lock home; close the list; unlock
//!                                           lock home: in a closed list
//!                                           unlink; unlock; Woken(the closer's token)
//!  lock home: the others, or nobody
//! ```
//!
//! Excluded: that both wake it, or neither: who takes it out does so under the lock of the home of
//! its hash, wherever a table that grows has moved the list by then.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::ptr::NonNull;

use super::bucket::BucketGuard;
use super::queue::Queue;
use super::waiter::{Waiter, Wakeup};
use super::{Token, Verdict, WaitTable, Woken};

/// As many as a wake carries at a time.
pub(super) const BATCH: usize = if cfg!(loom) {
    1
} else if cfg!(shuttle) {
    2
} else {
    32
};

/// Who closed a list, for its nodes.
#[derive(Debug)]
pub(super) struct Closer {
    pub(super) token: Token,
}

/// The waiters of one hash that a wake has chosen and not yet notified. Notifies them when it is
/// finished, or dropped: a panic of a key's code or a filter's strands nobody.
pub(super) struct Claimed<'a, K> {
    table: &'a WaitTable<K>,
    hash: u64,
    closer: &'a Closer,
    batch: [Option<NonNull<Waiter<K>>>; BATCH],
    carried: usize,
    /// Whether there may be a closed list of the closer's.
    more: bool,
    woken: Woken,
}

impl<'a, K> Claimed<'a, K> {
    pub(super) fn new(table: &'a WaitTable<K>, hash: u64, closer: &'a Closer) -> Self {
        let (batch, woken) = ([None; BATCH], Woken::NOBODY);
        Self { table, hash, closer, batch, carried: 0, more: false, woken }
    }

    /// Chooses all shared waiters of a key, and up to `n` exclusive ones.
    ///
    /// # Safety
    /// `first` is that of an open list in the queue of `guard`; or null: nobody is chosen then.
    pub(super) unsafe fn choose(
        &mut self,
        guard: &mut BucketGuard<'_, K>,
        first: *const Waiter<K>,
        n: usize,
    ) {
        // SAFETY: null or in the queue, under the lock.
        let Some(node) = (unsafe { first.as_ref() }) else { return };
        // SAFETY: the lock is held.
        let counts = unsafe { node.links() }.counts;
        let exclusive = n.min(counts.exclusive as usize);
        let all = exclusive == counts.exclusive as usize;
        let wanted = exclusive + counts.shared as usize;
        if all && wanted > BATCH {
            // SAFETY: the lock is held; this wake finishes before the closer goes.
            unsafe { Queue::close(node, self.closer) };
            self.woken = Woken { shared: counts.shared as usize, exclusive };
            self.more = true;
            self.claim_more(guard);
        } else if wanted <= BATCH && (all || counts.shared == 0) {
            self.woken = Woken { shared: counts.shared as usize, exclusive };
            // SAFETY: the lock is held.
            unsafe { guard.queue().pop(node, wanted, |node| self.claim(node)) };
        } else {
            let mut left = Woken { shared: counts.shared as usize, exclusive };
            let choose = |node: &Waiter<K>| {
                // SAFETY: the lock is held.
                let shared = unsafe { node.links() }.shared;
                let left_of_kind = if shared { &mut left.shared } else { &mut left.exclusive };
                if *left_of_kind == 0 {
                    return Verdict::Skip;
                }
                *left_of_kind -= 1;
                if left == 0 { Verdict::WakeAndStop } else { Verdict::Wake }
            };
            // SAFETY: the contract.
            unsafe { self.choose_where(guard, first, choose) };
        }
    }

    /// Chooses those that `choose` says, from the first of an open list to its last. If it panics,
    /// those stay chosen that were.
    ///
    /// # Safety
    /// `first` is that of an open list in the queue of `guard`, or null.
    pub(super) unsafe fn choose_where(
        &mut self,
        guard: &mut BucketGuard<'_, K>,
        first: *const Waiter<K>,
        mut choose: impl FnMut(&Waiter<K>) -> Verdict,
    ) {
        let (mut next, mut tail) = (first, std::ptr::null());
        // SAFETY: null or in the queue, under the lock.
        while let Some(node) = unsafe { next.as_ref() } {
            // SAFETY: the lock is held.
            let links = unsafe { node.links() };
            next = links.next;
            let verdict = choose(node);
            if matches!(verdict, Verdict::Wake | Verdict::WakeAndStop) {
                self.woken.add(links.shared);
                if self.carried < BATCH {
                    // SAFETY: the lock is held.
                    unsafe { guard.queue().unlink(node) };
                    self.claim(node);
                } else {
                    // SAFETY: the lock is held; this wake finishes before the closer goes.
                    unsafe { guard.queue().choose(node, tail, self.closer) };
                    (tail, self.more) = (node, true);
                }
            }
            if matches!(verdict, Verdict::Stop | Verdict::WakeAndStop) {
                break;
            }
        }
    }

    /// Takes charge of `node`, which was unlinked just now: says that it does.
    fn claim(&mut self, node: &Waiter<K>) -> bool {
        self.batch[self.carried] = Some(NonNull::from(node));
        self.carried += 1;
        true
    }

    /// Claims as many of those that were left behind as it can carry.
    fn claim_more(&mut self, guard: &mut BucketGuard<'_, K>) {
        // SAFETY: the lock of the hash's home is held.
        let first = unsafe { guard.queue().list_closed_by(self.hash, self.closer) };
        self.more = false;
        // SAFETY: null or in the queue.
        if let Some(first) = unsafe { first.as_ref() } {
            // SAFETY: the lock is held.
            self.more = unsafe { guard.queue().pop(first, BATCH, |node| self.claim(node)) };
        }
    }

    /// Wakes all that were chosen, and says how many. Called with no bucket locked.
    pub(super) fn finish(&mut self) -> Woken {
        self.notify();
        while self.more {
            let mut guard = self.table.lock(self.hash);
            self.claim_more(&mut guard);
            drop(guard);
            self.notify();
        }
        self.woken
    }

    /// Both phases, for those that are carried.
    fn notify(&mut self) {
        if self.carried == 0 {
            return;
        }
        let mut wakeups: [Option<Wakeup>; BATCH] = [const { None }; BATCH];
        let carried = self.batch.iter_mut().take(self.carried).filter_map(Option::take);
        for (wakeup, node) in wakeups.iter_mut().zip(carried) {
            // SAFETY: B5; it is out of the batch, and the wakeup is sent below.
            *wakeup = Some(unsafe { Waiter::hand_back(node, self.closer.token) });
        }
        let carried = std::mem::take(&mut self.carried);
        wakeups.into_iter().take(carried).flatten().for_each(Wakeup::send);
    }
}

impl<K> Drop for Claimed<'_, K> {
    fn drop(&mut self) {
        self.finish();
    }
}
