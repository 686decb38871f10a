//! Notifications without a mutex.

use unherd_sys::primitives::{AtomicU32, Ordering};

use super::*;

type Shared = (EventCount, AtomicU32);

/// Waits until the condition is at least `n`.
fn wait_for(shared: &Shared, n: u32) {
    loop {
        let epoch = shared.0.listen();
        if shared.1.load(Ordering::Relaxed) >= n {
            break;
        }
        shared.0.wait(epoch);
    }
}

fn spawn_waiter(shared: &Arc<Shared>, n: u32) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || wait_for(&shared, n))
}

fn shared() -> Arc<Shared> {
    Arc::new((EventCount::new(), AtomicU32::new(0)))
}

#[test]
fn notification_meets_listener() {
    check(Some(3), || {
        let shared = shared();
        let waiter = spawn_waiter(&shared, 1);
        shared.1.store(1, Ordering::Relaxed);
        shared.0.notify_one();
        waiter.join().unwrap();
    });
}

/// One that listens later does not hide the notification from one that has listened before.
#[test]
fn later_listener_meets_notification() {
    check(Some(3), || {
        let shared = shared();
        let waiter = spawn_waiter(&shared, 1);
        shared.1.store(1, Ordering::Relaxed);
        shared.0.notify_one();
        let _does_not_wait = shared.0.listen();
        waiter.join().unwrap();
    });
}

/// Each of two notifications of one reaches a waiter.
#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn two_notifications_reach_two_listeners() {
    check(Some(2), || {
        let shared = shared();
        let waiters = [1, 1].map(|n| spawn_waiter(&shared, n));
        shared.1.store(1, Ordering::Relaxed);
        shared.0.notify_one();
        shared.0.notify_one();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn a_notification_of_all_reaches_both() {
    check(Some(2), || {
        let shared = shared();
        let waiters = [1, 1].map(|n| spawn_waiter(&shared, n));
        shared.1.store(1, Ordering::Relaxed);
        shared.0.notify_all();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}
