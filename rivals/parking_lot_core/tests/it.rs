//! The interface by itself: that queues are in order, that callbacks know who is left, and that a
//! waiter whose time passes in the middle of another's operation is unparked or timed out, never
//! both and never neither. parking_lot's own tests run by `rivals/parking_lot_suite`.
#![cfg(test)]
#![expect(unsafe_code, reason = "parking by address is unsafe")]
#![expect(clippy::disallowed_methods, reason = "the interface takes std's instants")]

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Scope, ScopedJoinHandle, scope, yield_now};
use std::time::{Duration, Instant};

use parking_lot_core::*;

/// Two addresses of this test alone.
struct Keys([u8; 2]);

impl Keys {
    fn of(&self, place: usize) -> usize {
        (&raw const self.0[place]).addr()
    }
}

fn park_as(key: usize, token: usize, before_sleep: impl FnOnce()) -> ParkResult {
    // SAFETY: the key is the test's own, and no callback panics or parks.
    unsafe { park(key, || true, before_sleep, |_, _| {}, ParkToken(token), None) }
}

/// Parks a thread, and returns when it is in the queue.
fn parked<'scope>(
    scope: &'scope Scope<'scope, '_>,
    key: usize,
    token: usize,
) -> ScopedJoinHandle<'scope, ParkResult> {
    let (queued, is_queued) = channel();
    let park = move || park_as(key, token, || queued.send(()).unwrap());
    let thread = scope.spawn(park);
    is_queued.recv().unwrap();
    thread
}

/// Unparks the first that waits for `key`, with `token`.
fn unpark(key: usize, token: usize) -> UnparkResult {
    // SAFETY: as in `park_as`.
    unsafe { unpark_one(key, |_| UnparkToken(token)) }
}

/// Unparks all that wait for `key`, with `token`.
fn unpark_each(key: usize, token: usize) -> usize {
    // SAFETY: as in `park_as`.
    unsafe { unpark_all(key, UnparkToken(token)) }
}

/// As `unpark_filter`; the callbacks do not panic, unless the test fails, and do not park.
fn filter_with(
    key: usize,
    filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    // SAFETY: as in `park_as`.
    unsafe { unpark_filter(key, filter, callback) }
}

/// As `unpark_requeue`, from the first key to the second; the callback does not panic or park.
fn requeue_with(
    keys: &Keys,
    operation: RequeueOp,
    callback: impl FnOnce(RequeueOp, UnparkResult) -> UnparkToken,
) -> UnparkResult {
    // SAFETY: as in `park_as`.
    unsafe { unpark_requeue(keys.of(0), keys.of(1), || operation, callback) }
}

#[test]
fn waiters_are_unparked_in_their_order() {
    let keys = Keys([0; 2]);
    let key = keys.of(0);
    scope(|scope| {
        let threads: Vec<_> = (0..3).map(|token| parked(scope, key, token)).collect();
        for (token, thread) in threads.into_iter().enumerate() {
            let result = unpark(key, token + 10);
            assert_eq!((result.unparked_threads, result.have_more_threads), (1, token < 2));
            assert_eq!(thread.join().unwrap(), ParkResult::Unparked(UnparkToken(token + 10)));
        }
        assert_eq!(unpark(key, 0), UnparkResult::default());
    });
}

#[test]
fn filter_is_asked_before_its_callback_runs() {
    let keys = Keys([0; 2]);
    let key = keys.of(0);
    scope(|scope| {
        // More than the table wakes at a time.
        let mut threads: Vec<_> = (0..70).map(|token| parked(scope, key, token)).collect();
        let asked = Cell::new(Vec::new());
        let filter = |ParkToken(token)| {
            let mut all = asked.take();
            all.push(token);
            asked.set(all);
            if token % 7 == 0 { FilterOp::Skip } else { FilterOp::Unpark }
        };
        let callback = |result: UnparkResult| {
            let all = asked.take();
            assert_eq!(all, (0..70).collect::<Vec<_>>());
            assert_eq!((result.unparked_threads, result.have_more_threads), (60, true));
            UnparkToken(all.len())
        };
        let result = filter_with(key, filter, callback);
        assert_eq!(result.unparked_threads, 60);
        let left: Vec<_> = threads.extract_if(.., |_| true).enumerate().collect();
        for (token, thread) in left {
            if token % 7 == 0 {
                assert_eq!(unpark(key, token).unparked_threads, 1);
            }
            let given = if token % 7 == 0 { token } else { 70 };
            assert_eq!(thread.join().unwrap(), ParkResult::Unparked(UnparkToken(given)));
        }
    });
}

#[test]
fn filter_that_stops_leaves_the_rest() {
    let keys = Keys([0; 2]);
    let key = keys.of(0);
    scope(|scope| {
        let threads = [0, 1, 2].map(|token| parked(scope, key, token));
        let filter = |ParkToken(token)| [FilterOp::Unpark, FilterOp::Stop, FilterOp::Unpark][token];
        let result = filter_with(key, filter, |_| UnparkToken(5));
        assert_eq!((result.unparked_threads, result.have_more_threads), (1, true));
        assert_eq!(unpark_each(key, 6), 2);
        let tokens = threads.map(|thread| thread.join().unwrap());
        assert_eq!(tokens, [5, 6, 6].map(|token| ParkResult::Unparked(UnparkToken(token))));
    });
}

/// Does `operation` with three waiters; says what came of it, and how many then wait for each key.
fn requeued(operation: RequeueOp) -> (UnparkResult, [usize; 2], Option<ParkResult>) {
    let keys = Keys([0; 2]);
    scope(|scope| {
        let threads = [0, 1, 2].map(|token| parked(scope, keys.of(0), token));
        let mut called = None;
        let callback = |operation, result| {
            called = Some((operation, result));
            UnparkToken(9)
        };
        let result = requeue_with(&keys, operation, callback);
        assert_eq!(called, (operation != RequeueOp::Abort).then_some((operation, result)));
        let unparked = result.unparked_threads > 0;
        let mut threads = threads.into_iter();
        let first = unparked.then(|| threads.next().unwrap().join().unwrap());
        let waited = [0, 1].map(|place| unpark_each(keys.of(place), 1));
        assert!(threads.all(|thread| thread.join().unwrap().is_unparked()));
        (result, waited, first)
    })
}

#[test]
fn requeue_does_what_validate_says() {
    let first = Some(ParkResult::Unparked(UnparkToken(9)));
    let counts = |(result, waited, first): (UnparkResult, _, _)| {
        let counts = (result.unparked_threads, result.requeued_threads, result.have_more_threads);
        (counts, waited, first)
    };
    let of = |operation| counts(requeued(operation));
    assert_eq!(of(RequeueOp::Abort), ((0, 0, false), [3, 0], None));
    assert_eq!(of(RequeueOp::UnparkOne), ((1, 0, true), [2, 0], first));
    assert_eq!(of(RequeueOp::RequeueOne), ((0, 1, true), [2, 1], None));
    assert_eq!(of(RequeueOp::RequeueAll), ((0, 3, false), [0, 3], None));
    assert_eq!(of(RequeueOp::UnparkOneRequeueRest), ((1, 2, false), [0, 2], first));
}

#[test]
fn waiter_that_was_moved_times_out_under_its_new_key() {
    let keys = Keys([0; 2]);
    let (from, to) = (keys.of(0), keys.of(1));
    let (mut timed_out, deadline) = (None, Instant::now() + Duration::from_millis(5));
    let move_it = || {
        requeue_with(&keys, RequeueOp::RequeueAll, |_, _| UnparkToken(0));
    };
    let note = |key, last| timed_out = Some((key, last));
    // SAFETY: as in `park_as`; `before_sleep` only moves.
    let result = unsafe { park(from, || true, move_it, note, ParkToken(0), Some(deadline)) };
    assert_eq!((result, timed_out), (ParkResult::TimedOut, Some((to, true))));
}

#[test]
fn invalid_park_leaves_the_queue_unlocked() {
    let keys = Keys([0; 2]);
    let panic = || unreachable!("it does not sleep");
    // SAFETY: as in `park_as`; the callbacks that panic are not called.
    let result = unsafe { park(keys.of(0), || false, panic, |_, _| {}, ParkToken(0), None) };
    assert_eq!(result, ParkResult::Invalid);
    assert_eq!(unpark(keys.of(0), 0), UnparkResult::default());
}

/// Parks until it was unparked with `DONE`, with deadlines that pass at about the time at which
/// others unpark it. Adds up what it was given, and what it lost by timeouts.
fn race(key: usize, token: usize, unparked: &AtomicUsize, result: &Sender<usize>) {
    for turn in 0.. {
        let deadline = Instant::now() + Duration::from_micros(turn % 50);
        let called = Cell::new(false);
        let note = |_, _| called.set(true);
        // SAFETY: as in `park_as`.
        let end = unsafe { park(key, || true, || {}, note, ParkToken(token), Some(deadline)) };
        assert_eq!(called.get(), end == ParkResult::TimedOut);
        match end {
            ParkResult::Unparked(DONE) => break,
            ParkResult::Unparked(UnparkToken(token)) => {
                assert_eq!(token, GIVEN);
                unparked.fetch_add(1, SeqCst);
            }
            ParkResult::TimedOut | ParkResult::Invalid => {}
        }
    }
    result.send(token).unwrap();
}

const GIVEN: usize = 77;
const DONE: UnparkToken = UnparkToken(99);

#[test]
fn each_unpark_reaches_one_waiter_beside_deadlines() {
    let keys = Keys([0; 2]);
    let key = keys.of(0);
    let (unparked, mut given, mut turn) = (AtomicUsize::new(0), 0, 0);
    let (done, is_done) = channel();
    scope(|scope| {
        for token in 0..4 {
            let (unparked, done) = (&unparked, done.clone());
            scope.spawn(move || race(key, token, unparked, &done));
        }
        let filter = |ParkToken(token)| {
            if token % 2 == 0 { FilterOp::Unpark } else { FilterOp::Skip }
        };
        // Slow, so that deadlines pass in the middle.
        let give = || {
            (0..20).for_each(|_| yield_now());
            UnparkToken(GIVEN)
        };
        while given < 1_000 {
            turn += 1;
            given += match turn % 3 {
                0 => filter_with(key, filter, |_| give()).unparked_threads,
                1 => unpark(key, GIVEN).unparked_threads,
                _ => {
                    let operation = RequeueOp::UnparkOneRequeueRest;
                    let moved = requeue_with(&keys, operation, |_, _| give());
                    moved.unparked_threads + unpark_each(keys.of(1), GIVEN)
                }
            };
        }
        let mut left = 4;
        while left > 0 {
            unpark_each(key, DONE.0);
            left -= is_done.try_iter().count();
            yield_now();
        }
    });
    assert_eq!(unparked.into_inner(), given);
}
