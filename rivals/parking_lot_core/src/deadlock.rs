//! Says nothing about deadlocks: what holds a lock is not recorded here.

/// Does nothing.
///
/// # Safety
/// None is needed; the original asks not to be called from a callback.
#[inline]
pub unsafe fn acquire_resource(_key: usize) {}

/// Does nothing.
///
/// # Safety
/// As [`acquire_resource`].
#[inline]
pub unsafe fn release_resource(_key: usize) {}
