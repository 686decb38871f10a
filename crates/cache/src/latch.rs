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
//! A [`StripedLatch`] is entered by each thread at a cache line of its own, so that those who only
//! enter do not pass a line round; who wants to be alone goes through all lines, in their order.
//!
//! Waiting goes through the cache's wait table, keyed by the latch's address, so it has a name.

use unherd_sync::{Reason, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU32, Ordering};

#[cfg(not(loom))]
use crate::stripe::{self, STRIPES};

const ALONE: u32 = 1 << 31;

/// Weakened by `cargo x mutants`, which expects a loom check to fail.
const AFTER_ALONE: Ordering =
    if cfg!(mutant = "L1-acquire") { Ordering::Relaxed } else { Ordering::Acquire };
const END_ALONE: Ordering =
    if cfg!(mutant = "L1-release") { Ordering::Relaxed } else { Ordering::Release };
const AFTER_INSIDE: Ordering =
    if cfg!(mutant = "L2-acquire") { Ordering::Relaxed } else { Ordering::Acquire };
const LEAVE: Ordering =
    if cfg!(mutant = "L2-release") { Ordering::Relaxed } else { Ordering::Release };

/// On a cache line of its own: entering and leaving write to it, and what lies beside a latch is
/// read by those who do neither.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Latch {
    word: AtomicU32,
}

impl Latch {
    fn key(&self) -> WaitKey {
        WaitKey::Address(std::ptr::from_ref(self) as usize)
    }

    /// Enters unless somebody is alone or wants to be.
    pub(crate) fn try_enter(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & ALONE != 0 {
                return false;
            }
            // ORDER[L1]: Acquire; pairs with the Release in `end_alone`: what was done alone is
            // seen by all that enter after.
            match self.word.compare_exchange_weak(word, word + 1, AFTER_ALONE, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Enters; waits under `reason` while somebody is alone.
    pub(crate) fn enter(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        while !self.try_enter() {
            // Without a deadline it cannot time out.
            let _ = waits.wait_until(
                &self.key(),
                || self.word.load(Ordering::Relaxed) & ALONE == 0,
                reason,
            );
        }
    }

    /// Enters a latch that the caller is inside of. Does not wait.
    ///
    /// Relaxed: nobody has been alone since the caller entered.
    pub(crate) fn enter_again(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        if cfg!(mutant = "LATCH-again") {
            return self.enter(waits, reason);
        }
        let before = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & !ALONE > 0, "entered again, but not inside");
    }

    /// Leaves.
    pub(crate) fn leave(&self, waits: &WaitTable<WaitKey>) {
        // ORDER[L2]: Release; pairs with the Acquire in `begin_alone`: what was done inside is seen
        // by the one who waited for it.
        let before = self.word.fetch_sub(1, LEAVE);
        if before == ALONE | 1 {
            waits.wake_all(&self.key());
        }
    }

    /// Keeps others out, and waits until those inside have left.
    pub(crate) fn begin_alone(&self, waits: &WaitTable<WaitKey>, reason: Reason) {
        loop {
            // ORDER[L1]: Acquire; pairs with the Release in `end_alone` of the one before.
            if self.word.fetch_or(ALONE, AFTER_ALONE) & ALONE == 0 {
                break;
            }
            let _ = waits.wait_until(
                &self.key(),
                || self.word.load(Ordering::Relaxed) & ALONE == 0,
                reason,
            );
        }
        let _ = waits.wait_until(
            &self.key(),
            // ORDER[L2]: Acquire; pairs with the Release in `leave`.
            || self.word.load(AFTER_INSIDE) == ALONE,
            reason,
        );
    }

    /// Lets others in again.
    pub(crate) fn end_alone(&self, waits: &WaitTable<WaitKey>) {
        // ORDER[L1]: Release; pairs with the Acquire in `try_enter` and `begin_alone`.
        self.word.fetch_and(!ALONE, END_ALONE);
        waits.wake_all(&self.key());
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
    ) -> [AloneGuard<'a>; STRIPES] {
        self.0.each_ref().map(|latch| AloneGuard::new(latch, waits, reason))
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
        latch.begin_alone(waits, reason);
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
    pub(crate) fn new(latch: &'a Latch, waits: &'a WaitTable<WaitKey>, reason: Reason) -> Self {
        latch.enter(waits, reason);
        Self { latch, waits }
    }

    /// Does not wait; `None` if somebody is alone or wants to be.
    #[cfg(not(loom))]
    pub(crate) fn try_new(latch: &'a Latch, waits: &'a WaitTable<WaitKey>) -> Option<Self> {
        latch.try_enter().then(|| Self { latch, waits })
    }

    /// Does not wait; the caller is inside already.
    pub(crate) fn again(latch: &'a Latch, waits: &'a WaitTable<WaitKey>, reason: Reason) -> Self {
        latch.enter_again(waits, reason);
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
