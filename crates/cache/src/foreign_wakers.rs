//! Wakes, kept apart from what a task's waker does.
//!
//! One who ends a read, gives up a pin or drops a future wakes tasks, and with that runs the wakers
//! of strangers.
//!
//! - If one panics, that must not end the cache's I/O thread, nor come out of the drop of somebody
//!   else's guard. So the panic ends here; the panic hook has seen it. The wait table has woken all
//!   others by then.
//! - If one drops its task, the last handle of a file or of the cache may go with it, and its drop
//!   would wait: on the I/O thread for what that thread alone can do, on any other for what the
//!   call that has woken the task is in the middle of. So it is told that it is in a waker.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(loom))]
use unherd_sys::primitives::thread_local;

thread_local! {
    /// Whether wakers may run on this thread just now.
    static IN_WAKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread may be in a waker, where it must wait for nothing of the cache.
#[cfg(not(loom))]
pub(crate) fn is_in_waker() -> bool {
    IN_WAKER.try_with(Cell::get).unwrap_or(false)
}

/// Drops what a waker has panicked with. If that panics as well, what came of it is kept.
fn throw_away(payload: Box<dyn Any + Send>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
}

/// Runs a wake. Nothing that it touches is left in between by a panic: the wait table sees to
/// itself, and the wakers are their owners'.
pub(crate) fn run_foreign_wakers<T>(wake: impl FnOnce() -> T) {
    let _ = run_foreign(wake);
}

/// Runs code of strangers. `None` if it panics.
pub(crate) fn run_foreign<T>(code: impl FnOnce() -> T) -> Option<T> {
    let before = IN_WAKER.try_with(|is_in| is_in.replace(true));
    // A model checker's own panics are to be seen.
    let ran = if cfg!(any(loom, shuttle)) {
        Some(code())
    } else {
        catch_unwind(AssertUnwindSafe(code)).map_err(throw_away).ok()
    };
    if let Ok(before) = before {
        let _ = IN_WAKER.try_with(|is_in| is_in.set(before));
    }
    ran
}
