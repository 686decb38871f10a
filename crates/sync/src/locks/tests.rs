//! With real threads. What a thread does next is known from the table: a test goes on when as many
//! sleep as it wants.
#![expect(unsafe_code, reason = "raw mutexes are unlocked")]

mod semaphore;

use std::time::Duration;

use unherd_sys::primitives::{AtomicBool, AtomicU8, AtomicUsize, Ordering, thread};
use unherd_sys::{Deadline, Timestamp};

use super::barging::is_over;
use super::raw_rwlock::RawRwLock;
use super::table::{Address, Kind, locks};
use super::word_mutex::ByteMutex;
use super::*;
use crate::{Requeued, TimedOut};

/// Waits until somebody sleeps for the lock at `address`; a requeue of nobody counts.
fn until_queued(address: Address) {
    let sleeps = || locks().requeue_if(&address, &address, 0, 0, || false).is_none();
    while !sleeps() {
        thread::yield_now();
    }
}

fn queued_for(address: Address) -> usize {
    let mut queued = 0;
    locks().for_each_tag(&address, |_| queued += 1);
    queued
}

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(0))
}

#[test]
fn a_mutex_excludes() {
    let count = Mutex::new(0_u64);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10_000).for_each(|_| *count.lock() += 1));
        }
    });
    assert_eq!(count.into_inner(), 80_000);
}

#[test]
fn a_mutex_that_always_hands_over_excludes() {
    let count = Mutex::<u64, 0>::with_barging(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| *count.lock() += 1));
        }
    });
    assert_eq!(count.into_inner(), 4000);
}

#[test]
fn a_held_mutex_times_out() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    thread::scope(|scope| {
        let other =
            scope.spawn(|| mutex.lock_until(past()).is_none() && mutex.try_lock().is_none());
        assert!(other.join().unwrap());
    });
    // Nobody waits any more, and the unlock finds that out.
    drop(guard);
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_fair_unlock_hands_over() {
    let mutex = Mutex::new(0);
    let mut guard = mutex.lock();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut guard = mutex.lock();
            *guard += 1;
            *guard
        });
        until_queued(guard.raw().address());
        *guard += 1;
        guard.unlock_fair();
        // It was never free.
        let seen = mutex.lock();
        assert_eq!(*seen, 2);
        drop(seen);
        assert_eq!(waiter.join().unwrap(), 2);
    });
}

/// A thread that lost the mutex to another after a wakeup, and has waited for long enough, gets
/// it from the next unlock.
#[test]
fn barging_ends_by_a_hand_over() {
    let raw = ByteMutex::new(AtomicU8::new(0));
    let barging = Duration::from_nanos(1);
    assert!(raw.lock(barging, Deadline::NEVER));
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            assert!(raw.lock(barging, Deadline::NEVER));
            taken.fetch_add(1, Ordering::Relaxed);
            // SAFETY: it is held.
            unsafe { raw.unlock(barging) };
        });
        // Barges until it cannot.
        let mut barged = 0;
        while taken.load(Ordering::Relaxed) == 0 && barged < 1_000_000 {
            // SAFETY: it is held.
            unsafe { raw.unlock(barging) };
            assert!(raw.lock(barging, Deadline::NEVER));
            barged += 1;
        }
        assert_eq!(taken.load(Ordering::Relaxed), 1, "barged {barged} times");
        waiter.join().unwrap();
    });
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "this thread holds it already")]
fn relocking_panics_in_debug_builds() {
    let mutex = Mutex::new(());
    let _guard = mutex.lock();
    let _never = mutex.lock();
}

#[test]
fn a_panic_unlocks() {
    let mutex = Mutex::new(7);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = mutex.lock();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert_eq!(mutex.try_lock().as_deref(), Some(&7));
}

#[test]
fn a_notification_moves_waiters_to_a_held_mutex() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut guard = mutex.lock();
                changed.wait_while(&mut guard, |go| *go == 0);
                *guard += 1;
            });
        }
        let mut queued = 0;
        while queued < 3 {
            thread::yield_now();
            let itself = Address::of(Kind::Condvar, &changed);
            locks().wake_where(
                &itself,
                |_| {
                    queued += 1;
                    crate::Verdict::Skip
                },
                crate::Token(0),
            );
            queued = if queued < 3 { 0 } else { queued };
        }
        let mut guard = mutex.lock();
        *guard = 1;
        assert_eq!(changed.notify_all(), 3);
        // Nobody was woken: all three wait for the mutex.
        let all =
            locks().requeue(&guard.raw().address(), &Address::of(Kind::Condvar, &changed), 0, 9);
        assert_eq!(all, Requeued { woken: crate::Woken::default(), moved: 3 });
        assert_eq!(changed.notify_all(), 3);
    });
    assert_eq!(mutex.into_inner(), 4);
}

#[test]
fn a_notification_with_the_mutex_free_wakes() {
    let (mutex, changed) = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| changed.wait_while(&mut mutex.lock(), |go| !*go));
        }
        *mutex.lock() = true;
        // Those that come later see it.
        changed.notify_all();
    });
    assert!(!changed.notify_one());
}

#[test]
fn a_wait_times_out_with_the_mutex_locked() {
    let (mutex, changed) = (Mutex::new(7), Condvar::new());
    let mut guard = mutex.lock();
    assert_eq!(changed.wait_until(&mut guard, past()), Err(TimedOut));
    assert_eq!(*guard, 7);
    assert!(mutex.try_lock().is_none());
}

#[test]
fn a_moved_waiter_is_notified_even_if_its_deadline_comes_first() {
    let (mutex, changed) = (&Mutex::new(()), &Condvar::new());
    // A moved waiter has no tag; one that locks again has the time.
    let is_moved = |guard: &MutexGuard<'_, ()>| {
        let mut is_moved = false;
        locks().for_each_tag(&guard.raw().address(), |tag| is_moved |= tag.0 == 0);
        is_moved
    };
    let mut is_notified = false;
    // Its deadline may come before the notification.
    while !is_notified {
        thread::scope(|scope| {
            let end = Deadline::after(Duration::from_millis(100));
            let waiter = scope.spawn(move || changed.wait_until(&mut mutex.lock(), end));
            let here = Address::of(Kind::Condvar, changed);
            while queued_for(here) == 0 && !end.has_passed(Timestamp::now()) {
                thread::yield_now();
            }
            let guard = mutex.lock();
            is_notified = changed.notify_one();
            while !end.has_passed(Timestamp::now()) || is_moved(&guard) {
                thread::yield_now();
            }
            drop(guard);
            assert_eq!(waiter.join().unwrap().is_ok(), is_notified);
        });
    }
}

#[test]
fn a_wait_for_a_condition_looks_once_more_at_its_deadline() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let mut guard = mutex.lock();
    let mut looks = 0;
    let mut until = |looks_needed| {
        looks = 0;
        let condition = |_: &mut _| {
            looks += 1;
            looks < looks_needed
        };
        changed.wait_while_until(&mut guard, condition, past())
    };
    assert_eq!([until(1), until(2), until(3)], [Ok(()), Ok(()), Err(TimedOut)]);
}

/// The futures of a lock that are forgotten stay in its queue.
#[cfg(feature = "async")]
#[test]
fn a_condvar_takes_no_forgotten_task_for_its_waiter() {
    use std::mem::ManuallyDrop;
    use std::task::{Context, Waker};

    #[repr(C)]
    union Place {
        events: ManuallyDrop<EventCount>,
        changed: ManuallyDrop<Condvar>,
    }

    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    assert_eq!(changed.wait_until(&mut mutex.lock(), past()), Err(TimedOut));
    // Nothing else may ever come to its address.
    let place = Box::leak(Box::new(Place { events: ManuallyDrop::new(EventCount::new()) }));
    // SAFETY: it is what was put there.
    let events = unsafe { &place.events };
    let mut future = Box::pin(events.wait_async(events.listen()));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(future);
    place.changed = ManuallyDrop::new(changed);
    // SAFETY: it is what was put there.
    assert!(!unsafe { &place.changed }.notify_one(), "nobody waits");
}

/// A panic would leave two guards: that of the caller, and the waker's.
#[cfg(all(debug_assertions, feature = "async"))]
#[test]
fn a_mutex_that_a_waker_locks_during_a_wait_aborts_in_debug_builds() {
    use std::os::unix::process::ExitStatusExt;
    use std::task::{Context, Wake};

    static LOCK: Mutex<(), { u32::MAX }> = Mutex::with_barging(());
    struct Locks;
    impl Wake for Locks {
        fn wake(self: std::sync::Arc<Self>) {
            std::mem::forget(LOCK.lock());
        }
    }

    // In a process of its own, which it ends.
    if std::env::var_os("UNHERD_TEST_ABORT").is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("locks::tests::a_mutex_that_a_waker_locks_during_a_wait_aborts_in_debug_builds")
            .env("UNHERD_TEST_ABORT", "1")
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{why}");
        assert!(why.contains("this thread holds it already"), "{why}");
        return;
    }
    let (changed, mut guard) = (Condvar::new(), LOCK.lock());
    let mut task = Box::pin(LOCK.lock_async());
    let waker = std::sync::Arc::new(Locks).into();
    assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let _timed_out = changed.wait_until(&mut guard, past());
}

#[test]
fn a_second_mutex_is_refused() {
    let (one, other, changed) = (Mutex::new(false), Mutex::new(()), Condvar::new());
    thread::scope(|scope| {
        scope.spawn(|| changed.wait_while(&mut one.lock(), |go| !*go));
        until_queued(Address::of(Kind::Condvar, &changed));
        let wait = || changed.wait(&mut other.lock());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
        assert!(other.try_lock().is_some(), "the panic has unlocked it");
        *one.lock() = true;
        assert!(changed.notify_one());
    });
}

#[test]
fn locks_are_small() {
    let debug = if cfg!(debug_assertions) { 15 } else { 0 };
    assert_eq!(size_of::<Mutex<()>>(), 1 + debug);
    assert_eq!(size_of::<Condvar>(), size_of::<usize>());
    assert_eq!(size_of::<RwLock<()>>(), if debug == 0 { 4 } else { 16 });
}

#[test]
fn readers_share_and_writers_exclude() {
    let lock = RwLock::new((0_u64, 0_u64));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3000 {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
            scope.spawn(|| {
                for _ in 0..3000 {
                    let pair = lock.read();
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), (12_000, 12_000));
}

#[test]
fn waiting_readers_come_before_the_next_writer() {
    let lock = RwLock::<_, 0>::with_barging(0);
    let mut guard = lock.write();
    thread::scope(|scope| {
        let reader = scope.spawn(|| *lock.read());
        until_queued(lock.raw().readers());
        let writer = scope.spawn(|| *lock.write() = 2);
        until_queued(lock.raw().writers().address());
        *guard = 1;
        drop(guard);
        assert_eq!(reader.join().unwrap(), 1);
        writer.join().unwrap();
    });
    assert_eq!(*lock.read(), 2);
}

#[test]
fn a_writer_that_waits_keeps_readers_out() {
    let lock = RwLock::new(0);
    let guard = lock.read();
    assert!(lock.read_until(past()).is_some(), "readers share");
    thread::scope(|scope| {
        let writer = scope.spawn(|| *lock.write() = 1);
        until_queued(lock.raw().last_reader());
        assert!(lock.try_read().is_none() && lock.read_until(past()).is_none());
        assert!(lock.try_write().is_none() && lock.write_until(past()).is_none());
        drop(guard);
        writer.join().unwrap();
    });
    assert_eq!(*lock.read(), 1);
}

/// Also if it hands over to a writer, which keeps out who is only woken.
/// RW4: the word does not tell of them while one that was woken is on its way.
#[test]
fn a_downgraded_writer_lets_in_those_behind_one_that_was_woken() {
    let (lock, barging) = (RawRwLock::new(), Duration::MAX);
    let read = || {
        assert!(lock.read(Deadline::NEVER));
        // SAFETY: by a reader.
        unsafe { lock.unlock_read() };
    };
    // It may be too slow to come before the reader that it wakes.
    let mut came_first = false;
    while !came_first {
        assert!(lock.write(barging, Deadline::NEVER));
        let asleep = thread::scope(|scope| {
            let readers = [(); 3].map(|()| scope.spawn(read));
            while queued_for(lock.readers()) < 3 {
                thread::yield_now();
            }
            // SAFETY: by a writer.
            unsafe { lock.unlock_write(barging) };
            came_first = lock.try_write();
            if came_first {
                // SAFETY: by a writer.
                unsafe { lock.downgrade(barging) };
            }
            let asleep = queued_for(lock.readers());
            for reader in readers {
                reader.join().unwrap();
            }
            asleep
        });
        if came_first {
            // SAFETY: by the reader that it has become.
            unsafe { lock.unlock_read() };
            assert_eq!(asleep, 0);
        }
    }
}

#[test]
fn a_downgraded_writer_lets_readers_in() {
    let (lock, barging) = (RawRwLock::new(), Duration::from_millis(5));
    assert!(lock.write(barging, Deadline::NEVER));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let came = lock.read(Deadline::after(Duration::from_secs(9)));
            if came {
                // SAFETY: by a reader.
                unsafe { lock.unlock_read() };
            }
            came
        });
        until_queued(lock.readers());
        let writer = scope.spawn(|| {
            assert!(lock.write(barging, Deadline::NEVER));
            // SAFETY: by a writer.
            unsafe { lock.unlock_write(barging) };
        });
        until_queued(lock.writers().address());
        let until = Timestamp::now().after(barging);
        while Timestamp::now() < until {
            thread::yield_now();
        }
        // Readers have been let in just now, so it is not their turn.
        is_over(barging, 0, lock.readers());
        // SAFETY: by a writer.
        unsafe { lock.downgrade(barging) };
        let came = reader.join().unwrap();
        // SAFETY: by the reader that it has become.
        unsafe { lock.unlock_read() };
        writer.join().unwrap();
        assert!(came, "it was woken, and kept out");
    });
    assert!(lock.try_write());
}

#[test]
fn parts_of_a_lock_have_places_of_their_own() {
    let lock = RawRwLock::new();
    let parts = [lock.writers().address(), lock.last_reader(), lock.readers()];
    let places: std::collections::HashSet<_> = parts.map(|part| part.place(1024)).into();
    assert_eq!(places.len(), parts.len());
}

/// A lock that is never handed over, or as good as never, keeps nobody else's waiters waiting.
#[test]
fn another_lock_at_one_place_is_handed_over_when_its_own_time_is_over() {
    let place = Address::of(Kind::Mutex, std::ptr::without_provenance::<u8>(0x1000));
    let long = Duration::from_nanos(Timestamp::now().as_ns() / 2);
    while !is_over(long, 0, place) {
        thread::yield_now();
    }
    assert!(!is_over(long, 0, place), "it begins again");
    let until = Timestamp::now().after(Duration::from_secs(9));
    while !is_over(Duration::from_nanos(1), 0, place) {
        assert!(Timestamp::now() < until);
    }
}

#[test]
fn a_busy_lock_at_one_place_keeps_no_other_from_hand_overs() {
    let at = |at| Address::of(Kind::Mutex, std::ptr::without_provenance::<u8>(at));
    let busy = at(0x104);
    let other = (0x108..).map(at).find(|other| other.place(1024) == busy.place(1024)).unwrap();
    let long = Duration::from_nanos(Timestamp::now().as_ns() / 2);
    let until = Timestamp::now().after(Duration::from_secs(9));
    while !is_over(Duration::from_nanos(1), 0, busy) {
        assert!(Timestamp::now() < until);
    }
    assert!(is_over(long, 0, other));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "this thread holds it already")]
fn reading_what_one_writes_panics_in_debug_builds() {
    let lock = RwLock::new(());
    let _guard = lock.write();
    let _never = lock.read();
}

#[test]
fn an_event_count_notifies_who_listened_before() {
    let (events, value) = (EventCount::new(), AtomicUsize::new(0));
    let epoch = events.listen();
    assert_eq!(events.wait_until(epoch, past()), Err(TimedOut));
    assert!(!events.notify_one(), "nobody sleeps");
    // It came after `listen`.
    events.wait(epoch);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let epoch = events.listen();
                    if value.load(Ordering::Relaxed) > 0 {
                        break;
                    }
                    events.wait(epoch);
                }
            });
        }
        until_queued(Address::of(Kind::EventCount, &events));
        value.store(1, Ordering::Relaxed);
        for _ in 0..3 {
            events.notify_one();
        }
    });
    assert_eq!((events.notify_all(), size_of::<EventCount>()), (0, 4));
}

#[test]
fn one_thread_makes_the_value() {
    let (value, made) = (OnceLock::new(), AtomicUsize::new(0));
    let failing = || value.get_or_init(|| std::panic::resume_unwind(Box::new(())));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(failing)).is_err());
    assert_eq!(value.get(), None, "a panic leaves none");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let make = || made.fetch_add(1, Ordering::Relaxed) + 7;
                assert_eq!(*value.get_or_init(make), 7);
            });
        }
    });
    assert_eq!((value.set(8), value.into_inner()), (Err(8), Some(7)));
}

#[test]
fn once_times_out_while_another_runs() {
    let (once, is_running, is_over) = (Once::new(), Latch::new(1), Latch::new(1));
    thread::scope(|scope| {
        scope.spawn(|| {
            once.call_once(|| {
                is_running.count_down();
                is_over.wait();
            });
        });
        is_running.wait();
        assert_eq!(once.call_once_until(|| unreachable!(), past()), Err(TimedOut));
        is_over.count_down();
        once.call_once(|| unreachable!());
    });
    assert_eq!(once.call_once_until(|| unreachable!(), past()), Ok(()));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "this thread holds it already")]
fn a_once_within_itself_panics_in_debug_builds() {
    let once = Once::new();
    once.call_once(|| once.call_once(|| ()));
}

#[test]
fn a_latch_opens_once() {
    let latch = Latch::new(2);
    assert!(!latch.count_down());
    assert_eq!(latch.wait_until(past()), Err(TimedOut));
    thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(|| latch.wait())));
        until_queued(Address::of(Kind::Latch, &latch));
        assert!(latch.count_down());
    });
    assert!(latch.is_open() && !latch.count_down());
}

#[test]
fn a_barrier_has_one_leader_each_time() {
    let (barrier, led, come) = (Barrier::new(4), AtomicUsize::new(0), AtomicUsize::new(0));
    let turns = || {
        for turn in 1..=300 {
            come.fetch_add(1, Ordering::Relaxed);
            led.fetch_add(barrier.wait().into(), Ordering::Relaxed);
            assert!(come.load(Ordering::Relaxed) >= 4 * turn, "not all have come");
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(turns))));
    assert_eq!(led.into_inner(), 300);
    // One that gives up has not come.
    assert_eq!(barrier.wait_until(past()), Err(TimedOut));
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| barrier.wait()))));
    assert!(Barrier::new(1).wait() && Barrier::new(0).wait());
}

/// A waker that panics in the unlock of a wait leaves the guard what it says: nobody else is in.
#[cfg(feature = "async")]
#[test]
fn a_wait_whose_unlock_unwinds_has_the_mutex_again() {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;
    use std::task::{Context, Wake, Waker};

    static WAS_WOKEN: AtomicBool = AtomicBool::new(false);

    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            WAS_WOKEN.store(true, Ordering::Release);
            // Without the hook, which prints for longer than the other is in.
            resume_unwind(Box::new("the test's own panic"));
        }
    }
    let mutex = Mutex::<_, 0>::with_barging(0);
    let condvar = Condvar::new();
    let [is_locked, is_queued, is_taken, is_inside] = [const { AtomicBool::new(false) }; 4];
    let wait_for = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut guard = mutex.lock();
            is_locked.store(true, Ordering::Release);
            wait_for(&is_queued);
            let deadline = Deadline::after(Duration::from_millis(1));
            let wait = AssertUnwindSafe(|| condvar.wait_until(&mut guard, deadline));
            assert!(catch_unwind(wait).is_err());
            wait_for(&is_taken);
            assert!(!is_inside.load(Ordering::Acquire), "two are in");
            *guard += 1;
        });
        wait_for(&is_locked);
        let mut locking = Box::pin(mutex.lock_async());
        let waker = Waker::from(Arc::new(Bomb));
        assert!(locking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        is_queued.store(true, Ordering::Release);
        wait_for(&WAS_WOKEN);
        let guard = loop {
            let mut context = Context::from_waker(Waker::noop());
            if let std::task::Poll::Ready(guard) = locking.as_mut().poll(&mut context) {
                break guard;
            }
            thread::yield_now();
        };
        is_inside.store(true, Ordering::Release);
        is_taken.store(true, Ordering::Release);
        let until = Timestamp::now().after(Duration::from_millis(20));
        while Timestamp::now() < until {
            thread::yield_now();
        }
        is_inside.store(false, Ordering::Release);
        drop(guard);
        waiter.join().unwrap();
    });
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn locks_are_made_from_values() {
    assert_eq!(*Mutex::<_>::from(3).lock(), 3);
    assert_eq!(*RwLock::<_>::from(3).read(), 3);
}
