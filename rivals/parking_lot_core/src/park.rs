//! Parking: to wait in the table, and to leave it.

use std::cell::Cell;
use std::time::Instant;

use unherd_sync::{Deadline, Outcome, Verdict, Wait};

use crate::parked::Parked;
use crate::queue_lock::QueueLock;
use crate::{AbortOnPanic, ParkResult, ParkToken, UnparkToken, table};

/// Waits for `key`, if `validate` says so, until it is unparked or `timeout` passes.
///
/// `validate` and `timed_out` run with the queue of `key` locked: `timed_out` is told the key for
/// which it waited last, and whether nobody else waits for that. `before_sleep` runs with no lock.
///
/// # Safety
/// The caller owns the address. No callback panics, `validate` and `timed_out` do not call into
/// this crate, and `before_sleep` does not park.
pub unsafe fn park(
    key: usize,
    validate: impl FnOnce() -> bool,
    before_sleep: impl FnOnce(),
    timed_out: impl FnOnce(usize, bool),
    park_token: ParkToken,
    timeout: Option<Instant>,
) -> ParkResult {
    AbortOnPanic::guard(|| {
        let parked = Parked::new(park_token);
        let how = Wait::from(timeout.map_or(Deadline::NEVER, until)).tag(parked.tag());
        let queue = Cell::new(Some(QueueLock::of(key)));
        let mut left = None;
        let outcome = table().wait_with(
            &key,
            |_| validate(),
            || {
                drop(queue.take());
                before_sleep();
            },
            |key, _| left = (!parked.is_chosen()).then_some(*key),
            how,
        );
        match (outcome, left) {
            (Outcome::Invalid, _) => ParkResult::Invalid,
            (Outcome::TimedOut, Some(key)) => {
                let _queue = QueueLock::of(key);
                timed_out(key, !is_awaited(key));
                ParkResult::TimedOut
            }
            (Outcome::Woken(token), _) if !parked.is_chosen() => {
                ParkResult::Unparked(UnparkToken(token.0 as usize))
            }
            (Outcome::Woken(_), _) => ParkResult::Unparked(parked.token(true)),
            (Outcome::TimedOut, None) => ParkResult::Unparked(parked.token(false)),
        }
    })
}

/// Whether somebody waits for `key`, whose queue is locked.
pub(crate) fn is_awaited(key: usize) -> bool {
    let mut awaited = false;
    let look = |_| {
        awaited = true;
        Verdict::Stop
    };
    table().wake_where(&key, look, unherd_sync::Token(0));
    awaited
}

/// Both clocks are CLOCK_MONOTONIC, but std does not tell an instant's number.
fn until(deadline: Instant) -> Deadline {
    #[expect(clippy::disallowed_methods, reason = "to convert what the interface has")]
    let left = deadline.saturating_duration_since(Instant::now());
    Deadline::after(left)
}
