//! Memory in one piece out of a cache in every condition.

use std::time::Duration;

use unherd_cache::{Advice, Cache, ContiguousFrames, Error, File, Io, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::Errno;
use unherd_sys::primitives::{AtomicBool, Ordering, thread};
use unherd_testkit::{FaultPlan, Seed};

use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: usize = 512;
const FRAMES: usize = 128;
/// Of an eighth of the frames: there are eight rows of them.
const ORDER: u32 = 4;
const ROW: usize = 1 << ORDER;

fn cache(io: Io) -> Cache {
    small(FRAMES, PAGE).io(io).device(sim(1, FaultPlan::default())).build().unwrap()
}

fn open(cache: &Cache) -> File {
    let file = cache.open("f", writable()).unwrap();
    file.advise(Advice::Random);
    file
}

/// As many pages as there are frames, which are in the cache then.
fn fill(file: &File, pages: usize) {
    (0..pages).for_each(|page| {
        file.write_all_at(&[page as u8; PAGE], (page * PAGE) as u64).unwrap();
    });
}

fn check(file: &File, pages: usize) {
    for page in 0..pages {
        let guard = file.page(PageNo(page as u64)).unwrap();
        assert!(guard.iter().all(|&byte| byte == page as u8), "page {page}");
    }
}

/// Writes to all of it, so that a frame that a page has as well is found.
fn use_up(memory: &mut ContiguousFrames) {
    let bytes = vec![0xee; memory.len()];
    memory.write(0, &bytes);
    assert!(memory.iter().all(|&byte| byte == 0xee));
    assert_eq!(memory.as_ptr().addr() % memory.len(), 0);
}

#[test]
fn an_empty_cache_gives_each_order_up_to_an_eighth() {
    for (page_bytes, frames, largest) in [(PAGE, FRAMES, ORDER), (4096, 4096, 9), (2 << 20, 8, 0)] {
        let cache = small(frames, page_bytes).build().unwrap();
        for order in 0..=largest {
            let mut memory = cache.alloc_contiguous(order).unwrap();
            assert_eq!(memory.len(), page_bytes << order);
            use_up(&mut memory);
            assert_eq!(cache.frames(), frames);
        }
        for (order, bytes) in [(largest + 1, page_bytes << (largest + 1)), (300, usize::MAX)] {
            let error = cache.alloc_contiguous(order).unwrap_err();
            let bytes_max = page_bytes << largest;
            assert_eq!(error, Error::ContiguousTooLarge { bytes, bytes_max });
        }
        assert_eq!(cache.stats().evictions, 0);
    }
    // Every frame of a small cache is for pages.
    let error = small(7, PAGE).build().unwrap().alloc_contiguous(0).unwrap_err();
    assert_eq!(error, Error::ContiguousTooLarge { bytes: PAGE, bytes_max: 0 });
    assert!(error.to_string().contains("ask for less, or build the cache with more"), "{error}");
}

#[test]
fn clean_and_dirty_pages_make_way_and_lose_nothing() {
    for io in BOTH {
        let builder = small(FRAMES, PAGE).io(io);
        let cache = builder.device(sim(1, FaultPlan::default())).build().unwrap();
        let file = open(&cache);
        fill(&file, FRAMES);
        file.sync_all().unwrap();
        for page in ONE_OF_EACH {
            file.write_all_at(&[page as u8; PAGE], page * PAGE as u64).unwrap();
        }
        let dirty_before = cache.stats();
        use_up(&mut cache.alloc_contiguous(ORDER).unwrap());
        let since = cache.stats().since(&dirty_before);
        assert_eq!((since.contiguous_write_backs, since.write_backs), (1, 1), "{since:?}");
        check(&file, FRAMES);
        file.sync_all().unwrap();
        // All are clean, and used twice.
        (0..3).for_each(|_| check(&file, FRAMES));
        let clean_before = cache.stats();
        let mut memory = cache.alloc_contiguous(ORDER).unwrap();
        use_up(&mut memory);
        let since = cache.stats().since(&clean_before);
        assert_eq!((since.contiguous_write_backs, since.write_backs), (0, 0));
        assert_eq!((since.contiguous_evictions, since.evictions), (ROW as u64, ROW as u64));
        // Others go on with what is left.
        fill(&file, 2 * FRAMES);
        check(&file, 2 * FRAMES);
        assert!(memory.iter().all(|&byte| byte == 0xee), "a page was put there");
        drop(memory);
        check(&file, 2 * FRAMES);
    }
}

/// What was given back is used again.
#[test]
fn a_dropped_piece_is_room_for_pages() {
    let cache = cache(Io::Blocking);
    let file = open(&cache);
    fill(&file, FRAMES);
    drop(cache.alloc_contiguous(ORDER).unwrap());
    check(&file, FRAMES);
    let before = cache.stats();
    check(&file, FRAMES);
    assert_eq!(cache.stats().since(&before).misses, 0, "there is room for all");
}

/// The cheapest row is the one without pages, then the one whose pages were not used.
#[test]
fn free_frames_are_taken_before_pages() {
    let cache = cache(Io::Blocking);
    let file = open(&cache);
    fill(&file, FRAMES - ROW);
    file.sync_all().unwrap();
    drop(cache.alloc_contiguous(ORDER).unwrap());
    assert_eq!(cache.stats().evictions, 0);
    fill(&file, FRAMES);
    file.sync_all().unwrap();
    let rest: Vec<usize> = (0..FRAMES).filter(|page| page / ROW != 2).collect();
    let mut bytes = [0; PAGE];
    let mut read = |page: usize| file.read_at(&mut bytes, (page * PAGE) as u64).unwrap();
    for _ in 0..2 {
        rest.iter().for_each(|&page| assert_eq!(read(page), PAGE));
    }
    let memory = cache.alloc_contiguous(ORDER).unwrap();
    let before = cache.stats();
    rest.iter().for_each(|&page| assert_eq!(read(page), PAGE));
    assert_eq!(cache.stats().since(&before).misses, 0, "a used page was given up");
    drop(memory);
}

/// A page of each row: a fresh cache gives its frames in their order.
const ONE_OF_EACH: [u64; 8] = [3, 16, 40, 63, 64, 95, 100, 127];

/// A full cache of clean pages.
fn full(io: Io) -> (Cache, File) {
    let cache = cache(io);
    let file = open(&cache);
    fill(&file, FRAMES);
    file.sync_all().unwrap();
    (cache, file)
}

/// The obstacles in all rows: pinned, changing, unwritten; and nothing was given up for it.
fn obstacles(cache: &Cache) -> [usize; 3] {
    let before = cache.stats().evictions;
    let error = cache.alloc_contiguous(ORDER).unwrap_err();
    let Error::NoContiguousFrames { bytes, rows, pinned, changing, unwritten, page, .. } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((*bytes, *rows), (ROW * PAGE, 8), "{error}");
    let (file, page) = page.as_ref().unwrap();
    assert!(file.ends_with("f") && ONE_OF_EACH.contains(page), "{error}");
    assert!(error.to_string().contains("in 8 rows of frames"), "{error}");
    assert_eq!(cache.stats().evictions, before, "a page was given up in vain");
    [*pinned, *changing, *unwritten]
}

#[test]
fn guards_in_each_row_are_named_and_not_waited_for() {
    for io in BOTH {
        let (cache, file) = full(io);
        let pins = ONE_OF_EACH.map(|page| file.page(PageNo(page)).unwrap());
        assert_eq!(obstacles(&cache), [8, 0, 0]);
        // Smaller pieces fit between.
        use_up(&mut cache.alloc_contiguous(ORDER - 1).unwrap());
        drop(pins);
        let changing = ONE_OF_EACH.map(|page| file.page_mut(PageNo(page)).unwrap());
        assert_eq!(obstacles(&cache), [0, 8, 0]);
        drop(changing.into_iter().nth(2));
        use_up(&mut cache.alloc_contiguous(ORDER).unwrap());
    }
}

#[test]
fn pages_that_cannot_be_written_stay() {
    for io in BOTH {
        let device = sim(1, FaultPlan::default());
        let cache = small(FRAMES, PAGE).io(io).device(device.clone()).build().unwrap();
        let file = open(&cache);
        fill(&file, FRAMES);
        file.sync_all().unwrap();
        device.refuse_writes("f", Some(Errno::NOSPC));
        for page in ONE_OF_EACH {
            file.write_all_at(&[page as u8; PAGE], page * PAGE as u64).unwrap();
        }
        file.sync_all().unwrap_err();
        assert_eq!(obstacles(&cache), [0, 0, 8], "failed");
        device.refuse_writes("f", None);
        file.sync_all().unwrap();
        for page in ONE_OF_EACH {
            let mut held = file.page_mut(PageNo(page)).unwrap();
            held.write(0, &[page as u8]);
            held.hold_until(1).unwrap();
        }
        assert_eq!(obstacles(&cache), [0, 0, 8], "held back");
        file.release_to(1);
        use_up(&mut cache.alloc_contiguous(ORDER).unwrap());
        check(&file, FRAMES);
    }
}

#[test]
fn an_eighth_of_the_cache_is_given_at_most() {
    let (cache, file) = full(Io::Blocking);
    let pieces: Vec<_> = (0..4).map(|_| cache.alloc_contiguous(ORDER - 2).unwrap()).collect();
    let error = cache.alloc_contiguous(0).unwrap_err();
    let Error::NoContiguousFrames { rows: 0, given_out_bytes, given_out_bytes_max, .. } = error
    else {
        panic!("{error}")
    };
    assert_eq!((given_out_bytes, given_out_bytes_max), (ROW * PAGE, ROW * PAGE));
    assert!(error.to_string().contains("drop some of that"), "{error}");
    check(&file, FRAMES);
    drop(pieces);
    cache.alloc_contiguous(ORDER).unwrap();
}

/// A file whose writes fail has the most that it may have, and all that may be given out is.
#[test]
fn a_sound_file_finds_frames_beside_pieces_and_a_file_that_fails() {
    for io in BOTH {
        let device = sim(1, FaultPlan::default());
        let builder = small(FRAMES, PAGE).io(io).device(device.clone());
        let cache = builder.frame_wait(Duration::from_millis(20)).build().unwrap();
        let bad = cache.open("bad", writable()).unwrap();
        bad.advise(Advice::Random);
        device.refuse_writes("bad", Some(Errno::NOSPC));
        let write = |page: &usize| bad.write_all_at(&[1; PAGE], (page * PAGE) as u64).is_err();
        assert_eq!((0..FRAMES).find(write), Some(FRAMES * 3 / 4));
        let mut pieces: Vec<_> = std::iter::from_fn(|| cache.alloc_contiguous(0).ok()).collect();
        let good = open(&cache);
        fill(&good, FRAMES);
        good.sync_all().unwrap();
        check(&good, FRAMES);
        pieces.iter_mut().for_each(use_up);
        // What was refused was told.
        let _ = bad.sync_all();
        device.refuse_writes("bad", None);
        bad.sync_all().unwrap();
    }
}

#[test]
fn a_cache_shrinks_around_what_it_has_given_out() {
    for io in BOTH {
        let (cache, file) = full(io);
        let piece = cache.alloc_contiguous(ORDER - 1).unwrap();
        let error = cache.resize(63 * PAGE).unwrap_err();
        let Error::CannotShrink { capacity_bytes: 32256, cause } = &error else {
            panic!("{error}")
        };
        assert!(matches!(**cause, Error::NoFrames { given_out: 8, capacity: 128, .. }), "{error}");
        assert!(error.to_string().contains("8 frames given out as contiguous memory"), "{error}");
        cache.resize(64 * PAGE).unwrap();
        assert_eq!(cache.frames(), 64);
        check(&file, FRAMES);
        drop(piece);
        assert_eq!(cache.frames(), 64);
        cache.resize(FRAMES * PAGE).unwrap();
        fill(&file, FRAMES);
        use_up(&mut cache.alloc_contiguous(ORDER).unwrap());
        check(&file, FRAMES);
    }
}

/// What the cache may get by growing is in no row.
#[test]
fn only_frames_that_are_there_are_given() {
    let builder = small(FRAMES, PAGE).max_capacity(1024 * PAGE);
    let cache = builder.device(sim(1, FaultPlan::default())).build().unwrap();
    let file = open(&cache);
    fill(&file, FRAMES);
    file.sync_all().unwrap();
    let pins = ONE_OF_EACH.map(|page| file.page(PageNo(page)).unwrap());
    assert_eq!(obstacles(&cache), [8, 0, 0]);
    drop(pins);
}

/// A reader that finds all frames pinned or given out gets one of a piece. It has no deadline.
#[test]
fn a_drop_wakes_who_waits_for_a_frame() {
    let _turn = turn();
    for io in BOTH {
        let builder = small(FRAMES, PAGE).io(io).frame_wait(Duration::MAX);
        let cache = builder.device(sim(1, FaultPlan::default())).build().unwrap();
        let file = open(&cache);
        fill(&file, FRAMES);
        file.sync_all().unwrap();
        let piece = cache.alloc_contiguous(ORDER).unwrap();
        let others = 0..(FRAMES - ROW) as u64;
        let pins: Vec<_> = others.map(|page| file.page(PageNo(page)).unwrap()).collect();
        let (before, reason) = (Ledger::snapshot(), Reason::register("frame"));
        thread::scope(|scope| {
            let reader = scope.spawn(|| file.page(PageNo(127)).unwrap()[0]);
            while Ledger::snapshot().since(&before).reason(reason).waits == 0 {
                thread::yield_now();
            }
            drop(piece);
            assert_eq!(reader.join().unwrap(), 127);
        });
        drop(pins);
    }
}

/// The memory outlives the cache, and may end in another thread.
#[test]
fn a_piece_may_be_dropped_last() {
    for io in BOTH {
        let (cache, file) = full(io);
        let mut piece = cache.alloc_contiguous(ORDER).unwrap();
        drop((cache, file));
        thread::scope(|scope| {
            scope.spawn(move || use_up(&mut piece));
        });
    }
}

#[test]
fn writes_beyond_the_end_are_refused() {
    let cache = cache(Io::Blocking);
    for (at, len) in [(PAGE - 1, 2), (PAGE + 1, 0), (usize::MAX, 1)] {
        let mut piece = cache.alloc_contiguous(0).unwrap();
        let write = std::panic::AssertUnwindSafe(|| piece.write(at, &vec![0; len]));
        let panic = std::panic::catch_unwind(write).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(*text, format!("a write of {len} bytes at {at} of {PAGE} bytes"));
    }
}

/// Readers, writers, syncs and changes of the capacity go on, and no page gets a piece's bytes.
#[test]
fn pieces_come_and_go_beside_everything_else() {
    let _turn = turn();
    const PAGES: u64 = 256;
    const PIECES: usize = 60;
    for io in BOTH {
        let builder = small(128, PAGE).max_capacity(256 * PAGE).io(io);
        let cache = builder.device(sim(1, FaultPlan::default())).build().unwrap();
        let file = open(&cache);
        (0..PAGES).for_each(|page| {
            file.write_all_at(&[page as u8 / 2; PAGE], page * PAGE as u64).unwrap();
        });
        let is_over = AtomicBool::new(false);
        let until_over = |number, step: &(dyn Fn(&mut Seed) + Sync)| {
            let mut seed = Seed::new(number);
            while !is_over.load(Ordering::Relaxed) {
                step(&mut seed);
            }
        };
        let read = |seed: &mut Seed| {
            let page = seed.below(PAGES);
            let is_whole = |bytes: &[u8]| bytes.iter().all(|&byte| byte == page as u8 / 2);
            if seed.coin() {
                assert!(is_whole(&file.page(PageNo(page)).unwrap()), "page {page}");
            } else {
                let mut bytes = [0; PAGE];
                file.read_exact_at(&mut bytes, page * PAGE as u64).unwrap();
                assert!(is_whole(&bytes), "page {page}");
            }
        };
        let write = |seed: &mut Seed| {
            let page = seed.below(PAGES);
            file.write_all_at(&[page as u8 / 2; PAGE], page * PAGE as u64).unwrap();
            if seed.below(64) == 0 {
                file.sync_all().unwrap();
            }
        };
        let resize = |seed: &mut Seed| {
            let frames = [96, 128, 256][seed.below(3) as usize];
            match cache.resize(frames * PAGE) {
                Ok(()) | Err(Error::CannotShrink { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        let until_over = &until_over;
        thread::scope(|scope| {
            scope.spawn(move || until_over(1, &read));
            scope.spawn(move || until_over(2, &write));
            scope.spawn(move || until_over(3, &resize));
            let takers = [4, 5].map(|number| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut seed = Seed::new(number);
                    let mut kept = Vec::new();
                    let mut given = 0;
                    for _ in 0..PIECES {
                        match cache.alloc_contiguous(seed.below(3) as u32) {
                            Ok(mut memory) => {
                                use_up(&mut memory);
                                kept.push(memory);
                                given += 1;
                            }
                            Err(Error::NoContiguousFrames { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                        if kept.len() == 2 {
                            let memory = kept.swap_remove(0);
                            assert!(memory.iter().all(|&byte| byte == 0xee));
                        }
                    }
                    given
                })
            });
            let given: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
            is_over.store(true, Ordering::Relaxed);
            assert!(given >= PIECES, "{given} of {}", 2 * PIECES);
        });
        file.sync_all().unwrap();
        cache.resize(128 * PAGE).unwrap();
        (0..FRAMES as u64).for_each(|page| {
            assert!(file.page(PageNo(page)).unwrap().iter().all(|&byte| byte == page as u8 / 2));
        });
    }
}
