//! A mutex of one byte without a value.

use unherd_sys::primitives::AtomicU8;

use super::word_mutex::ByteMutex;

/// A mutex without a value: [`Mutex`](super::Mutex) has one. Without the feature
/// `lock_api` it can only be made; with it, it implements `lock_api::RawMutex`, by which it is
/// locked.
///
/// One byte, of debug builds apart.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "lock_api", not(any(loom, shuttle)))),
    expect(dead_code, reason = "it can only be made")
)]
pub struct RawMutex(pub(super) ByteMutex);

impl Default for RawMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl RawMutex {
    /// An unlocked mutex.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(ByteMutex::new(AtomicU8::new(0)))
    }

    /// An unlocked mutex.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(ByteMutex::new(AtomicU8::new(0)))
    }
}
