//! parking_lot_core: a wake takes the lock of the address's bucket, no matter who is in it.
#![expect(unsafe_code, reason = "parking by address is unsafe to call")]

use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN};
use unherd_load::wake::Wakes;

pub(crate) struct ParkedByAddress {
    /// Something for each key to have an address of; never read.
    keys: Vec<u64>,
}

impl ParkedByAddress {
    pub(crate) fn new(keys: usize) -> Self {
        Self { keys: vec![0; keys] }
    }

    fn address(&self, key: usize) -> usize {
        (&raw const self.keys[key]).addr()
    }
}

impl Wakes for ParkedByAddress {
    #[inline]
    fn wake(&self, key: usize) {
        // SAFETY: the address is this implementation's own while it lives; the callback only says a
        // token.
        unsafe { parking_lot_core::unpark_one(self.address(key), |_| DEFAULT_UNPARK_TOKEN) };
    }

    fn wake_all(&self, key: usize) {
        // SAFETY: the address is this implementation's own while it lives.
        unsafe { parking_lot_core::unpark_all(self.address(key), DEFAULT_UNPARK_TOKEN) };
    }

    fn wait(&self, key: usize, is_queued: impl Fn()) {
        let validate = || {
            is_queued();
            true
        };
        // SAFETY: the address is this implementation's own while it lives; the callbacks call
        // nothing of the parking lot and do not panic.
        unsafe {
            parking_lot_core::park(
                self.address(key),
                validate,
                || (),
                |_, _| (),
                DEFAULT_PARK_TOKEN,
                None,
            )
        };
    }
}
