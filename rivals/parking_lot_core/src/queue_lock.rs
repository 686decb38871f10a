//! The lock of an address's queue, above the bucket's: it joins the steps of one operation.

use std::marker::PhantomData;

use lock_api::RawMutex as _;
use unherd_sync::RawMutex;

/// Addresses whose hashes are equal share a lock.
const LOCKS: usize = 1024;

/// On a cache line of its own.
#[repr(align(64))]
struct Line(RawMutex);

static LINES: [Line; LOCKS] = [const { Line(RawMutex::new()) }; LOCKS];

/// The locks of one or two queues, held by this thread. Unlocks them when it is dropped.
pub(crate) struct QueueLock {
    first: &'static RawMutex,
    second: Option<&'static RawMutex>,
    /// The thread that has locked unlocks.
    _not_send: PhantomData<*const ()>,
}

impl QueueLock {
    /// Locks the queue of `key`.
    pub(crate) fn of(key: usize) -> Self {
        let first = &LINES[place(key)].0;
        first.lock();
        Self { first, second: None, _not_send: PhantomData }
    }

    /// Locks the queues of both keys; in the order of their places, so that nobody waits in a ring.
    pub(crate) fn of_two(a: usize, b: usize) -> Self {
        let (low, high) = (place(a).min(place(b)), place(a).max(place(b)));
        let first = &LINES[low].0;
        first.lock();
        let second = (low != high).then(|| &LINES[high].0);
        if let Some(second) = second {
            second.lock();
        }
        Self { first, second, _not_send: PhantomData }
    }
}

impl Drop for QueueLock {
    fn drop(&mut self) {
        for lock in [Some(self.first), self.second].into_iter().flatten() {
            // SAFETY: this thread has locked it.
            unsafe { lock.unlock() };
        }
    }
}

fn place(key: usize) -> usize {
    // Fibonacci hashing (Knuth, 6.4): the upper bits of a product with 2⁶⁴ divided by the golden
    // ratio.
    let spread = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread >> (u64::BITS - LOCKS.ilog2())) as usize
}
