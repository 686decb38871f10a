//! When barging ends: once in a while a lock is handed over to a thread that has waited for long.

use std::time::Duration;

use super::table::Address;
use crate::Tag;

#[cfg(not(any(loom, shuttle)))]
mod clock {
    use unherd_sys::Timestamp;
    use unherd_sys::primitives::{AtomicU64, Ordering};

    use super::*;

    /// When each lock was handed over last, in nanoseconds. Locks that share a place are handed
    /// over more rarely.
    ///
    /// Relaxed: changed under a bucket lock; where two locks share a place, one change is lost.
    static LAST: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

    pub(super) fn now() -> u64 {
        Timestamp::now().as_ns()
    }

    /// Whether barging is over for a waiter that has slept `since`. If so, it begins again.
    pub(in super::super) fn is_over(barging: Duration, since: u64, lock: Address) -> bool {
        if barging.is_zero() {
            return true;
        }
        let (now, barging) = (now(), u64::try_from(barging.as_nanos()).unwrap_or(u64::MAX));
        let last = &LAST[lock.place(LAST.len())];
        let since = since.max(last.load(Ordering::Relaxed));
        let is_over = now.saturating_sub(since) >= barging;
        if is_over {
            last.store(now, Ordering::Relaxed);
        }
        is_over
    }
}

/// Under the checkers time passes by a step each time somebody asks whether it is over, and only
/// for scenes whose barging ends: others would have one more place where threads meet.
#[cfg(any(loom, shuttle))]
mod clock {
    use unherd_sys::primitives::{AtomicU64, Ordering, lazy_static};

    use super::*;

    lazy_static! {
        static ref STEPS: AtomicU64 = AtomicU64::new(0);
    }

    pub(super) fn now() -> u64 {
        0
    }

    /// Whether this is the question, of those since the last that was told so, that `barging`
    /// counts in nanoseconds.
    pub(in super::super) fn is_over(barging: Duration, _since: u64, _lock: Address) -> bool {
        if barging.is_zero() || barging == Duration::MAX {
            return barging.is_zero();
        }
        let every = barging.as_nanos() as u64;
        STEPS.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }
}

pub(super) use clock::is_over;

/// The tag of a waiter that begins to sleep now. Where the lock is always handed over, nobody asks
/// for the time.
pub(super) fn since(barging: Duration) -> Tag {
    Tag(if barging.is_zero() { 0 } else { clock::now() })
}
