//! Unparking one waiter of an address, or all.

use unherd_sync::Token;

use crate::queue_lock::QueueLock;
use crate::{AbortOnPanic, UnparkResult, UnparkToken, table};

/// Unparks the waiter of `key` that came first, with the token that `callback` gives: it runs once,
/// with the queue locked, also if nobody waits.
///
/// # Safety
/// The caller owns the address; `callback` does not panic or call into this crate.
pub unsafe fn unpark_one(
    key: usize,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    AbortOnPanic::guard(|| wake_first(key, QueueLock::of(key), callback))
}

/// As [`unpark_one`], with the queue locked already.
pub(crate) fn wake_first(
    key: usize,
    queue: QueueLock,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut result = UnparkResult::default();
    table().wake_one(&key, |chosen| {
        result.unparked_threads = usize::from(chosen.is_some());
        result.have_more_threads = chosen.is_some_and(|chosen| chosen.more);
        let token = callback(result);
        // Nobody sees the nodes without the bucket lock, which is held here.
        drop(queue);
        Token(token.0 as u64)
    });
    result
}

/// Unparks all waiters of `key` with `unpark_token`, and says how many.
///
/// # Safety
/// The caller owns the address.
pub unsafe fn unpark_all(key: usize, unpark_token: UnparkToken) -> usize {
    AbortOnPanic::guard(|| {
        let _queue = QueueLock::of(key);
        table().wake_with(&key, usize::MAX, Token(unpark_token.0 as u64)).total()
    })
}
