//! Larger scenes of the locks under shuttle.

use unherd_sys::primitives::{Arc, thread};

use super::*;

const SCHEDULES: usize = 2000;

/// Producers and consumers over one mutex with two condition variables: all that was put is taken.
fn queue<const BARGING_US: u32>() {
    const ROOM: u32 = 1;
    let queue =
        Arc::new((Mutex::<u32, BARGING_US>::with_barging(0), Condvar::new(), Condvar::new()));
    let producer = |all: bool| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            let (count, not_full, not_empty) = &*queue;
            for _ in 0..3 {
                let mut count = count.lock();
                not_full.wait_while(&mut count, |count| *count == ROOM);
                *count += 1;
                if all {
                    not_empty.notify_all();
                }
                drop(count);
                if !all {
                    not_empty.notify_one();
                }
            }
        })
    };
    let consumer = |all: bool| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            let (count, not_full, not_empty) = &*queue;
            for _ in 0..3 {
                let mut count = count.lock();
                not_empty.wait_while(&mut count, |count| *count == 0);
                *count -= 1;
                if all {
                    not_full.notify_all();
                }
                drop(count);
                if !all {
                    not_full.notify_one();
                }
            }
        })
    };
    let threads = [producer(true), producer(false), consumer(true), consumer(false)];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*queue.0.lock(), 0);
}

#[test]
fn a_bounded_queue_loses_nothing() {
    ::shuttle::check_random(queue::<{ u32::MAX }>, SCHEDULES);
}

#[test]
fn a_bounded_queue_with_hand_overs_loses_nothing() {
    ::shuttle::check_random(queue::<0>, SCHEDULES);
}

#[test]
fn fair_unlocks_exclude() {
    let scene = || {
        let count = Arc::new(Mutex::new(0));
        let threads = [0; 3].map(|_| {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut guard = count.lock();
                    let seen = *guard;
                    thread::yield_now();
                    *guard = seen + 1;
                    guard.unlock_fair();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*count.lock(), 6);
    };
    ::shuttle::check_random(scene, SCHEDULES);
}
