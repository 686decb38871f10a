//! Which frame a thread gets that needs one.

use std::time::Duration;

use unherd_sys::primitives::Arc;
use unherd_testkit::{Seed, SimDevice};

use crate::{Cache, CacheBuilder, File, Io, OpenOptions, PageNo};

const PAGE: usize = 512;

fn open(frames: usize, pages: u64, builder: CacheBuilder) -> (Cache, File) {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    let builder = builder.io(Io::Blocking).frame_wait(Duration::from_millis(20)).device(device);
    let cache = builder.page_size(PAGE).capacity(frames * PAGE).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).create(true)).unwrap();
    file.set_len(pages * PAGE as u64).unwrap();
    (cache, file)
}

fn read(file: &File, pages: std::ops::Range<u64>) {
    pages.for_each(|page| drop(file.page(PageNo(page)).unwrap()));
}

#[test]
fn a_page_that_was_copied_keeps_its_queue() {
    const HOT: u64 = 8;
    let (cache, file) = open(64, 308, Cache::builder());
    for _ in 0..3 {
        read(&file, 0..HOT);
    }
    read(&file, HOT..308);
    let pinned = file.page(PageNo(1)).unwrap();
    file.write_at(b"new", PAGE as u64).unwrap();
    drop(pinned);
    assert_eq!(cache.stats().copies, 1);
    // Clean again, and used once: not enough to leave the small queue.
    file.sync_all().unwrap();
    read(&file, 1..2);
    read(&file, HOT..308);
    let before = cache.stats().misses;
    read(&file, 0..HOT);
    assert_eq!(cache.stats().misses, before, "a hot page is gone");
    assert_eq!(&file.page(PageNo(1)).unwrap()[..3], b"new");
}

#[test]
fn a_clean_page_is_given_up_before_a_dirty_one_is_written() {
    const FRAMES: u64 = 8;
    for clean in 0..FRAMES {
        let (cache, file) = open(8, 40, Cache::builder());
        read(&file, 0..FRAMES);
        // More pages than these may not be newer than the device.
        let other = (clean + 1) % FRAMES;
        let _pinned = file.page(PageNo(other)).unwrap();
        for page in (0..FRAMES).filter(|page| ![clean, other].contains(page)) {
            file.write_at(&[1; PAGE], page * PAGE as u64).unwrap();
        }
        read(&file, 30..31);
        let stats = cache.stats();
        assert_eq!((stats.evictions, stats.write_transfers), (1, 0), "{clean} is clean");
    }
}

#[test]
#[cfg(not(shuttle))]
fn one_waiter_is_woken_for_a_batch_of_present_frames() {
    let (cache, _file) = open(8, 8, Cache::builder().max_capacity(8192 * PAGE));
    let batch = || cache.owner.core.supply().waiters.batch();
    assert_eq!(batch(), 1);
    cache.resize(8192 * PAGE).unwrap();
    assert_eq!(batch(), 8);
    cache.resize(8 * PAGE).unwrap();
    assert_eq!(batch(), 1);
}

/// Two wait for a frame. The first is woken for nothing; it has waited for long, and so is first
/// all the same.
#[test]
#[cfg(not(shuttle))]
fn who_has_lost_and_is_overdue_is_first() {
    use unherd_sys::Timestamp;
    use unherd_sys::primitives::{Mutex, thread};

    use super::OVERDUE_AFTER;

    let (cache, file) = open(8, 40, Cache::builder());
    let core = &cache.owner.core;
    let mut pins: Vec<_> = (0..8).map(|page| file.page(PageNo(page)).unwrap()).collect();
    let now = Timestamp::now();
    let end = now.after(Duration::from_secs(20));
    let long_ago = Timestamp::from_ns(now.as_ns() - 2 * OVERDUE_AFTER.as_nanos() as u64);
    let until_queues_are = |ordinary, overdue| {
        while core.supply().waiters.queues(core.waits()) != (ordinary, overdue) {
            assert!(Timestamp::now() < now.after(Duration::from_secs(10)));
            thread::yield_now();
        }
    };
    let order = Mutex::new(Vec::new());
    let take = |name, began| {
        let key = file.file.key(PageNo(20));
        let claim = core.take_before(key, began, end).unwrap();
        order.lock().push(name);
        core.pages.free_frame(claim);
    };
    thread::scope(|scope| {
        let overdue = scope.spawn(|| take("overdue", long_ago));
        until_queues_are(1, 0);
        let other = scope.spawn(|| take("other", now));
        until_queues_are(2, 0);
        core.pages.notify_frame_waiters(1);
        until_queues_are(1, 1);
        pins.pop();
        for thread in [overdue, other] {
            thread.join().unwrap();
        }
    });
    assert_eq!(*order.lock(), ["overdue", "other"]);
}
