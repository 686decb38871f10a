//! Writers that wait until one page more may be newer than the device.

use std::time::Duration;

use unherd_cache::{Advice, Cache, File, Io, PageMut, PageNo};
use unherd_sync::{Counts, Ledger, Reason, Snapshot};
use unherd_sys::Timestamp;
use unherd_sys::primitives::{AtomicBool, AtomicUsize, Ordering, thread};
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, sim, small, turn, writable};

/// A cache, and a file whose pages are to be held.
fn cache_and_file(frames: usize, io: Io) -> (Cache, File) {
    let cache = small(frames, 512).device(sim(83, FaultPlan::default())).io(io).build().unwrap();
    let file = cache.open("held", writable()).unwrap();
    file.advise(Advice::Random);
    file.set_len(256 * 512).unwrap();
    (cache, file)
}

fn hold(file: &File, pages: u64) -> Vec<PageMut<'_>> {
    (0..pages).map(|page| file.page_mut(PageNo(page)).unwrap()).collect()
}

/// Waits for room are waits for frames in the account.
fn frame_waits(since: &Snapshot) -> Counts {
    Ledger::snapshot().since(since).reason(Reason::register("frame"))
}

fn pause(ms: u64) {
    let end = Timestamp::now().after(Duration::from_millis(ms));
    while Timestamp::now() < end {
        thread::yield_now();
    }
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

/// Writers that are woken for room, and then wait for a page, keep it from nobody.
#[test]
fn room_is_not_lost_to_waiters_for_a_page() {
    const WANTED: PageNo = PageNo(20);
    let _turn = turn();
    for io in BOTH {
        let (_cache, file) = cache_and_file(16, io);
        let (file, mut held) = (&file, hold(&file, 12));
        let before = Ledger::snapshot();
        let (is_over, had) = (&AtomicBool::new(false), &AtomicUsize::new(0));
        thread::scope(|scope| {
            for nth in 1..=6 {
                scope.spawn(move || {
                    let _page = file.page_mut(WANTED).unwrap();
                    had.fetch_add(1, Ordering::Relaxed);
                    until(|| is_over.load(Ordering::Relaxed));
                });
                until(|| frame_waits(&before).waits >= nth);
            }
            let other = scope.spawn(|| file.write_all_at(&[1; 512], 21 * 512));
            until(|| frame_waits(&before).waits >= 7);
            // They are counted before they sleep.
            pause(20);
            drop(held.pop());
            until(|| had.load(Ordering::Relaxed) == 1);
            drop(held.pop());
            assert_eq!(other.join().unwrap(), Ok(()), "{io:?}");
            assert_eq!(had.load(Ordering::Relaxed), 1);
            is_over.store(true, Ordering::Relaxed);
            held.clear();
        });
    }
}

/// However many wait for room, an event that can help one of them wakes few, and one that cannot
/// wakes none.
#[test]
fn waiters_for_room_are_no_herd() {
    const WAITERS: u64 = 16;
    const EVENTS: u64 = 40;
    let _turn = turn();
    let (cache, file) = cache_and_file(64, Io::Blocking);
    let file = &file;
    let clean = cache.open("clean", writable()).unwrap();
    clean.write_all_at(&[1; 512], 0).unwrap();
    clean.sync_all().unwrap();
    let held = hold(file, 48);
    let before = Ledger::snapshot();
    thread::scope(|scope| {
        for nth in 0..WAITERS {
            scope.spawn(move || file.write_all_at(&[1; 512], (100 + nth) * 512).unwrap());
        }
        until(|| frame_waits(&before).waits >= WAITERS);
        pause(20);
        let asleep = Ledger::snapshot();
        for _ in 0..EVENTS {
            drop(clean.page(PageNo(0)).unwrap());
            pause(1);
        }
        assert_eq!(frame_waits(&asleep).wakeups, 0, "by unpins of a clean page");
        let asleep = Ledger::snapshot();
        for _ in 0..EVENTS {
            clean.write_all_at(&[2; 512], 0).unwrap();
            pause(1);
        }
        let wakeups = frame_waits(&asleep).wakeups;
        assert!((1..=4 * EVENTS).contains(&wakeups), "{wakeups} by {EVENTS} pages to write");
        drop(held);
    });
}
