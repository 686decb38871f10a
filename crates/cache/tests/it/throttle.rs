//! Writers that outrun the device sleep only while it has as much to do as it can do at a time.

use unherd_cache::{Advice, Cache, Error, File, Io};
use unherd_sync::{Ledger, Reason};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{FaultPlan, SimDevice};

use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: u64 = 512;
/// With a buffer for each 32 of them: eight write-backs at a time.
const FRAMES: usize = 256;
/// As the cache has it.
const TARGET: usize = 4;

fn scene(io: Io, plan: FaultPlan) -> (Arc<SimDevice>, Cache, [File; 2]) {
    let device = sim(29, plan);
    let cache = small(FRAMES, PAGE as usize).device(device.clone()).io(io).build().unwrap();
    let files = ["one", "two"].map(|name| cache.open(name, writable()).unwrap());
    // Only waiters for room write pages back.
    files.iter().for_each(|file| file.advise(Advice::Random));
    (device, cache, files)
}

/// Every third page: each is a run of its own.
fn write(file: &File, pages: u64) -> Result<(), Error> {
    (0..pages).try_for_each(|nth| file.write_all_at(&[1; PAGE as usize], 3 * nth * PAGE))
}

/// The device does nothing until all writers sleep: then it has as many transfers as it is to have,
/// though there are fewer writers than that.
#[test]
fn a_writer_sleeps_only_while_the_device_is_busy() {
    let _turn = turn();
    for writers in 1..=2_usize {
        let (device, cache, files) = scene(Io::Queued, FaultPlan::default());
        device.block_queued_writes();
        let before = Ledger::snapshot();
        let waits = || Ledger::snapshot().since(&before).reason(Reason::register("frame")).waits;
        thread::scope(|scope| {
            let threads: Vec<_> = files[..writers]
                .iter()
                .map(|file| scope.spawn(|| write(file, 2 * FRAMES as u64)))
                .collect();
            while waits() < writers as u64 {
                thread::yield_now();
            }
            let transfers = device.queued_writes();
            device.release_queued_writes();
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
            assert!(transfers >= TARGET, "{transfers} transfers, of {writers} writers");
        });
        let stats = cache.stats();
        assert!(stats.throttle_sleeps >= writers as u64, "{stats:?}");
        // Each of them, also of those that came later: there were always pages to write.
        assert!(stats.throttle_write_backs >= TARGET as u64 * stats.throttle_sleeps, "{stats:?}");
        assert!(stats.throttle_dirty_pages >= stats.throttle_write_backs, "{stats:?}");
    }
}

/// A page that is written to again and again is dirty again each time. That wakes none of those who
/// sleep as there are no buffers (of 64 frames there are two), or as the device is busy.
#[test]
fn no_writer_is_woken_for_a_page_that_cannot_be_written_yet() {
    let _turn = turn();
    for frames in [64, 32 * FRAMES] {
        let device = sim(29, FaultPlan::default());
        let cache = small(frames, PAGE as usize).device(device.clone()).io(Io::Queued);
        let cache = cache.build().unwrap();
        let [one, two] = ["one", "two"].map(|name| cache.open(name, writable()).unwrap());
        [&one, &two].into_iter().for_each(|file| file.advise(Advice::Random));
        two.write_all_at(&[1; PAGE as usize], 0).unwrap();
        device.block_queued_writes();
        let before = Ledger::snapshot();
        let frame = || Ledger::snapshot().since(&before).reason(Reason::register("frame"));
        thread::scope(|scope| {
            let writers = [(); 3].map(|()| scope.spawn(|| write(&one, 2 * frames as u64)));
            // Each that begins a write may have others look once more.
            let asleep = || {
                let frame = frame();
                frame.waits >= frame.wakeups + writers.len() as u64
            };
            while !asleep() {
                thread::yield_now();
            }
            let wakeups = frame().wakeups;
            for _ in 0..100 {
                two.write_all_at(&[2; 8], 0).unwrap();
                // One that was woken all the same is counted when it sleeps again.
                thread::yield_now();
                while !asleep() {
                    thread::yield_now();
                }
            }
            let later = frame().wakeups;
            device.release_queued_writes();
            writers.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
            assert!(later <= wakeups + 3, "{wakeups} wakeups, then {later}, of {frames} frames");
        });
    }
}

/// One file cannot be written: its writers are told, and those of the other get on.
#[test]
fn a_bad_file_and_its_writers_take_the_cache_from_nobody() {
    let _turn = turn();
    for io in BOTH {
        for errno in [Errno::NOSPC, Errno::IO] {
            let plan = FaultPlan { held_reaps_max: 2, reorder: true, ..FaultPlan::default() };
            let (device, _cache, [good, bad]) = scene(io, plan);
            device.refuse_writes("two", Some(errno));
            thread::scope(|scope| {
                let bad_ones = [(); 3].map(|()| scope.spawn(|| write(&bad, 2 * FRAMES as u64)));
                let good_ones = [(); 3].map(|()| scope.spawn(|| write(&good, 4 * FRAMES as u64)));
                for writer in bad_ones {
                    let error = writer.join().unwrap().unwrap_err();
                    assert!(matches!(error, Error::Io { errno: of, .. } if of == errno), "{error}");
                }
                for writer in good_ones {
                    writer.join().unwrap().unwrap();
                }
            });
            assert_eq!(good.sync_all(), Ok(()));
            assert!(bad.sync_all().is_err());
            device.refuse_writes("two", None);
            bad.sync_all().unwrap();
        }
    }
}
