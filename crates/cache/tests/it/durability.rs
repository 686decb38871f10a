//! What `sync_all` says, and to whom.

use std::sync::Barrier;
use std::time::Duration;

use unherd_cache::{Cache, Error, Io, OpenOptions, Operation, PageNo};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering, thread};
use unherd_testkit::{Failure, FaultPlan, SimDevice};

use crate::scene::{BOTH, close, sim, small, turn, writable};

fn failing_writes() -> FaultPlan {
    FaultPlan { write: Failure::from(1), ..FaultPlan::default() }
}

pub(crate) fn failing_syncs() -> FaultPlan {
    FaultPlan { sync: Failure::from(1), ..FaultPlan::default() }
}

#[test]
fn a_failed_write_back_is_reported_once_to_each_handle_and_tried_again() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(8, failing_writes());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let one = cache.open("f", writable()).unwrap();
        let two = cache.open("f", writable()).unwrap();
        one.write_at(&[5; 900], 0).unwrap();
        let error = one.sync_all().unwrap_err();
        assert!(matches!(error, Error::Io { operation: Operation::Write, .. }), "{error}");
        device.set_faults(FaultPlan::default());
        one.sync_all().unwrap();
        assert_eq!(device.bytes("f").unwrap(), [5; 900]);
        // The other handle has not heard of it yet; one that is opened now need not.
        let three = cache.open("f", writable()).unwrap();
        assert!(matches!(two.sync_all(), Err(Error::Io { .. })));
        two.sync_all().unwrap();
        three.sync_all().unwrap();
    }
}

#[test]
fn after_a_failed_flush_everything_is_written_again() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(9, failing_syncs());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 900], 0).unwrap();
        let error = file.sync_all().unwrap_err();
        assert!(matches!(error, Error::Io { operation: Operation::Sync, .. }), "{error}");
        device.set_faults(FaultPlan::default());
        // The device has forgotten the failure; a cache that had too would lose the writes.
        file.sync_all().unwrap();
        device.crash();
        let survived = device.bytes("f").unwrap();
        assert_eq!(survived, [5; 900], "{io:?}");
    }
}

/// The flush that fails does not find the page at rest, and one that succeeds comes between.
#[test]
fn a_page_held_during_a_failed_flush_is_written_again() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(24, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 512], 0).unwrap();
        file.write_back().unwrap();
        let held = file.page_mut(PageNo(0)).unwrap();
        let sync_other = || {
            file.write_at(&[6; 512], 512).unwrap();
            file.sync_range(512..1024)
        };
        let by_another_thread = || thread::scope(|scope| scope.spawn(sync_other).join().unwrap());
        device.set_faults(failing_syncs());
        assert!(by_another_thread().is_err());
        device.set_faults(FaultPlan::default());
        by_another_thread().unwrap();
        drop(held);
        file.sync_all().unwrap();
        device.crash();
        assert_eq!(device.bytes("f").unwrap()[..512], [5; 512], "{io:?}");
    }
}

#[test]
fn writes_that_left_the_cache_before_a_failed_flush_are_lost_for_good() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(10, failing_syncs());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 512 * 32], 0).unwrap();
        assert!(cache.stats().evictions > 0);
        assert!(matches!(file.sync_all(), Err(Error::Io { operation: Operation::Sync, .. })));
        device.set_faults(FaultPlan::default());
        for _ in 0..2 {
            assert!(matches!(file.sync_all(), Err(Error::LostDurability { .. })));
        }
        // A handle opened later has to know as well.
        let other = cache.open("f", writable()).unwrap();
        assert!(matches!(other.sync_all(), Err(Error::LostDurability { .. })));
    }
}

/// The file system zeroes the rest of a block itself. If those zeros were lost, what they covered
/// would come back when the file grows.
#[test]
fn what_was_cut_off_does_not_come_back_after_a_failed_flush() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(12, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 4096], 0).unwrap();
        file.sync_all().unwrap();
        // The page that is cut is not in the cache.
        drop(file);
        let file = cache.open("f", writable()).unwrap();
        device.set_faults(failing_syncs());
        file.set_len(700).unwrap();
        assert!(matches!(file.sync_all(), Err(Error::Io { operation: Operation::Sync, .. })));
        device.set_faults(FaultPlan::default());
        file.write_at(&[6; 512], 3584).unwrap();
        let told = file.sync_all();
        device.crash();
        let survived = device.bytes("f").unwrap();
        assert!(survived[700..1024] == [5; 324], "the device has lost the zeros");
        assert!(matches!(told, Err(Error::LostDurability { .. })), "{io:?}: {told:?}");
    }
}

#[test]
fn a_flush_that_succeeds_covers_what_left_the_cache() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(11, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 512 * 32], 0).unwrap();
        file.sync_all().unwrap();
        device.set_faults(failing_syncs());
        file.write_at(&[6; 512], 0).unwrap();
        assert!(matches!(file.sync_all(), Err(Error::Io { .. })));
        device.set_faults(FaultPlan::default());
        file.sync_all().unwrap();
    }
}

#[test]
fn close_reports_what_it_cannot_write_and_writes_what_it_can() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(12, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 700], 0).unwrap();
        close(file).unwrap();
        assert_eq!(device.bytes("f").unwrap(), [5; 700]);
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[6; 700], 0).unwrap();
        device.set_faults(failing_writes());
        assert!(matches!(close(file), Err(Error::Io { operation: Operation::Write, .. })));
        // Closed in any case: it can be opened, and holds what the device has.
        device.set_faults(FaultPlan::default());
        assert_eq!(cache.open("f", writable()).unwrap().len(), 700);
    }
}

#[test]
fn short_writes_go_on_where_they_stopped() {
    let _turn = turn();
    for io in BOTH {
        let plan = FaultPlan { short_per_mille: 900, ..FaultPlan::default() };
        let device = sim(13, plan);
        let cache = small(512, 2048).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        assert!(device.bytes("f").unwrap() == bytes);
        let stats = cache.stats();
        assert!(stats.write_transfers < stats.write_backs, "neighbours go together: {stats:?}");
        drop(file);
        let file = cache.open("f", writable()).unwrap();
        let mut read = vec![0; bytes.len()];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), bytes.len());
        assert!(read == bytes);
    }
}

#[test]
fn a_sync_takes_the_pages_that_others_write_meanwhile() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(17, FaultPlan::default());
        let cache = small(64, 4096).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[0; 4096], 0).unwrap();
        let stop = AtomicBool::new(false);
        let first_number = || device.bytes("f").unwrap()[..8].try_into().map(u64::from_le_bytes);
        let missed = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        file.write_at(&[7; 2000], 2048).unwrap();
                    }
                });
            }
            let mut rounds = 1..15_000_u64;
            let missed = rounds.find(|round| {
                file.write_at(&round.to_le_bytes(), 0).unwrap();
                file.sync_all().unwrap();
                first_number().unwrap() != *round
            });
            stop.store(true, Ordering::Relaxed);
            missed
        });
        assert_eq!(missed, None, "{io:?}: the round whose write was not synced");
    }
}

#[test]
fn each_of_many_syncs_on_one_handle_reports_its_own_failure() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(18, failing_writes());
        let cache = small(64, 512).device(device).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[1; 512], 0).unwrap();
        let succeeded = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        if file.sync_all().is_ok() {
                            succeeded.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(succeeded.load(Ordering::Relaxed), 0, "{io:?}: no write has succeeded");
    }
}

#[test]
fn a_failed_flush_remembers_writes_of_an_earlier_opening() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(19, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 700], 0).unwrap();
        close(file).unwrap();
        let file = cache.open("f", writable()).unwrap();
        device.set_faults(failing_syncs());
        assert!(matches!(file.sync_all(), Err(Error::Io { operation: Operation::Sync, .. })));
        device.set_faults(FaultPlan::default());
        assert!(matches!(file.sync_all(), Err(Error::LostDurability { .. })), "{io:?}");
    }
}

#[test]
fn an_earlier_opening_that_was_flushed_is_done_with() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(20, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        for flush_first in [true, false] {
            let file = cache.open("f", writable()).unwrap();
            file.write_at(&[5; 700], 0).unwrap();
            if flush_first {
                file.sync_all().unwrap();
            }
            close(file).unwrap();
            let file = cache.open("f", writable()).unwrap();
            if !flush_first {
                file.sync_all().unwrap();
            }
            device.set_faults(failing_syncs());
            file.write_at(&[6; 1], 0).unwrap();
            assert!(matches!(file.sync_all(), Err(Error::Io { .. })));
            device.set_faults(FaultPlan::default());
            file.sync_all().unwrap();
        }
    }
}

/// Nobody heard of it when the last handle was dropped.
#[test]
fn what_a_drop_lost_is_reported_to_the_next_opener() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(21, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        device.put("f", &[1; 1024]);
        device.put("g", &[1; 1024]);
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 100], 600).unwrap();
        device.refuse_writes("f", Some(Errno::NOSPC));
        drop(file);
        device.refuse_writes("f", None);
        cache.open("g", writable()).unwrap().sync_all().unwrap();
        // Nor has one that only reads, or drops it unheard.
        cache.open("f", OpenOptions::new()).unwrap().sync_all().unwrap();
        drop(cache.open("f", writable()).unwrap());
        let file = cache.open("f", writable()).unwrap();
        let other = cache.open("f", writable()).unwrap();
        match file.sync_all() {
            Err(Error::LostWrites { pages: 1, offset: 512, errno: Some(Errno::NOSPC), .. }) => {}
            told => panic!("{io:?}: {told:?}"),
        }
        file.sync_all().unwrap();
        // Each handle that was open by then hears of it once.
        assert!(matches!(other.sync_all(), Err(Error::LostWrites { .. })), "{io:?}");
        other.sync_all().unwrap();
        cache.open("f", writable()).unwrap().sync_all().unwrap();
        drop((file, other));
        cache.open("f", writable()).unwrap().sync_all().unwrap();
    }
}

/// A file system gives the number of a file that was removed to the next that is made.
#[test]
fn a_new_file_inherits_no_loss() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(24, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        device.put("f", &[1; 1024]);
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 100], 600).unwrap();
        device.refuse_writes("f", Some(Errno::NOSPC));
        drop(file);
        device.remove("f");
        let file = cache.open("g", writable()).unwrap();
        file.write_at(&[6; 100], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(device.durable_bytes("g").unwrap(), [6; 100]);
    }
}

/// One that makes a file, and one that opens it before the first has ended.
#[test]
fn a_loss_of_a_file_that_is_being_made_is_told() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(25, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        device.block_creations();
        thread::scope(|scope| {
            let maker = scope.spawn(|| cache.open("f", writable()).unwrap());
            device.wait_for_held_creations(1);
            let file = cache.open("f", OpenOptions::new().write(true)).unwrap();
            file.write_at(&[5; 100], 0).unwrap();
            device.refuse_writes("f", Some(Errno::NOSPC));
            drop(file);
            device.refuse_writes("f", None);
            device.release_creations();
            let told = maker.join().unwrap().sync_all().unwrap_err();
            assert!(matches!(told, Error::LostWrites { pages: 1, .. }), "{io:?}: {told}");
        });
    }
}

/// A file whose last handle was dropped while a page could not be written.
fn with_lost_page(seed: u64, io: Io) -> (Arc<SimDevice>, Cache) {
    let device = sim(seed, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
    lose_page(&device, &cache, 0);
    (device, cache)
}

fn lose_page(device: &SimDevice, cache: &Cache, offset: u64) {
    let file = cache.open("f", writable()).unwrap();
    file.write_at(&[5; 512], offset).unwrap();
    device.refuse_writes("f", Some(Errno::NOSPC));
    drop(file);
    device.refuse_writes("f", None);
}

/// The outcome of a sync that is left out for another file's, or whose future is dropped, was
/// reported by no handle.
#[test]
fn a_loss_that_nobody_was_given_is_reported_to_the_next_opener() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = with_lost_page(60, io);
        let other = cache.open("g", writable()).unwrap();
        let file = cache.open("f", writable()).unwrap();
        for each in [&other, &file] {
            each.write_at(&[6; 512], 512).unwrap();
        }
        ["f", "g"].iter().for_each(|name| device.refuse_writes(name, Some(Errno::NOSPC)));
        let told = cache.sync_many(&[&other, &file]).unwrap_err();
        assert!(matches!(&told, Error::Io { file, .. } if file.ends_with("g")), "{told}");
        ["f", "g"].iter().for_each(|name| device.refuse_writes(name, None));
        drop(file);
        let file = cache.open("f", writable()).unwrap();
        let told = file.sync_all().unwrap_err();
        assert!(matches!(told, Error::LostWrites { pages: 1, offset: 0, .. }), "{io:?}: {told}");
        file.sync_all().unwrap();
    }
}

#[test]
fn a_close_that_fails_reports_an_older_loss() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = with_lost_page(61, io);
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[6; 512], 512).unwrap();
        device.refuse_writes("f", Some(Errno::NOSPC));
        let told = file.close().unwrap_err();
        assert!(matches!(told, Error::LostWrites { offset: 0, .. }), "{io:?}: {told}");
        device.refuse_writes("f", None);
        drop(file);
        cache.open("f", writable()).unwrap().sync_all().unwrap();
    }
}

/// One error names the pages of one loss: the next opener must not take the rest for safe.
#[test]
fn of_two_losses_neither_hides_the_other() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = with_lost_page(62, io);
        lose_page(&device, &cache, 1024);
        let file = cache.open("f", writable()).unwrap();
        let told = file.sync_all().unwrap_err();
        assert!(matches!(told, Error::LostDurability { .. }), "{io:?}: {told}");
        file.sync_all().unwrap();
    }
}

/// As `errseq_t`: an error that no handle has reported yet is told to one that is opened later.
#[test]
fn an_error_that_nobody_has_heard_of_is_reported_to_a_later_handle() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(22, FaultPlan::default());
        let builder = small(8, 512).device(device.clone()).io(io);
        let cache = builder.frame_wait(Duration::from_millis(20)).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[5; 512 * 3], 0).unwrap();
        device.refuse_writes("f", Some(Errno::IO));
        let other = cache.open("g", writable()).unwrap();
        // The last of them wants a frame of a page that cannot be written.
        let pins: Vec<_> = (0..6).map(|page| other.page(PageNo(page))).collect();
        assert!(matches!(pins[5], Err(Error::NoFrames { .. })), "{io:?}");
        drop(pins);
        device.refuse_writes("f", None);
        let later = cache.open("f", writable()).unwrap();
        assert!(matches!(later.sync_all(), Err(Error::Io { .. })), "{io:?}");
        later.sync_all().unwrap();
        assert!(matches!(file.sync_all(), Err(Error::Io { .. })), "{io:?}");
        cache.open("f", writable()).unwrap().sync_all().unwrap();
    }
}

#[test]
fn what_is_synced_is_not_flushed_again() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(24, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let syncs = |expected| {
            file.sync_all().unwrap();
            assert_eq!(device.counts("f").syncs, expected, "{io:?}");
        };
        syncs(1);
        syncs(1);
        file.write_at(&[5; 100], 0).unwrap();
        syncs(2);
        syncs(2);
        file.set_len(50).unwrap();
        syncs(3);
        // Written back for its frame, and gone, but not durable.
        file.write_at(&[5; 512 * 32], 0).unwrap();
        (0..8).for_each(|page| drop(file.page(PageNo(100 + page)).unwrap()));
        syncs(4);
        syncs(4);
    }
}

#[test]
fn threads_that_sync_at_once_share_a_flush() {
    let _turn = turn();
    for io in BOTH {
        // A flush takes long enough for all to come meanwhile.
        let device = sim(25, FaultPlan { yields_max: 2000, ..FaultPlan::default() });
        let cache = small(256, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let start = Barrier::new(32);
        thread::scope(|scope| {
            for page in 0..32 {
                let (file, start) = (&file, &start);
                scope.spawn(move || {
                    file.write_at(&[page as u8; 512], page * 512).unwrap();
                    start.wait();
                    file.sync_all().unwrap();
                });
            }
        });
        let syncs = device.counts("f").syncs;
        assert!(syncs < 16, "{io:?}: {syncs} flushes for 32 threads");
        assert_eq!(device.durable_bytes("f").unwrap().len(), 512 * 32);
    }
}
