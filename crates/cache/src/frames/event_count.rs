//! An event count: how one that looks for something, and one that makes it, do not miss each other.
//!
//! ```text
//!  looks for it                             makes it
//!  ------------                             --------
//!  waiting += 1                             what it makes
//!  fence(SeqCst)                 (A)        fence(SeqCst)              (B)
//!  seen = epoch                             waiting == 0: done
//!  look                                     else: epoch += 1; wake some
//!  wait, if epoch == seen
//! ```
//!
//! Excluded: the left misses what the right has made *and* the right sees no waiter. Where it sees
//! one, the wait table sees to the rest: the wait finds the epoch changed, or the wake finds the
//! waiter. One that has seen the epoch change must find what that was about too, or it would wait
//! for the next: so the change is a Release, and the load an Acquire.
//!
//! Where the right side makes it by a read-modify-write, as in an unpin or at the end of a change,
//! that is fence (B) already on x86-64: a hit ends with one load of `waiting`, which is on a cache
//! line of its own.
//!
//! Waiters here have queues, tags and tokens of their own, which `unherd_sync::EventCount` does not
//! know.

use unherd_sys::primitives::{AtomicU32, Ordering, fence, fence_after_rmw};

/// A count on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct PaddedCount(pub(super) AtomicU32);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct EventCount {
    /// Those that have entered.
    waiting: PaddedCount,
    /// How often waiters were told to look; wraps around.
    epoch: PaddedCount,
}

/// That its owner is counted among the waiters, until dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered<'a>(&'a EventCount);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.waiting.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EventCount {
    /// The caller will look, and wait if it finds nothing.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        // ORDER[WAITER]: SeqCst fence (A); pairs with (B) in `is_empty`: the look that follows sees
        // what the other has made, or the other sees this one.
        fence(Ordering::SeqCst);
        Entered(self)
    }

    /// How many wait, at a glance.
    pub(crate) fn count(&self) -> usize {
        self.waiting.0.load(Ordering::Relaxed) as usize
    }

    /// Whether nobody waits. The caller has made before what may be waited for.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDER[WAITER]: SeqCst fence (B); pairs with (A) in `enter`.
        fence(Ordering::SeqCst);
        self.waiting.0.load(Ordering::Relaxed) == 0
    }

    /// As [`EventCount::is_empty`], where the caller has made it by a read-modify-write just
    /// before.
    #[inline]
    pub(crate) fn is_empty_after_rmw(&self) -> bool {
        // ORDER[WAITER]: SeqCst fence (B), of which the read-modify-write is a part; pairs with (A)
        // in `enter`.
        fence_after_rmw();
        self.waiting.0.load(Ordering::Relaxed) == 0
    }

    /// What to pass to [`EventCount::is_still`] when the look was in vain; taken before it.
    pub(crate) fn epoch(&self) -> u32 {
        // ORDER[EPOCH]: Acquire; pairs with the Release in `advance`: one that sees the change also
        // sees what it is about.
        self.epoch.0.load(Ordering::Acquire)
    }

    /// Whether nobody was told to look since.
    pub(crate) fn is_still(&self, seen: u32) -> bool {
        self.epoch.0.load(Ordering::Relaxed) == seen
    }

    /// The caller is about to wake some.
    pub(crate) fn advance(&self) {
        // ORDER[EPOCH]: Release; pairs with the Acquire in `epoch`.
        self.epoch.0.fetch_add(1, Ordering::Release);
    }
}
