use std::time::Duration;

use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, AtomicBool, Mutex, Ordering, thread};
use unherd_testkit::{Seed, SimDevice};

use crate::file::steps::{self, Step};
use crate::frames::EXTENT;
use crate::page::PageNo;
use crate::{Advice, Cache, Error, File, Io, OpenOptions};

const PAGE: usize = 512;

fn scene(frames: usize) -> (Arc<SimDevice>, Cache, File) {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    let builder = Cache::builder().io(Io::Blocking).page_size(PAGE).capacity(frames * PAGE);
    let cache = builder.device(device.clone()).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).create(true)).unwrap();
    (device, cache, file)
}

fn offset(page: usize) -> u64 {
    (page * PAGE) as u64
}

/// Those that are there are changed, or replaced if somebody has them, in their turn.
#[test]
fn pages_that_are_there_are_written_one_by_one() {
    let (device, cache, file) = scene(256);
    for page in [3, 20, 21, 33] {
        file.write_all_at(&[1; PAGE], offset(page)).unwrap();
    }
    file.sync_all().unwrap();
    file.write_all_at(&[2; PAGE], offset(20)).unwrap();
    let (pinned, before) = (file.page(PageNo(33)).unwrap(), cache.stats());
    // From within page 1 to within page 70.
    let bytes: Vec<u8> = (0..69 * PAGE).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&bytes, offset(1) + 100).unwrap();
    let stats = cache.stats().since(&before);
    // Page 1 is written in part.
    assert_eq!((stats.misses, stats.copies, stats.reads), (70 - 4, 1, 1));
    assert_eq!(*pinned, [1; PAGE]);
    let mut expected = vec![0; PAGE + 100];
    expected.extend(&bytes);
    let mut read = vec![9; expected.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, expected);
    file.sync_all().unwrap();
    assert_eq!(device.durable_bytes("f").unwrap(), expected);
    let unwritten = file.core().files.unwritten.load(Ordering::Relaxed);
    assert_eq!(unwritten, 0, "as many are counted as are newer than the device");
}

/// And so does one that wants to change one of them.
#[test]
fn readers_of_pages_that_are_written_together_wait_for_them() {
    let (_device, _cache, file) = scene(256);
    let file = Arc::new(file);
    file.set_len(offset(40)).unwrap();
    let [waited, changed] = [5, 9].map(|page| file.file.key(PageNo(page)));
    let was_written = Arc::new(AtomicBool::new(false));
    let others = Arc::new(Mutex::new(Vec::new()));
    let (at, from, is_written) = (others.clone(), file.clone(), was_written.clone());
    steps::at(file.core(), Step::WritePages, PageNo(0), move || {
        let (reads, writes, waited_for) = (from.clone(), from.clone(), is_written.clone());
        let read = move || {
            let mut bytes = [0; PAGE];
            let page = reads.page(PageNo(5)).map(|page| bytes.copy_from_slice(&page));
            assert!(waited_for.load(Ordering::Acquire), "it was to wait");
            page.map(|()| bytes)
        };
        let write = move || writes.write_at(&[8; 4], offset(9)).map(|_| [0; PAGE]);
        at.lock().extend([thread::spawn(read), thread::spawn(write)]);
        let waits = &from.core().pages.waits;
        while [waited, changed].iter().any(|key| waits.waited_for([(*key).into()]).next().is_none())
        {
            thread::yield_now();
        }
        is_written.store(true, Ordering::Release);
    });
    // Too few to be written back, the end of which would wake them as well.
    file.write_all_at(&[7; 12 * PAGE], 0).unwrap();
    assert!(was_written.load(Ordering::Acquire), "pages were written together");
    let others: Vec<_> = others.lock().drain(..).collect();
    let began = Timestamp::now();
    while !others.iter().all(|other| other.is_finished()) {
        assert!(Timestamp::now().since(began) < Duration::from_secs(60), "they wait for ever");
        thread::yield_now();
    }
    let outcomes: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
    assert_eq!(outcomes, [Ok([7; PAGE]), Ok([0; PAGE])]);
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, offset(9)).unwrap();
    assert_eq!(bytes, [8, 8, 8, 8, 7, 7]);
}

/// Its frame, and those of the pages that follow, are for others then.
#[test]
fn a_page_that_comes_meanwhile_ends_what_is_written_together() {
    let (device, cache, file) = scene(256);
    let (file, capacity) = (Arc::new(file), 256);
    // Nothing comes with them.
    file.advise(Advice::Random);
    file.set_len(offset(40)).unwrap();
    let before = cache.stats();
    for seen in [PageNo(0), PageNo(16 + 5)] {
        let reads = file.clone();
        steps::at(file.core(), Step::InstallPages, PageNo(seen.0 / 16 * 16), move || {
            assert_eq!(*reads.page(seen).unwrap(), [0; PAGE]);
        });
    }
    file.write_all_at(&[7; 40 * PAGE], 0).unwrap();
    let stats = cache.stats().since(&before);
    assert_eq!(stats.misses, 40);
    file.sync_all().unwrap();
    assert_eq!(device.durable_bytes("f").unwrap(), [7; 40 * PAGE]);
    // All frames can be had: none was lost on the way.
    let many = cache.open("many", OpenOptions::new().write(true).create(true)).unwrap();
    many.set_len(offset(capacity as usize)).unwrap();
    let held: Result<Vec<_>, _> = (0..capacity).map(|page| many.page(PageNo(page))).collect();
    assert_eq!(held.unwrap().len(), 256);
}

/// Three quarters of the frames may be dirty: there one page after the other waits for the device.
#[test]
fn a_call_that_is_larger_than_the_cache_goes_on_without_room() {
    let (device, _cache, file) = scene(32);
    let bytes: Vec<u8> = (0..300 * PAGE).map(|at| (at / PAGE) as u8).collect();
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(device.durable_bytes("f").unwrap(), bytes);
    assert_eq!(file.core().files.unwritten.load(Ordering::Relaxed), 0);
}

/// What another file holds back stays so.
#[test]
fn held_pages_of_the_cache_keep_others_from_nothing() {
    let (device, cache, file) = scene(128);
    let other = cache.open("other", OpenOptions::new().write(true).create(true)).unwrap();
    let mut held = other.page_mut(PageNo(0)).unwrap();
    held.write(0, &[5; PAGE]);
    held.hold_until(1).unwrap();
    drop(held);
    file.write_all_at(&[7; EXTENT / 4 * PAGE], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(device.durable_bytes("f").unwrap(), [7; EXTENT / 4 * PAGE]);
    assert!(matches!(other.sync_all(), Err(Error::Held { .. })));
    other.release_to(1);
    other.sync_all().unwrap();
}

/// Writes pages 0 to 11 together; `other` runs on another thread, which sleeps while they are being
/// written, and is to end then.
fn other_goes_on(
    file: &Arc<File>,
    other: impl FnOnce(&File) -> Result<(), Error> + Send + 'static,
) {
    let running = Arc::new(Mutex::new(None));
    let (from, at) = (file.clone(), running.clone());
    steps::at(file.core(), Step::WritePages, PageNo(0), move || {
        let begun = from.clone();
        *at.lock() = Some(thread::spawn(move || other(&begun)));
        let (supply, began) = (from.core().supply(), Timestamp::now());
        while supply.waiters.events.count() == 0 && supply.dirty_waiters.events.is_empty_after_rmw()
        {
            assert!(
                Timestamp::now().since(began) < Duration::from_secs(60),
                "it waits for nothing"
            );
            thread::yield_now();
        }
        // It is counted before it sleeps.
        let asleep = Timestamp::now().after(Duration::from_millis(20));
        while Timestamp::now() < asleep {
            thread::yield_now();
        }
    });
    // Else they are written behind, and the end of that tells others as well.
    file.advise(Advice::Random);
    file.write_all_at(&[7; 12 * PAGE], 0).unwrap();
    let other = running.lock().take().expect("pages were written together");
    let began = Timestamp::now();
    while !other.is_finished() {
        assert!(Timestamp::now().since(began) < Duration::from_secs(10), "it was not woken");
        thread::yield_now();
    }
    other.join().unwrap().unwrap();
}

#[test]
fn frame_waiters_are_notified_about_pages_written_together() {
    let (_device, cache, file) = scene(64);
    let pinned = cache.open("pinned", OpenOptions::new().write(true).create(true)).unwrap();
    pinned.set_len(offset(64)).unwrap();
    let guards: Vec<_> = (0..52).map(|page| pinned.page(PageNo(page)).unwrap()).collect();
    other_goes_on(&Arc::new(file), |file| file.page(PageNo(40)).map(drop));
    drop(guards);
}

#[test]
fn room_waiters_are_notified_about_pages_written_together() {
    let (_device, _cache, file) = scene(64);
    let file = Arc::new(file);
    file.set_len(offset(100)).unwrap();
    let changing: Vec<_> = (50..86).map(|page| file.page_mut(PageNo(page)).unwrap()).collect();
    other_goes_on(&file, |file| file.write_at(&[8; PAGE], offset(40)).map(drop));
    drop(changing);
}

#[test]
fn pages_that_were_written_together_are_written_back_when_they_are_old() {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    let builder = Cache::builder().io(Io::Queued).page_size(PAGE).capacity(64 * PAGE);
    let builder = builder.dirty_expire(Duration::from_millis(20)).device(device.clone());
    let cache = builder.build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).create(true)).unwrap();
    file.advise(Advice::Random);
    file.write_all_at(&[7; 12 * PAGE], 0).unwrap();
    let began = Timestamp::now();
    while device.bytes("f").unwrap() != [7; 12 * PAGE] {
        assert!(Timestamp::now().since(began) < Duration::from_secs(10), "they stay dirty");
        thread::yield_now();
    }
}
