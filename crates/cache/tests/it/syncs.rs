//! Syncs of ranges, of several files, and in tasks.

use std::ops::Range;

use proptest::prelude::*;
use unherd_cache::{Advice, Cache, Error, File, Io, PageNo};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{FaultPlan, SimDevice, block_on};

use crate::async_reads::executor::Task;
use crate::scene::{BOTH, cases, sim, small, turn, writable};

const PAGE: u64 = 1024;

/// Pages of a file that a random operation may reach.
const PAGES: usize = 11;

fn scene(seed: u64, io: Io, plan: FaultPlan) -> (Arc<SimDevice>, Cache, [File; 2]) {
    let device = sim(seed, plan);
    let cache = small(64, PAGE as usize).device(device.clone()).io(io).build().unwrap();
    let files = ["0", "1"].map(|name| cache.open(name, writable()).unwrap());
    // Nothing is written behind.
    files.iter().for_each(|file| file.advise(Advice::Random));
    (device, cache, files)
}

fn write(file: &File, pages: Range<u64>, value: u8) {
    for page in pages {
        file.write_all_at(&[value; PAGE as usize], page * PAGE).unwrap();
    }
}

#[test]
fn a_range_is_written_without_its_dirty_neighbours() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, [file, _]) = scene(1, io, FaultPlan::default());
        write(&file, 0..8, 1);
        // Of each end a byte: whole pages are meant.
        file.sync_range(3 * PAGE - 1..4 * PAGE + 1).unwrap();
        let counts = device.counts("0");
        assert_eq!((counts.written_bytes, counts.syncs), (3 * PAGE, 1), "{io:?}: pages 2 to 4");
        assert_eq!(cache.stats().write_transfers, 1, "{io:?}");
        let durable = device.durable_bytes("0").unwrap();
        assert_eq!(durable.len() as u64, 5 * PAGE);
        assert!(durable[2 * PAGE as usize..] == [1; 3 * PAGE as usize]);
        // What is durable is not flushed again, though the rest is dirty.
        file.sync_range(2 * PAGE..5 * PAGE).unwrap();
        file.sync_range(100 * PAGE..u64::MAX).unwrap();
        file.sync_range(5..5).unwrap();
        assert_eq!(device.counts("0"), counts, "{io:?}");
        file.sync_all().unwrap();
        assert_eq!(device.counts("0").syncs, 2);
        assert!(device.durable_bytes("0").unwrap() == [1; 8 * PAGE as usize]);
    }
}

#[test]
fn a_range_that_left_the_cache_unflushed_is_flushed() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, [file, other]) = scene(2, io, FaultPlan::default());
        file.sync_all().unwrap();
        write(&file, 0..1, 1);
        file.write_back().unwrap();
        (0..200).for_each(|page| drop(other.page(PageNo(page)).unwrap()));
        file.sync_range(0..PAGE).unwrap();
        assert!(device.durable_bytes("0").unwrap() == [1; PAGE as usize], "{io:?}");
        // As is a length that was set, which no page shows.
        file.set_len(20 * PAGE).unwrap();
        file.sync_range(10 * PAGE..11 * PAGE).unwrap();
        assert_eq!(device.durable_bytes("0").unwrap().len() as u64, 20 * PAGE, "{io:?}");
    }
}

#[test]
fn a_range_is_safe_when_the_disk_was_full_or_failed() {
    let _turn = turn();
    for io in BOTH {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::IO] {
            let (device, _cache, [file, _]) = scene(3, io, FaultPlan::default());
            write(&file, 0..8, 1);
            device.refuse_writes("0", Some(errno));
            let refused = file.sync_range(PAGE..2 * PAGE);
            assert!(matches!(refused, Err(Error::Io { errno: told, .. }) if told == errno));
            device.refuse_writes("0", None);
            file.sync_range(PAGE..2 * PAGE).unwrap();
            let durable = device.durable_bytes("0").unwrap();
            assert!(durable[PAGE as usize..] == [1; PAGE as usize], "{io:?}");
            // A flush that fails loses what was written, and the cache writes it again.
            write(&file, 0..4, 2);
            device.set_faults(crate::durability::failing_syncs());
            file.sync_range(0..2 * PAGE).unwrap_err();
            device.set_faults(FaultPlan::default());
            file.sync_range(0..2 * PAGE).unwrap();
            let durable = device.durable_bytes("0").unwrap();
            assert!(durable[..2 * PAGE as usize] == [2; 2 * PAGE as usize], "{io:?}");
        }
    }
}

#[test]
fn many_files_are_begun_together_and_flushed_once_each() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, files) = scene(4, io, FaultPlan::default());
        files.iter().for_each(|file| write(file, 0..4, 1));
        // The first is held up by its page; the writes of the second do not wait for that.
        let held = files[0].page_mut(PageNo(9)).unwrap();
        thread::scope(|scope| {
            let syncing = scope.spawn(|| cache.sync_many(&[&files[0], &files[1], &files[0]]));
            while io != Io::Blocking && device.counts("1").writes == 0 {
                thread::yield_now();
            }
            drop(held);
            syncing.join().unwrap().unwrap();
        });
        for name in ["0", "1"] {
            assert!(device.durable_bytes(name).unwrap() == [1; 4 * PAGE as usize]);
            assert_eq!(device.counts(name).syncs, 1, "{io:?}");
        }
        cache.sync_many(&[&files[0], &files[1]]).unwrap();
        cache.sync_many(&[]).unwrap();
        assert_eq!(device.counts("1").syncs, 1, "{io:?}: nothing has changed");
    }
}

#[test]
fn each_handle_learns_of_its_failure_though_one_was_told() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, files) = scene(5, io, FaultPlan::default());
        let third = cache.open("2", writable()).unwrap();
        files.iter().chain([&third]).for_each(|file| write(file, 0..1, 1));
        ["0", "1"].iter().for_each(|name| device.refuse_writes(name, Some(Errno::IO)));
        let told = cache.sync_many(&[&files[0], &files[1], &third]).unwrap_err();
        assert!(matches!(&told, Error::Io { file, .. } if file.ends_with("0")), "{told}");
        assert!(device.durable_bytes("2").unwrap() == [1; PAGE as usize], "{io:?}");
        ["0", "1"].iter().for_each(|name| device.refuse_writes(name, None));
        files[0].sync_all().unwrap();
        assert!(matches!(files[1].sync_all(), Err(Error::Io { .. })), "{io:?}");
        files[1].sync_all().unwrap();
        files[1].close().unwrap();
        let refused = cache.sync_many(&[&third, &files[1]]);
        assert!(matches!(refused, Err(Error::Closed { .. })), "{io:?}");
    }
}

#[test]
fn tasks_and_threads_share_a_flush() {
    let _turn = turn();
    let plan = FaultPlan { yields_max: 2000, ..FaultPlan::default() };
    let (device, _cache, [file, _]) = scene(6, Io::Queued, plan);
    thread::scope(|scope| {
        for page in 0..16 {
            let file = &file;
            scope.spawn(move || {
                write(file, page..page + 1, 1);
                let range = page * PAGE..(page + 1) * PAGE;
                match page % 3 {
                    0 => file.sync_all(),
                    1 => block_on(file.sync_all_async()),
                    _ => block_on(file.sync_range_async(range)),
                }
                .unwrap();
            });
        }
    });
    let syncs = device.counts("0").syncs;
    assert!(syncs < 16, "{syncs} flushes for 16 callers");
    assert!(device.durable_bytes("0").unwrap() == [1; 16 * PAGE as usize]);
    block_on(file.sync_all_async()).unwrap();
    assert_eq!(device.counts("0").syncs, syncs, "nothing has changed");
}

/// A task that holds a page of a file while another syncs that file holds up no other file.
#[test]
fn a_sync_in_a_task_holds_up_no_other_file() {
    let _turn = turn();
    let (device, _cache, files) = scene(7, Io::Queued, FaultPlan::default());
    files.iter().for_each(|file| write(file, 0..1, 1));
    let (held, syncing) = thread::scope(|scope| {
        let held = files[0].page_mut(PageNo(0)).unwrap();
        let syncing = scope.spawn(|| Task::waiting(files[0].sync_all_async())).join().unwrap();
        (held, syncing)
    });
    assert!(matches!(block_on(files[0].sync_all_async()), Err(Error::WouldDeadlock { .. })));
    block_on(files[1].sync_all_async()).unwrap();
    drop(held);
    syncing.finish().unwrap();
    assert_eq!(device.counts("0").syncs, 1);
}

#[test]
fn a_sync_goes_on_when_its_task_and_handle_are_dropped() {
    let _turn = turn();
    let (device, cache, [file, other]) = scene(8, Io::Queued, FaultPlan::default());
    write(&file, 0..1, 1);
    let held = file.page_mut(PageNo(0)).unwrap();
    drop(thread::scope(|scope| {
        scope.spawn(|| Task::waiting(file.sync_all_async())).join().unwrap()
    }));
    drop(held);
    drop((file, other, cache));
    while device.counts("0").syncs == 0 {
        thread::yield_now();
    }
    let (_device, _cache, [file, _]) = scene(8, Io::Blocking, FaultPlan::default());
    write(&file, 0..1, 1);
    let refused = block_on(file.sync_all_async());
    assert!(matches!(refused, Err(Error::AsyncNeedsIoThread { page: None, .. })));
}

#[derive(Debug, Clone)]
enum Op {
    Write { file: usize, pages: Range<u64> },
    Range { file: usize, pages: Range<u64>, in_task: bool },
    Many,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let pages = || (0..8_u64, 1..4_u64).prop_map(|(first, pages)| first..first + pages);
    let op = prop_oneof![
        4 => (0..2_usize, pages()).prop_map(|(file, pages)| Op::Write { file, pages }),
        3 => (0..2_usize, pages(), any::<bool>())
            .prop_map(|(file, pages, in_task)| Op::Range { file, pages, in_task }),
        1 => Just(Op::Many),
    ];
    prop::collection::vec(op, 1..30)
}

/// Runs `ops`, lets the power fail, and checks that what was synced is there: each sector holds
/// what it held at the last sync that covered it, or something newer.
fn crash_after(io: Io, seed: u64, ops: &[Op]) {
    let plan = FaultPlan { held_reaps_max: 2, reorder: true, ..FaultPlan::default() };
    let (device, cache, files) = scene(seed, io, plan);
    // By file and page, what it may hold.
    let mut states = vec![vec![vec![0_u8]; PAGES]; files.len()];
    let covered = |pages: &mut [Vec<u8>]| {
        pages.iter_mut().for_each(|states| drop(states.drain(..states.len() - 1)));
    };
    for (value, op) in (1..).zip(ops) {
        match op.clone() {
            Op::Write { file, pages } => {
                write(&files[file], pages.clone(), value);
                let written = &mut states[file][pages.start as usize..pages.end as usize];
                written.iter_mut().for_each(|states| states.push(value));
            }
            Op::Range { file, pages, in_task } => {
                let bytes = pages.start * PAGE..pages.end * PAGE;
                if in_task && io != Io::Blocking {
                    block_on(files[file].sync_range_async(bytes)).unwrap();
                } else {
                    files[file].sync_range(bytes).unwrap();
                }
                covered(&mut states[file][pages.start as usize..pages.end as usize]);
            }
            Op::Many => {
                cache.sync_many(&files.each_ref()).unwrap();
                states.iter_mut().for_each(|pages| covered(pages));
            }
        }
    }
    device.crash();
    for (name, pages) in ["0", "1"].iter().zip(&states) {
        let mut left = device.bytes(name).unwrap();
        assert!(left.len() <= PAGES * PAGE as usize);
        left.resize(PAGES * PAGE as usize, 0);
        for (page, (bytes, states)) in left.chunks(PAGE as usize).zip(pages).enumerate() {
            for byte in bytes {
                assert!(states.contains(byte), "page {page} has {byte}, not one of {states:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn what_a_sync_covered_survives_a_crash(seed: u64, ops in ops()) {
        let _turn = turn();
        for io in BOTH {
            for end in 1..=ops.len() {
                crash_after(io, seed, &ops[..end]);
            }
        }
    }
}
