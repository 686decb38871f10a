//! Tasks that meet wakes. They are polled by the scene, which is their runtime.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

use super::*;

/// Counts how often its task was woken.
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counting() -> (std::sync::Arc<Counting>, Waker) {
    let counting = std::sync::Arc::new(Counting(AtomicUsize::new(0)));
    (std::sync::Arc::clone(&counting), Waker::from(counting))
}

fn poll(future: Pin<&mut impl Future<Output = Outcome>>, waker: &Waker) -> Poll<Outcome> {
    future.poll(&mut Context::from_waker(waker))
}

fn spawn_wake(table: &Arc<Table>, n: usize) -> thread::JoinHandle<usize> {
    let table = Arc::clone(table);
    thread::spawn(move || table.wake_with(&1, n, Token(7)).total())
}

const WOKEN: Poll<Outcome> = Poll::Ready(Outcome::Woken(Token(7)));

/// The empty check, with a first poll in the place of a sleep.
#[test]
fn wake_races_with_first_poll() {
    check(ALL, || {
        let (table, condition) = (table(), Arc::new(AtomicU32::new(0)));
        let waker = {
            let (table, condition) = (Arc::clone(&table), Arc::clone(&condition));
            thread::spawn(move || {
                condition.store(1, Ordering::Relaxed);
                table.wake(&1, 1).total()
            })
        };
        let unmet = || condition.load(Ordering::Relaxed) == 0;
        let mut future = pin!(table.wait_async(&1, unmet, Reason::OTHER));
        let (counting, task) = counting();
        let first = poll(future.as_mut(), &task);
        let woken = waker.join().unwrap();
        match first {
            Poll::Pending => assert_eq!((woken, counting.0.load(Ordering::Relaxed)), (1, 1)),
            Poll::Ready(outcome) => assert_eq!((woken, outcome), (0, Outcome::Invalid)),
        }
    });
}

/// What the waker wrote before the wake is visible to a task that is ready.
#[test]
fn a_ready_task_sees_what_the_waker_wrote() {
    struct Shared(UnsafeCell<u32>);
    // SAFETY: the scene's own protocol orders the accesses, and loom checks that it does.
    unsafe impl Sync for Shared {}
    check(ALL, || {
        let (table, shared) = (table(), Arc::new(Shared(UnsafeCell::new(0))));
        let mut future = pin!(table.wait_async(&1, || true, Reason::OTHER));
        assert!(poll(future.as_mut(), Waker::noop()).is_pending());
        let waker = {
            let (table, shared) = (Arc::clone(&table), Arc::clone(&shared));
            thread::spawn(move || {
                // SAFETY: before the wake, this thread alone uses it.
                shared.0.with_mut(|value| unsafe { *value = 7 });
                table.wake_with(&1, 1, Token(7))
            })
        };
        let ready = poll(future.as_mut(), Waker::noop());
        if ready.is_ready() {
            assert_eq!(ready, WOKEN);
            // SAFETY: after the wake, this thread alone uses it.
            assert_eq!(shared.0.with(|value| unsafe { *value }), 7);
        }
        assert_eq!(waker.join().unwrap(), 1);
    });
}

/// A wake of one that chooses a task which is dropped reaches the next.
#[test]
fn drop_meets_wake() {
    check(ALL, || {
        let table = table();
        let mut first = Box::pin(table.wait_async(&1, || true, Reason::OTHER));
        let mut second = pin!(table.wait_async(&1, || true, Reason::OTHER));
        let (counting, task) = counting();
        assert!(poll(first.as_mut(), Waker::noop()).is_pending());
        assert!(poll(second.as_mut(), &task).is_pending());
        let waker = spawn_wake(&table, 1);
        drop(first);
        assert_eq!(waker.join().unwrap(), 1);
        assert_eq!(counting.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(second, Waker::noop()), WOKEN);
        assert!(table.buckets.is_empty(table.hash_of(&1)));
    });
}

/// A wake of all, which carries one at a time, is for the waiters of that moment alone.
#[test]
fn drop_meets_wake_of_all() {
    for dropped in 0..3 {
        check(FOUR_PREEMPTIONS, move || {
            let table = table();
            let wait = || Box::pin(table.wait_async(&1, || true, Reason::OTHER));
            let mut futures: Vec<_> = (0..3).map(|_| wait()).collect();
            let (counting, task) = counting();
            for (index, future) in futures.iter_mut().enumerate() {
                let waker = if index == dropped { Waker::noop() } else { &task };
                assert!(poll(future.as_mut(), waker).is_pending());
            }
            let waker = spawn_wake(&table, usize::MAX);
            drop(futures.remove(dropped));
            assert!([2, 3].contains(&waker.join().unwrap()));
            assert_eq!(counting.0.load(Ordering::Relaxed), 2);
            for future in &mut futures {
                assert_eq!(poll(future.as_mut(), Waker::noop()), WOKEN);
            }
            assert!(table.buckets.is_empty(table.hash_of(&1)));
        });
    }
}

/// A wake that meets a change of the task's waker wakes the new one, or the poll that brings it is
/// ready.
#[test]
fn poll_with_new_waker_meets_wake() {
    check(ALL, || {
        let table = table();
        let mut future = pin!(table.wait_async(&1, || true, Reason::OTHER));
        let (before, waker_before) = counting();
        let (after, waker_after) = counting();
        assert!(poll(future.as_mut(), &waker_before).is_pending());
        let waker = spawn_wake(&table, 1);
        let polled = poll(future.as_mut(), &waker_after);
        assert_eq!(waker.join().unwrap(), 1);
        let woken = [before, after].map(|counting| counting.0.load(Ordering::Relaxed));
        if polled.is_pending() {
            assert_eq!(woken, [0, 1]);
            assert_eq!(poll(future, &waker_after), WOKEN);
        } else {
            assert_eq!((woken, polled), ([1, 0], WOKEN));
        }
    });
}

/// A task that is dropped while it is moved, and perhaps woken where it went: the one behind it
/// gets the wake.
#[test]
fn drop_meets_requeue() {
    check(FOUR_PREEMPTIONS, || {
        let table = requeue::two_buckets();
        let [from, to, _] = requeue::keys(&table);
        let mut first = Box::pin(table.wait_async(&from, || true, Reason::OTHER));
        let mut second = pin!(table.wait_async(&from, || true, Reason::OTHER));
        assert!(poll(first.as_mut(), Waker::noop()).is_pending());
        assert!(poll(second.as_mut(), Waker::noop()).is_pending());
        let requeuer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let moved = table.requeue(&from, &to, 0, 2).moved;
                (moved, table.wake_with(&to, 1, Token(7)).total())
            })
        };
        drop(first);
        assert!([(1, 1), (2, 1)].contains(&requeuer.join().unwrap()));
        assert_eq!(poll(second, Waker::noop()), WOKEN);
        assert!(quiet(&table, from) && quiet(&table, to));
    });
}

/// A requeue wakes one that is dropped, and moves the next: the wake goes to the one after that,
/// which waits for the old key still.
#[test]
fn drop_meets_requeue_that_wakes() {
    check(FOUR_PREEMPTIONS, || {
        let table = requeue::two_buckets();
        let [from, to, _] = requeue::keys(&table);
        let wait = || Box::pin(table.wait_async(&from, || true, Reason::OTHER));
        let mut futures = [wait(), wait(), wait()];
        for future in &mut futures {
            assert!(poll(future.as_mut(), Waker::noop()).is_pending());
        }
        let requeuer = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.requeue(&from, &to, 1, 1))
        };
        let [first, mut second, mut third] = futures;
        drop(first);
        let requeued = requeuer.join().unwrap();
        assert_eq!((requeued.woken.total(), requeued.moved), (1, 1));
        let polled = [&mut second, &mut third].map(|task| poll(task.as_mut(), Waker::noop()));
        assert_eq!(polled.iter().filter(|polled| polled.is_ready()).count(), 1);
        assert!(quiet(&table, from));
        assert_eq!(table.wake_with(&to, 2, Token(7)), 1);
        let moved = if polled[0].is_ready() { third } else { second };
        assert_eq!(poll(pin!(moved).as_mut(), Waker::noop()), WOKEN);
    });
}

/// A first poll is to a requeue what it is to a wake: either it sees the condition, or it is moved.
#[test]
fn requeue_meets_first_poll() {
    check(ALL, || {
        let (table, condition) = (requeue::two_buckets(), Arc::new(AtomicU32::new(0)));
        let [from, to, _] = requeue::keys(&table);
        let requeuer = {
            let (table, condition) = (Arc::clone(&table), Arc::clone(&condition));
            thread::spawn(move || {
                condition.store(1, Ordering::Relaxed);
                table.requeue(&from, &to, 0, 1).moved
            })
        };
        let unmet = || condition.load(Ordering::Relaxed) == 0;
        let mut future = pin!(table.wait_async(&from, unmet, Reason::OTHER));
        let first = poll(future.as_mut(), Waker::noop());
        let moved = requeuer.join().unwrap();
        assert_eq!(table.wake_with(&to, 1, Token(7)), moved);
        match first {
            Poll::Pending => assert_eq!((moved, poll(future, Waker::noop())), (1, WOKEN)),
            Poll::Ready(outcome) => assert_eq!((moved, outcome), (0, Outcome::Invalid)),
        }
    });
}
