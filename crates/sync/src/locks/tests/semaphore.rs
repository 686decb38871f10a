//! Permits with real threads, and with tasks that are polled by hand.

use super::super::raw_semaphore::RawSemaphore;
use super::*;

const EVER: Duration = Duration::MAX;
const NEVER: Duration = Duration::ZERO;

#[test]
fn permits_are_never_more_than_there_are() {
    let (semaphore, inside) = (Semaphore::new(3), AtomicUsize::new(0));
    let fair = Semaphore::<0>::with_barging(3);
    let work = |n: u32| {
        for turn in 0..500 {
            let (_any, _fair);
            if turn % 2 == 0 {
                _any = semaphore.acquire(n);
            } else {
                _fair = fair.acquire(n);
                continue;
            }
            let before = inside.fetch_add(n as usize, Ordering::Relaxed);
            assert!(before + n as usize <= 3);
            inside.fetch_sub(n as usize, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| (1..=3).chain(1..=3).for_each(|n| drop(scope.spawn(move || work(n)))));
    assert_eq!((semaphore.available(), fair.available()), (3, 3));
}

#[test]
fn a_semaphore_serves_the_longest_waiter_first() {
    let semaphore = Semaphore::<0>::with_barging(1);
    let kept = semaphore.acquire(1);
    thread::scope(|scope| {
        let both = scope.spawn(|| semaphore.acquire(2).count());
        until_queued(Address::of(Kind::Semaphore, &semaphore));
        semaphore.release(1);
        assert!(semaphore.try_acquire(1).is_none(), "the first needs it");
        assert!(semaphore.acquire_until(1, past()).is_none());
        // With this one there are two.
        drop(kept);
        assert_eq!(both.join().unwrap(), 2);
    });
    semaphore.acquire(2).forget();
    assert_eq!((semaphore.available(), size_of_val(&semaphore)), (0, 4));
}

#[test]
#[should_panic(expected = "536870911 at most")]
fn permits_beyond_the_most_panic() {
    Semaphore::new(Semaphore::<1000>::PERMITS_MAX).release(1);
}

/// What a poller cannot have it does not open for others, of which one stands first.
#[test]
fn who_gives_up_leaves_it_closed_for_the_first() {
    let semaphore = RawSemaphore::new(0);
    thread::scope(|scope| {
        let first = scope.spawn(|| semaphore.acquire(3, EVER, Deadline::NEVER));
        until_queued(Address::of(Kind::Semaphore, &semaphore));
        // Barging is over for once.
        semaphore.release(1, Duration::from_nanos(1));
        let was_closed = semaphore.is_closed();
        let polls = semaphore.acquire(2, EVER, past());
        let is_closed = semaphore.is_closed();
        semaphore.release(2, EVER);
        assert!(first.join().unwrap());
        assert_eq!((was_closed, polls, is_closed), (true, false, true));
    });
    assert!(!semaphore.acquire(1, NEVER, past()));
    assert!(!semaphore.is_closed(), "nobody waits any more");
}

#[test]
fn no_permits_are_never_waited_for() {
    let semaphore = Semaphore::<0>::with_barging(1);
    thread::scope(|scope| {
        let first = scope.spawn(|| semaphore.acquire(2).count());
        until_queued(Address::of(Kind::Semaphore, &semaphore));
        let none = semaphore.acquire_until(0, past()).map(|none| none.count());
        let one = semaphore.try_acquire(1).is_some();
        semaphore.release(1);
        first.join().unwrap();
        assert_eq!((none, one), (Some(0), false), "it is closed still");
    });
}

#[cfg(feature = "async")]
mod with_tasks {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

    /// A task that was polled once, and waits.
    fn waits<'a>(task: impl Future<Output = ()> + 'a, waker: &Waker) -> Task<'a> {
        let mut task: Task<'a> = Box::pin(task);
        assert!(poll(&mut task, waker).is_pending());
        task
    }

    fn poll(task: &mut Task<'_>, waker: &Waker) -> Poll<()> {
        task.as_mut().poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn task_that_is_not_polled_leaves_permits_to_others() {
        let semaphore = RawSemaphore::new(0);
        let task = || waits(semaphore.acquire_async(1, EVER), Waker::noop());
        let (not_polled, mut next) = (task(), task());
        semaphore.release(1, EVER);
        semaphore.release(1, EVER);
        assert!(poll(&mut next, Waker::noop()).is_ready());
        // A thread behind it as well.
        thread::scope(|scope| {
            let thread = scope.spawn(|| semaphore.acquire(1, EVER, Deadline::NEVER));
            until_queued(Address::of(Kind::Semaphore, &semaphore));
            semaphore.release(1, EVER);
            assert!(thread.join().unwrap());
        });
        drop(not_polled);
        assert_eq!(semaphore.available(), 1, "it had one");
    }

    /// Barging goes on after a hand-over that the first was content with.
    #[test]
    fn hand_over_to_the_first_closes_for_nobody() {
        let (semaphore, barging) = (RawSemaphore::new(0), Duration::from_nanos(1));
        let task = || waits(semaphore.acquire_async(1, barging), Waker::noop());
        let (_first, _next) = (task(), task());
        semaphore.release(1, barging);
        assert!(!semaphore.is_closed());
        let _third = waits(semaphore.acquire_async(3, barging), Waker::noop());
        semaphore.release(2, barging);
        assert!(!semaphore.is_closed(), "one of the two was handed over");
        semaphore.release(1, barging);
        assert!(semaphore.is_closed(), "it has too few for the first of all");
    }

    /// The thread that takes a permit wakes the next, whose waker panics.
    #[test]
    fn waker_that_panics_costs_nobody_a_permit() {
        struct Bomb;
        impl Wake for Bomb {
            fn wake(self: Arc<Self>) {
                resume_unwind(Box::new("the test's own panic"));
            }
        }
        let semaphore = RawSemaphore::new(0);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let acquire = || semaphore.acquire(1, EVER, Deadline::NEVER);
                catch_unwind(AssertUnwindSafe(acquire)).is_err()
            });
            until_queued(Address::of(Kind::Semaphore, &semaphore));
            let task = waits(semaphore.acquire_async(1, EVER), &Waker::from(Arc::new(Bomb)));
            semaphore.release(2, EVER);
            assert!(thread.join().unwrap(), "the panic goes on");
            assert_eq!(semaphore.available(), 1);
            drop(task);
        });
        assert_eq!(semaphore.available(), 2);
    }
}

#[test]
fn owned_permits_come_back_or_are_forgotten() {
    let semaphore = std::sync::Arc::new(Semaphore::new(3));
    let (two, one) = (semaphore.acquire_owned(2), semaphore.try_acquire_owned(1));
    assert_eq!((two.count(), semaphore.available()), (2, 0));
    assert!(semaphore.try_acquire_owned(1).is_none());
    two.forget();
    assert_eq!(semaphore.available(), 0);
    thread::spawn(move || drop(one)).join().unwrap();
    assert_eq!(semaphore.available(), 1);
    assert_eq!(std::sync::Arc::strong_count(&semaphore), 1);
}
