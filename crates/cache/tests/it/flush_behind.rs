//! Flushes while a stream is written.

use unherd_cache::{Cache, Error, File, Operation, PageNo};
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{FaultPlan, SimDevice};

use crate::durability::failing_syncs;
use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: usize = 512;
const EVERY: u64 = 32;
const FRAMES: usize = 512;

fn scene(io: unherd_cache::Io, plan: FaultPlan) -> (Arc<SimDevice>, Cache, File) {
    let device = sim(71, plan);
    let cache = small(FRAMES, PAGE).device(device.clone()).io(io);
    let cache = cache.flush_behind(EVERY * PAGE as u64).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    (device, cache, file)
}

/// Streams the same pages again and again until the device was flushed `syncs` times: what is under
/// way when a stream looks is counted later. Gives how many pages were written.
fn write_until_flushed(device: &SimDevice, file: &File, syncs: u64) -> u64 {
    let mut written = 0;
    while device.counts("f").syncs < syncs {
        write_stream(file, 0..4 * EVERY);
        written += 4 * EVERY;
        assert!(written < 10_000 * EVERY, "a stream is never flushed");
    }
    written
}

fn write_stream(file: &File, pages: std::ops::Range<u64>) {
    pages.for_each(|page| file.write_all_at(&[page as u8; PAGE], page * PAGE as u64).unwrap());
}

#[test]
fn a_stream_is_flushed_while_it_is_written() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io, FaultPlan::default());
        let written = write_until_flushed(&device, &file, 2);
        let syncs = device.counts("f").syncs;
        assert_eq!(syncs, cache.stats().flushes);
        assert!(syncs * EVERY <= written, "{io:?}: {syncs} for {written} pages");
        assert!(!device.durable_bytes("f").unwrap().is_empty());
    }
}

#[test]
fn who_syncs_often_is_not_flushed_behind() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io, FaultPlan::default());
        for nth in 0..8 {
            write_stream(&file, nth * EVERY / 2..(nth + 1) * EVERY / 2);
            file.sync_all().unwrap();
        }
        assert_eq!(device.counts("f").syncs, 8, "{io:?}");
    }
}

/// A flush of one device is none of another.
#[test]
fn flushes_are_counted_by_device() {
    let _turn = turn();
    for (number, syncs) in [(0, 0), (1, 1)] {
        let (device, cache, file) = scene(unherd_cache::Io::Blocking, FaultPlan::default());
        device.put("other", &[]);
        device.set_device("other", number);
        let other = cache.open("other", writable()).unwrap();
        for half in 0..2 {
            write_stream(&file, half * EVERY / 2..(half + 1) * EVERY / 2);
            file.write_back().unwrap();
            write_stream(&other, 0..1);
            other.sync_all().unwrap();
        }
        write_stream(&file, EVERY..EVERY + 1);
        assert_eq!(device.counts("f").syncs, syncs, "on device {number}");
    }
}

#[test]
fn a_failure_is_told_by_the_next_sync_and_nothing_is_lost() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io, failing_syncs());
        write_until_flushed(&device, &file, 1);
        // The device has forgotten the failure; a cache that had too would lose the writes.
        device.set_faults(FaultPlan::default());
        let told = file.sync_all();
        assert!(matches!(told, Err(Error::Io { operation: Operation::Sync, .. })), "{told:?}");
        file.sync_all().unwrap();
        device.crash();
        let survived = device.bytes("f").unwrap();
        assert!(survived.chunks(PAGE).enumerate().all(|(page, bytes)| bytes == [page as u8; PAGE]));
        assert_eq!(survived.len(), 4 * EVERY as usize * PAGE);
    }
}

/// Nobody has heard of it when the last handle goes, nor when one goes that did not ask.
#[test]
fn a_failure_is_not_forgotten_with_the_last_handle() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(72, failing_syncs());
        let cache = small(8, PAGE).device(device.clone()).io(io).flush_behind(4 * PAGE as u64);
        let cache = cache.build().unwrap();
        let open = || cache.open("f", writable()).unwrap();
        write_until_flushed(&device, &open(), 1);
        assert!(cache.stats().evictions > 0);
        device.set_faults(FaultPlan::default());
        drop(open());
        let file = open();
        let told = file.sync_all();
        assert!(matches!(told, Err(Error::LostDurability { .. })), "{io:?}: {told:?}");
        file.sync_all().unwrap();
    }
}

/// The error of the flush is told first; that writes are lost is not told with it.
#[test]
fn a_loss_is_told_once_though_its_error_was() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(73, failing_syncs());
        let cache = small(8, PAGE).device(device.clone()).io(io).build().unwrap();
        let open = || cache.open("f", writable()).unwrap();
        let file = open();
        write_stream(&file, 0..32);
        assert!(matches!(file.sync_all(), Err(Error::Io { operation: Operation::Sync, .. })));
        drop(file);
        device.set_faults(FaultPlan::default());
        let file = open();
        assert!(matches!(file.sync_all(), Err(Error::LostDurability { .. })), "{io:?}");
        file.sync_all().unwrap();
        drop(file);
        open().sync_all().unwrap();
    }
}

/// A sync waits for a page that the writer has in hand: the writer waits for no sync.
#[test]
fn who_has_a_page_in_hand_streams_on_beside_a_sync() {
    let _turn = turn();
    for io in BOTH {
        let (_device, _cache, file) = scene(io, FaultPlan::default());
        write_stream(&file, 0..1);
        let mut in_hand = file.page_mut(PageNo(0)).unwrap();
        in_hand.write(0, &[1]);
        let file = &file;
        thread::scope(|scope| {
            let syncs = scope.spawn(|| file.sync_all());
            write_stream(file, 1..8 * EVERY);
            drop(in_hand);
            syncs.join().unwrap().unwrap();
        });
    }
}
