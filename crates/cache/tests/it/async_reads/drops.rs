//! Futures that are dropped, in each of their states, and what becomes of what they had.

use std::mem::ManuallyDrop;
use std::task::{Context, Poll, Waker};

use unherd_cache::{Error, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, AtomicBool, Ordering, thread};
use unherd_testkit::{Failure, FaultPlan, block_on};

use super::executor::Task;
use super::{LONG, PAGE, check_all_frames, page_of, pin_all, queued};
use crate::scene::{close, turn};

#[test]
fn before_its_first_poll() {
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    drop(file.page_async(PageNo(3)));
    assert_eq!((device.counts("f").reads, cache.stats().misses), (0, 0));
    check_all_frames(&cache, &file);
}

#[test]
fn while_it_waits_for_the_read_of_another() {
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    device.block_reads();
    let first = Task::waiting(file.page_async(PageNo(3)));
    let second = Task::waiting(file.page_async(PageNo(3)));
    let third = Task::waiting(file.page_async(PageNo(3)));
    let woken = Task::waiting(file.page_async(PageNo(3)));
    drop(second);
    device.release_reads();
    woken.wait_for_wakes(1);
    drop(woken);
    assert_eq!(third.finish().unwrap()[..], page_of(3));
    assert_eq!(first.finish().unwrap()[..], page_of(3));
    assert_eq!(device.counts("f").reads, 1);
    check_all_frames(&cache, &file);
}

/// The announcement goes with it: a task and a thread that waited for the page look again, and one
/// of them brings it in.
#[test]
fn announced_and_without_a_frame() {
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    // A file whose page stays announced cannot be closed, so a failure leaves it open.
    let file = ManuallyDrop::new(file);
    let mut guards = pin_all(&file, 0..4);
    let page_read = Reason::register("page-read");
    let before = Ledger::snapshot();
    let counts = || Ledger::snapshot().since(&before).reason(page_read);
    let first = Task::waiting(file.page_async(PageNo(10)));
    let mut announced = Task::waiting(file.page_async(PageNo(10)));
    drop(first);
    assert_eq!(announced.wakes(), 1);
    assert!(announced.poll().is_pending());
    thread::scope(|scope| {
        let task = Task::waiting(file.page_async(PageNo(10)));
        let waiter = scope.spawn(|| assert_eq!(file.page(PageNo(10)).unwrap()[..], page_of(10)));
        while counts().waits < 3 {
            thread::yield_now();
        }
        drop(announced);
        // There is a frame now, for whichever comes first.
        drop(guards.pop());
        assert_eq!(task.finish().unwrap()[..], page_of(10));
        waiter.join().unwrap();
    });
    assert_eq!(counts().needless_wakeups, 0);
    assert_eq!(device.counts("f").reads, 5);
    drop(guards);
    check_all_frames(&cache, &file);
    drop(ManuallyDrop::into_inner(file));
}

/// A task that was notified about a frame and is not polled, as its executor forgot it, leaves the
/// frame to others.
#[test]
fn a_task_that_is_not_polled_again() {
    let _turn = turn();
    let (_device, cache, file) = queued(4, LONG);
    let mut guards = pin_all(&file, 0..4);
    let frame = Reason::register("frame");
    let before = Ledger::snapshot();
    let counts = || Ledger::snapshot().since(&before).reason(frame);
    thread::scope(|scope| {
        let forgotten = [10, 11].map(|page| Task::waiting(file.page_async(PageNo(page))));
        let behind = scope.spawn(|| file.page(PageNo(12)).map(|page| page.to_vec()));
        while counts().waits < 3 {
            thread::yield_now();
        }
        let began = Timestamp::now();
        drop(guards.pop());
        assert_eq!(behind.join().unwrap().as_deref(), Ok(&page_of(12)[..]));
        assert!(Timestamp::now().since(began) < LONG / 2, "it slept to its deadline");
        assert_eq!(forgotten.each_ref().map(Task::wakes), [1, 1]);
        // It waits again, and finds the frame that the thread has given back.
        for task in forgotten {
            assert!(task.finish().is_ok());
        }
    });
    drop(guards);
    check_all_frames(&cache, &file);
}

/// A wake for a frame that has chosen it goes to the next: a task, a thread, or nobody.
#[test]
fn when_it_was_told_of_a_frame() {
    let _turn = turn();
    let frame = Reason::register("frame");
    for next_is_thread in [false, true] {
        let (_device, cache, file) = queued(4, LONG);
        let mut guards = pin_all(&file, 0..4);
        let before = Ledger::snapshot();
        let counts = || Ledger::snapshot().since(&before).reason(frame);
        let first = Task::waiting(file.page_async(PageNo(10)));
        thread::scope(|scope| {
            let thread = next_is_thread.then(|| {
                let read = || assert_eq!(file.page(PageNo(11)).unwrap()[..], page_of(11));
                let thread = scope.spawn(read);
                while counts().waits < 2 {
                    thread::yield_now();
                }
                thread
            });
            let last = Task::waiting(file.page_async(PageNo(12)));
            drop(guards.pop());
            assert_eq!((first.wakes(), last.wakes()), (1, 0));
            drop(first);
            if let Some(thread) = thread {
                thread.join().unwrap();
                // The thread has unpinned its page since.
            }
            last.wait_for_wakes(1);
            assert_eq!(last.finish().unwrap()[..], page_of(12));
        });
        assert_eq!(counts().needless_wakeups, 0);
        // Nobody is next.
        let page = guards.len() as u64 + 12;
        let more = pin_all(&file, page..page + 4 - guards.len() as u64);
        let alone = Task::waiting(file.page_async(PageNo(30)));
        drop(guards);
        assert_eq!(alone.wakes(), 1);
        drop((alone, more));
        check_all_frames(&cache, &file);
    }
}

/// An empty frame is handed to a thread that waits, but never to a task, with which it would go.
#[test]
fn when_a_frame_was_freed_for_it() {
    let _turn = turn();
    let (_device, cache, file) = queued(4, LONG);
    file.set_len(70 * PAGE as u64).unwrap();
    for page in 64..68 {
        let mut guards = pin_all(&file, 64..68);
        let mut task = Task::waiting(file.page_async(PageNo(10)));
        // The pages go, but their pins hold the frames.
        file.set_len(64 * PAGE as u64).unwrap();
        assert!(task.poll().is_pending());
        let told = task.wakes();
        drop(guards.swap_remove(page as usize - 64));
        assert_eq!(task.wakes(), told + 1);
        drop(task);
        drop(guards);
        file.set_len(70 * PAGE as u64).unwrap();
    }
    check_all_frames(&cache, &file);
}

#[test]
fn while_its_read_is_under_way() {
    let _turn = turn();
    for fails in [false, true] {
        let (device, cache, file) = queued(4, LONG);
        if fails {
            device.set_faults(FaultPlan { read: Failure::at(1), ..FaultPlan::default() });
        }
        for page in 0..4 {
            device.block_reads();
            let task = Task::waiting(file.page_async(PageNo(page)));
            let other = Task::waiting(file.page_async(PageNo(page)));
            drop(task);
            device.release_reads();
            match other.finish() {
                Ok(guard) => assert_eq!(guard[..], page_of(page)),
                Err(Error::Io { .. }) => assert!(fails && page == 0),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(device.counts("f").reads, 4);
        check_all_frames(&cache, &file);
    }
}

/// A file is closed when the reads have ended that nobody wants any more: the device would panic.
#[test]
fn while_its_read_is_under_way_and_the_file_is_closed() {
    let _turn = turn();
    let (device, _cache, file) = queued(4, LONG);
    device.block_reads();
    drop(Task::waiting(file.page_async(PageNo(3))));
    thread::scope(|scope| {
        let closer = scope.spawn(|| close(file).unwrap());
        device.wait_for_held_reads(1);
        device.release_reads();
        closer.join().unwrap();
    });
}

#[test]
fn when_its_read_has_ended() {
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    for page in 0..4 {
        device.block_reads();
        let task = Task::waiting(file.page_async(PageNo(page)));
        device.release_reads();
        task.wait_for_wakes(1);
        drop(task);
    }
    // They are there.
    let before = cache.stats();
    for page in 0..4 {
        assert!(matches!(Task::new(file.page_async(PageNo(page))).poll(), Poll::Ready(Ok(_))));
    }
    assert_eq!((cache.stats().hits - before.hits, device.counts("f").reads), (4, 4));
    check_all_frames(&cache, &file);
}

#[test]
fn when_its_read_has_failed() {
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    device.set_faults(FaultPlan { read: Failure::at(1), ..FaultPlan::default() });
    device.block_reads();
    let task = Task::waiting(file.page_async(PageNo(3)));
    device.release_reads();
    task.wait_for_wakes(1);
    drop(task);
    assert_eq!(block_on(file.page_async(PageNo(3))).unwrap()[..], page_of(3));
    check_all_frames(&cache, &file);
}

/// In the middle of a read of several pages.
#[test]
fn a_read_of_many_pages() {
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    for pages in 1..8 {
        let mut buf = vec![0; 8 * PAGE];
        let mut task = Task::new(file.read_at_async(&mut buf, 20 * PAGE as u64));
        for page in 0..pages {
            device.block_reads();
            let held = task.poll().is_pending();
            device.release_reads();
            if held {
                task.wait_for_wakes(page + 1);
            }
        }
        drop(task);
        pin_all(&file, 0..4);
    }
    check_all_frames(&cache, &file);
}

/// Wakers run on the I/O thread, which outlives them; and out of the drop of a guard of another.
#[test]
fn a_waker_that_panics() {
    struct Panics(AtomicBool);
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
            panic!("a waker panics, as the test wants it");
        }
    }
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    let has_panicked = Arc::new(Panics(AtomicBool::new(false)));
    let waker = Waker::from(has_panicked.clone());
    let guards = pin_all(&file, 0..4);
    let mut frame = Box::pin(file.page_async(PageNo(10)));
    assert!(frame.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(guards);
    assert!(has_panicked.0.load(Ordering::Relaxed));
    drop(frame);
    has_panicked.0.store(false, Ordering::Relaxed);
    device.block_reads();
    let mut read = Box::pin(file.page_async(PageNo(20)));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    device.release_reads();
    while !has_panicked.0.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    // The I/O thread lives.
    assert_eq!(block_on(file.page_async(PageNo(21))).unwrap()[..], page_of(21));
    drop(read);
    check_all_frames(&cache, &file);
}
