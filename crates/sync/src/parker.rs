//! Puts one thread to sleep until one other wakes it, once.
//!
//! | state | meaning | left by | to |
//! |---|---|---|---|
//! | PARKED | the owner sleeps, or is about to | waker, in `notify`, its last access | NOTIFIED |
//! | NOTIFIED | the waker is done; final | | |
//!
//! A parker is made for a thread that is about to sleep, so there is no state for one that is
//! awake: a waker that comes before the sleep makes one system call for nothing, and the owner's
//! saves its own.
//!
//! Invariant P1: after the store of NOTIFIED the waker touches nothing of the parker but its
//! address. So the owner that has seen NOTIFIED may free it. The wake that follows can reach
//! another word that came to live at the same address; sleepers of futex words expect that.
#![expect(unsafe_code, reason = "the waker's side outlives what it points to")]

use std::ptr::NonNull;

use unherd_sys::primitives::Ordering;
use unherd_sys::{Deadline, Futex, FutexWait};

const PARKED: u32 = 0;
const NOTIFIED: u32 = 1;

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Parker(Futex);

impl Parker {
    pub(crate) fn new() -> Self {
        Self(Futex::new(PARKED))
    }

    /// Sleeps until [`Parker::notify`] or the deadline, and says whether it was notified. May be
    /// called again after a timeout. Signals and spurious wakeups do not end it.
    pub(crate) fn park(&self, deadline: Deadline) -> bool {
        loop {
            // Looked at first, so that a wake that came before costs no system call here.
            // ORDER[PARK]: Acquire; pairs with the Release in `notify`. Takes over what the waker
            // wrote to the node and before it (loom: `woken_sees_what_the_waker_wrote`).
            if self.0.word().load(Ordering::Acquire) == NOTIFIED {
                return true;
            }
            let end = self.0.park_until(PARKED, deadline);
            if end == FutexWait::TimedOut {
                // ORDER[PARK]: Acquire; pairs with the Release in `notify`, as above.
                return self.0.word().load(Ordering::Acquire) == NOTIFIED;
            }
        }
    }

    /// Whether it was notified: for an owner that does not sleep here.
    pub(crate) fn is_notified(&self) -> bool {
        // ORDER[PARK]: Acquire; pairs with the Release in `notify`, as in `park` (loom:
        // `a_ready_task_sees_what_the_waker_wrote`).
        self.0.word().load(Ordering::Acquire) == NOTIFIED
    }

    /// Ends the owner's [`Parker::park`], the present or the next one, except for the sleep itself:
    /// see [`Parker::wake`].
    ///
    /// # Safety
    /// `parker` is alive, and its owner does not free it before it has seen NOTIFIED; nobody else
    /// notifies it.
    pub(crate) unsafe fn notify(parker: NonNull<Self>) {
        // SAFETY: alive until the store is seen, by the contract.
        let state = unsafe { parker.as_ref() }.0.word();
        // ORDER[PARK]: Release; pairs with the Acquires in `park` and `is_notified`. Publishes all
        // that the waker did to the node, and lets the owner free it.
        state.store(NOTIFIED, Ordering::Release);
    }

    /// Ends the sleep of an owner that was notified, which may be gone by now, and its parker with
    /// it (P1). One system call.
    ///
    /// # Safety
    /// `parker` was notified by the caller.
    pub(crate) unsafe fn wake(parker: NonNull<Self>) {
        // SAFETY: it was the address of a futex word, which is all there is to a parker; P1.
        unsafe { Futex::unpark_address(parker.cast()) };
    }
}
