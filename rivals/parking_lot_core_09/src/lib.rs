//! The interface of `parking_lot_core` 0.9 on unherd's wait table, for `[patch.crates-io]` under
//! `parking_lot` 0.12.
//!
//! It is that of 0.10, which is beside it and says what it does and what differs, with one thing
//! more: `be_fair`, by which a lock hands itself over now and then. It is set for the first unpark
//! after a random time of up to a millisecond, once for all addresses of a place.
#![expect(unsafe_code, reason = "parking by address is unsafe")]

mod fairness;

pub use parking_lot_core_10::{
    DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, FilterOp, ParkResult, ParkToken, RequeueOp, SpinWait,
    UnparkToken, deadlock, park, unpark_all,
};

use parking_lot_core_10 as core_10;

/// Whom an operation found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UnparkResult {
    /// Those that were unparked.
    pub unparked_threads: usize,
    /// Those that wait for the other address now.
    pub requeued_threads: usize,
    /// Whether others still wait for the address.
    pub have_more_threads: bool,
    /// Whether it is time for a lock to be handed over.
    pub be_fair: bool,
}

impl UnparkResult {
    fn new(found: core_10::UnparkResult, key: usize) -> Self {
        Self {
            unparked_threads: found.unparked_threads,
            requeued_threads: found.requeued_threads,
            have_more_threads: found.have_more_threads,
            be_fair: found.unparked_threads > 0 && fairness::is_due(key),
        }
    }
}

/// Unparks the waiter of `key` that came first: as 0.10's.
///
/// # Safety
/// As 0.10's.
pub unsafe fn unpark_one(
    key: usize,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut result = UnparkResult::default();
    let callback = |found| {
        result = UnparkResult::new(found, key);
        callback(result)
    };
    // SAFETY: the contract.
    unsafe { core_10::unpark_one(key, callback) };
    result
}

/// Unparks those that `filter` chooses: as 0.10's.
///
/// # Safety
/// As 0.10's.
pub unsafe fn unpark_filter(
    key: usize,
    filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut result = UnparkResult::default();
    let callback = |found| {
        result = UnparkResult::new(found, key);
        callback(result)
    };
    // SAFETY: the contract.
    unsafe { core_10::unpark_filter(key, filter, callback) };
    result
}

/// Unparks or moves waiters of `key_from`: as 0.10's.
///
/// # Safety
/// As 0.10's.
pub unsafe fn unpark_requeue(
    key_from: usize,
    key_to: usize,
    validate: impl FnOnce() -> RequeueOp,
    callback: impl FnOnce(RequeueOp, UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut result = UnparkResult::default();
    let callback = |operation, found| {
        result = UnparkResult::new(found, key_from);
        callback(operation, result)
    };
    // SAFETY: the contract.
    unsafe { core_10::unpark_requeue(key_from, key_to, validate, callback) };
    result
}
