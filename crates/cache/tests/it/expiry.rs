//! Dirty pages that get old.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use unherd_cache::{Advice, Cache, File, Io, PageNo};
use unherd_sys::primitives::{Arc, thread};
use unherd_sys::{Errno, Timestamp};
use unherd_testkit::{FaultPlan, SimDevice};

use crate::scene::{real_dir, sim, small, turn, writable};

const PAGE: usize = 512;
const EXPIRE: Duration = Duration::from_millis(20);
/// With a single buffer for write-back.
fn scene(io: Io, plan: FaultPlan) -> (Arc<SimDevice>, Cache, File) {
    let device = sim(61, plan);
    let cache = small(32, PAGE).device(device.clone()).io(io).dirty_expire(EXPIRE);
    let cache = cache.build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.advise(Advice::Random);
    file.set_len(64 * PAGE as u64).unwrap();
    (device, cache, file)
}

fn write(file: &File, page: u64, value: u8) {
    file.write_all_at(&[value; PAGE], page * PAGE as u64).unwrap();
}

/// What the device has of a page: its first byte.
fn on_device(device: &SimDevice, page: u64) -> u8 {
    device.bytes("f").unwrap()[page as usize * PAGE]
}

/// A turn ends after some minutes, with the test's name.
fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

fn pause(times: u32) {
    let end = Timestamp::now().after(EXPIRE * times);
    until(|| Timestamp::now() >= end);
}

/// More runs than there are buffers, and no call that would write them.
#[test]
fn dirty_pages_are_written_when_they_are_old() {
    let _turn = turn();
    let plan = FaultPlan { held_reaps_max: 2, reorder: true, ..FaultPlan::default() };
    let (device, cache, file) = scene(Io::Queued, plan);
    for round in 1..4 {
        (0..10).for_each(|nth| write(&file, 3 * nth, round));
        until(|| (0..10).all(|nth| on_device(&device, 3 * nth) == round));
    }
    assert_eq!((device.counts("f").syncs, cache.stats().flushes), (0, 0));
}

#[test]
fn held_pages_wait_for_their_release_and_changing_ones_for_their_end() {
    let _turn = turn();
    let (device, _cache, file) = scene(Io::Queued, FaultPlan::default());
    let mut held_back = file.page_mut(PageNo(0)).unwrap();
    held_back.hold_until(7).unwrap();
    held_back.write(0, &[1; PAGE]);
    drop(held_back);
    let mut changing = file.page_mut(PageNo(5)).unwrap();
    changing.write(0, &[1; PAGE]);
    write(&file, 10, 1);
    until(|| on_device(&device, 10) == 1);
    pause(3);
    assert_eq!([0, 5].map(|page| on_device(&device, page)), [0, 0]);
    drop(changing);
    until(|| on_device(&device, 5) == 1);
    file.release_to(7);
    until(|| on_device(&device, 0) == 1);
}

#[test]
fn what_could_not_be_written_is_tried_again_without_a_call() {
    let _turn = turn();
    for errno in [Errno::NOSPC, Errno::IO] {
        let (device, _cache, file) = scene(Io::Queued, FaultPlan::default());
        device.refuse_writes("f", Some(errno));
        write(&file, 1, 1);
        until(|| device.counts("f").writes > 0);
        pause(3);
        assert_eq!(on_device(&device, 1), 0);
        device.refuse_writes("f", None);
        until(|| on_device(&device, 1) == 1);
        assert!(file.sync_all().is_err(), "each handle is told once");
        assert_eq!(file.sync_all(), Ok(()));
    }
}

/// Nor does anything happen after a flush that failed, other than that pages are written again.
#[test]
fn nobody_wakes_while_nothing_is_dirty() {
    let _turn = turn();
    let (device, cache, file) = scene(Io::Queued, FaultPlan::default());
    for synced in [true, false] {
        write(&file, 1, 1);
        if synced {
            file.sync_all().unwrap();
        }
        // The alarm that the write has set rings once.
        pause(5);
        let (reaps, stats) = (device.reaps(), cache.stats());
        pause(20);
        assert_eq!((device.reaps(), cache.stats()), (reaps, stats));
    }
}

/// The I/O thread looks at 256 things at a time: files to be listed, each file, each page, and each
/// file's end. Here the last look finds that nothing is left.
#[test]
fn nobody_wakes_when_the_last_look_was_the_last_page() {
    let _turn = turn();
    let wakes_after_all = |pages: usize| {
        let device = sim(61, FaultPlan::default());
        let cache = small(512, PAGE).device(device.clone()).io(Io::Queued).dirty_expire(EXPIRE);
        let cache = cache.build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.advise(Advice::Random);
        file.write_all_at(&vec![1; pages * PAGE], 0).unwrap();
        file.write_back().unwrap();
        pause(5);
        let reaps = device.reaps();
        pause(10);
        device.reaps() != reaps
    };
    for pages in [252, 253, 254] {
        // On a busy machine the last look itself may come late.
        assert!((0..5).any(|_| !wakes_after_all(pages)), "{pages} pages");
    }
}

/// The page that takes its place is dirty, and nobody writes after that.
#[test]
fn a_page_that_changes_while_it_is_written_gets_old_again() {
    let _turn = turn();
    let (device, _cache, file) = scene(Io::Queued, FaultPlan::default());
    device.block_queued_writes();
    write(&file, 1, 1);
    until(|| device.queued_writes() == 1);
    write(&file, 1, 2);
    device.release_queued_writes();
    until(|| on_device(&device, 1) == 2);
}

/// The process that the test below starts and kills. Elsewhere it does nothing.
#[test]
fn child_that_writes_and_never_syncs() {
    let Some(path) = std::env::var_os("UNHERD_EXPIRY_FILE") else { return };
    let cache = Cache::builder().dirty_expire(EXPIRE).build().unwrap();
    let file = cache.open(path, writable()).unwrap();
    file.write_all_at(&[7; 10_000], 0).unwrap();
    println!("written");
    until(|| false);
}

#[test]
fn a_killed_process_has_lost_nothing_that_was_old() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "expiry::child_that_writes_and_never_syncs", "--nocapture"])
        .env("UNHERD_EXPIRY_FILE", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("written")));
    until(|| std::fs::metadata(&path).is_ok_and(|file| file.len() >= 10_000));
    // The length is there first.
    pause(10);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(std::fs::read(&path).unwrap()[..10_000] == [7; 10_000]);
}
