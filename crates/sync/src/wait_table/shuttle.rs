//! Larger scenes under shuttle: many random schedules, sequentially consistent. Logic, not
//! ordering.

use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use unherd_sys::Deadline;
use unherd_sys::primitives::{Arc, AtomicU64, Ordering, thread};

use super::*;

const SCHEDULES: usize = 2000;

#[test]
fn tokens_are_neither_lost_nor_doubled() {
    ::shuttle::check_random(|| drop(tokens(WaitTable::builder().buckets(1), 2)), SCHEDULES);
}

/// Polls on this thread, which sleeps in between.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Producers and consumers of tokens over some keys, with timeouts: each token that was put is
/// taken once, and nobody sleeps for ever (a deadlock fails the run). Of each key's consumers one
/// is a task; the waiters that give up are threads and tasks.
fn tokens(builder: WaitTableBuilder<u64>, keys: u64) -> Arc<WaitTable<u64>> {
    let table = Arc::new(builder.seed(1).build());
    let left: Arc<Vec<AtomicU64>> = Arc::new((0..keys).map(|_| AtomicU64::new(0)).collect());
    let take = |count: &AtomicU64| {
        let some = |n: u64| n.checked_sub(1);
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, some).is_ok()
    };
    let takers = 2 * keys;
    let consumers: Vec<_> = (0..takers + 2)
        .map(|me| {
            let (table, left) = (Arc::clone(&table), Arc::clone(&left));
            thread::spawn(move || {
                let key = me % keys;
                let count = &left[key as usize];
                let none = || count.load(Ordering::SeqCst) == 0;
                if me < keys {
                    while !take(count) {
                        let _ = block_on(table.wait_async(&key, none, Reason::OTHER));
                    }
                    return;
                }
                if me < takers {
                    table.wait_until(&key, || take(count), Reason::OTHER).unwrap();
                    return;
                }
                if me == takers {
                    // Dropped at any time; if it was chosen, that is passed on.
                    let mut wait = pin!(table.wait_async(&key, none, Reason::OTHER));
                    let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    thread::yield_now();
                    return;
                }
                // Takes nothing, and gives up at once: a wake that finds it is passed on.
                let past = Deadline::at(unherd_sys::Timestamp::from_ns(0));
                if let Outcome::Woken(_) = table.wait(&key, none, past) {
                    table.wake(&key, 1);
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..2)
        .map(|half| {
            let (table, left) = (Arc::clone(&table), Arc::clone(&left));
            thread::spawn(move || {
                for token in 0..keys {
                    let key = (token + half) % keys;
                    left[key as usize].fetch_add(1, Ordering::SeqCst);
                    table.wake(&key, 1);
                }
            })
        })
        .collect();
    for thread in consumers.into_iter().chain(producers) {
        thread.join().unwrap();
    }
    assert!(left.iter().all(|count| count.load(Ordering::SeqCst) == 0));
    table
}

/// Tokens of two keys, and threads that wait for both: each token is taken once.
#[test]
fn tokens_of_any_key() {
    const TOKENS: u64 = 4;
    let scene = || {
        let table = Arc::new(WaitTable::<u64>::builder().buckets(2).seed(1).build());
        let left = Arc::new([0; 2].map(AtomicU64::new));
        let takers: Vec<_> = (0..TOKENS)
            .map(|_| {
                let (table, left) = (Arc::clone(&table), Arc::clone(&left));
                let some = |n: u64| n.checked_sub(1);
                let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
                thread::spawn(move || {
                    while left.iter().all(|count| count.fetch_update(set, fetch, some).is_err()) {
                        let none = |index: usize| left[index].load(Ordering::SeqCst) == 0;
                        assert!(table.wait_any(&[0, 1], none, Reason::OTHER).is_ok());
                    }
                })
            })
            .collect();
        for key in (0..TOKENS).map(|token| token % 2) {
            left[key as usize].fetch_add(1, Ordering::SeqCst);
            table.wake(&key, 1);
        }
        takers.into_iter().for_each(|taker| taker.join().unwrap());
    };
    ::shuttle::check_random(scene, SCHEDULES);
}

/// A condition variable and its mutex: a signal moves the waiters to the mutex, and each that
/// leaves wakes the next. Some give up at any time.
fn ring(builder: WaitTableBuilder<u64>) {
    const CONDITION: u64 = 0;
    const MUTEX: u64 = 1;
    let table = Arc::new(builder.seed(1).build());
    let signalled = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..5_u64)
        .map(|me| {
            let (table, signalled) = (Arc::clone(&table), Arc::clone(&signalled));
            thread::spawn(move || {
                let past = Deadline::at(unherd_sys::Timestamp::from_ns(0));
                let how = if me < 3 { Wait::new(Reason::OTHER) } else { Wait::from(past) };
                let quiet = || signalled.load(Ordering::SeqCst) == 0;
                if let Outcome::Woken(_) = table.wait(&CONDITION, quiet, how) {
                    // It has the mutex, and gives it to the next.
                    table.wake(&MUTEX, 1);
                }
            })
        })
        .collect();
    signalled.store(1, Ordering::SeqCst);
    table.requeue(&CONDITION, &MUTEX, 1, usize::MAX);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!([CONDITION, MUTEX].map(|key| table.wake_all(&key).total()), [0, 0]);
}

#[test]
fn a_requeue_hands_a_mutex_round() {
    ::shuttle::check_random(|| ring(WaitTable::builder().buckets(2)), SCHEDULES);
}
