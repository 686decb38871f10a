//! Tasks that wait for locks, and are dropped. The scene is their runtime.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;

fn poll(future: Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Unlocks in another thread.
fn spawn_unlock(guarded: &Arc<Guarded>, barging: Duration) -> thread::JoinHandle<()> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || {
        guarded.add();
        guarded.unlock(barging);
    })
}

/// A task that is dropped as the mutex is handed over to it leaves it free, and what was written
/// under it visible.
#[test]
fn dropped_task_gives_a_hand_over_back() {
    check(Some(3), || {
        let guarded = Guarded::new();
        assert!(guarded.mutex.try_lock());
        let mut task = Box::pin(guarded.mutex.lock_async(NEVER));
        assert!(poll(task.as_mut()).is_pending());
        let unlocks = spawn_unlock(&guarded, NEVER);
        drop(task);
        guarded.add_locked(EVER);
        unlocks.join().unwrap();
        assert!(guarded.mutex.try_lock());
        assert_eq!(guarded.get(), 2);
    });
}

/// A task that is dropped as it is woken is not waited for: the next unlock wakes the next.
#[test]
fn dropped_task_clears_awake() {
    check(Some(3), || {
        let guarded = Guarded::new();
        assert!(guarded.mutex.try_lock());
        let mut task = Box::pin(guarded.mutex.lock_async(EVER));
        assert!(poll(task.as_mut()).is_pending());
        let unlocks = spawn_unlock(&guarded, EVER);
        drop(task);
        unlocks.join().unwrap();
        assert!(guarded.mutex.try_lock());
        let mut next = pin!(guarded.mutex.lock_async(EVER));
        assert!(poll(next.as_mut()).is_pending());
        guarded.unlock(EVER);
        assert!(poll(next).is_ready());
    });
}

/// The same while a third thread takes the mutex in between.
#[cfg(not(model_yield))] // Sleepers that yield to each other go on for ever in loom.
#[test]
fn dropped_task_meets_a_thread_that_barges() {
    check(Some(2), || {
        let guarded = Guarded::new();
        assert!(guarded.mutex.try_lock());
        let mut task = Box::pin(guarded.mutex.lock_async(EVER));
        assert!(poll(task.as_mut()).is_pending());
        guarded.unlock(EVER);
        let barges = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.add_locked(EVER))
        };
        let other = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || guarded.add_locked(EVER))
        };
        drop(task);
        barges.join().unwrap();
        other.join().unwrap();
        assert!(guarded.mutex.try_lock());
        assert_eq!(guarded.get(), 2);
    });
}

/// A task sees what the holder wrote before.
#[test]
fn task_sees_what_was_written() {
    check(Some(3), || {
        let guarded = Guarded::new();
        assert!(guarded.mutex.try_lock());
        let mut task = pin!(guarded.mutex.lock_async(EVER));
        let unlocks = spawn_unlock(&guarded, EVER);
        if poll(task.as_mut()).is_ready() {
            assert_eq!(guarded.get(), 1);
            guarded.unlock(EVER);
        }
        unlocks.join().unwrap();
    });
}
