//! When barging ends: once in a while a lock is handed over to a thread that has waited for long.

use std::time::Duration;

use super::table::Address;
use crate::Tag;

#[cfg(not(any(loom, shuttle)))]
mod clock {
    use unherd_sys::Timestamp;
    use unherd_sys::primitives::{AtomicU64, Ordering};

    use super::*;

    /// When locks were handed over last, in units of about a microsecond, above which lock it was.
    /// So one that shares its place with a busy lock is handed over all the same, if anything more
    /// often.
    ///
    /// Relaxed: of two changes at a time one is lost, and the lock handed over once more.
    static LAST: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
    const UNIT_BITS: u32 = 10;
    const LOCK_BITS: u32 = 16;

    pub(super) fn now() -> u64 {
        Timestamp::now().as_ns()
    }

    /// Whether barging is over for a waiter that has slept `since`. If so, it begins again.
    pub(in super::super) fn is_over(barging: Duration, since: u64, lock: Address) -> bool {
        if barging.is_zero() {
            return true;
        }
        let (now, barging) = (now(), u64::try_from(barging.as_nanos()).unwrap_or(u64::MAX));
        let (last, own) = (&LAST[lock.place(LAST.len())], lock.fingerprint(LOCK_BITS));
        let seen = last.load(Ordering::Relaxed);
        let is_own = seen % (1 << LOCK_BITS) == own;
        let before = if is_own { seen >> LOCK_BITS << UNIT_BITS } else { 0 };
        let is_over = now.saturating_sub(since.max(before)) >= barging;
        if is_over {
            last.store(now >> UNIT_BITS << LOCK_BITS | own, Ordering::Relaxed);
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
