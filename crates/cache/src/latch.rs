//! A latch: many may be inside at a time, or one who excludes them.
//!
//! | word | meaning |
//! |---|---|
//! | bits 0..31 | how many are inside |
//! | bit 31 | one wants to be alone: nobody else enters |
//!
//! One that is inside may enter again, also while another wants to be alone: that one waits for it
//! anyway, and would wait for ever if it had to wait in turn.
//!
//! A [`StripedLatch`] is entered by threads at cache lines in turn, so that those who only enter
//! hardly ever pass one round; who wants to be alone shuts all of them, in their order, and then
//! waits.
//!
//! Waiting goes through the cache's wait table, keyed by the latch's address, so it has a name.

use unherd_sync::{Reason, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU32, Ordering};

#[cfg(not(loom))]
use crate::stripe::{self, STRIPES};

const ALONE: u32 = 1 << 31;

/// On a cache line of its own: entering and leaving write to it, and what lies beside a latch is
/// read by those who do neither.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Latch {
    word: AtomicU32,
}

impl Latch {
    /// Enters unless somebody is alone or wants to be.
    pub(crate) fn try_enter(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & ALONE != 0 {
                return false;
            }
            // ORDER[L1]: Acquire; pairs with the Release in `end_alone`: what was done alone is
            // seen by all that enter after.
            let order = Ordering::Acquire;
            match self.word.compare_exchange_weak(word, word + 1, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Whether somebody is inside, at a glance.
    #[cfg(not(loom))]
    pub(crate) fn has_any(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !ALONE > 0
    }

    /// Whether somebody is alone or wants to be, at a glance.
    #[cfg(not(loom))]
    pub(crate) fn is_shut(&self) -> bool {
        self.word.load(Ordering::Relaxed) & ALONE != 0
    }

    /// Enters; waits under `reason` while somebody is alone.
    pub(crate) fn enter(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        while !self.try_enter() {
            // Without a deadline it cannot time out.
            let _ = waits.wait_until(
                &WaitKey::of(self),
                || self.word.load(Ordering::Relaxed) & ALONE == 0,
                reason,
            );
        }
    }

    /// Enters a latch that the caller is inside of. Does not wait.
    ///
    /// Relaxed: nobody has been alone since the caller entered.
    pub(crate) fn enter_again(&self) {
        let before = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & !ALONE > 0, "entered again, but not inside");
    }

    /// Leaves.
    pub(crate) fn leave(&self, waits: &WaitTable<WaitKey>) {
        // ORDER[L2]: Release; pairs with the Acquire in `wait_until_left`: what was done inside is
        // seen by the one who waited for it.
        let before = self.word.fetch_sub(1, Ordering::Release);
        if before == ALONE | 1 {
            waits.wake_all(&WaitKey::of(self));
        }
    }

    /// Keeps others out. Those inside may still be there.
    pub(crate) fn shut(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        loop {
            // ORDER[L1]: Acquire; pairs with the Release in `end_alone` of the one before.
            if self.word.fetch_or(ALONE, Ordering::Acquire) & ALONE == 0 {
                break;
            }
            let _ = waits.wait_until(
                &WaitKey::of(self),
                || self.word.load(Ordering::Relaxed) & ALONE == 0,
                reason,
            );
        }
    }

    /// Waits until those inside of the latch that the caller has shut have left.
    fn wait_until_left(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        let _ = waits.wait_until(
            &WaitKey::of(self),
            // ORDER[L2]: Acquire; pairs with the Release in `leave`.
            || self.word.load(Ordering::Acquire) == ALONE,
            reason,
        );
    }

    /// Lets others in again.
    pub(crate) fn end_alone(&self, waits: &WaitTable<WaitKey>) {
        // ORDER[L1]: Release; pairs with the Acquire in `try_enter` and `shut`.
        self.word.fetch_and(!ALONE, Ordering::Release);
        waits.wake_all(&WaitKey::of(self));
    }
}

/// A latch that many threads enter at a time, and in which hardly anyone is alone.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub(crate) struct StripedLatch([Latch; STRIPES]);

#[cfg(not(loom))]
impl StripedLatch {
    /// What the calling thread enters and leaves.
    pub(crate) fn mine(&self) -> &Latch {
        &self.0[stripe::mine()]
    }

    /// Keeps others out, and waits until those inside have left.
    pub(crate) fn alone<'a>(
        &'a self,
        waits: &'a WaitTable<WaitKey>,
        reason: Reason,
    ) -> Vec<AloneGuard<'a>> {
        let all = &self.0[..];
        let shut = |latch| AloneGuard::shut(latch, waits, reason);
        let guards: Vec<_> = all.iter().map(shut).collect();
        all.iter().for_each(|latch| latch.wait_until_left(waits, reason));
        guards
    }
}

/// Alone in a latch, until dropped.
#[derive(Debug)]
pub(crate) struct AloneGuard<'a> {
    latch: &'a Latch,
    waits: &'a WaitTable<WaitKey>,
}

impl<'a> AloneGuard<'a> {
    pub(crate) fn new(latch: &'a Latch, waits: &'a WaitTable<WaitKey>, reason: Reason) -> Self {
        let guard = Self::shut(latch, waits, reason);
        latch.wait_until_left(waits, reason);
        guard
    }

    /// Keeps others out, until dropped; those inside may still be there.
    fn shut(latch: &'a Latch, waits: &'a WaitTable<WaitKey>, reason: Reason) -> Self {
        latch.shut(waits, reason);
        Self { latch, waits }
    }
}

impl Drop for AloneGuard<'_> {
    fn drop(&mut self) {
        self.latch.end_alone(self.waits);
    }
}

/// Inside a latch, until dropped.
#[derive(Debug)]
pub(crate) struct InsideGuard<'a> {
    latch: &'a Latch,
    waits: &'a WaitTable<WaitKey>,
}

impl<'a> InsideGuard<'a> {
    /// Of one that has entered.
    pub(crate) fn new(latch: &'a Latch, waits: &'a WaitTable<WaitKey>) -> Self {
        Self { latch, waits }
    }
}

impl Drop for InsideGuard<'_> {
    fn drop(&mut self) {
        self.latch.leave(self.waits);
    }
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_keeps_all_threads_out() {
        let waits = WaitTable::<WaitKey>::builder().build();
        let latch = StripedLatch::default();
        let alone = latch.alone(&waits, Reason::OTHER);
        assert!(latch.0.iter().all(|stripe| !stripe.try_enter()));
        drop(alone);
        assert!(latch.0.iter().all(Latch::try_enter));
        latch.0.iter().for_each(|stripe| stripe.leave(&waits));
        drop(latch.alone(&waits, Reason::OTHER));
    }
}
