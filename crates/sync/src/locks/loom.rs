//! The locks under loom: exclusion, wakeups and what they publish.
#![expect(unsafe_code, reason = "cells whose accesses loom checks")]

mod event_count;
mod once;
mod rendezvous;
mod rwlock;
mod semaphore;
#[cfg(feature = "async")]
mod task;

use std::time::Duration;

use unherd_sys::primitives::{Arc, AtomicU8, UnsafeCell, thread};
use unherd_sys::{Deadline, Timestamp};

use super::word_mutex::ByteMutex;
use super::*;
use crate::wait_table::loom::check;

/// Barging for ever, and never.
const EVER: Duration = Duration::MAX;
const NEVER: Duration = Duration::ZERO;
/// Each second time that somebody asks, barging is over.
const NOW_AND_THEN: Duration = Duration::from_nanos(2);

fn spawn<S: Send + Sync + 'static, R: 'static>(
    shared: &Arc<S>,
    what: impl FnOnce(&S) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || what(&shared))
}

struct Guarded {
    mutex: ByteMutex,
    value: UnsafeCell<u32>,
    changed: Condvar,
}

// SAFETY: the value is guarded by the mutex, as loom checks.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Arc<Self> {
        let (mutex, changed) = (ByteMutex::new(AtomicU8::new(0)), Condvar::new());
        Arc::new(Self { mutex, value: UnsafeCell::new(0), changed })
    }

    fn add(&self) {
        // SAFETY: the mutex is held.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: the mutex is held.
        self.value.with(|value| unsafe { *value })
    }

    fn add_locked(&self, barging: Duration) {
        assert!(self.mutex.lock(barging, Deadline::NEVER));
        self.add();
        self.unlock(barging);
    }

    fn unlock(&self, barging: Duration) {
        // SAFETY: the scene holds it.
        unsafe { self.mutex.unlock(barging) };
    }

    fn wait(&self, deadline: Deadline) -> bool {
        // SAFETY: the scene holds it.
        unsafe { self.changed.wait_raw(&self.mutex, EVER, deadline) }.is_ok()
    }
}

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(0))
}

fn excludes(others: u32, preemptions: Option<usize>, barging: Duration) {
    check(preemptions, move || {
        let guarded = Guarded::new();
        let threads: Vec<_> = (0..others)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || guarded.add_locked(barging))
            })
            .collect();
        guarded.add_locked(barging);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(guarded.mutex.try_lock());
        assert_eq!(guarded.get(), others + 1);
    });
}

#[test]
fn mutex_excludes_and_wakes() {
    excludes(1, None, EVER);
}

#[test]
fn mutex_without_barging_excludes() {
    excludes(1, None, NEVER);
}

/// A mutex that is handed over is never free in between.
#[test]
fn mutex_hands_over() {
    check(Some(3), || {
        let guarded = Guarded::new();
        assert!(guarded.mutex.try_lock());
        let waiter = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.add_locked(NEVER))
        };
        guarded.unlock(NEVER);
        if guarded.mutex.try_lock() {
            guarded.add();
            guarded.unlock(NEVER);
        }
        waiter.join().unwrap();
        assert!(guarded.mutex.try_lock());
        assert!(guarded.get() > 0);
    });
}

#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn mutex_of_three() {
    excludes(2, Some(3), EVER);
}

/// An unlock that wakes one thread publishes to another that comes before it.
#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn mutex_barging_sees_what_was_written() {
    check(Some(3), || {
        let guarded = Guarded::new();
        let parks = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.add_locked(EVER))
        };
        let barges = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                if guarded.mutex.try_lock() {
                    guarded.add();
                    guarded.unlock(EVER);
                }
            })
        };
        guarded.add_locked(EVER);
        parks.join().unwrap();
        barges.join().unwrap();
    });
}

#[test]
fn try_lock_sees_what_was_written() {
    check(None, || {
        let guarded = Guarded::new();
        let other = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.add_locked(EVER))
        };
        if guarded.mutex.try_lock() {
            guarded.add();
            guarded.unlock(EVER);
        }
        other.join().unwrap();
        assert!(guarded.mutex.try_lock());
        assert!(guarded.get() > 0);
    });
}

/// A waiter that gives up leaves the mutex to be unlocked and locked.
#[test]
fn timeout_meets_unlock() {
    check(Some(3), || {
        let guarded = Guarded::new();
        assert!(guarded.mutex.try_lock());
        let other = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                let locked = guarded.mutex.lock(EVER, past());
                if locked {
                    guarded.add();
                    guarded.unlock(EVER);
                }
                u32::from(locked)
            })
        };
        guarded.add();
        guarded.unlock(EVER);
        let locked = other.join().unwrap();
        assert!(guarded.mutex.try_lock());
        assert_eq!(guarded.get(), 1 + locked);
    });
}

/// A notification finds the waiter that has unlocked for it, whether the mutex is held or free.
fn notifies(holds: bool) {
    check(Some(4), move || {
        let guarded = Guarded::new();
        let waiter = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                guarded.mutex.lock(EVER, Deadline::NEVER);
                while guarded.get() == 0 {
                    guarded.wait(Deadline::NEVER);
                }
                guarded.unlock(EVER);
            })
        };
        guarded.mutex.lock(EVER, Deadline::NEVER);
        guarded.add();
        if holds {
            guarded.changed.notify_one();
            guarded.unlock(EVER);
        } else {
            guarded.unlock(EVER);
            guarded.changed.notify_one();
        }
        waiter.join().unwrap();
    });
}

#[test]
fn condvar_moves_to_a_held_mutex() {
    notifies(true);
}

#[test]
fn condvar_wakes_for_a_free_mutex() {
    notifies(false);
}

/// One of two is woken, and the other moved behind it, where its unlock finds it.
#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn condvar_notifies_two_with_the_mutex_free() {
    check(Some(2), || {
        let guarded = Guarded::new();
        let waiters = [(); 2].map(|()| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                guarded.mutex.lock(EVER, Deadline::NEVER);
                while guarded.get() == 0 {
                    guarded.wait(Deadline::NEVER);
                }
                guarded.unlock(EVER);
            })
        });
        guarded.add_locked(EVER);
        guarded.changed.notify_all();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// Whether it times out or is notified, the waiter comes back with the mutex.
#[test]
fn condvar_timeout_meets_notify() {
    check(Some(4), || {
        let guarded = Guarded::new();
        let waiter = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                guarded.mutex.lock(EVER, Deadline::NEVER);
                guarded.wait(past());
                guarded.add();
                guarded.unlock(EVER);
            })
        };
        guarded.mutex.lock(EVER, Deadline::NEVER);
        guarded.add();
        guarded.changed.notify_all();
        guarded.unlock(EVER);
        waiter.join().unwrap();
        assert!(guarded.mutex.try_lock());
        assert_eq!(guarded.get(), 2);
    });
}
