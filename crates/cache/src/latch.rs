//! A latch: many hold it shared, or one holds it exclusively.
//!
//! | word | meaning |
//! |---|---|
//! | bits 0..31 | how many hold it shared |
//! | bit 31 | one holds it exclusively, or waits to: nobody else gets it shared |
//!
//! A thread that holds it shared may take it shared again, also while another waits for it
//! exclusively: the other waits for this thread anyway, and both would wait for ever if this one
//! had to wait in turn.
//!
//! A [`StripedRwLatch`] has several cache lines, which are dealt to threads in turn: those that
//! take it shared hardly ever write to one line. One that takes it exclusively blocks all lines, in
//! their order, and then waits.
//!
//! Waiting goes through the cache's wait table, keyed by the latch's address, so it has a name.

use unherd_sync::{Reason, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU32, Ordering};

#[cfg(not(loom))]
use crate::stripe::{self, STRIPES};

const EXCLUSIVE: u32 = 1 << 31;

/// On a cache line of its own: who takes it writes to it, and what lies beside a latch is read by
/// those that do not.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RwLatch {
    word: AtomicU32,
}

impl RwLatch {
    /// Takes it shared, unless somebody has it exclusively or waits to.
    pub(crate) fn try_lock_shared(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & EXCLUSIVE != 0 {
                return false;
            }
            // ORDER[EXCLUSIVE]: Acquire; pairs with the Release in `unlock_exclusive`: what was
            // done under the exclusive latch is seen by all that take it after.
            let order = Ordering::Acquire;
            match self.word.compare_exchange_weak(word, word + 1, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Whether somebody has it shared, at a glance.
    #[cfg(not(loom))]
    pub(crate) fn has_shared(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !EXCLUSIVE > 0
    }

    /// Whether somebody has it exclusively or waits to, at a glance.
    #[cfg(not(loom))]
    pub(crate) fn is_blocked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Takes it shared; waits under `reason` while somebody has it exclusively.
    pub(crate) fn lock_shared(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        while !self.try_lock_shared() {
            // Without a deadline it cannot time out.
            let _ = waits.wait_until(
                &WaitKey::of(self),
                || self.word.load(Ordering::Relaxed) & EXCLUSIVE == 0,
                reason,
            );
        }
    }

    /// Takes it shared once more. Does not wait.
    ///
    /// Relaxed: nobody has had it exclusively since the caller took it first.
    pub(crate) fn lock_shared_again(&self) {
        let before = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & !EXCLUSIVE > 0, "taken once more, but not held");
    }

    /// Gives it back.
    pub(crate) fn unlock_shared(&self, waits: &WaitTable<WaitKey>) {
        // ORDER[SHARED]: Release; pairs with the Acquire in `wait_for_shared`: what was done under
        // the shared latch is seen by the one who waited for it.
        let before = self.word.fetch_sub(1, Ordering::Release);
        if before == EXCLUSIVE | 1 {
            waits.wake_all(&WaitKey::of(self));
        }
    }

    /// Nobody gets it shared from now on. Those that have it may have it still.
    fn block_shared(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        loop {
            // ORDER[EXCLUSIVE]: Acquire; pairs with the Release in `unlock_exclusive` of the one
            // before.
            if self.word.fetch_or(EXCLUSIVE, Ordering::Acquire) & EXCLUSIVE == 0 {
                break;
            }
            let _ = waits.wait_until(
                &WaitKey::of(self),
                || self.word.load(Ordering::Relaxed) & EXCLUSIVE == 0,
                reason,
            );
        }
    }

    /// Waits for those that have the latch shared, which the caller has blocked.
    fn wait_for_shared(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        let _ = waits.wait_until(
            &WaitKey::of(self),
            // ORDER[SHARED]: Acquire; pairs with the Release in `unlock_shared`.
            || self.word.load(Ordering::Acquire) == EXCLUSIVE,
            reason,
        );
    }

    /// Gives it back.
    pub(crate) fn unlock_exclusive(&self, waits: &WaitTable<WaitKey>) {
        // ORDER[EXCLUSIVE]: Release; pairs with the Acquire in `try_lock_shared` and
        // `block_shared`.
        self.word.fetch_and(!EXCLUSIVE, Ordering::Release);
        waits.wake_all(&WaitKey::of(self));
    }
}

/// A latch that many threads have shared at a time, and hardly anyone exclusively.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub(crate) struct StripedRwLatch([RwLatch; STRIPES]);

#[cfg(not(loom))]
impl StripedRwLatch {
    /// What the calling thread takes shared.
    pub(crate) fn mine(&self) -> &RwLatch {
        &self.0[stripe::mine()]
    }

    /// Takes it exclusively: blocks others, and waits for those that have it shared.
    pub(crate) fn lock_exclusive<'a>(
        &'a self,
        waits: &'a WaitTable<WaitKey>,
        reason: Reason,
    ) -> Vec<ExclusiveGuard<'a>> {
        let all = &self.0[..];
        let block = |latch| ExclusiveGuard::block_shared(latch, waits, reason);
        let guards: Vec<_> = all.iter().map(block).collect();
        all.iter().for_each(|latch| latch.wait_for_shared(waits, reason));
        guards
    }
}

/// A latch that is held exclusively, until dropped.
#[derive(Debug)]
pub(crate) struct ExclusiveGuard<'a> {
    latch: &'a RwLatch,
    waits: &'a WaitTable<WaitKey>,
}

impl<'a> ExclusiveGuard<'a> {
    pub(crate) fn new(latch: &'a RwLatch, waits: &'a WaitTable<WaitKey>, reason: Reason) -> Self {
        let guard = Self::block_shared(latch, waits, reason);
        latch.wait_for_shared(waits, reason);
        guard
    }

    /// Nobody gets it shared until this is dropped; those that have it may have it still.
    fn block_shared(latch: &'a RwLatch, waits: &'a WaitTable<WaitKey>, reason: Reason) -> Self {
        latch.block_shared(waits, reason);
        Self { latch, waits }
    }
}

impl Drop for ExclusiveGuard<'_> {
    fn drop(&mut self) {
        self.latch.unlock_exclusive(self.waits);
    }
}

/// A latch that is held shared, until dropped.
#[derive(Debug)]
pub(crate) struct SharedGuard<'a> {
    latch: &'a RwLatch,
    waits: &'a WaitTable<WaitKey>,
}

impl<'a> SharedGuard<'a> {
    /// Of one that has taken it.
    pub(crate) fn new(latch: &'a RwLatch, waits: &'a WaitTable<WaitKey>) -> Self {
        Self { latch, waits }
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.latch.unlock_shared(self.waits);
    }
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_holder_keeps_all_threads_out() {
        let waits = WaitTable::<WaitKey>::builder().build();
        let latch = StripedRwLatch::default();
        let exclusive = latch.lock_exclusive(&waits, Reason::OTHER);
        assert!(latch.0.iter().all(|stripe| !stripe.try_lock_shared()));
        drop(exclusive);
        assert!(latch.0.iter().all(RwLatch::try_lock_shared));
        latch.0.iter().for_each(|stripe| stripe.unlock_shared(&waits));
        drop(latch.lock_exclusive(&waits, Reason::OTHER));
    }
}
