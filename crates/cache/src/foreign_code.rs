//! Foreign code: the wakers of tasks, page hooks, and the reads, writes and syncs of a device.
//!
//! One who ends a read, gives up a pin or drops a future wakes tasks, and with that runs their
//! wakers; one who moves pages runs the hook of their file, and calls the device.
//!
//! - If one panics, that must not end the cache's I/O thread, nor come out of the drop of somebody
//!   else's guard. So the panic ends here; the panic hook has seen it. The wait table has woken all
//!   others by then.
//! - If one drops the last handle of a file or of the cache, be it with its task, that drop would
//!   wait: on the I/O thread for what that thread alone can do, on any other for what the call that
//!   runs it is in the middle of. So it is told that it is in foreign code.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(loom))]
use unherd_sys::primitives::thread_local;

thread_local! {
    /// Whether this thread may be in foreign code just now.
    static IN_FOREIGN_CODE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread may be in foreign code, where it must wait for nothing of the cache.
#[cfg(not(loom))]
pub(crate) fn is_in_foreign_code() -> bool {
    IN_FOREIGN_CODE.try_with(Cell::get).unwrap_or(false)
}

/// Drops what foreign code has panicked with. If that panics as well, what came of it is kept.
fn throw_away(payload: Box<dyn Any + Send>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
}

/// Runs foreign code. `None` if it panics. Of a wake nothing is left in between then: the wait
/// table sees to itself, and the wakers are their owners'.
pub(crate) fn run_foreign<T>(code: impl FnOnce() -> T) -> Option<T> {
    let before = IN_FOREIGN_CODE.try_with(|is_in| is_in.replace(true));
    // A model checker's own panics are to be seen.
    let ran = if cfg!(any(loom, shuttle)) {
        Some(code())
    } else {
        catch_unwind(AssertUnwindSafe(code)).map_err(throw_away).ok()
    };
    if let Ok(before) = before {
        let _ = IN_FOREIGN_CODE.try_with(|is_in| is_in.set(before));
    }
    ran
}
