//! Puts one thread to sleep until one other wakes it, once.
//!
//! | state | meaning |
//! |---|---|
//! | EMPTY | nothing has happened; the owner is awake |
//! | PARKED | the owner sleeps, or is about to |
//! | NOTIFIED | the waker is done; final |
//!
//! | from | to | by | with |
//! |---|---|---|---|
//! | EMPTY | PARKED | owner, in `park` | compare-exchange |
//! | EMPTY, PARKED | NOTIFIED | waker, in `unpark` | swap, Release: the waker's last access |
//!
//! Invariant P1: after the swap to NOTIFIED the waker touches nothing of the parker but its
//! address. So the owner that has seen NOTIFIED may free it. The wake that follows can reach
//! another word that came to live at the same address; sleepers of futex words expect that.
#![expect(unsafe_code, reason = "the waker's side outlives what it points to")]

use std::ptr::NonNull;

use unherd_sys::primitives::Ordering;
use unherd_sys::{Deadline, Futex, FutexWait};

const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// Weakened by `cargo x mutants`, which expects a loom check to fail.
const PARK_ACQUIRE: Ordering =
    if cfg!(mutant = "PARK-acquire") { Ordering::Relaxed } else { Ordering::Acquire };
const PARK_RELEASE: Ordering =
    if cfg!(mutant = "PARK-release") { Ordering::Relaxed } else { Ordering::Release };

#[derive(Debug)]
pub(crate) struct Parker(Futex);

impl Parker {
    pub(crate) fn new() -> Self {
        Self(Futex::new(EMPTY))
    }

    /// Sleeps until [`Parker::unpark`] or the deadline, and says whether it was unparked. May be
    /// called again after a timeout. Signals and spurious wakeups do not end it.
    pub(crate) fn park(&self, deadline: Deadline) -> bool {
        // ORDER[PARK]: Acquire on failure; pairs with the Release in `unpark`. Takes over what the
        // waker wrote to the node and before it (loom: `woken_sees_what_the_waker_wrote`).
        let first = self.0.word().compare_exchange(EMPTY, PARKED, Ordering::Relaxed, PARK_ACQUIRE);
        if first == Err(NOTIFIED) {
            return true;
        }
        loop {
            let end = self.0.wait_until(PARKED, deadline);
            // ORDER[PARK]: Acquire; pairs with the Release in `unpark`, as above.
            if self.0.word().load(PARK_ACQUIRE) == NOTIFIED {
                return true;
            }
            if end == FutexWait::TimedOut {
                return false;
            }
        }
    }

    /// Ends the owner's [`Parker::park`], the present or the next one. At most one system call, and
    /// none if the owner has not gone to sleep yet.
    ///
    /// # Safety
    /// `parker` is alive, and its owner does not free it before it has seen NOTIFIED; nobody else
    /// unparks it.
    pub(crate) unsafe fn unpark(parker: NonNull<Self>) {
        // SAFETY: alive, by the contract.
        let word = NonNull::from(unsafe { &parker.as_ref().0 });
        // SAFETY: alive until this swap is seen, by the contract.
        let state = unsafe { word.as_ref() }.word();
        // ORDER[PARK]: Release; pairs with the Acquires in `park`. Publishes all that the waker did
        // to the node, and lets the owner free it.
        if state.swap(NOTIFIED, PARK_RELEASE) == PARKED {
            // SAFETY: it was the address of a futex word; invariant P1.
            unsafe { Futex::wake_address(word, 1) };
        }
    }
}
