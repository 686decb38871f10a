//! Unparking those that a filter chooses.

use std::cell::Cell;

use unherd_sync::{Token, Verdict};

use crate::parked::{Chosen, Parked};
use crate::queue_lock::QueueLock;
use crate::{AbortOnPanic, FilterOp, ParkToken, UnparkResult, UnparkToken, table};

/// Shows `filter` the waiters of `key` in the order in which they came, and unparks those that it
/// chooses with the token that `callback` gives: it runs once, with the queue locked, when all were
/// shown.
///
/// # Safety
/// The caller owns the address; the callbacks do not panic or call into this crate.
pub unsafe fn unpark_filter(
    key: usize,
    mut filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    AbortOnPanic::guard(|| {
        let queue = Cell::new(Some(QueueLock::of(key)));
        let mut result = UnparkResult::default();
        let mut chosen = Chosen::default();
        let choose = |tag| {
            // SAFETY: F2.
            let parked = unsafe { Parked::of(tag) };
            let verdict = match filter(parked.park_token) {
                FilterOp::Unpark => {
                    chosen.push(parked, key);
                    return Verdict::Skip;
                }
                FilterOp::Skip => Verdict::Skip,
                FilterOp::Stop => Verdict::Stop,
            };
            result.have_more_threads = true;
            verdict
        };
        table().wake_where(&key, choose, Token(0));
        result.unparked_threads = chosen.len;
        chosen.give_ready(callback(result));
        let mut left = chosen.len;
        let wake = |tag| {
            // SAFETY: F2.
            if !unsafe { Parked::of(tag) }.is_chosen() {
                return Verdict::Skip;
            }
            left -= 1;
            if left > 0 {
                return Verdict::Wake;
            }
            // As in `wake_first`.
            drop(queue.take());
            Verdict::WakeAndStop
        };
        if chosen.len > 0 {
            table().wake_where(&key, wake, Token(0));
        }
        result
    })
}
