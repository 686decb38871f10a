//! Reads that keep nothing.

use unherd_cache::{Advice, Cache, Direct, Errno, Error, File, Io, OpenOptions, Operation, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::Alignment;
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{Failure, FaultPlan, SimDevice};

use crate::page_hook::Cipher;
use crate::scene::{BOTH, real_devices, real_dir, sim, small, turn, writable};

const PAGE: usize = 1024;
/// So a run has four pages.
const FRAMES: usize = 64;
const RUN: usize = 4 * PAGE;
/// Whole ones, and then a part of one.
const PAGES: usize = 40;
const LEN: usize = PAGES * PAGE + 100;

/// No faults, and memory at any address is taken.
fn anywhere() -> FaultPlan {
    FaultPlan { alignment: Alignment { memory: 1, offset: 512 }, ..FaultPlan::default() }
}

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at / PAGE * 7 + at % 251) as u8).collect()
}

fn scene(io: Io, plan: FaultPlan, options: OpenOptions) -> (Arc<SimDevice>, Cache, File) {
    let device = sim(1, plan);
    device.put("f", &content());
    let cache = small(FRAMES, PAGE).io(io).device(device.clone()).build().unwrap();
    let file = cache.open("f", options.write(true)).unwrap();
    (device, cache, file)
}

fn read(file: &File, offset: usize, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    let read = file.read_uncached_at(&mut bytes, offset as u64)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[test]
fn they_take_no_frame() {
    for io in BOTH {
        let (device, cache, file) = scene(io, anywhere(), OpenOptions::new());
        for turn in 1..3 {
            assert!(read(&file, 0, LEN + PAGE).unwrap() == content());
            let stats = cache.stats();
            // The last page is not whole.
            assert_eq!((stats.uncached_reads, stats.reads), (turn * PAGES as u64, 40 * turn + 1));
            assert_eq!((stats.misses, stats.hits), (40 * turn + 1, turn - 1), "{stats:?}");
            // Its end is looked for twice.
            assert_eq!((stats.read_ahead, device.counts("f").reads), (0, turn + 2));
        }
        // Of pages that are not asked for as a whole the cache keeps what it reads.
        assert!(read(&file, 10, RUN).unwrap() == content()[10..10 + RUN]);
        assert_eq!(cache.stats().uncached_reads, 2 * PAGES as u64 + 3);
    }
}

#[test]
fn pages_that_are_there_are_taken_from_the_cache() {
    for io in BOTH {
        let (_, cache, file) = scene(io, anywhere(), OpenOptions::new());
        file.advise(Advice::Random);
        let mut expected = content();
        for (page, byte) in [(0, 1), (7, 2), (8, 3), (39, 4)] {
            file.write_at(&[byte; PAGE], (page * PAGE) as u64).unwrap();
            expected[page * PAGE..(page + 1) * PAGE].fill(byte);
        }
        let pinned = file.page(PageNo(20)).unwrap();
        assert!(read(&file, 0, LEN).unwrap() == expected);
        assert_eq!(cache.stats().uncached_reads, PAGES as u64 - 5);
        drop(pinned);
        // What is on the device by now is read from there.
        file.sync_all().unwrap();
        file.invalidate(0..u64::MAX).unwrap();
        assert!(read(&file, 0, LEN).unwrap() == expected);
    }
}

#[test]
fn others_come_into_frames() {
    let usual = OpenOptions::new;
    let hooked = || usual().page_hook(Arc::new(Cipher));
    let buffered = || usual().direct(Direct::OrBuffered);
    let refusing = FaultPlan { refuse_direct: true, ..anywhere() };
    let ways = [
        ("not aligned", FaultPlan::default(), usual(), 1),
        ("a hook", anywhere(), hooked(), 0),
        ("the kernel's cache", refusing, buffered(), 0),
    ];
    for (name, plan, options, shift) in ways {
        let (_, cache, file) = scene(Io::Blocking, plan, options);
        let mut expected = content();
        if name == "a hook" {
            expected.resize((PAGES + 1) * PAGE, 0);
            Cipher::apply_all(&mut expected, PAGE);
            expected.truncate(LEN);
        }
        let mut memory = vec![0; LEN + PAGE];
        let aligned = memory.as_ptr().align_offset(512);
        let to = &mut memory[aligned + shift..][..LEN];
        assert_eq!(file.read_uncached_at(to, 0).unwrap(), LEN);
        assert!(*to == expected, "{name}");
        assert_eq!(cache.stats().uncached_reads, 0, "{name}");
        // Were it not for that, they would not be kept.
        if shift > 0 {
            file.invalidate(0..u64::MAX).unwrap();
            assert_eq!(file.read_uncached_at(&mut memory[aligned..][..LEN], 0).unwrap(), LEN);
            assert_eq!(cache.stats().uncached_reads, PAGES as u64);
        }
    }
}

/// Those who want the pages wait, and none of them for ever.
#[test]
fn a_page_does_not_change_while_it_is_read() {
    let _turn = turn();
    let reason = Reason::register("page-read");
    type Change = fn(&File, &mut Vec<u8>);
    let changes: [Change; 6] = [
        |file, expected| {
            file.write_at(&[9; 2 * PAGE], 3 * PAGE as u64).unwrap();
            expected[3 * PAGE..5 * PAGE].fill(9);
        },
        |file, expected| {
            file.write_at(b"new", 5).unwrap();
            expected[5..8].copy_from_slice(b"new");
        },
        |file, expected| {
            file.page_mut(PageNo(12)).unwrap().write(0, b"page");
            expected[12 * PAGE..][..4].copy_from_slice(b"page");
        },
        |file, expected| {
            file.punch_hole(20 * PAGE as u64..22 * PAGE as u64).unwrap();
            expected[20 * PAGE..22 * PAGE].fill(0);
        },
        |file, expected| {
            file.set_len(38 * PAGE as u64).unwrap();
            expected.truncate(38 * PAGE);
        },
        |file, expected| {
            file.set_len(38 * PAGE as u64 + 7).unwrap();
            file.write_at(&[8; 2 * PAGE], 39 * PAGE as u64).unwrap();
            expected[38 * PAGE + 7..39 * PAGE].fill(0);
            expected[39 * PAGE..].fill(8);
            expected.resize(41 * PAGE, 8);
        },
    ];
    for (io, change) in BOTH.into_iter().flat_map(|io| changes.map(|change| (io, change))) {
        let (device, _cache, file) = scene(io, anywhere(), OpenOptions::new());
        let before = Ledger::snapshot();
        let mut expected = content();
        device.block_reads();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&file, 0, LEN).unwrap());
            device.wait_for_held_reads(1);
            let changed = scope.spawn(|| change(&file, &mut expected));
            let others: Vec<_> =
                (0..8).map(|_| scope.spawn(|| read(&file, 10 * PAGE, 8 * PAGE).unwrap())).collect();
            let mut is_early = false;
            while Ledger::snapshot().since(&before).reason(reason).waits < 9 && !is_early {
                is_early = changed.is_finished();
                thread::yield_now();
            }
            device.release_reads();
            assert!(!is_early);
            let bytes = reader.join().unwrap();
            changed.join().unwrap();
            // Holes come while the device has not read. Where the file ends a cut may be seen.
            for (page, bytes) in bytes.chunks(PAGE).enumerate().take(38) {
                let hole = [0; PAGE];
                let at = page * PAGE..(page + 1) * PAGE;
                let is_hole = (20..22).contains(&page) && *bytes == hole;
                assert!(*bytes == content()[at] || is_hole, "{page}");
            }
            others.into_iter().for_each(|other| {
                let bytes = other.join().unwrap();
                // Before or after the change of a page.
                assert!(bytes[3 * PAGE..] == content()[13 * PAGE..18 * PAGE]);
            });
        });
        assert!(read(&file, 0, 2 * LEN).unwrap() == expected);
    }
}

/// They do not take turns to read it: one of them brings it in.
#[test]
fn many_who_read_the_same_read_it_twice_at_most() {
    let _turn = turn();
    const THREADS: usize = 32;
    let piece = 5 * PAGE..37 * PAGE;
    for io in BOTH {
        let (device, cache, file) = scene(io, anywhere(), OpenOptions::new());
        file.advise(Advice::Random);
        device.block_reads();
        thread::scope(|scope| {
            let read = || {
                let bytes = read(&file, piece.start, piece.len()).unwrap();
                assert!(bytes == content()[piece.clone()]);
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(read)).collect();
            while cache.stats().deduplicated_misses < THREADS as u64 - 1 {
                thread::yield_now();
            }
            device.release_reads();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(cache.stats().uncached_reads, 32);
        assert_eq!(device.counts("f").read_bytes, 2 * piece.len() as u64);
    }
}

/// One that reads the same all the time leaves what others wait for to them.
#[test]
fn a_page_that_was_waited_for_is_brought_in() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io, anywhere(), OpenOptions::new());
        file.advise(Advice::Random);
        let reason = Reason::register("page-read");
        let before = Ledger::snapshot();
        device.block_reads();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&file, 0, PAGES * PAGE).unwrap());
            device.wait_for_held_reads(1);
            // Which brings nothing in by itself.
            let puncher = scope.spawn(|| file.punch_hole(20 * PAGE as u64..21 * PAGE as u64));
            while Ledger::snapshot().since(&before).reason(reason).waits < 1 {
                thread::yield_now();
            }
            device.release_reads();
            reader.join().unwrap();
            puncher.join().unwrap().unwrap();
        });
        let stats = cache.stats();
        assert_eq!((stats.uncached_reads, stats.misses), (PAGES as u64, PAGES as u64 + 1));
    }
}

/// Readahead passes pages over that are being read so.
#[test]
fn readahead_leaves_them_alone() {
    let _turn = turn();
    let (device, cache, file) = scene(Io::Queued, anywhere(), OpenOptions::new());
    let other = cache.open("g", writable()).unwrap();
    other.write_at(&[1; FRAMES * PAGE], 0).unwrap();
    other.sync_all().unwrap();
    let before = cache.stats().evictions;
    device.block_reads();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&file, 0, LEN).unwrap());
        device.wait_for_held_reads(1);
        let pages: Vec<_> = (0..PAGES as u64).map(PageNo).collect();
        file.prefetch(&pages);
        device.release_reads();
        assert!(reader.join().unwrap() == content());
    });
    let stats = cache.stats();
    // For one attempt, and for the last page.
    assert!(stats.evictions - before <= 8 && stats.read_ahead == 0, "{stats:?}");
}

/// Each part but the first lies at an address that the device does not take.
#[test]
fn an_offset_within_a_page_costs_no_read_for_each_page() {
    let (device, cache, file) = scene(Io::Blocking, FaultPlan::default(), OpenOptions::new());
    let mut memory = vec![0; LEN + PAGE];
    let aligned = memory.as_ptr().align_offset(512);
    let to = &mut memory[aligned..][..20 * PAGE];
    assert_eq!(file.read_uncached_at(to, 10).unwrap(), 20 * PAGE);
    assert!(*to == content()[10..10 + 20 * PAGE]);
    assert_eq!(cache.stats().uncached_reads, 0);
    assert!(device.counts("f").reads <= 8, "{:?}", device.counts("f"));
}

#[test]
fn bad_input_is_refused_and_holds_nobody_up() {
    let (_, _cache, file) = scene(Io::Blocking, anywhere(), OpenOptions::new());
    assert_eq!(file.read_uncached_at(&mut [], 5).unwrap(), 0);
    assert_eq!(read(&file, LEN, PAGE).unwrap(), []);
    assert_eq!(read(&file, 3 * PAGE, 5).unwrap(), content()[3 * PAGE..3 * PAGE + 5]);
    assert!(matches!(read(&file, usize::MAX, PAGE), Err(Error::OutOfRange { .. })));
    let own = file.page_mut(PageNo(6)).unwrap();
    assert!(matches!(read(&file, 0, LEN), Err(Error::WouldDeadlock { .. })));
    drop(own);
    assert!(read(&file, 0, LEN).unwrap() == content());
}

#[test]
fn errors_are_those_of_other_reads() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io, anywhere(), OpenOptions::new());
        let failing = |read| FaultPlan { read, ..anywhere() };
        device.set_faults(failing(Failure::from(1)));
        match read(&file, RUN, LEN) {
            Err(Error::Io { operation: Operation::Read, offset, errno: Errno::IO, .. }) => {
                assert_eq!(offset, RUN as u64);
            }
            other => panic!("{other:?}"),
        }
        // Neither the pages nor the readers are held up by that.
        device.set_faults(failing(Failure::at(1)));
        assert!(read(&file, 0, LEN).unwrap() == content(), "a second read brings it");
        device.set_faults(FaultPlan { short_per_mille: 700, ..anywhere() });
        for _ in 0..8 {
            file.invalidate(0..u64::MAX).unwrap();
            assert!(read(&file, 0, LEN).unwrap() == content());
        }
        assert!(cache.stats().uncached_reads > 0);
    }
}

/// What the device has not been given yet is zeros.
#[test]
fn a_file_that_is_longer_than_on_the_device_is_read_to_its_end() {
    let _turn = turn();
    for io in BOTH {
        let (_, _cache, file) = scene(io, anywhere(), OpenOptions::new());
        file.write_at(&[5], (3 * LEN) as u64).unwrap();
        let mut expected = content();
        expected.resize(3 * LEN, 0);
        expected.push(5);
        assert!(read(&file, 0, 4 * LEN).unwrap() == expected);
    }
}

#[test]
fn the_device_cut_the_file() {
    for io in BOTH {
        let (device, _cache, file) = scene(io, anywhere(), OpenOptions::new());
        device.truncate("f", 8 * PAGE + 10);
        match read(&file, 0, LEN) {
            Err(Error::Truncated { offset, .. }) => assert_eq!(offset, 8 * PAGE as u64),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn real_devices_do_as_the_simulated_one() {
    let dir = real_dir();
    for (io, device) in real_devices() {
        let cache = Cache::builder().capacity(64 << 20).io(io).device(device).build().unwrap();
        let file = cache.open(dir.path().join("f"), writable()).unwrap();
        let bytes: Vec<u8> = (0..9 << 20).map(|at: u32| (at >> 4) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        file.invalidate(0..u64::MAX).unwrap();
        let mut memory = vec![0; bytes.len() + 4096];
        let aligned = memory.as_ptr().align_offset(4096);
        let to = &mut memory[aligned..][..bytes.len()];
        assert_eq!(file.read_uncached_at(to, 0).unwrap(), bytes.len());
        assert!(*to == bytes);
        assert_eq!(cache.stats().uncached_reads, 9 << 8);
        drop(file);
    }
}
