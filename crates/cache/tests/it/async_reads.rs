//! Reads in tasks: what they give, whom they wait with, and what their errors are.

mod drops;
pub(crate) mod executor;
mod stress;
mod wakers;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use unherd_cache::{Cache, Error, File, Io, OpenOptions, PageGuard, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{CountingAllocator, Failure, FaultPlan, SimDevice, block_on};

use crate::scene::{real_devices, real_dir, sim, small, turn, writable};
use executor::Task;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const PAGE: usize = 512;

/// What a page of the file holds.
fn page_of(page: u64) -> [u8; PAGE] {
    [page as u8 + 1; PAGE]
}

fn bytes_of(pages: u64) -> Vec<u8> {
    (0..pages).flat_map(page_of).collect()
}

/// A file of 64 pages in a cache with this many frames.
fn queued(frames: usize, frame_wait: Duration) -> (Arc<SimDevice>, Cache, File) {
    let device = sim(51, FaultPlan::default());
    device.put("f", &bytes_of(64));
    let builder = small(frames, PAGE).device(device.clone()).io(Io::Queued);
    let cache = builder.frame_wait(frame_wait).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    (device, cache, file)
}

/// Nobody comes to this deadline, unless a frame was lost.
const LONG: Duration = Duration::from_secs(20);

fn pin_all(file: &File, pages: std::ops::Range<u64>) -> Vec<PageGuard<'_>> {
    pages.map(|page| file.page(PageNo(page)).unwrap()).collect()
}

/// Every frame of the cache can be had, all at a time, and each page is what it was.
fn check_all_frames(cache: &Cache, file: &File) {
    let first = 64 - cache.frames() as u64;
    for (page, guard) in (first..).zip(pin_all(file, first..64)) {
        assert_eq!(guard[..], page_of(page));
    }
}

#[test]
fn futures_and_guards_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let (_device, _cache, file) = queued(4, LONG);
    let mut buf = [0; 4];
    is_send(&file.page_async(PageNo(0)));
    is_send(&block_on(file.page_async(PageNo(0))).unwrap());
    is_send(&file.read_at_async(&mut buf, 0));
}

#[test]
fn a_hit_allocates_nothing() {
    let _turn = turn();
    let (_device, _cache, file) = queued(4, LONG);
    let mut buf = [0; PAGE];
    // A miss, and then the first hit, which has the thread's row of counts made.
    for _ in 0..2 {
        file.read_at(&mut buf, 0).unwrap();
    }
    let mut context = Context::from_waker(Waker::noop());
    let before = CountingAllocator::allocations();
    {
        let page = pin!(file.page_async(PageNo(0)));
        assert!(matches!(page.poll(&mut context), Poll::Ready(Ok(guard)) if guard[0] == 1));
        let read = pin!(file.read_at_async(&mut buf, 0));
        assert_eq!(read.poll(&mut context), Poll::Ready(Ok(PAGE)));
    }
    assert_eq!(CountingAllocator::allocations(), before);
    drop(std::hint::black_box(Box::new(1)));
    assert!(CountingAllocator::allocations() > before, "the counter counts");
}

#[test]
fn a_page_that_is_there_needs_one_poll_in_either_mode() {
    let _turn = turn();
    for io in crate::scene::BOTH {
        let device = sim(52, FaultPlan::default());
        device.put("f", &bytes_of(4));
        let cache = small(8, PAGE).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", OpenOptions::new()).unwrap();
        file.read_at(&mut [0; 4 * PAGE], 0).unwrap();
        let before = cache.stats();
        let Poll::Ready(Ok(guard)) = Task::new(file.page_async(PageNo(2))).poll() else {
            panic!("a hit that waits");
        };
        assert_eq!(guard[..], page_of(2));
        let mut buf = [0; 3 * PAGE];
        let read = Task::new(file.read_at_async(&mut buf, 100)).poll();
        assert_eq!(read, Poll::Ready(Ok(3 * PAGE)));
        assert_eq!(buf[..], bytes_of(4)[100..100 + 3 * PAGE]);
        let after = cache.stats();
        assert_eq!((after.hits - before.hits, after.misses - before.misses), (5, 0));
    }
}

#[test]
fn missing_pages_are_read_once_each() {
    let _turn = turn();
    let (device, cache, file) = queued(8, LONG);
    let guard = block_on(file.page_async(PageNo(3))).unwrap();
    assert_eq!(guard[..], page_of(3));
    // Over hits, misses and the end of the file.
    let mut buf = vec![0; 5 * PAGE];
    assert_eq!(block_on(file.read_at_async(&mut buf, 2 * PAGE as u64 + 7)), Ok(5 * PAGE));
    assert_eq!(buf, bytes_of(64)[2 * PAGE + 7..][..5 * PAGE]);
    assert_eq!(block_on(file.read_at_async(&mut buf, 63 * PAGE as u64 + 500)), Ok(12));
    assert_eq!(buf[..12], [64; 12]);
    assert_eq!(block_on(file.read_at_async(&mut buf, 1 << 40)), Ok(0));
    // Beyond the end there is nothing to read.
    assert_eq!(block_on(file.page_async(PageNo(1000))).unwrap()[..], [0; PAGE]);
    assert_eq!(device.counts("f").reads, 7);
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.reads), (8, 7), "{stats:?}");
}

#[test]
fn on_the_real_device() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    std::fs::write(&path, bytes_of(64)).unwrap();
    for (io, device) in real_devices().into_iter().filter(|(io, _)| *io == Io::Queued) {
        let cache = small(4, 4096).io(io).device(device).build().unwrap();
        let file = cache.open(&path, OpenOptions::new()).unwrap();
        let mut buf = vec![0; 64 * PAGE];
        assert_eq!(block_on(file.read_at_async(&mut buf, 0)), Ok(64 * PAGE));
        assert_eq!(buf, bytes_of(64));
        assert_eq!(block_on(file.page_async(PageNo(0))).unwrap()[..], bytes_of(8)[..]);
    }
}

/// As the herd of threads, with tasks among them: they stand in one queue, and each is woken once.
#[test]
fn tasks_and_threads_that_miss_one_page_cause_one_read_and_are_woken_once_each() {
    const TASKS: usize = 1000;
    const THREADS: usize = 8;
    let _turn = turn();
    let (device, cache, file) = queued(16, LONG);
    let reason = Reason::register("page-read");
    let before = Ledger::snapshot();
    let counts = || Ledger::snapshot().since(&before).reason(reason);
    device.block_reads();
    thread::scope(|scope| {
        let waiting = |_| Task::waiting(file.page_async(PageNo(5)));
        let mut tasks: Vec<_> = (0..TASKS / 2).map(waiting).collect();
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| assert_eq!(file.page(PageNo(5)).unwrap()[..], page_of(5))))
            .collect();
        while counts().waits < (TASKS / 2 + THREADS) as u64 {
            thread::yield_now();
        }
        tasks.extend((0..TASKS / 2).map(waiting));
        device.release_reads();
        for task in &tasks {
            task.wait_for_wakes(1);
        }
        for mut task in tasks {
            let Poll::Ready(Ok(guard)) = task.poll() else { panic!("woken too early") };
            assert_eq!((&guard[..], task.wakes()), (&page_of(5)[..], 1));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let all = (TASKS + THREADS) as u64;
    let counts = counts();
    assert_eq!((counts.waits, counts.wakeups, counts.needless_wakeups), (all, all, 0));
    assert_eq!(device.counts("f").reads, 1, "one read of the device");
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.deduplicated_misses), (1, all - 1));
}

#[test]
fn a_failed_read_is_told_to_each_task_and_not_repeated() {
    let _turn = turn();
    let (device, cache, file) = queued(8, LONG);
    device.set_faults(FaultPlan { read: Failure::at(1), ..FaultPlan::default() });
    device.block_reads();
    let tasks: Vec<_> = (0..20).map(|_| Task::waiting(file.page_async(PageNo(5)))).collect();
    device.release_reads();
    for task in tasks {
        let Err(Error::Io { offset, .. }) = task.finish() else { panic!("no error") };
        assert_eq!(offset, 5 * PAGE as u64);
    }
    assert_eq!(cache.stats().reads, 1);
    // The next call tries again.
    assert_eq!(block_on(file.page_async(PageNo(5))).unwrap()[..], page_of(5));
    check_all_frames(&cache, &file);
}

/// As `reads_see_the_last_page_with_its_end`, of `length.rs`.
#[test]
fn tasks_see_the_last_page_with_its_end() {
    let _turn = turn();
    let device = sim(55, FaultPlan::default());
    device.put("f", &[1; PAGE + 100]);
    let cache = small(8, PAGE).device(device.clone()).io(Io::Queued).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true)).unwrap();
    file.page(PageNo(1)).unwrap();
    device.block_reads();
    let mut bytes = [0; 2 * PAGE];
    let task = Task::waiting(file.read_at_async(&mut bytes, 0));
    file.write_at(&[2; PAGE], PAGE as u64).unwrap();
    device.release_reads();
    assert_eq!(task.finish().unwrap(), 2 * PAGE);
    assert!(bytes[..PAGE] == [1; PAGE] && bytes[PAGE..] == [2; PAGE]);
}

/// As `a_read_ends_where_the_file_was_cut`, of `length.rs`.
#[test]
fn tasks_end_where_the_file_was_cut() {
    let _turn = turn();
    for len in [0, PAGE as u64 + 100] {
        let (device, _cache, file) = queued(16, LONG);
        device.block_reads();
        let mut bytes = [9; 4 * PAGE];
        let task = Task::waiting(file.read_at_async(&mut bytes, 0));
        device.release_reads();
        task.wait_for_wakes(1);
        file.set_len(len).unwrap();
        assert_eq!(task.finish(), Ok(len as usize));
        assert_eq!(bytes[..len as usize], bytes_of(2)[..len as usize]);
    }
}

#[test]
fn short_and_late_reads_are_whole() {
    let _turn = turn();
    let device = sim(53, FaultPlan::default());
    device.put("f", &bytes_of(64));
    device.set_faults(FaultPlan {
        short_per_mille: 500,
        held_reaps_max: 3,
        reorder: true,
        alignment: unherd_sys::Alignment { memory: 64, offset: 64 },
        ..FaultPlan::default()
    });
    let cache = small(40, PAGE).device(device.clone()).io(Io::Queued).build().unwrap();
    let file = cache.open("f", OpenOptions::new()).unwrap();
    device.block_reads();
    let tasks: Vec<_> = (0..30).map(|page| Task::waiting(file.page_async(PageNo(page)))).collect();
    device.release_reads();
    for (page, task) in (0..).zip(tasks) {
        assert_eq!(task.finish().unwrap()[..], page_of(page));
    }
    assert!(device.faults_injected() > 5);
}

/// The I/O thread keeps the time of tasks: of each by itself, and while threads wait as well.
#[test]
fn a_task_that_finds_no_frame_in_time_says_what_holds_them() {
    let _turn = turn();
    let (_device, cache, file) = queued(8, Duration::from_millis(30));
    let guards = pin_all(&file, 0..8);
    let is_short_of_frames = |result: Result<(), Error>| {
        assert!(
            matches!(result, Err(Error::NoFrames { pinned: 8, capacity: 8, .. })),
            "{result:?}"
        );
    };
    thread::scope(|scope| {
        scope.spawn(|| is_short_of_frames(file.page(PageNo(30)).map(drop)));
        for round in 0..3 {
            // The third waits for the page of the second.
            let file = &file;
            let tasks: Vec<_> = [10, 11, 11]
                .map(|page| {
                    Task::waiting(async move { file.page_async(PageNo(page)).await.map(drop) })
                })
                .into();
            for task in tasks {
                is_short_of_frames(task.finish());
            }
            let mut buf = [0; 4];
            let read = block_on(file.read_at_async(&mut buf, 40 * PAGE as u64 + round));
            is_short_of_frames(read.map(drop));
        }
    });
    drop(guards);
    assert_eq!(block_on(file.page_async(PageNo(11))).unwrap()[..], page_of(11));
    check_all_frames(&cache, &file);
}

#[test]
fn tasks_and_threads_are_served_with_frames_in_the_order_in_which_they_came() {
    let _turn = turn();
    let (device, cache, file) = queued(4, LONG);
    let reason = Reason::register("frame");
    let mut guards = pin_all(&file, 0..4);
    let before = Ledger::snapshot();
    let counts = || Ledger::snapshot().since(&before).reason(reason);
    thread::scope(|scope| {
        let first = Task::waiting(file.page_async(PageNo(10)));
        let second = scope.spawn(|| file.page(PageNo(11)).unwrap());
        while counts().waits < 2 {
            thread::yield_now();
        }
        let third = Task::waiting(file.page_async(PageNo(12)));
        // Whichever way a frame comes: its pin goes, or its page.
        drop(guards.pop());
        assert_eq!((first.wakes(), third.wakes()), (1, 0));
        let first = first.finish().unwrap();
        assert!(!second.is_finished() && third.wakes() == 0);
        drop(guards.pop());
        let second = second.join().unwrap();
        assert_eq!(third.wakes(), 0);
        drop(guards.pop());
        let third = third.finish().unwrap();
        assert_eq!(
            (&first[..], &second[..], &third[..]),
            (&page_of(10)[..], &page_of(11)[..], &page_of(12)[..])
        );
    });
    drop(guards);
    let counts = counts();
    assert_eq!((counts.waits, counts.wakeups, counts.needless_wakeups), (3, 3, 0));
    assert_eq!(device.counts("f").reads, 7);
    check_all_frames(&cache, &file);
}

/// Dirty pages are written back for a task by the I/O thread.
#[test]
fn a_task_has_dirty_pages_written_back() {
    let _turn = turn();
    let (device, cache, file) = queued(8, LONG);
    for page in 0..8 {
        file.write_at(&[7; PAGE], page * PAGE as u64).unwrap();
    }
    // All frames are dirty before the first.
    for page in 20..40 {
        assert_eq!(block_on(file.page_async(PageNo(page))).unwrap()[..], page_of(page));
        assert!(cache.stats().write_backs > 0);
    }
    drop(file);
    assert_eq!(device.bytes("f").unwrap()[..8 * PAGE], [7; 8 * PAGE]);
}

#[test]
fn what_is_refused_is_told_at_once() {
    let _turn = turn();
    let (_device, cache, file) = queued(8, LONG);
    let out_of_range = Task::new(file.page_async(PageNo(u64::MAX))).poll();
    assert!(matches!(out_of_range, Poll::Ready(Err(Error::OutOfRange { .. }))));
    let mut buf = [0; 8];
    let out_of_range = Task::new(file.read_at_async(&mut buf, u64::MAX - 3)).poll();
    assert!(matches!(out_of_range, Poll::Ready(Err(Error::OutOfRange { .. }))));
    let held = file.page_mut(PageNo(3)).unwrap();
    let refused = Task::new(file.page_async(PageNo(3))).poll();
    assert!(matches!(refused, Poll::Ready(Err(Error::WouldDeadlock { page: 3, .. }))));
    // Another thread's guard is waited for.
    thread::scope(|scope| {
        let task = scope.spawn(|| Task::waiting(file.page_async(PageNo(3)))).join().unwrap();
        drop(held);
        assert_eq!((task.wakes(), &task.finish().unwrap()[..]), (1, &page_of(3)[..]));
    });
    let pins: Vec<_> = std::iter::from_fn(|| file.page(PageNo(3)).ok()).collect();
    assert!(pins.len() >= (1 << 17) - 1);
    let refused = Task::new(file.page_async(PageNo(3))).poll();
    assert!(matches!(refused, Poll::Ready(Err(Error::TooManyPins { page: 3, .. }))), "{refused:?}");
    drop(pins);
    check_all_frames(&cache, &file);
}

#[test]
fn without_an_io_thread_a_miss_is_refused_and_left_to_threads() {
    let _turn = turn();
    let device = sim(54, FaultPlan::default());
    device.put("f", &bytes_of(64));
    let cache = small(8, PAGE).device(device.clone()).io(Io::Blocking).build().unwrap();
    let file = cache.open("f", OpenOptions::new()).unwrap();
    let refused = Task::new(file.page_async(PageNo(3))).poll();
    assert!(matches!(refused, Poll::Ready(Err(Error::AsyncNeedsIoThread { page: Some(3), .. }))));
    // A page that a thread is reading is waited for.
    device.block_reads();
    thread::scope(|scope| {
        scope.spawn(|| file.page(PageNo(3)).map(drop).unwrap());
        device.wait_for_held_reads(1);
        let task = Task::waiting(file.page_async(PageNo(3)));
        device.release_reads();
        assert_eq!(task.finish().unwrap()[..], page_of(3));
    });
    check_all_frames(&cache, &file);
}
