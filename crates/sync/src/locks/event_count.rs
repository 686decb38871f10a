//! An event count: a condition variable without a mutex.
//!
//! | bits of the word | meaning | changed by |
//! |---|---|---|
//! | LISTENED | somebody waits, or is about to, in this epoch | who listens; cleared by a notification |
//! | the rest | the epoch | a notification that finds LISTENED |
//!
//! - **EC1** While a waiter is queued that no notification is about to wake, or one has listened in
//!   this epoch, LISTENED is set. So who finds it clear has nobody to notify.
//!
//! ```text
//!  waiter                                   notifier
//!  ------                                   --------
//!  listen: set LISTENED                     store the condition        (the caller)
//!  fence (A)                                fence (B)
//!  load the condition          (the caller) load the word: LISTENED is clear: return
//!  lock bucket; validate: same epoch?       else: lock bucket; next epoch; wake; unlock
//!  push; unlock bucket
//! ```
//!
//! Excluded: the waiter does not see the condition, and is not notified. By the fences it sees the
//! condition, or the notifier sees LISTENED. Then the epoch changes: either `validate` sees that,
//! or the notifier finds the node. So all accesses to the word are Relaxed, and so may those to the
//! condition be.

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU32, Ordering, fence, fence_after_rmw};

use super::table::{Address, Kind, locks};
use crate::{Outcome, TimedOut, Token, Wait};

const LISTENED: u32 = 1;
/// One epoch.
const EPOCH: u32 = 2;

/// Lets threads and async tasks sleep until any condition has changed, which needs no mutex.
///
/// A waiter *listens* first, then looks at the condition, then waits; a notification that came
/// after it had listened ends the wait at once. A notifier changes the condition first. A Relaxed
/// store will do for the waiter not to miss it; where the waiter then uses other data, store with
/// Release and load with Acquire, as below: neither `listen` nor `wait` makes that data visible.
/// Four bytes; with nobody listening a notification costs a fence and a load. A wait may end
/// without a notification of its own: look at the condition again, in a loop.
///
/// ```
/// # use unherd_sync as unherd;
/// use std::sync::atomic::{AtomicU32, Ordering::{Acquire, Release}};
/// use unherd::EventCount;
///
/// static JOBS: AtomicU32 = AtomicU32::new(0);
/// static CHANGED: EventCount = EventCount::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| loop {
///         let epoch = CHANGED.listen();
///         if JOBS.load(Acquire) > 0 {
///             break;
///         }
///         CHANGED.wait(epoch);
///     });
///     JOBS.store(1, Release);
///     CHANGED.notify_one();
/// });
/// ```
#[derive(Debug)]
pub struct EventCount {
    /// Relaxed: see above.
    word: AtomicU32,
}

/// When a waiter began to listen: [`EventCount::listen`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "wait for it, or listen in vain"]
pub struct Epoch(u32);

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCount {
    /// One that nobody waits for.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// One that nobody waits for.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Says which notifications a wait is to hear: those that come from now on. Look at the
    /// condition after it. Not to wait then is no harm.
    #[inline]
    pub fn listen(&self) -> Epoch {
        let before = self.word.fetch_or(LISTENED, Ordering::Relaxed);
        // ORDER[EVENT]: SeqCst fence, (A) of the module's race; pairs with (B) in `has_nobody`.
        fence_after_rmw();
        Epoch(before | LISTENED)
    }

    /// Sleeps, under the reason `event`, until a notification that came after `epoch` began.
    pub fn wait(&self, epoch: Epoch) {
        let _notified = self.wait_until(epoch, Deadline::NEVER);
    }

    /// As [`EventCount::wait`], until `deadline` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if no notification had come by then.
    pub fn wait_until(&self, epoch: Epoch, deadline: Deadline) -> Result<(), TimedOut> {
        let how = Wait::new(locks().event).deadline(deadline);
        let outcome =
            locks().wait(&Address::of(Kind::EventCount, self), || self.is_still(epoch), how);
        if outcome == Outcome::TimedOut { Err(TimedOut) } else { Ok(()) }
    }

    /// As [`EventCount::wait`], in an async task, in the same queue. If the future is dropped when
    /// an [`EventCount::notify_one`] had chosen it, the next that waits is notified.
    #[cfg(feature = "async")]
    pub async fn wait_async(&self, epoch: Epoch) {
        let how = Wait::new(locks().event);
        let is_still = || self.is_still(epoch);
        let _notified =
            locks().wait_async(&Address::of(Kind::EventCount, self), is_still, how).await;
    }

    /// Notifies the one that has waited longest, and says whether one slept. All that have listened
    /// and do not sleep yet look at the condition once more.
    #[inline]
    pub fn notify_one(&self) -> bool {
        !self.has_nobody()
            && locks().wake_one(&Address::of(Kind::EventCount, self), |chosen| {
                let more = chosen.is_some_and(|chosen| chosen.more);
                self.begin_epoch(if more { LISTENED } else { 0 });
                Token(0)
            })
    }

    /// Notifies all that wait, and says how many slept.
    #[inline]
    pub fn notify_all(&self) -> usize {
        if self.has_nobody() {
            return 0;
        }
        self.begin_epoch(0);
        locks().wake_all(&Address::of(Kind::EventCount, self)).total()
    }

    fn is_still(&self, epoch: Epoch) -> bool {
        self.word.load(Ordering::Relaxed) == epoch.0
    }

    fn has_nobody(&self) -> bool {
        // ORDER[EVENT]: SeqCst fence, (B) of the module's race; pairs with (A) in `listen`.
        fence(Ordering::SeqCst);
        self.word.load(Ordering::Relaxed) & LISTENED == 0
    }

    fn begin_epoch(&self, listened: u32) {
        let next = |word: u32| Some((word & !LISTENED).wrapping_add(EPOCH) | listened);
        let _always = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}
