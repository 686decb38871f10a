//! What is to be done once.
//!
//! | state | meaning | left by | to |
//! |---|---|---|---|
//! | NEW | nobody has done it | who comes first | RUNNING |
//! | RUNNING | a thread does it, and others may wait for that | that thread: it has done it, or a panic ends it | DONE, NEW |
//! | DONE | final | | |
//!
//! No bit says whether somebody waits: who is done wakes, which costs a fence and a load if nobody
//! does.
//!
//! - **O1** A waiter sleeps only for RUNNING. DONE wakes all. After a panic one is woken, and does
//!   it, or sleeps again for another that does: the others are woken by that one's end.
//!
//! ```text
//!  waiter                                   who runs
//!  ------                                   --------
//!  lock bucket; fence (A)                   store DONE, or NEW
//!  validate: still RUNNING?                 fence (B); look at the bucket
//!  push; unlock bucket                      wake all, or one
//! ```
//!
//! Excluded: that a waiter sleeps and nobody is left to wake it, by the wait table's race.

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU8, Ordering};

use super::owner::Owner;
use super::table::{Address, Kind, locks};
use crate::{Outcome, TimedOut, Wait};

const NEW: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;

/// Something that is done once, by the thread that comes first, while the others wait.
///
/// One byte (in debug builds sixteen). Can stand in a `static`; no path allocates. For a value that
/// is made once there is [`OnceLock`](super::OnceLock).
///
/// There is no poisoning: if what is to be done panics, it counts as not done, the panic goes on in
/// its thread, and the next that comes or waits does it.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Once;
///
/// static PREPARED: Once = Once::new();
/// let mut times = 0;
/// PREPARED.call_once(|| times += 1);
/// PREPARED.call_once(|| times += 1);
/// assert_eq!(times, 1);
/// assert!(PREPARED.is_done());
/// ```
#[derive(Debug)]
pub struct Once {
    /// Relaxed where it decides whether to sleep: the wait table orders that.
    state: AtomicU8,
    owner: Owner,
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl Once {
    /// Not done yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(NEW), owner: Owner::nobody() }
    }

    /// Not done yet.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(NEW), owner: Owner::nobody() }
    }

    /// Whether it is done; then all that it wrote is visible.
    #[inline]
    pub fn is_done(&self) -> bool {
        // ORDER[ONCE]: Acquire; pairs with the Release in the drop of `Run`.
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Calls `run`, unless it was done already. Sleeps, under the reason `once`, while another
    /// thread does it. One load if it is done.
    ///
    /// # Panics
    /// As `run` does; in debug builds, if `run` itself calls this, which sleeps for ever in others.
    #[inline]
    #[track_caller]
    pub fn call_once(&self, run: impl FnOnce()) {
        let _done = self.call_once_until(run, Deadline::NEVER);
    }

    /// As [`Once::call_once`]; waits for another thread until `deadline` at most. `run` itself
    /// takes as long as it takes.
    ///
    /// # Errors
    /// [`TimedOut`] if another thread had not done it by the deadline.
    ///
    /// # Panics
    /// As [`Once::call_once`].
    #[inline]
    #[track_caller]
    pub fn call_once_until(&self, run: impl FnOnce(), deadline: Deadline) -> Result<(), TimedOut> {
        if self.is_done() { Ok(()) } else { self.call_slow(run, deadline) }
    }

    #[cold]
    #[track_caller]
    fn call_slow(&self, run: impl FnOnce(), deadline: Deadline) -> Result<(), TimedOut> {
        self.owner.check("once", std::ptr::from_ref(self).addr());
        let how = Wait::new(locks().once).deadline(deadline);
        // ORDER[ONCE]: Acquire; pairs with the Release in the drop of `Run`, also of one that a
        // panic has ended.
        let order = Ordering::Acquire;
        while let Err(state) = self.state.compare_exchange(NEW, RUNNING, order, order) {
            if state == DONE {
                return Ok(());
            }
            let is_running = || self.state.load(Ordering::Relaxed) == RUNNING;
            if locks().wait(&Address::of(Kind::Once, self), is_running, how) == Outcome::TimedOut {
                return if self.is_done() { Ok(()) } else { Err(TimedOut) };
            }
        }
        self.owner.set();
        // Until `run` has returned.
        let mut running = Run { once: self, end: NEW };
        run();
        running.end = DONE;
        Ok(())
    }
}

/// This thread does it. Ends that on drop, also by a panic.
struct Run<'a> {
    once: &'a Once,
    end: u8,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let address = Address::of(Kind::Once, self.once);
        self.once.owner.clear();
        // ORDER[ONCE]: Release; pairs with the Acquires in `is_done` and `call_slow`.
        self.once.state.store(self.end, Ordering::Release);
        // O1.
        locks().wake(&address, if self.end == DONE { usize::MAX } else { 1 });
    }
}
