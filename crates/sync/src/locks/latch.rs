//! A count that falls to zero, once.
//!
//! The word is the count. It falls, and what it counts down to is final, so a waiter's condition
//! never becomes false again: the wait table's race is all that there is to prove. The thread
//! that counts the last one down wakes all that wait.

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU32, Ordering};

use super::looks::Looks;
use super::table::{Address, Kind, locks};
use crate::{TimedOut, Wait};

/// Lets threads and tasks sleep until a number of things has happened. It opens once, and stays
/// open; a [`Barrier`](super::Barrier) can be used again.
///
/// Four bytes. Can stand in a `static`; no path allocates.
///
/// **A thread that polls tasks (of an executor, an async runtime) must not block in
/// [`Latch::wait`] for what these tasks count down or await**: nobody polls them meanwhile.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Latch;
///
/// let loaded = Latch::new(3);
/// std::thread::scope(|scope| {
///     for _ in 0..3 {
///         scope.spawn(|| loaded.count_down());
///     }
///     loaded.wait();
///     assert!(loaded.is_open());
/// });
/// ```
#[derive(Debug)]
pub struct Latch {
    word: AtomicU32,
}

impl Latch {
    /// One that opens when it was counted down `count` times.
    #[cfg(not(loom))]
    pub const fn new(count: u32) -> Self {
        Self { word: AtomicU32::new(count) }
    }

    /// One that opens when it was counted down `count` times.
    #[cfg(loom)]
    pub fn new(count: u32) -> Self {
        Self { word: AtomicU32::new(count) }
    }

    /// Counts one down, and says whether that has opened it. The last wakes all that wait; what was
    /// written before any of them is visible to these (to the one that opens it, after
    /// [`Latch::is_open`]). Does nothing if it is open.
    ///
    /// One compare-and-swap; the last makes a system call for each thread that sleeps.
    pub fn count_down(&self) -> bool {
        let address = Address::of(Kind::Latch, self);
        let fewer = |count: u32| count.checked_sub(1);
        // ORDER[LATCH]: Release; pairs with the Acquire in `is_open`, also through the others'.
        let before = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, fewer);
        let opens = before == Ok(1);
        if opens {
            locks().wake_all(&address);
        }
        opens
    }

    /// Whether it is open; then all that was written before it was counted down is visible.
    #[inline]
    pub fn is_open(&self) -> bool {
        // ORDER[LATCH]: Acquire; pairs with the Release in `count_down`.
        self.word.load(Ordering::Acquire) == 0
    }

    /// Sleeps, under the reason `latch`, until it is open. One load if it is.
    pub fn wait(&self) {
        let _open = self.wait_until(Deadline::NEVER);
    }

    /// As [`Latch::wait`], until `deadline` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if it is not open by then.
    pub fn wait_until(&self, deadline: Deadline) -> Result<(), TimedOut> {
        let mut looks = Looks::NONE;
        while !self.is_open() && looks.again() {}
        let how = Wait::new(locks().latch).deadline(deadline);
        locks().wait_until(&Address::of(Kind::Latch, self), || self.is_open(), how)
    }

    /// As [`Latch::wait`], in an async task.
    #[cfg(feature = "async")]
    pub async fn wait_async(&self) {
        let how = Wait::new(locks().latch);
        while !self.is_open() {
            let _woken =
                locks().wait_async(&Address::of(Kind::Latch, self), || !self.is_open(), how).await;
        }
    }
}
