//! When barging ends: once in a while a lock is handed over to a thread that has waited for long.

use std::time::Duration;

use super::table::Address;
use crate::Tag;

#[cfg(not(any(loom, shuttle)))]
mod clock {
    use unherd_sys::Timestamp;
    use unherd_sys::primitives::{AtomicU64, Ordering};

    use super::*;

    /// When each lock may be handed over again, in nanoseconds. Locks that share a place are
    /// handed over more rarely.
    ///
    /// Relaxed: changed under a bucket lock; where two locks share a place, one change is lost.
    static NEXT: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

    pub(super) fn now() -> u64 {
        Timestamp::now().as_ns()
    }

    /// Whether barging is over for a waiter that has slept `since`. If so, it begins again.
    pub(in super::super) fn is_over(barging: Duration, since: u64, lock: Address) -> bool {
        if barging.is_zero() {
            return true;
        }
        let (now, barging) = (now(), u64::try_from(barging.as_nanos()).unwrap_or(u64::MAX));
        let next = &NEXT[lock.place(NEXT.len())];
        let is_over = now >= next.load(Ordering::Relaxed) && now.saturating_sub(since) >= barging;
        if is_over {
            next.store(now.saturating_add(barging), Ordering::Relaxed);
        }
        is_over
    }
}

/// Under the checkers no time passes.
#[cfg(any(loom, shuttle))]
mod clock {
    use super::*;

    pub(super) fn now() -> u64 {
        0
    }

    pub(in super::super) fn is_over(barging: Duration, _since: u64, _lock: Address) -> bool {
        barging.is_zero()
    }
}

pub(super) use clock::is_over;

/// The tag of a waiter that begins to sleep now. Where the lock is always handed over, nobody asks
/// for the time.
pub(super) fn since(barging: Duration) -> Tag {
    Tag(if barging.is_zero() { 0 } else { clock::now() })
}
