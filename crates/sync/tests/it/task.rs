//! Tasks in the queue: a plain executor, tokio, and tasks that the test polls itself.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use unherd_sync::{Outcome, Reason, Token, Verdict, Wait, WaitTable, Woken};
use unherd_sys::primitives::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, thread};
use unherd_testkit::block_on;

use crate::sleeping::Sleeper;

type Table = WaitTable<u64>;

/// A task that has been polled once, with `waker`, and waits.
fn queued<'a>(
    table: &'a Table,
    key: u64,
    how: impl Into<Wait>,
    waker: &Waker,
) -> Pin<Box<dyn Future<Output = Outcome> + 'a>> {
    let mut future = Box::pin(table.wait_async(&key, || true, how));
    assert!(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    future
}

fn poll(future: &mut Pin<Box<dyn Future<Output = Outcome> + '_>>) -> Poll<Outcome> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn woken(token: u64) -> Poll<Outcome> {
    Poll::Ready(Outcome::Woken(Token(token)))
}

/// A waker that runs something.
struct Run<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Run<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn run(what: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Run(what)))
}

fn table() -> Arc<Table> {
    Arc::new(WaitTable::builder().buckets(1).build())
}

#[test]
fn waiting_futures_may_change_threads() {
    fn is_send<T: Send>(_: &T) {}
    let table = table();
    is_send(&table.wait_async(&1, || true, Reason::OTHER));
}

#[test]
fn tasks_and_threads_stand_in_one_queue() {
    let table = table();
    let mut first = queued(&table, 1, Reason::OTHER, Waker::noop());
    let second = Sleeper::start(&table, 1);
    let mut third = queued(&table, 1, Reason::OTHER, Waker::noop());
    assert_eq!(table.wake_with(&1, 1, Token(1)), 1);
    assert_eq!((poll(&mut first), poll(&mut third)), (woken(1), Poll::Pending));
    assert_eq!(table.wake_with(&1, 1, Token(2)), 1);
    assert_eq!(second.join(), Outcome::Woken(Token(2)));
    assert_eq!(table.wake_with(&1, 9, Token(3)), 1);
    assert_eq!(poll(&mut third), woken(3));
}

#[test]
fn a_refused_wait_is_ready_at_once() {
    let table = table();
    assert_eq!(block_on(table.wait_async(&1, || false, Reason::OTHER)), Outcome::Invalid);
    assert_eq!(table.wake_all(&1), 0);
}

#[test]
fn a_plain_executor_sleeps_until_a_wake() {
    let table = table();
    let waker = {
        let table = Arc::clone(&table);
        thread::spawn(move || {
            while table.wake_with(&1, 1, Token(7)) == 0 {
                thread::yield_now();
            }
        })
    };
    let outcome = block_on(table.wait_async(&1, || true, Reason::OTHER));
    assert_eq!(outcome, Outcome::Woken(Token(7)));
    waker.join().expect("no panic");
}

/// Each token that is put is taken by one task or one thread.
#[test]
fn tokio_tasks_and_threads_share_tokens() {
    const TAKERS: u64 = 32;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().expect("a runtime");
    let table = Arc::new(Table::builder().buckets(4).build());
    let left = Arc::new(AtomicU64::new(0));
    let take = |left: &AtomicU64| {
        let some = |n: u64| n.checked_sub(1);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, some).is_ok()
    };
    let tasks: Vec<_> = (0..TAKERS)
        .map(|_| {
            let (table, left) = (Arc::clone(&table), Arc::clone(&left));
            runtime.spawn(async move {
                while !take(&left) {
                    let none = || left.load(Ordering::Relaxed) == 0;
                    // Some give up, whether they are chosen or not, and begin again.
                    let wait = table.wait_async(&1, none, Reason::OTHER);
                    let _ = tokio::time::timeout(Duration::from_micros(300), wait).await;
                }
            })
        })
        .collect();
    let threads: Vec<_> = (0..TAKERS / 4)
        .map(|_| {
            let (table, left) = (Arc::clone(&table), Arc::clone(&left));
            thread::spawn(move || table.wait_until(&1, || take(&left), Reason::OTHER))
        })
        .collect();
    for _ in 0..TAKERS + TAKERS / 4 {
        left.fetch_add(1, Ordering::Relaxed);
        table.wake(&1, 1);
        thread::yield_now();
    }
    for task in tasks {
        runtime.block_on(task).expect("no panic");
    }
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), Ok(()));
    }
    assert_eq!((left.load(Ordering::Relaxed), table.wake_all(&1).total()), (0, 0));
}

#[test]
fn a_dropped_task_passes_its_wake_on() {
    let table = table();
    let first = queued(&table, 1, Reason::OTHER, Waker::noop());
    let shared = queued(&table, 1, Wait::new(Reason::OTHER).shared(), Waker::noop());
    let mut second = queued(&table, 1, Reason::OTHER, Waker::noop());
    let mut third = queued(&table, 1, Reason::OTHER, Waker::noop());
    assert_eq!(table.wake_with(&1, 1, Token(5)), 2);
    // All shared waiters were woken: there is nobody to pass it on to.
    drop(shared);
    assert_eq!(poll(&mut second), Poll::Pending);
    drop(first);
    assert_eq!((poll(&mut second), poll(&mut third)), (woken(5), Poll::Pending));
    // It was not chosen, and took nothing.
    drop(third);
    assert_eq!(table.wake_all(&1), 0);
}

/// Those who share and came after the wake have reason to wait still.
#[test]
fn wakes_pass_to_one_exclusive_waiter() {
    let table = table();
    for next in [false, true] {
        let chosen = queued(&table, 1, Reason::OTHER, Waker::noop());
        assert_eq!(table.wake_with(&1, 1, Token(5)), 1);
        let shared = || queued(&table, 1, Wait::new(Reason::OTHER).shared(), Waker::noop());
        let mut shared = [(); 3].map(|()| shared());
        let mut next = next.then(|| queued(&table, 1, Reason::OTHER, Waker::noop()));
        drop(chosen);
        assert!(shared.iter_mut().all(|task| poll(task).is_pending()));
        assert!(next.iter_mut().all(|task| poll(task) == woken(5)));
        assert_eq!(table.wake_all(&1), Woken { shared: 3, exclusive: 0 });
    }
}

/// By wakes that make no difference between shared and exclusive waiters.
#[test]
fn a_wake_of_the_first_passes_to_the_next() {
    let table = table();
    let wakes: [fn(&WaitTable<u64>) -> bool; 2] = [
        |table| table.wake_one(&1, |_| Token(5)),
        |table| table.wake_where(&1, |_| Verdict::WakeAndStop, Token(5)) == 1,
    ];
    for wake in wakes {
        for kinds in [[false, false], [false, true], [true, false], [true, true]] {
            let how = |shared| match shared {
                true => Wait::new(Reason::OTHER).shared(),
                false => Wait::new(Reason::OTHER),
            };
            let [first, mut second] = kinds.map(|kind| queued(&table, 1, how(kind), Waker::noop()));
            let mut third = queued(&table, 1, how(true), Waker::noop());
            assert!(wake(&table));
            drop(first);
            assert_eq!(
                (poll(&mut second), poll(&mut third)),
                (woken(5), Poll::Pending),
                "{kinds:?}"
            );
            drop(third);
        }
    }
}

#[test]
fn seen_and_general_wakes_are_not_passed_on() {
    let table = table();
    let chosen = queued(&table, 1, Reason::OTHER, Waker::noop());
    assert_eq!(table.wake_all(&1), 1);
    let mut later = queued(&table, 1, Reason::OTHER, Waker::noop());
    drop(chosen);
    assert_eq!(poll(&mut later), Poll::Pending);
    let mut last = queued(&table, 1, Reason::OTHER, Waker::noop());
    assert_eq!(table.wake(&1, 1), 1);
    assert_eq!(poll(&mut later), woken(0));
    drop(later);
    assert_eq!(poll(&mut last), Poll::Pending);
}

#[test]
fn the_last_waker_is_woken() {
    let table = table();
    let counts = [0; 2].map(|_| Arc::new(AtomicUsize::new(0)));
    let wakers = counts.each_ref().map(|count| {
        let count = Arc::clone(count);
        run(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
    });
    let mut task = queued(&table, 1, Reason::OTHER, &wakers[0]);
    for waker in [&wakers[0], &wakers[1], &wakers[1]] {
        assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(table.wake(&1, 1), 1);
    assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [0, 1]);
    assert_eq!(poll(&mut task), woken(0));
}

/// More than a wake carries at a time, so that it comes back for some.
const MANY: usize = 100;

#[test]
fn wakers_that_panic_strand_nobody() {
    let table = table();
    let mut tasks: Vec<_> = (0..MANY)
        .map(|index| {
            let waker = run(move || {
                if index == 3 || index == 70 {
                    std::panic::resume_unwind(Box::new(index));
                }
            });
            queued(&table, 1, Reason::OTHER, &waker)
        })
        .collect();
    let thread = Sleeper::start(&table, 1);
    let panic = catch_unwind(AssertUnwindSafe(|| table.wake_with(&1, usize::MAX, Token(9))));
    // The first, when all were woken.
    assert_eq!(panic.expect_err("it goes on").downcast_ref(), Some(&3_usize));
    assert_eq!(thread.join(), Outcome::Woken(Token(9)));
    assert!(tasks.iter_mut().all(|task| poll(task) == woken(9)));
    assert_eq!(table.wake_all(&1), 0);
}

/// A waker that runs a task at once, which waits for threads that the same wake has chosen.
#[test]
fn wakers_may_wait_for_batch_threads() {
    let table = table();
    let (tell, told) = std::sync::mpsc::channel();
    let told = Mutex::new(told);
    let heard = Arc::new(AtomicUsize::new(0));
    let waker = {
        let heard = Arc::clone(&heard);
        run(move || {
            for _ in 0..2 {
                // Not for ever, so that the test can fail.
                let one = told.lock().recv_timeout(Duration::from_secs(10));
                heard.fetch_add(usize::from(one.is_ok()), Ordering::Relaxed);
            }
        })
    };
    let mut task = queued(&table, 1, Reason::OTHER, &waker);
    let threads = [(); 2].map(|()| Sleeper::start(&table, 1));
    let threads = threads.map(|sleeper| {
        let tell = tell.clone();
        thread::spawn(move || {
            assert_eq!(sleeper.join(), Outcome::Woken(Token(9)));
            tell.send(()).expect("the waker listens");
        })
    });
    assert_eq!(table.wake_with(&1, usize::MAX, Token(9)), 3);
    assert_eq!(heard.load(Ordering::Relaxed), 2);
    assert_eq!(poll(&mut task), woken(9));
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// The waker that takes the place of one whose drop panics may be replaced in turn by the first.
#[test]
#[expect(unsafe_code, reason = "a waker whose drop panics although its like is still there")]
fn a_replaced_waker_may_panic() {
    static WAKES: AtomicU64 = AtomicU64::new(0);
    static PANICS: AtomicU64 = AtomicU64::new(0);
    fn another(_: *const ()) -> RawWaker {
        RawWaker::new(std::ptr::null(), &VTABLE)
    }
    fn wake(_: *const ()) {
        WAKES.fetch_add(1, Ordering::Relaxed);
    }
    fn let_go(_: *const ()) {
        if PANICS.swap(0, Ordering::Relaxed) > 0 {
            std::panic::resume_unwind(Box::new("drop"));
        }
    }
    static VTABLE: RawWakerVTable = RawWakerVTable::new(another, wake, wake, let_go);
    // SAFETY: it owns nothing, and its functions may be called by any thread.
    let first = unsafe { Waker::from_raw(another(std::ptr::null())) };
    let table = table();
    let mut task = queued(&table, 1, Reason::OTHER, &first);
    PANICS.store(1, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut task))).is_err());
    assert_eq!(task.as_mut().poll(&mut Context::from_waker(&first)), Poll::Pending);
    assert_eq!(table.wake_with(&1, 1, Token(2)), 1);
    assert_eq!(WAKES.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut task), woken(2));
}

/// A panic of a filter's and one of a waker's: the first goes on.
#[test]
fn a_second_panic_is_forgotten() {
    let table = table();
    let mut first =
        queued(&table, 1, Reason::OTHER, &run(|| std::panic::resume_unwind(Box::new("waker"))));
    let mut second = queued(&table, 1, Reason::OTHER, Waker::noop());
    let mut asked = 0;
    let filter = |_| {
        asked += 1;
        if asked == 2 {
            std::panic::resume_unwind(Box::new("filter"));
        }
        Verdict::Wake
    };
    let panic = catch_unwind(AssertUnwindSafe(|| table.wake_where(&1, filter, Token(9))));
    assert_eq!(panic.expect_err("it goes on").downcast_ref(), Some(&"filter"));
    assert_eq!((poll(&mut first), poll(&mut second)), (woken(9), Poll::Pending));
}

/// A second panic would abort. Without a first one, the waker's goes on.
#[test]
fn a_panic_while_passing_on_does_not_abort() {
    let table = table();
    for unwinds in [false, true] {
        let chosen = queued(&table, 1, Reason::OTHER, Waker::noop());
        let waker = run(|| std::panic::resume_unwind(Box::new("waker")));
        let mut next = queued(&table, 1, Reason::OTHER, &waker);
        assert_eq!(table.wake_with(&1, 1, Token(5)), 1);
        let end = AssertUnwindSafe(|| {
            let _chosen = chosen;
            if unwinds {
                std::panic::resume_unwind(Box::new("task"));
            }
        });
        let panic = catch_unwind(end).expect_err("it goes on");
        assert_eq!(panic.downcast_ref(), Some(&if unwinds { "task" } else { "waker" }));
        assert_eq!(poll(&mut next), woken(5));
    }
}

/// The futures of other tasks, for a waker to poll and drop.
type Others = Arc<Mutex<Vec<Pin<Box<dyn Future<Output = Outcome> + Send>>>>>;

/// A task that waits, and owns its table.
fn owned(table: &Arc<Table>, key: u64) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
    let table = Arc::clone(table);
    let mut task = Box::pin(async move { table.wait_async(&key, || true, Reason::OTHER).await });
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    task
}

#[test]
fn a_waker_may_drop_tasks_of_its_wake() {
    let table = table();
    let others: Others = Arc::new(Mutex::new(Vec::new()));
    let reenter = {
        let (table, others) = (Arc::clone(&table), Arc::clone(&others));
        run(move || {
            assert_eq!(table.wake(&2, 1), 1);
            let mut others = others.lock();
            let mut half = others.split_off(MANY / 2);
            drop(std::mem::take(&mut *others));
            for task in &mut half {
                // Those that the wake has not come to yet are still waiting.
                let _ = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
        })
    };
    let mut first = queued(&table, 1, Reason::OTHER, &reenter);
    let mut of_two = queued(&table, 2, Reason::OTHER, Waker::noop());
    let tasks: Vec<_> = (0..MANY).map(|_| owned(&table, 1)).collect();
    *others.lock() = tasks;
    // Those beyond the first 32 leave before the wake comes to them.
    assert_eq!(table.wake_all(&1), 32);
    assert_eq!((poll(&mut first), poll(&mut of_two)), (woken(0), woken(0)));
    assert!(others.lock().is_empty());
    assert_eq!(table.wake_all(&1), 0);
}

/// A wake that a task passes on when its waker drops it may go to one that is in the same batch no
/// more, but in the queue.
#[test]
fn a_waker_may_drop_its_own_task() {
    let table = table();
    let others: Others = Arc::new(Mutex::new(Vec::new()));
    let waker = {
        let others = Arc::clone(&others);
        run(move || drop(std::mem::take(&mut *others.lock())))
    };
    let mut task = {
        let table = Arc::clone(&table);
        Box::pin(async move { table.wait_async(&1, || true, Reason::OTHER).await })
    };
    assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    others.lock().push(task);
    let mut next = queued(&table, 1, Reason::OTHER, Waker::noop());
    assert_eq!(table.wake_with(&1, 1, Token(4)), 1);
    assert_eq!(poll(&mut next), woken(4));
}

#[test]
fn a_forgotten_future_takes_one_wake() {
    let table = table();
    std::mem::forget(queued(&table, 1, Reason::OTHER, Waker::noop()));
    let mut next = queued(&table, 1, Reason::OTHER, Waker::noop());
    assert_eq!(table.wake(&1, 1), 1);
    assert_eq!(poll(&mut next), Poll::Pending);
    assert_eq!(table.wake(&1, 1), 1);
    assert_eq!(poll(&mut next), woken(0));
}

#[test]
fn a_panic_in_validate_ends_the_wait() {
    let table = table();
    let validate = || std::panic::resume_unwind(Box::new(()));
    let mut task = Box::pin(table.wait_async(&1, validate, Reason::OTHER));
    let mut context = Context::from_waker(Waker::noop());
    let first = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context).is_ready()));
    assert!(first.is_err());
    drop(task);
    assert_eq!(table.wake_all(&1), 0);
}
