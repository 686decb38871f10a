//! Tasks that wait for locks, beside threads.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use unherd_sync::{EventCount, Latch, Mutex, Semaphore};
use unherd_sys::primitives::thread;
use unherd_testkit::block_on;

#[test]
fn mutex_excludes_tasks_and_threads() {
    let count = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..5000).for_each(|_| *count.lock() += 1));
            scope.spawn(|| (0..5000).for_each(|_| *block_on(count.lock_async()) += 1));
        }
    });
    assert_eq!(count.into_inner(), 30_000);
}

#[test]
fn dropped_task_leaves_the_mutex_to_others() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let mutex = Mutex::new(0);
    let mut context = Context::from_waker(Waker::noop());
    let guard = block_on(is_send(mutex.lock_async()));
    {
        let mut first = pin!(mutex.lock_async());
        assert!(first.as_mut().poll(&mut context).is_pending());
        is_send(guard).unlock_fair();
        assert!(mutex.try_lock().is_none(), "it was handed over");
    }
    assert!(mutex.try_lock().is_some());
}

#[test]
fn tasks_wait_for_events() {
    let events = EventCount::new();
    let mut context = Context::from_waker(Waker::noop());
    let epoch = events.listen();
    let mut second = pin!(events.wait_async(epoch));
    {
        let mut first = pin!(events.wait_async(epoch));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(events.notify_one());
        // Dropped, it passes the notification on.
    }
    assert!(second.as_mut().poll(&mut context).is_ready());
    block_on(events.wait_async(epoch));
}

#[test]
fn semaphore_serves_tasks_and_threads() {
    let (semaphore, inside) = (Semaphore::new(2), Mutex::new(0));
    let section = || {
        *inside.lock() += 1;
        assert!(*inside.lock() <= 2);
        *inside.lock() -= 1;
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let _one = semaphore.acquire(1);
                    section();
                }
            });
            scope.spawn(|| {
                for _ in 0..2000 {
                    let _one = block_on(semaphore.acquire_async(1));
                    section();
                }
            });
        }
    });
    assert_eq!(semaphore.available(), 2);
}

#[test]
fn dropped_task_lets_those_behind_it_have_permits() {
    let semaphore = Semaphore::<0>::with_barging(1);
    let mut context = Context::from_waker(Waker::noop());
    let mut second = pin!(semaphore.acquire_async(1));
    {
        let mut first = pin!(semaphore.acquire_async(2));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending(), "the first comes first");
    }
    assert!(second.as_mut().poll(&mut context).is_ready());
}

#[test]
fn task_waits_for_a_latch() {
    let latch = Latch::new(1);
    let mut context = Context::from_waker(Waker::noop());
    let mut waits = pin!(latch.wait_async());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    latch.count_down();
    assert!(waits.poll(&mut context).is_ready());
}
