//! Many threads, one missing page: one read, and a wakeup for each that waited.

use std::time::Duration;

use unherd_cache::{Advice, Error, Io, OpenOptions, PageNo};
use unherd_sync::{Counts, Ledger, Reason};
use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, sim, small, turn};

const THREADS: usize = 512;

/// All but the one that reads.
const ASLEEP: u64 = THREADS as u64 - 1;

/// All threads read one page while the device holds its read back until all but one of them sleep.
/// Gives what the ledger counted for page reads, and how many threads got an error.
fn stampede(io: Io, filtered: bool, plan: FaultPlan) -> (Counts, usize) {
    let device = sim(4, plan);
    let page: Vec<u8> = (0..4096).map(|i| i as u8).collect();
    device.put("f", &page);
    let cache = small(64, 4096).device(device.clone()).io(io).filtered(filtered).build().unwrap();
    let file = cache.open("f", OpenOptions::new()).unwrap();
    let reason = Reason::register("page-read");
    let before = Ledger::snapshot();
    let counts = || Ledger::snapshot().since(&before).reason(reason);
    device.block_reads();
    let failed = thread::scope(|scope| {
        let read = || {
            let mut got = vec![0; 4096];
            match file.read_at(&mut got, 0) {
                Ok(read) => {
                    assert!(read == 4096 && got == page);
                    0
                }
                Err(error) => {
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                    1
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(read)).collect();
        device.wait_for_held_reads(1);
        while counts().waits < ASLEEP {
            thread::yield_now();
        }
        device.release_reads();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(device.counts("f").reads, 1, "one read of the device");
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.deduplicated_misses), (1, THREADS as u64 - 1));
    assert_eq!(stats.write_misses, 0);
    (counts(), failed)
}

#[test]
fn threads_that_miss_one_page_cause_one_read_and_are_woken_once_each() {
    let _turn = turn();
    for io in BOTH {
        let (counts, failed) = stampede(io, true, FaultPlan::default());
        assert_eq!(failed, 0);
        assert_eq!((counts.wakeups, counts.needless_wakeups), (ASLEEP, 0), "{io:?}");
        assert_eq!(counts.waits, ASLEEP, "{io:?}: each slept once");
    }
}

#[test]
fn a_failed_read_is_told_to_each_that_waited_and_not_repeated() {
    let _turn = turn();
    let plan = FaultPlan { read: unherd_testkit::Failure::at(1), ..FaultPlan::default() };
    for io in BOTH {
        let (counts, failed) = stampede(io, true, plan);
        assert_eq!((counts.wakeups, failed), (ASLEEP, THREADS), "{io:?}");
    }
}

#[test]
fn without_filtering_the_same_reads_are_right() {
    let _turn = turn();
    for io in BOTH {
        let (counts, failed) = stampede(io, false, FaultPlan::default());
        assert_eq!((counts.wakeups, failed), (ASLEEP, 0), "{io:?}");
    }
}

/// Threads read by themselves, and sleep for nobody; with a queue 192 do, and the others have their
/// reads queued, sleep and are woken once each. As many reads as threads are under way; with a
/// queue 224, and then the others.
#[test]
fn threads_that_miss_read_by_themselves_or_queue() {
    const PAGES: usize = 250;
    let _turn = turn();
    let queue = (Io::Queued, PAGES as u64 - 192, 224);
    for (io, queued, at_once) in [(Io::Blocking, 0, PAGES), queue] {
        let device = sim(5, FaultPlan::default());
        let page = |number: usize| [number as u8; 512];
        device.put("f", &(0..PAGES).flat_map(page).collect::<Vec<_>>());
        let cache = small(256, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", OpenOptions::new()).unwrap();
        file.advise(Advice::Random);
        let reason = Reason::register("page-read");
        let before = Ledger::snapshot();
        let counts = || Ledger::snapshot().since(&before).reason(reason);
        device.block_reads();
        thread::scope(|scope| {
            for number in 0..PAGES {
                let file = &file;
                scope.spawn(move || {
                    assert_eq!(file.page(PageNo(number as u64)).unwrap()[..], page(number));
                });
            }
            device.wait_for_held_reads(at_once);
            while counts().waits < queued {
                thread::yield_now();
            }
            let held = device.held_reads();
            device.release_reads();
            assert_eq!(held, at_once, "{io:?}");
        });
        let Counts { waits, wakeups, needless_wakeups, .. } = counts();
        assert_eq!((waits, wakeups, needless_wakeups), (queued, queued, 0), "{io:?}");
        assert_eq!(device.counts("f").reads, PAGES as u64, "{io:?}");
    }
}

/// The deadline of a call does not end with that of another that looked for the frame before.
#[test]
fn late_waiters_keep_their_own_frame_deadline() {
    let _turn = turn();
    let frame_wait = Duration::from_millis(400);
    for io in BOTH {
        let device = sim(4, FaultPlan::default());
        device.put("f", &[1; 64 * 512]);
        let cache = small(4, 512).device(device).io(io).frame_wait(frame_wait).build().unwrap();
        let file = cache.open("f", OpenOptions::new()).unwrap();
        let guards: Vec<_> = (0..4).map(|page| file.page(PageNo(page)).unwrap()).collect();
        let (frame, page_read) = (Reason::register("frame"), Reason::register("page-read"));
        let before = Ledger::snapshot();
        thread::scope(|scope| {
            let read = || match file.page(PageNo(10)).map(|_| ()) {
                Err(Error::NoFrames { waited, .. }) => waited,
                other => panic!("{other:?}"),
            };
            let first = scope.spawn(read);
            while Ledger::snapshot().since(&before).reason(frame).waits == 0 {
                thread::yield_now();
            }
            let began = Timestamp::now();
            while Timestamp::now().since(began) < frame_wait / 2 {
                thread::yield_now();
            }
            let late: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            assert!(first.join().unwrap() >= frame_wait, "{io:?}");
            for late in late {
                let waited = late.join().unwrap();
                assert!(waited >= frame_wait / 16 * 15, "{io:?}: {waited:?}");
            }
        });
        let waits = Ledger::snapshot().since(&before).reason(page_read).waits;
        assert!(waits < 8 * 16, "{io:?}: {waits} waits");
        drop(guards);
        assert_eq!(file.page(PageNo(10)).unwrap()[..], [1; 512]);
    }
}
