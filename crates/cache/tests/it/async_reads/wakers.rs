//! What wakers may do: end their task, with all that it has, or panic; and tasks that nobody polls
//! when they were woken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use unherd_cache::{BuildError, Error, Io, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, AtomicBool, Mutex, Ordering, thread};
use unherd_testkit::block_on;

use super::executor::Task;
use super::{LONG, PAGE, check_all_frames, page_of, pin_all, queued};
use crate::scene::{close, small, turn, writable};

/// A task that is dropped by its wake, as executors do that are at their end.
struct EndsAtWake {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    has_ended: AtomicBool,
}

impl Wake for EndsAtWake {
    fn wake(self: Arc<Self>) {
        let future = self.future.lock().take();
        drop(future);
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Polls the future once. It is its waker's from then on.
fn leave_to_its_waker(future: impl Future<Output = ()> + Send + 'static) -> Arc<EndsAtWake> {
    let future = Mutex::new(Some(Box::pin(future) as Pin<Box<_>>));
    let task = Arc::new(EndsAtWake { future, has_ended: AtomicBool::new(false) });
    let waker = Waker::from(task.clone());
    let polled = {
        let mut future = task.future.lock();
        future.as_mut().map(|it| it.as_mut().poll(&mut Context::from_waker(&waker)))
    };
    assert!(polled.is_some_and(|poll| poll.is_pending()));
    task
}

/// The I/O thread runs the waker, and has yet to write back what the handle leaves.
#[test]
fn a_waker_that_drops_the_last_handle_of_a_file() {
    let _turn = turn();
    let (device, cache, file) = queued(8, LONG);
    device.put("other", &[9; 4 * PAGE]);
    let other = cache.open("other", writable()).unwrap();
    file.write_at(&[1; PAGE], 0).unwrap();
    device.block_reads();
    leave_to_its_waker(async move {
        let _ = file.page_async(PageNo(5)).await;
    });
    device.release_reads();
    // The I/O thread lives.
    assert_eq!(block_on(other.page_async(PageNo(3))).unwrap()[..], [9; PAGE]);
    while device.bytes("f").unwrap()[..PAGE] != [1; PAGE] {
        thread::yield_now();
    }
    let again = cache.open("f", writable()).unwrap();
    assert_eq!(again.page(PageNo(0)).unwrap()[..], [1; PAGE]);
    drop(again);
    drop(other);
}

#[test]
fn a_waker_that_drops_the_cache() {
    let _turn = turn();
    let (device, cache, file) = queued(8, LONG);
    device.block_reads();
    let task = leave_to_its_waker(async move {
        let _cache = cache;
        let _ = file.page_async(PageNo(5)).await;
    });
    device.release_reads();
    // The I/O thread ends, and gives the queue and the file back.
    let again = loop {
        match small(8, PAGE).device(device.clone()).io(Io::Queued).build() {
            Ok(cache) => break cache,
            Err(BuildError::QueueTaken) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    let file = loop {
        match again.open("f", writable()) {
            Ok(file) => break file,
            Err(unherd_cache::Error::Locked { .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(file.page(PageNo(5)).unwrap()[..], page_of(5));
    // The file may be closed before the waker has returned. One that has panicked never does.
    while !task.has_ended.load(Ordering::Relaxed) {
        thread::yield_now();
    }
}

/// A wake that goes on to the next as a future is dropped runs the next one's waker there.
#[test]
fn a_waker_that_panics_as_another_task_leaves() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics, as the test wants it");
        }
    }
    let _turn = turn();
    let (_device, cache, file) = queued(4, LONG);
    let mut guards = pin_all(&file, 0..4);
    let first = Task::waiting(file.page_async(PageNo(10)));
    let mut next = Box::pin(file.page_async(PageNo(11)));
    let waker = Waker::from(Arc::new(Panics));
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(guards.pop());
    assert_eq!(first.wakes(), 1);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(first)));
    assert!(dropped.is_ok(), "the panic of another's waker");
    drop((next, guards));
    check_all_frames(&cache, &file);
}

/// The frame is told to a task, which does not come. A thread behind it finds it at its deadline.
#[test]
fn a_task_that_is_not_polled_leaves_the_frame_to_threads() {
    let _turn = turn();
    // Less than the time after which another is handed the frame of a task.
    let (_device, cache, file) = queued(4, Duration::from_millis(80));
    let frame = Reason::register("frame");
    let mut guards = pin_all(&file, 0..4);
    let before = Ledger::snapshot();
    let task = Task::waiting(file.page_async(PageNo(10)));
    thread::scope(|scope| {
        let behind = scope.spawn(|| file.page(PageNo(11)).map(|guard| guard[0]));
        while Ledger::snapshot().since(&before).reason(frame).waits < 2 && !behind.is_finished() {
            thread::yield_now();
        }
        drop(guards.pop());
        let found = behind.join().unwrap();
        // So slow a machine that its deadline came before the frame proves nothing.
        if task.wakes() == 1 {
            assert_eq!(found, Ok(page_of(11)[0]));
        }
    });
    drop((task, guards));
    check_all_frames(&cache, &file);
}

/// What a waker panics with may panic again as it is thrown away.
#[test]
fn a_waker_whose_panic_panics_when_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the payload of a panic panics, as the test wants it");
        }
    }
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(Bomb);
        }
    }
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    device.block_reads();
    let mut task = Box::pin(file.page_async(PageNo(10)));
    let waker = Waker::from(Arc::new(Panics));
    assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    device.release_reads();
    // The I/O thread lives.
    assert_eq!(block_on(file.page_async(PageNo(11))).unwrap()[..], page_of(11));
    drop(task);
    check_all_frames(&cache, &file);
}

/// Whatever ends the I/O thread: its waiters get an error, and so do those who come later.
#[test]
fn an_io_thread_that_dies_leaves_nobody_waiting() {
    let _turn = turn();
    let (device, cache, file) = queued(16, LONG);
    device.block_reads();
    let tasks = [9, 10].map(|page| Task::waiting(file.page_async(PageNo(page))));
    file.write_at(&[1; PAGE], 0).unwrap();
    let reason = Reason::register("page-read");
    let before = Ledger::snapshot();
    thread::scope(|scope| {
        // They wait for what the tasks read.
        let file = &file;
        let reader = |page| scope.spawn(move || file.page(PageNo(page)).map(|_| ()));
        let readers = [9, 10, 9, 10].map(reader);
        while Ledger::snapshot().since(&before).reason(reason).waits < 4 {
            thread::yield_now();
        }
        device.panic_in_reap();
        for reader in readers {
            let told = reader.join().unwrap();
            assert!(matches!(told, Err(Error::Io { errno: Errno::IO, .. })), "{told:?}");
        }
    });
    // A task may be woken after the threads that wait for the same page.
    tasks.iter().for_each(|task| task.wait_for_wakes(1));
    assert_eq!(tasks.each_ref().map(Task::wakes), [1, 1]);
    drop(tasks);
    device.release_reads();
    // Threads read by themselves.
    assert_eq!(file.page(PageNo(12)).unwrap()[..], page_of(12));
    assert!(matches!(block_on(file.page_async(PageNo(13))).map(|_| ()), Err(Error::Io { .. })));
    assert_eq!(file.page(PageNo(0)).unwrap()[..], [1; PAGE]);
    assert!(matches!(file.sync_all(), Err(Error::Io { .. })));
    assert!(close(file).is_err());
    drop(cache);
}
