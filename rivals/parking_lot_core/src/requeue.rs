//! Having the waiters of one address wait for another.

use unherd_sync::{Token, Verdict};

use crate::park::is_awaited;
use crate::parked::{Chosen, Parked};
use crate::queue_lock::QueueLock;
use crate::unpark::wake_first;
use crate::{AbortOnPanic, RequeueOp, UnparkResult, UnparkToken, table};

/// Does with the waiters of `key_from` what `validate` says: unparks the first with the token that
/// `callback` gives, or moves some to the end of those of `key_to`. Both callbacks run with both
/// queues locked; `callback` not after [`RequeueOp::Abort`].
///
/// # Safety
/// The caller owns both addresses; the callbacks do not panic or call into this crate.
pub unsafe fn unpark_requeue(
    key_from: usize,
    key_to: usize,
    validate: impl FnOnce() -> RequeueOp,
    callback: impl FnOnce(RequeueOp, UnparkResult) -> UnparkToken,
) -> UnparkResult {
    AbortOnPanic::guard(|| {
        let queues = QueueLock::of_two(key_from, key_to);
        let operation = validate();
        let callback = |result| callback(operation, result);
        let move_up_to = |n| table().requeue(&key_from, &key_to, 0, n).moved;
        let mut result = UnparkResult::default();
        match operation {
            RequeueOp::Abort => {}
            RequeueOp::UnparkOne => return wake_first(key_from, queues, callback),
            RequeueOp::RequeueOne => {
                result.requeued_threads = move_up_to(1);
                result.have_more_threads = is_awaited(key_from);
                callback(result);
            }
            RequeueOp::RequeueAll => {
                result.requeued_threads = move_up_to(usize::MAX);
                callback(result);
            }
            RequeueOp::UnparkOneRequeueRest => {
                let mut first = Chosen::default();
                let choose = |tag| {
                    // SAFETY: F2.
                    first.push(unsafe { Parked::of(tag) }, key_from);
                    Verdict::WakeAndStop
                };
                // It goes on when the queues are free.
                result.unparked_threads = table().wake_where(&key_from, choose, Token(0)).total();
                result.requeued_threads = move_up_to(usize::MAX);
                first.give(callback(result));
            }
        }
        result
    })
}
