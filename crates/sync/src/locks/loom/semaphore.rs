//! Permits that are taken, released and handed over.

use super::super::raw_semaphore::RawSemaphore;
use super::*;

struct Shared {
    semaphore: RawSemaphore,
    value: UnsafeCell<u32>,
}

// SAFETY: the value is guarded by the one permit, as loom checks.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(permits: u32) -> Arc<Self> {
        let semaphore = RawSemaphore::new(permits);
        Arc::new(Self { semaphore, value: UnsafeCell::new(0) })
    }

    /// With the one permit that there is.
    fn add(&self) {
        // SAFETY: nobody else has it.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn acquire(&self, n: u32, barging: Duration) {
        assert!(self.semaphore.acquire(n, barging, Deadline::NEVER));
    }
}

fn excludes(barging: Duration) {
    check(Some(4), move || {
        let shared = Shared::new(1);
        let section = move |shared: &Shared| {
            shared.acquire(1, barging);
            shared.add();
            shared.semaphore.release(1, barging);
        };
        let other = spawn(&shared, section);
        section(&shared);
        other.join().unwrap();
        assert!(shared.semaphore.try_acquire(1));
        shared.add();
    });
}

#[test]
fn one_permit_excludes_and_wakes() {
    excludes(EVER);
}

#[test]
fn one_permit_is_handed_over() {
    excludes(NEVER);
}

/// One release of two reaches both that wait, or come meanwhile.
fn reaches_both(barging: Duration) {
    check(Some(2), move || {
        let shared = Shared::new(0);
        let waiters = [(); 2].map(|()| spawn(&shared, move |shared| shared.acquire(1, barging)));
        shared.semaphore.release(2, barging);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(shared.semaphore.available(), 0);
    });
}

#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn release_of_two_reaches_both() {
    reaches_both(EVER);
}

#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn hand_over_of_two_reaches_both() {
    reaches_both(NEVER);
}

/// Two releases of one each reach both; a wake that leaves one asleep says so.
#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
fn two_reach_both(barging: Duration) {
    check(Some(2), move || {
        let shared = Shared::new(0);
        let waiters = [(); 2].map(|()| spawn(&shared, move |shared| shared.acquire(1, barging)));
        shared.semaphore.release(1, barging);
        shared.semaphore.release(1, barging);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[cfg(not(model_yield))] // As above.
#[test]
fn two_releases_reach_both() {
    two_reach_both(EVER);
}

/// While one that was woken to try is on its way, permits are handed over.
#[cfg(not(model_yield))] // As above.
#[test]
fn hand_over_meets_a_wake_to_try() {
    two_reach_both(NOW_AND_THEN);
}

/// One that needs more than there is keeps another out, and gives up: the other goes on.
fn gives_up(barging: Duration) {
    check(Some(3), move || {
        let shared = Shared::new(1);
        let other = spawn(&shared, move |shared| shared.acquire(1, barging));
        assert!(!shared.semaphore.acquire(2, barging, past()));
        other.join().unwrap();
    });
}

#[test]
fn waiter_that_gives_up_lets_the_next_go_on() {
    gives_up(NEVER);
}

#[test]
fn waiter_that_gives_up_meets_one_that_barges() {
    gives_up(EVER);
}

/// Permits that were handed over to a task, as they are at any time, go to the next if it is
/// dropped.
#[cfg(feature = "async")]
#[test]
fn dropped_task_releases_what_was_handed_over() {
    use std::task::{Context, Waker};
    let barging = EVER;
    check(Some(3), move || {
        let shared = Shared::new(0);
        let mut task = Box::pin(shared.semaphore.acquire_async(1, barging));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let releases = spawn(&shared, move |shared| {
            shared.add();
            shared.semaphore.release(1, barging);
        });
        drop(task);
        shared.acquire(1, barging);
        shared.add();
        releases.join().unwrap();
        let mut next = Box::pin(shared.semaphore.acquire_async(1, barging));
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        shared.semaphore.release(1, barging);
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    });
}
