//! Wakes, kept apart from what a task's waker does.
//!
//! Whoever ends a read or gives up a pin wakes tasks, and with that runs the wakers of strangers.
//! If one panics, that must not end the cache's I/O thread, nor come out of the drop of somebody
//! else's guard. So the panic ends here; the panic hook has seen it. The wait table has woken all
//! others by then.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_sync::Woken;

/// Runs a wake. Nothing that it touches is left in between by a panic: the wait table sees to
/// itself, and the wakers are their owners'.
pub(crate) fn shielded(wake: impl FnOnce() -> Woken) {
    // A model checker's own panics are to be seen.
    if cfg!(any(loom, shuttle, mutant = "TASK-shield")) {
        let _ = wake();
    } else {
        let _ = catch_unwind(AssertUnwindSafe(wake));
    }
}
