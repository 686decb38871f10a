//! Caches whose number of frames changes while they are in use.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use unherd_cache::{Advice, Cache, Error, File, Io, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::Errno;
use unherd_sys::primitives::{AtomicBool, Ordering, thread};
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, real_dir, sim, small, turn, writable};

const PAGE: usize = 512;

fn cache(frames: usize, most: usize, io: Io) -> Cache {
    let builder = small(frames, PAGE).max_capacity(most * PAGE).io(io);
    builder.device(sim(1, FaultPlan::default())).build().unwrap()
}

fn fill(file: &File, pages: u64) {
    (0..pages).for_each(|page| {
        file.write_at(&[page as u8; PAGE], page * PAGE as u64).unwrap();
    });
}

fn check(file: &File, pages: u64) {
    for page in 0..pages {
        let guard = file.page(PageNo(page)).unwrap();
        assert!(guard.iter().all(|&byte| byte == page as u8), "page {page}");
    }
}

/// Dirty pages are written back, not lost, and a larger cache keeps more.
#[test]
fn what_is_written_survives_each_change_of_the_capacity() {
    for io in BOTH {
        let builder = small(64, PAGE).max_capacity(1024 * PAGE).io(io);
        let cache = builder.device(sim(1, FaultPlan::default())).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        for frames in [1024, 16, 200, 4, 64] {
            cache.resize(frames * PAGE).unwrap();
            assert_eq!(cache.frames(), frames);
            fill(&file, 300);
            check(&file, 300);
        }
        cache.resize(512 * PAGE).unwrap();
        check(&file, 300);
        let before = cache.stats();
        check(&file, 300);
        let since = cache.stats().since(&before);
        assert_eq!((since.misses, since.evictions), (0, 0), "there is room for all");
    }
}

#[test]
fn a_cache_shrinks_and_grows_in_turn() {
    let cache = small(300, PAGE)
        .max_capacity(600 * PAGE)
        .device(sim(1, FaultPlan::default()))
        .build()
        .unwrap();
    assert_eq!(cache.frames(), 300);
    let file = cache.open("f", writable()).unwrap();
    for frames in [600, 5, 599, 300] {
        cache.resize(frames * PAGE).unwrap();
        fill(&file, 400);
        check(&file, 400);
    }
}

#[test]
fn a_cache_does_not_shrink_below_what_is_pinned() {
    for io in BOTH {
        let builder = small(32, PAGE).io(io);
        let cache = builder.device(sim(1, FaultPlan::default())).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        fill(&file, 64);
        let pins: Vec<_> = (0..10).map(|page| file.page(PageNo(page)).unwrap()).collect();
        let error = cache.resize(9 * PAGE).unwrap_err();
        let Error::CannotShrink { capacity_bytes: 4608, cause } = &error else { panic!("{error}") };
        // It does not wait, with frames in hand that others want.
        let waited = Duration::ZERO;
        let Error::NoFrames { pinned: 10, capacity: 32, waited: told, .. } = **cause else {
            panic!("{error}")
        };
        assert_eq!(told, waited, "{error}");
        assert!(error.to_string().contains("10 frames are pinned, by 1 thread"), "{error}");
        assert_eq!(cache.frames(), 32);
        check(&file, 64);
        // As many as are pinned would leave none to others.
        cache.resize(10 * PAGE).unwrap_err();
        cache.resize(16 * PAGE).unwrap();
        check(&file, 64);
        drop(pins);
        cache.resize(9 * PAGE).unwrap();
        check(&file, 64);
    }
}

/// Every second page is dirty in `file`, as many as may be.
fn fill_holes(file: &File, pages: u64) {
    file.advise(Advice::Random);
    (0..pages).for_each(|page| file.write_all_at(&[1; PAGE], page * 2 * PAGE as u64).unwrap());
}

#[test]
fn another_file_has_room_after_a_shrink() {
    for io in BOTH {
        let cache = cache(64, 64, io);
        let open = |name| cache.open(name, writable()).unwrap();
        let (full, other) = (open("full"), open("other"));
        fill_holes(&full, 48);
        cache.resize(8 * PAGE).unwrap();
        other.write_all_at(&[2; PAGE], 0).unwrap();
    }
}

/// A sound device takes what files have that came before.
#[test]
fn the_last_of_many_files_has_room() {
    for io in BOTH {
        for frames in [4, 64] {
            let cache = cache(frames, frames, io);
            let mut left = frames;
            let files: Vec<File> = (0..8)
                .map(|nth| {
                    let file = cache.open(format!("f{nth}"), writable()).unwrap();
                    // As many as it may have without a write-back.
                    fill_holes(&file, (left * 3 / 4).max(1) as u64);
                    left -= left * 3 / 4;
                    file
                })
                .collect();
            files.iter().for_each(|file| file.sync_all().unwrap());
        }
    }
}

#[test]
fn sound_writers_do_not_hinder_a_shrink() {
    for io in BOTH {
        let cache = cache(256, 256, io);
        let is_over = AtomicBool::new(false);
        let write = |file: &File| {
            let mut page = 0;
            while !is_over.load(Ordering::Relaxed) {
                page = (page * 5 + 3) % 1024;
                file.write_all_at(&[1; PAGE], page * PAGE as u64).unwrap();
            }
        };
        let files = ["a", "b"].map(|name| cache.open(name, writable()).unwrap());
        files.iter().for_each(|file| file.advise(Advice::Random));
        thread::scope(|scope| {
            files.iter().for_each(|file| {
                scope.spawn(|| write(file));
            });
            let resized: Vec<_> = (0..40)
                .map(|nth| cache.resize(if nth % 2 == 0 { 64 } else { 256 } * PAGE))
                .collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(resized.iter().all(Result::is_ok), "{resized:?}");
        });
    }
}

#[test]
fn what_cannot_be_written_is_known_before_a_shrink() {
    for io in BOTH {
        let device = sim(1, FaultPlan::default());
        let cache = small(64, PAGE).io(io).device(device.clone()).build().unwrap();
        let bad = cache.open("bad", writable()).unwrap();
        fill_holes(&bad, 47);
        device.refuse_writes("bad", Some(Errno::NOSPC));
        let error = cache.resize(32 * PAGE).unwrap_err();
        // Nobody waited for a frame, with others in hand.
        let Error::CannotShrink { cause, .. } = &error else { panic!("{error}") };
        let Error::NoFrames { waited: Duration::ZERO, .. } = **cause else { panic!("{error}") };
        assert_eq!(cache.frames(), 64);
        device.refuse_writes("bad", None);
        cache.resize(32 * PAGE).unwrap();
    }
}

#[test]
fn a_smaller_cache_leaves_frames_to_files_that_can_be_written() {
    let device = sim(1, FaultPlan::default());
    let builder = small(64, PAGE).frame_wait(Duration::from_millis(20));
    let cache = builder.device(device.clone()).build().unwrap();
    let open = |name| cache.open(name, writable()).unwrap();
    let (bad, good) = (open("bad"), open("good"));
    fill(&good, 10);
    good.sync_all().unwrap();
    device.refuse_writes("bad", Some(Errno::NOSPC));
    let refused = (0..64).find(|page| bad.write_at(&[1; PAGE], page * PAGE as u64).is_err());
    let unwritten = refused.unwrap() as usize;
    let error = cache.resize(unwritten * PAGE).unwrap_err();
    assert!(error.to_string().contains("cannot be written back"), "{error}");
    check(&good, 10);
    device.refuse_writes("bad", None);
    // What has failed is told once.
    bad.sync_all().unwrap_err();
    bad.sync_all().unwrap();
    cache.resize(16 * PAGE).unwrap();
    check(&good, 10);
}

#[test]
fn capacities_that_cannot_be_are_refused() {
    let cache = cache(8, 16, Io::Blocking);
    for frames in [0, 3, 17] {
        let error = cache.resize(frames * PAGE).unwrap_err();
        let (least_bytes, most_bytes) = (4 * PAGE, 16 * PAGE);
        let capacity_bytes = frames * PAGE;
        assert_eq!(error, Error::CapacityOutOfRange { capacity_bytes, least_bytes, most_bytes });
        assert_eq!(cache.frames(), 8);
    }
    // Half a page is no page.
    cache.resize(9 * PAGE - 1).unwrap();
    assert_eq!(cache.frames(), 8);
    let error = small(8, PAGE).max_capacity(usize::MAX).build().unwrap_err();
    assert!(error.to_string().contains("too many pages"), "{error}");
}

#[test]
fn a_cache_does_not_grow_beyond_the_machine() {
    let (page, most) = (2 << 20, 1 << 42);
    let builder = Cache::builder().page_size(page).capacity(8 * page).max_capacity(most);
    let cache = builder.io(Io::Blocking).build().unwrap();
    let error = cache.resize(most).unwrap_err();
    assert!(matches!(error, Error::InsufficientMemory { .. }), "{error}");
    assert_eq!(cache.frames(), 8);
    cache.resize(9 * page).unwrap();
}

#[test]
fn waiters_get_frames_that_are_added() {
    let _turn = turn();
    for io in BOTH {
        let cache = cache(4, 8, io);
        let file = cache.open("f", writable()).unwrap();
        fill(&file, 8);
        file.sync_all().unwrap();
        let pins: Vec<_> = (0..4).map(|page| file.page(PageNo(page)).unwrap()).collect();
        let (before, reason) = (Ledger::snapshot(), Reason::register("frame"));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| file.page(PageNo(7)).unwrap()[0]);
            while Ledger::snapshot().since(&before).reason(reason).waits == 0 {
                thread::yield_now();
            }
            cache.resize(5 * PAGE).unwrap();
            assert_eq!(waiter.join().unwrap(), 7);
        });
        drop(pins);
    }
}

/// How many pages of memory are there, of `len` bytes from an address on.
fn resident_pages(address: usize, len: usize) -> usize {
    let mut entries = vec![0; len / 4096 * 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.read_exact_at(&mut entries, address as u64 / 4096 * 8).unwrap();
    // The uppermost bit of an entry says whether the page is there.
    entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
}

/// Whether the kernel was told so for the mapping that holds the address.
fn has_no_huge_pages(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_it = false;
    for line in maps.lines() {
        if let Some((start, rest)) = line.split_once('-')
            && let (Ok(start), Some((end, _))) =
                (usize::from_str_radix(start, 16), rest.split_once(' '))
        {
            let end = usize::from_str_radix(end, 16).unwrap();
            is_it = (start..end).contains(&address);
        } else if is_it && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split(' ').any(|flag| flag == "nh");
        }
    }
    panic!("no mapping of {address:x}");
}

#[test]
fn memory_goes_back_to_the_system_and_comes_again() {
    let (dir, pages) = (real_dir(), 4096);
    let most_bytes = 16 * pages * 4096;
    let builder = Cache::builder().capacity(pages * 4096).max_capacity(most_bytes);
    let cache = builder.build().unwrap();
    let file = cache.open(dir.path().join("f"), writable()).unwrap();
    file.write_all_at(&vec![7; pages * 4096], 0).unwrap();
    // The frames' memory begins where the first of all pages lies.
    let address = |page| file.page(PageNo(page)).unwrap().as_ptr().addr();
    let start = (0..pages as u64).map(address).min().unwrap();
    // The first frames may have no page just now.
    let is_about = |expected: usize| {
        let resident = resident_pages(start, most_bytes);
        assert!(resident.abs_diff(expected) < 128, "{resident} pages, not {expected}");
    };
    is_about(pages);
    cache.resize(pages / 4 * 4096).unwrap();
    is_about(pages / 4);
    cache.resize(2 * pages * 4096).unwrap();
    is_about(2 * pages);
    assert!(has_no_huge_pages(start));
    let mut bytes = vec![0; pages * 4096];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));
}
