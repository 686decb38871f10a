//! Many threads, one missing page: one read, and a wakeup for each that waited.

use unherd_cache::Io;
use unherd_sync::{Counts, Ledger, Reason};
use unherd_sys::primitives::thread;
use unherd_testkit::FaultPlan;

use crate::scene::{sim, small, turn};
use unherd_cache::{Error, OpenOptions};

const THREADS: usize = 512;

/// All threads read one page while the device holds its read back until `asleep` of them sleep.
/// Gives what the ledger counted for page reads, and how many threads got an error.
fn stampede(io: Io, filtered: bool, asleep: u64, plan: FaultPlan) -> (Counts, usize) {
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
        while counts().waits < asleep {
            thread::yield_now();
        }
        device.release_reads();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(device.counts("f").reads, 1, "one read of the device");
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.deduplicated_misses), (1, THREADS as u64 - 1));
    (counts(), failed)
}

#[test]
fn threads_that_miss_one_page_cause_one_read_and_are_woken_once_each() {
    let _turn = turn();
    // The thread that reads by itself does not sleep; the one that queues its read does.
    for (io, asleep) in [(Io::Blocking, 511), (Io::Ring, 512)] {
        let (counts, failed) = stampede(io, true, asleep, FaultPlan::default());
        assert_eq!(failed, 0);
        assert_eq!((counts.wakeups, counts.needless_wakeups), (asleep, 0), "{io:?}");
        assert_eq!(counts.waits, asleep, "{io:?}: each slept once");
    }
}

#[test]
fn a_failed_read_is_told_to_each_that_waited_and_not_repeated() {
    let _turn = turn();
    let plan = FaultPlan { read: unherd_testkit::Failure::at(1), ..FaultPlan::default() };
    for (io, asleep) in [(Io::Blocking, 511), (Io::Ring, 512)] {
        let (counts, failed) = stampede(io, true, asleep, plan);
        assert_eq!((counts.wakeups, failed), (asleep, THREADS), "{io:?}");
    }
}

#[test]
fn without_filtering_the_same_reads_are_right() {
    let _turn = turn();
    for (io, asleep) in [(Io::Blocking, 511), (Io::Ring, 512)] {
        let (counts, failed) = stampede(io, false, asleep, FaultPlan::default());
        assert_eq!((counts.wakeups, failed), (asleep, 0), "{io:?}");
    }
}
