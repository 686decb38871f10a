//! When a lock is to be handed over: after a random time of up to a millisecond.

use unherd_sys::Timestamp;
use unherd_sys::primitives::{AtomicU64, Ordering};

const PLACES: usize = 1024;
const PERIOD_NS_MAX: u64 = 1_000_000;

/// From when on, in nanoseconds, for the addresses of a place. Relaxed: two that look at once may
/// both find it due.
static DUE_NS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Whether it is time; then a new time begins.
pub(crate) fn is_due(key: usize) -> bool {
    let due_ns = &DUE_NS[spread(key as u64) as usize % PLACES];
    let now_ns = Timestamp::now().as_ns();
    let due = now_ns >= due_ns.load(Ordering::Relaxed);
    if due {
        due_ns.store(now_ns + spread(now_ns) % PERIOD_NS_MAX, Ordering::Relaxed);
    }
    due
}

/// Fibonacci hashing (Knuth, 6.4), of which the upper half is taken.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}
