//! Who gets which frame.

use std::time::Duration;

use unherd_cache::{Cache, CacheBuilder, Error, File, PageGuard, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::primitives::{Mutex, thread};
use unherd_testkit::{Failure, FaultPlan};

use crate::scene::{BOTH, sim, small, turn, writable};

const FRAMES: usize = 12;

fn pages(file: &File, range: std::ops::Range<u64>) -> Vec<PageGuard<'_>> {
    range.map(|page| file.page(PageNo(page)).unwrap()).collect()
}

fn open(builder: CacheBuilder) -> (Cache, File) {
    let device = sim(31, FaultPlan::default());
    device.put("f", &[1; 512 * 40]);
    let cache = builder.device(device).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    (cache, file)
}

#[test]
fn a_thread_may_have_all_frames() {
    let _turn = turn();
    for io in BOTH {
        let builder = small(FRAMES, 512).io(io).frame_wait(Duration::from_millis(20));
        let (_cache, file) = open(builder);
        // Free at first; then clean, and given up again.
        for first in [0, 20] {
            let guards = pages(&file, first..first + FRAMES as u64);
            match file.page(PageNo(39)).map(|_| ()) {
                Err(Error::NoFrames { pinned: FRAMES, capacity: FRAMES, .. }) => {}
                other => panic!("{io:?}: {other:?}"),
            }
            drop(guards);
        }
        // Dirty, and written back to make room.
        file.write_at(&[2; 512 * FRAMES], 0).unwrap();
        drop(pages(&file, 20..20 + FRAMES as u64));
        // Cut off.
        file.set_len(0).unwrap();
        file.set_len(512 * 40).unwrap();
        assert_eq!(pages(&file, 0..FRAMES as u64).len(), FRAMES);
    }
}

#[test]
fn those_who_wait_for_a_frame_get_one_in_the_order_of_their_coming() {
    let _turn = turn();
    let (_cache, file) = open(small(FRAMES, 512).frame_wait(Duration::from_secs(3600)));
    let mut guards = pages(&file, 0..FRAMES as u64);
    let before = Ledger::snapshot();
    let waits = || Ledger::snapshot().since(&before).reason(Reason::register("frame")).waits;
    let served = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for waiter in 0..FRAMES as u64 {
            let (file, served) = (&file, &served);
            scope.spawn(move || {
                let guard = file.page(PageNo(20 + waiter)).unwrap();
                served.lock().push(waiter);
                // Not dropped: the next one waits for another frame.
                std::mem::forget(guard);
            });
            while waits() <= waiter {
                thread::yield_now();
            }
        }
        for served_before in 0..FRAMES {
            drop(guards.remove(guards.len() / 2));
            while served.lock().len() == served_before {
                thread::yield_now();
            }
        }
    });
    assert_eq!(*served.lock(), (0..FRAMES as u64).collect::<Vec<_>>());
}

/// What could not be written is tried again only if there is nothing else.
#[test]
fn a_page_whose_write_failed_is_written_again_after_the_dirty_ones() {
    let _turn = turn();
    let device = sim(32, FaultPlan::default());
    device.put("f", &[7; 512 * 64]);
    let builder = small(8, 512).device(device.clone());
    let cache = builder.build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    device.put("g", &[7; 512 * 64]);
    let other = cache.open("g", writable()).unwrap();
    let pins = pages(&file, 0..3);
    file.write_at(&[1; 512], 3 * 512).unwrap();
    device.set_faults(FaultPlan { write: Failure::per_mille(1000), ..FaultPlan::default() });
    assert!(file.sync_all().is_err());
    device.set_faults(FaultPlan::default());
    for page in (32..64).step_by(8) {
        other.write_at(&[2; 512], page * 512).unwrap();
    }
    drop(pages(&other, 63..64));
    let bytes = device.bytes("g").unwrap();
    let written = (32..64).step_by(8).filter(|page| bytes[page * 512] == 2).count();
    assert_eq!(written, 1, "the frame is that of a page that was merely dirty");
    drop(pins);
}

#[test]
fn streams_give_nothing_up_beside_free_frames() {
    let _turn = turn();
    let device = sim(31, FaultPlan::default());
    device.put("read", &[1; 512 * 1000]);
    let cache = small(1024, 512).device(device).build().unwrap();
    let written = cache.open("written", writable()).unwrap();
    (0..1000).for_each(|page| written.write_all_at(&[1; 512], page * 512).unwrap());
    assert_eq!(cache.stats().evictions, 0, "written");
    written.set_len(0).unwrap();
    let read = cache.open("read", writable()).unwrap();
    (0..1000).for_each(|page| drop(read.page(PageNo(page)).unwrap()));
    assert_eq!(cache.stats().evictions, 0, "read");
}
