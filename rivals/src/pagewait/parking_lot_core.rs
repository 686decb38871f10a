//! parking_lot_core: threads park by address, and its hash table tells addresses apart.
//!
//! The table is its own and global: it has at least three buckets a thread, so the workload's
//! `buckets` does not bear on it.
#![expect(unsafe_code, reason = "parking by address is unsafe to call")]

use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult};
use unherd_load::pagewait::{PageWaits, Tally};

pub(crate) struct ParkedByAddress {
    /// Something for each page to have an address of; never read.
    pages: Vec<u8>,
}

impl ParkedByAddress {
    pub(crate) fn new(pages: usize) -> Self {
        Self { pages: vec![0; pages] }
    }

    fn key(&self, page: usize) -> usize {
        (&raw const self.pages[page]).addr()
    }
}

impl PageWaits for ParkedByAddress {
    fn wait(&self, page: usize, tally: &Tally, pending: impl Fn() -> bool) {
        loop {
            // SAFETY: the address is this implementation's own while it lives, `pending` calls
            // nothing of the parking lot and does not panic, and nor do the empty callbacks.
            let result = unsafe {
                parking_lot_core::park(
                    self.key(page),
                    &pending,
                    || (),
                    |_, _| (),
                    DEFAULT_PARK_TOKEN,
                    None,
                )
            };
            match result {
                ParkResult::Unparked(_) => tally.wakeup(),
                ParkResult::Invalid | ParkResult::TimedOut => return,
            }
            if !pending() {
                return;
            }
            tally.needless();
        }
    }

    fn complete(&self, page: usize, publish: impl FnOnce()) {
        publish();
        // SAFETY: the address is this implementation's own while it lives.
        unsafe { parking_lot_core::unpark_all(self.key(page), DEFAULT_UNPARK_TOKEN) };
    }

    /// Buckets of 64 bytes, at least three a thread and a power of two; the smaller tables that it
    /// grew out of, from 16 buckets, are never freed. A thread's data is a futex word, a key, a
    /// link and two tokens. (Sizes of 0.10.0, which does not tell them.)
    fn wait_bytes(&self, threads: usize) -> usize {
        const BUCKET_BYTES: usize = 64;
        const BUCKETS_FIRST: usize = 16;
        const THREAD_BYTES: usize = 40;
        let buckets = (3 * threads).next_power_of_two().max(BUCKETS_FIRST);
        (2 * buckets - BUCKETS_FIRST) * BUCKET_BYTES + threads * THREAD_BYTES
    }
}
