//! Where the pages lie that streams write.

use unherd_cache::{Cache, Error, File, Io, PageNo};
use unherd_sys::primitives::Arc;
use unherd_testkit::{FaultPlan, SimDevice};

use crate::scene::{BOTH, close, sim, small, turn, writable};

const PAGE: usize = 512;

/// How often a page does not lie behind the one before it in memory.
fn breaks(file: &File, pages: u64) -> usize {
    let address = |page| file.page(PageNo(page)).unwrap().as_ptr().addr();
    let addresses: Vec<usize> = (0..pages).map(address).collect();
    addresses.windows(2).filter(|pair| pair[0] + PAGE != pair[1]).count()
}

#[test]
fn streams_lie_in_neighbours_though_the_cache_is_full() {
    for io in BOTH {
        let (frames, pages) = (2048, 128);
        let cache =
            small(frames, PAGE).device(sim(1, FaultPlan::default())).io(io).build().unwrap();
        let open = |name: &str| cache.open(name, writable()).unwrap();
        // Pages of a file in no order that memory knows: each is written by itself.
        let old = open("old");
        for nth in 0..2 * frames as u64 {
            old.write_at(&[1; PAGE], nth * 1667 % 4096 * PAGE as u64).unwrap();
        }
        old.sync_all().unwrap();
        assert!(cache.stats().evictions > 0, "it is full");
        let files = ["a", "b", "c", "d"].map(open);
        for page in 0..pages {
            for file in &files {
                file.write_at(&[2; PAGE], page * PAGE as u64).unwrap();
            }
        }
        let interleaved = open("interleaved");
        for page in 0..pages / 2 {
            for begin in [0, pages / 2] {
                interleaved.write_at(&[4; PAGE], (begin + page) * PAGE as u64).unwrap();
            }
        }
        let large = open("large");
        large.write_at(&vec![3; pages as usize * PAGE], 0).unwrap();
        for file in files.iter().chain([&interleaved, &large]) {
            let breaks = breaks(file, pages);
            // An extent has 16 frames, and not each can be had as a whole.
            assert!(breaks <= pages as usize / 4, "{io:?}: {breaks} breaks");
        }
    }
}

#[test]
fn streams_free_no_more_than_an_eighth_of_the_frames() {
    for frames in [32, 100, 512] {
        let cache = small(frames, PAGE).device(sim(1, FaultPlan::default())).build().unwrap();
        let old = cache.open("old", writable()).unwrap();
        // Every other frame of an extent goes early, and the others stay.
        for page in 0..frames as u64 {
            old.write_at(&[1; PAGE], page * PAGE as u64).unwrap();
        }
        old.sync_all().unwrap();
        for page in (0..frames as u64).step_by(2) {
            (0..4).for_each(|_| drop(old.page(PageNo(page)).unwrap()));
        }
        let before = cache.stats();
        let new = cache.open("new", writable()).unwrap();
        let mut most = 0;
        for page in 0..2 * frames as u64 {
            new.write_at(&[2; PAGE], page * PAGE as u64).unwrap();
            let since = cache.stats().since(&before);
            most = most.max(since.evictions.saturating_sub(page + 1));
        }
        assert!(most <= frames as u64 / 8, "of {frames} frames {most} lay free");
    }
}

/// A cache with frames enough for several runs under way.
fn queued() -> (Arc<SimDevice>, Cache, [File; 4]) {
    let device = sim(2, FaultPlan::default());
    let cache = small(4096, PAGE).device(device.clone()).io(Io::Queued).build().unwrap();
    let files = ["a", "b", "c", "d"].map(|name| cache.open(name, writable()).unwrap());
    device.block_queued_writes();
    (device, cache, files)
}

/// Writes the pages from `first` on until `seen` holds. Gives the page that follows.
fn write_until(file: &File, first: u64, seen: impl Fn() -> bool) -> u64 {
    let mut page = first;
    while !seen() {
        assert!(page < first + 1024, "a stream is not written behind");
        file.write_all_at(&[page as u8; PAGE], page * PAGE as u64).unwrap();
        page += 1;
    }
    page
}

/// Their pages are dirty when they are filled, and the files no longer for it.
#[test]
fn logs_of_reserved_length_are_written_behind() {
    for files in [1, 3] {
        let pages = 512;
        let cache = small(2048, PAGE).device(sim(1, FaultPlan::default())).build().unwrap();
        let open = |number| cache.open(format!("log {number}"), writable()).unwrap();
        let logs: Vec<File> = (0..files).map(open).collect();
        logs.iter().for_each(|log| log.set_len(pages * PAGE as u64).unwrap());
        for at in (0..pages * PAGE as u64).step_by(64) {
            logs.iter().for_each(|log| log.write_all_at(&[1; 64], at).unwrap());
        }
        let written = cache.stats().write_backs;
        assert!(written > files * pages / 2, "{written} pages of {files} files");
    }
}

#[test]
fn a_stream_queues_one_run_and_writes_the_next_itself() {
    let _turn = turn();
    let (device, _cache, [file, other, ..]) = queued();
    let seen = || (device.queued_writes(), device.counts("a").writes);
    let run = write_until(&file, 0, || seen() == (1, 0));
    let pages = write_until(&file, run, || seen() == (1, 1));
    // Each file queues one.
    write_until(&other, 0, || seen() == (2, 1));
    device.release_queued_writes();
    file.sync_all().unwrap();
    let bytes = device.bytes("a").unwrap();
    assert!(bytes.chunks(PAGE).enumerate().all(|(page, bytes)| bytes == [page as u8; PAGE]));
    assert_eq!(bytes.len(), pages as usize * PAGE);
}

/// Of many open files, for which half of the frames have room for sixteen pages each.
#[test]
fn a_stream_takes_its_turn_to_fill_large_runs() {
    for (io, streams) in BOTH.into_iter().flat_map(|io| [(io, 1), (io, 64)]) {
        let cache = small(2048, PAGE).device(sim(3, FaultPlan::default())).io(io).build().unwrap();
        let open = |number| cache.open(format!("{number}"), writable()).unwrap();
        let files: Vec<File> = (0..64).map(open).collect();
        for page in 0..512 {
            for file in &files[..streams] {
                file.write_all_at(&[1; PAGE], page * PAGE as u64).unwrap();
            }
        }
        let stats = cache.stats();
        let run = stats.write_backs / stats.write_transfers;
        // Where all are written, most turns are over before they are used.
        let expected = if streams == 1 { 64..=128 } else { 16..=24 };
        assert!(expected.contains(&run), "{io:?}, {streams}: {run} pages a transfer");
        assert_eq!(stats.throttle_sleeps, 0, "{io:?}");
    }
}

/// A stream takes frames for its next pages: for others they are there all the same.
#[test]
fn frames_for_pages_to_come_can_be_had() {
    for io in BOTH {
        const FRAMES: usize = 128;
        let cache =
            small(FRAMES, PAGE).device(sim(4, FaultPlan::default())).io(io).build().unwrap();
        let (log, other) = (cache.open("log", writable()), cache.open("other", writable()));
        let (log, other) = (log.unwrap(), other.unwrap());
        let mut page = 0;
        let mut append = || {
            for _ in 0..20 {
                log.write_all_at(&[1; PAGE], page * PAGE as u64).unwrap();
                page += 1;
            }
        };
        append();
        other.set_len((FRAMES * PAGE) as u64).unwrap();
        let all = (0..FRAMES as u64).map(|page| other.page(PageNo(page)));
        let pinned: Result<Vec<_>, Error> = all.collect();
        drop(pinned.unwrap());
        append();
        drop(cache.alloc_contiguous(4).unwrap());
        append();
        cache.resize(FRAMES / 4 * PAGE).unwrap();
        append();
        log.sync_all().unwrap();
    }
}

#[test]
fn a_run_is_written_by_its_thread_if_the_device_is_busy() {
    let _turn = turn();
    let (device, cache, files) = queued();
    for (nth, file) in files.iter().enumerate() {
        write_until(file, 0, || device.queued_writes() == nth + 1);
    }
    let fifth = cache.open("e", writable()).unwrap();
    let written = || device.counts("e").writes as usize;
    write_until(&fifth, 0, || written() + device.queued_writes() > files.len());
    assert_eq!((written(), device.queued_writes()), (1, files.len()));
    device.release_queued_writes();
}

#[test]
fn each_page_of_a_stream_of_small_writes_is_a_miss() {
    let cache = small(512, PAGE).device(sim(5, FaultPlan::default())).build().unwrap();
    let log = cache.open("log", writable()).unwrap();
    (0..200).for_each(|nth| log.write_all_at(&[1; 700], nth * 700).unwrap());
    let (stats, pages) = (cache.stats(), (200_u64 * 700).div_ceil(PAGE as u64));
    assert_eq!((stats.misses, stats.write_misses), (pages, pages));
    assert_eq!(stats.hit_ratio(), None, "nothing was read");
    log.read_exact_at(&mut [0; 700], 0).unwrap();
    assert_eq!(cache.stats().hit_ratio(), Some(1.0));
}

/// What the device was given before may reach it at any time, in the place of what comes later.
#[test]
fn nothing_is_written_once_the_io_thread_has_died() {
    let _turn = turn();
    let (device, cache, [file, other, third, _]) = queued();
    let run = write_until(&file, 0, || device.queued_writes() == 1);
    device.panic_in_reap();
    assert!(matches!(file.sync_all(), Err(Error::Io { .. })));
    other.write_all_at(&vec![1; run as usize * PAGE], 0).unwrap();
    third.write_all_at(&[1; PAGE], 0).unwrap();
    assert!(matches!(third.sync_all(), Err(Error::Io { .. })), "by the thread that waits");
    for (name, file) in [("a", file), ("b", other), ("c", third)] {
        assert!(close(file).is_err());
        assert_eq!(device.counts(name).writes, 0, "{name}");
    }
    drop(cache);
}
