//! Pages that are held back until their log is durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use proptest::prelude::*;
use unherd_cache::{Advice, Cache, Error, File, Io, PageNo};
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering, thread};
use unherd_sys::{Errno, Timestamp};
use unherd_testkit::{FaultPlan, Seed, SimDevice};

use crate::scene::{BOTH, cases, close, sim, small, turn, writable};

const PAGE: usize = 512;
const FRAMES: usize = 64;
/// A quarter of the frames.
const HELD_MAX: u64 = FRAMES as u64 / 4;

fn scene(io: Io) -> (Arc<SimDevice>, Cache, File) {
    let device = sim(90, FaultPlan::default());
    device.put("f", &[0; PAGE * 40]);
    device.put("other", &[0; PAGE * 200]);
    let cache = small(FRAMES, PAGE).device(device.clone()).io(io).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    (device, cache, file)
}

/// Writes the number all over the page, held until `lsn`.
fn change(file: &File, page: u64, lsn: u64) -> Result<(), Error> {
    let mut page = file.page_mut(PageNo(page))?;
    page.hold_until(lsn)?;
    page.fill(0..PAGE, lsn as u8);
    Ok(())
}

fn on_device(device: &SimDevice, page: usize) -> u8 {
    device.bytes("f").unwrap()[page * PAGE]
}

fn is_held(error: &Error, page: u64, lsn: u64, released: u64) -> bool {
    let expected = (page, lsn, released);
    matches!(error, Error::Held { page, lsn, released, .. } if (*page, *lsn, *released) == expected)
}

/// By a release between a sync's look at the page and its end.
#[test]
fn a_page_that_was_released_meanwhile_is_no_error() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io);
        device.set_faults(FaultPlan { yields_max: 8, ..FaultPlan::default() });
        let changed = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for lsn in 1..=3000 {
                    change(&file, 5, lsn).unwrap();
                    thread::yield_now();
                    file.release_to(lsn);
                    changed.store(lsn, Ordering::Relaxed);
                }
            });
            // So that a sync has more to do than this page.
            for nth in (0..u64::MAX).take_while(|_| changed.load(Ordering::Relaxed) < 3000) {
                file.write_at(&[1; PAGE], (6 + nth % 8) * PAGE as u64).unwrap();
                match if nth % 2 == 0 { file.sync_all() } else { file.write_back() } {
                    Ok(()) => {}
                    Err(Error::Held { page: 5, lsn, released, .. }) => assert!(lsn > released),
                    Err(error) => panic!("{io:?}: {error}"),
                }
            }
        });
    }
}

#[test]
fn nobody_writes_a_held_page() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io);
        change(&file, 5, 7).unwrap();
        file.write_at(&[1; PAGE], 20 * PAGE as u64).unwrap();
        let error = file.sync_all().unwrap_err();
        assert!(is_held(&error, 5, 7, 0), "{io:?}: {error}");
        assert!(device.durable_bytes("f").unwrap()[20 * PAGE..][..PAGE] == [1; PAGE], "the rest");
        assert!(is_held(&file.write_back().unwrap_err(), 5, 7, 0), "{io:?}");
        // Who does not want it is not told; nor is another handle, as this is no failure.
        file.sync_range(0..5 * PAGE as u64).unwrap();
        file.sync_range(6 * PAGE as u64..u64::MAX).unwrap();
        let page = 5 * PAGE as u64;
        assert!(is_held(&file.sync_range(page..page + 1).unwrap_err(), 5, 7, 0), "{io:?}");
        // A stream that goes over it, which leaves it held; pages in want of frames, and of room.
        for page in 0..40 {
            file.write_at(&[2; PAGE], page * PAGE as u64).unwrap();
        }
        let other = cache.open("other", writable()).unwrap();
        for page in 0..200 {
            drop(other.page(PageNo(page)).unwrap());
            other.write_at(&[3; PAGE], page * PAGE as u64).unwrap();
        }
        assert!(cache.stats().evictions > 100, "{io:?}");
        assert_eq!(on_device(&device, 5), 0, "{io:?}");
        file.release_to(6);
        assert!(is_held(&file.sync_all().unwrap_err(), 5, 7, 6), "{io:?}");
        file.release_to(7);
        file.release_to(1);
        file.sync_all().unwrap();
        assert!(device.durable_bytes("f").unwrap() == [2; PAGE * 40], "{io:?}");
    }
}

#[test]
fn a_quarter_of_the_frames_may_be_held() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io);
        (0..HELD_MAX).for_each(|page| change(&file, page, 9).unwrap());
        let refused = change(&file, 30, 9).unwrap_err();
        assert!(matches!(refused, Error::TooManyHeld { page: 30, held: 16, .. }), "{refused}");
        // Changes that came before the refusal are given up.
        let mut page = file.page_mut(PageNo(30)).unwrap();
        page.write(0, &[1; 100]);
        page.hold_until(10).unwrap_err();
        drop(page);
        assert!(file.page(PageNo(30)).unwrap()[..] == [0; PAGE]);
        // What is held already may be changed again; others find frames, and room.
        change(&file, 0, 10).unwrap();
        let other = cache.open("other", writable()).unwrap();
        for page in 0..200 {
            other.write_at(&[3; PAGE], page * PAGE as u64).unwrap();
        }
        other.sync_all().unwrap();
        file.release_to(9);
        (20..20 + HELD_MAX - 1).for_each(|page| change(&file, page, 11).unwrap());
        change(&file, 39, 11).unwrap_err();
        file.release_to(11);
        file.sync_all().unwrap();
        assert_eq!((on_device(&device, 0), on_device(&device, 1)), (10, 9), "{io:?}");
    }
}

#[test]
fn changes_that_are_given_up_hold_nothing() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io);
        for _ in 0..2 * HELD_MAX {
            let mut page = file.page_mut(PageNo(1)).unwrap();
            page.hold_until(5).unwrap();
            page.fill(0..PAGE, 5);
            page.abandon();
            file.page_mut(PageNo(2)).unwrap().hold_until(5).unwrap();
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let mut page = file.page_mut(PageNo(50)).unwrap();
                page.hold_until(5).unwrap();
                page.fill(0..PAGE, 5);
                panic!("as a hook of the caller might");
            }));
            unwound.unwrap_err();
        }
        file.sync_all().unwrap();
        // A hold that was raised falls back to what it was.
        change(&file, 3, 5).unwrap();
        let mut page = file.page_mut(PageNo(3)).unwrap();
        page.hold_until(8).unwrap();
        page.hold_until(6).unwrap();
        page.fill(0..PAGE, 8);
        page.abandon();
        assert!(is_held(&file.sync_all().unwrap_err(), 3, 5, 0), "{io:?}");
        // Released while it is being changed.
        let mut page = file.page_mut(PageNo(3)).unwrap();
        page.hold_until(9).unwrap();
        page.fill(0..PAGE, 9);
        file.release_to(9);
        drop(page);
        let page = file.page_mut(PageNo(3)).unwrap();
        drop(page);
        file.sync_all().unwrap();
        assert_eq!(on_device(&device, 3), 9, "{io:?}");
        // Numbers that were released hold nothing.
        change(&file, 3, 9).unwrap();
        file.sync_all().unwrap();
    }
}

#[test]
fn pages_that_are_cut_off_are_held_no_more() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io);
        for _ in 0..2 {
            (0..HELD_MAX).for_each(|page| change(&file, 20 + page, 5).unwrap());
            file.set_len(20 * PAGE as u64).unwrap();
            file.sync_all().unwrap();
        }
        // The one in which the file ends stays held.
        change(&file, 3, 5).unwrap();
        file.set_len(3 * PAGE as u64 + 7).unwrap();
        assert!(is_held(&file.sync_all().unwrap_err(), 3, 5, 0), "{io:?}");
        file.release_to(5);
        file.sync_all().unwrap();
        assert_eq!(device.durable_bytes("f").unwrap()[3 * PAGE..], [5; 7], "{io:?}");
    }
}

#[test]
fn closing_says_what_is_held_and_the_next_opener_what_is_lost() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io);
        change(&file, 5, 7).unwrap();
        change(&file, 6, 7).unwrap();
        file.write_at(&[1; PAGE], 0).unwrap();
        assert!(is_held(&close(file).unwrap_err(), 5, 7, 0), "{io:?}");
        assert_eq!((on_device(&device, 0), on_device(&device, 5)), (1, 0), "{io:?}");
        let file = cache.open("f", writable()).unwrap();
        let lost = file.sync_all().unwrap_err();
        assert!(matches!(lost, Error::LostWrites { pages: 2, offset: 2560, .. }), "{lost}");
        file.sync_all().unwrap();
        // The count of held pages is what it was.
        (0..HELD_MAX).for_each(|page| change(&file, page, 5).unwrap());
        file.release_to(5);
        close(file).unwrap();
        assert_eq!(on_device(&device, 5), 5, "{io:?}");
    }
}

#[derive(Debug, Clone)]
enum Op {
    Change { page: u64, is_pinned: bool },
    Write { page: u64 },
    Abandon { page: u64 },
    Release { back: u64 },
    Sync { pages: u64 },
    ReadOthers,
    Cut { page: u64 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let page = || 0..20_u64;
    let op = prop_oneof![
        6 => (page(), any::<bool>()).prop_map(|(page, is_pinned)| Op::Change { page, is_pinned }),
        1 => page().prop_map(|page| Op::Write { page }),
        1 => page().prop_map(|page| Op::Abandon { page }),
        3 => (0..4_u64).prop_map(|back| Op::Release { back }),
        2 => page().prop_map(|pages| Op::Sync { pages }),
        1 => Just(Op::ReadOthers),
        1 => page().prop_map(|page| Op::Cut { page }),
    ];
    prop::collection::vec(op, 1..60)
}

/// After each step the device has of each page a version whose log is durable; and when all is
/// released, the last.
fn run(io: Io, seed: u64, ops: &[Op]) {
    let plan = FaultPlan { held_reaps_max: 2, reorder: true, ..FaultPlan::default() };
    let device = sim(seed, plan);
    device.put("other", &[0; PAGE * 40]);
    let cache = small(24, PAGE).device(device.clone()).io(io).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let other = cache.open("other", writable()).unwrap();
    let (mut lsn, mut released) = (0, 0);
    let mut expected = [0_u8; 20];
    for op in ops {
        match op.clone() {
            Op::Change { page, is_pinned } => {
                let pin = is_pinned.then(|| file.page(PageNo(page)).unwrap());
                lsn += 1;
                match change(&file, page, lsn) {
                    Ok(()) => expected[page as usize] = lsn as u8,
                    Err(Error::TooManyHeld { held: 6, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                drop(pin);
            }
            Op::Write { page } => {
                file.write_at(&[expected[page as usize]; PAGE], page * PAGE as u64).unwrap();
            }
            Op::Abandon { page } => {
                let mut page = file.page_mut(PageNo(page)).unwrap();
                if page.hold_until(lsn + 1).is_ok() {
                    page.fill(0..PAGE, u8::MAX);
                }
                page.abandon();
            }
            Op::Release { back } => {
                released = released.max(lsn.saturating_sub(back));
                file.release_to(released);
            }
            Op::Sync { pages } => match file.sync_range(0..pages * PAGE as u64) {
                Ok(()) => {
                    let durable = device.durable_bytes("f").unwrap();
                    for page in 0..(pages as usize).min(durable.len() / PAGE) {
                        assert_eq!(durable[page * PAGE], expected[page], "page {page} {io:?}");
                    }
                }
                Err(Error::Held { page, .. }) => assert!(page < pages),
                Err(error) => panic!("{error}"),
            },
            Op::ReadOthers => (0..40).for_each(|page| drop(other.page(PageNo(page)).unwrap())),
            Op::Cut { page } => {
                file.set_len(page * PAGE as u64).unwrap();
                expected[page as usize..].fill(0);
            }
        }
        for (page, bytes) in device.bytes("f").unwrap().chunks(PAGE).enumerate() {
            let early = bytes.iter().find(|&&byte| u64::from(byte) > released);
            assert_eq!(early, None, "page {page} after {op:?}, released to {released}");
        }
    }
    file.release_to(lsn);
    file.sync_all().unwrap();
    for (page, bytes) in device.durable_bytes("f").unwrap().chunks(PAGE).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == expected[page]), "page {page}: {io:?}");
    }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn the_device_has_no_page_before_its_log(seed: u64, ops in ops()) {
        let _turn = turn();
        BOTH.iter().for_each(|&io| run(io, seed, &ops));
    }
}

#[test]
fn holds_and_releases_of_many_threads_lose_no_page() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io);
        file.advise(Advice::Random);
        let (lsn, mut released) = (AtomicU64::new(0), 0);
        let other = cache.open("other", writable()).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..3 {
                let (file, lsn, stop) = (&file, &lsn, &stop);
                scope.spawn(move || {
                    let mut seed = Seed::new(thread);
                    while !stop.load(Ordering::Relaxed) {
                        let mut page = file.page_mut(PageNo(seed.below(40))).unwrap();
                        let number = lsn.fetch_add(1, Ordering::Relaxed) + 1;
                        if page.hold_until(number).is_ok() {
                            page.write_u64(0, number);
                        }
                    }
                });
            }
            for _ in 0..200 {
                // What is on the device now was released before now.
                let bytes = device.bytes("f").unwrap();
                for page in bytes.chunks(PAGE) {
                    let number = u64::from_le_bytes(page[..8].try_into().unwrap());
                    assert!(number <= released, "{io:?}: {number} of {released}");
                }
                while lsn.load(Ordering::Relaxed) < released + 10 {
                    thread::yield_now();
                }
                released = lsn.load(Ordering::Relaxed) - 3;
                file.release_to(released);
                let synced = file.sync_all();
                assert!(matches!(synced, Ok(()) | Err(Error::Held { .. })), "{synced:?}");
                (0..60).for_each(|page| drop(other.page(PageNo(page)).unwrap()));
            }
            stop.store(true, Ordering::Relaxed);
        });
        file.release_to(u64::MAX);
        file.sync_all().unwrap();
        let mut read = vec![0; PAGE * 40];
        file.read_at(&mut read, 0).unwrap();
        assert!(device.durable_bytes("f").unwrap() == read, "{io:?}");
        // None is counted as held any more: with that number all may be held again.
        drop(file);
        let file = cache.open("f", writable()).unwrap();
        (0..HELD_MAX).for_each(|page| change(&file, page, 1).unwrap());
    }
}

/// The device has the older version of a page, and the newer is held.
#[test]
fn a_sync_waits_for_the_write_of_what_was_there_before_the_hold() {
    let _turn = turn();
    let (device, _cache, file) = scene(Io::Queued);
    file.advise(Advice::Random);
    device.block_queued_writes();
    // Two runs, which the queue is given.
    for page in [3, 20] {
        file.write_all_at(&[1; PAGE], page * PAGE as u64).unwrap();
    }
    thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync_all());
        while device.queued_writes() < 2 {
            thread::yield_now();
        }
        [3, 20].into_iter().for_each(|page| change(&file, page, 7).unwrap());
        let until = Timestamp::now().after(Duration::from_millis(50));
        while Timestamp::now() < until {
            assert!(!syncing.is_finished(), "its writes are under way");
            thread::yield_now();
        }
        device.release_queued_writes();
        let error = syncing.join().unwrap();
        assert!(error.is_ok() || is_held(error.as_ref().unwrap_err(), 3, 7, 0), "{error:?}");
    });
    let durable = device.durable_bytes("f").unwrap();
    assert_eq!([3, 20].map(|page| durable[page * PAGE]), [1, 1]);
}

#[test]
fn a_close_waits_for_the_write_of_what_was_there_before_the_hold() {
    let _turn = turn();
    let (device, cache, file) = scene(Io::Queued);
    let other = cache.open("other", writable()).unwrap();
    [&file, &other].into_iter().for_each(|file| file.advise(Advice::Random));
    device.block_queued_writes();
    file.write_all_at(&[1; PAGE], 3 * PAGE as u64).unwrap();
    let mut page = 0;
    while device.queued_writes() == 0 {
        drop(other.page(PageNo(page % 200)).unwrap());
        page += 1;
    }
    change(&file, 3, 7).unwrap();
    thread::scope(|scope| {
        // The device refuses to be closed under a transfer.
        let dropped = scope.spawn(|| drop(file));
        let until = Timestamp::now().after(Duration::from_millis(50));
        while Timestamp::now() < until {
            assert!(!dropped.is_finished(), "a write is under way");
            thread::yield_now();
        }
        device.release_queued_writes();
        dropped.join().unwrap();
    });
    assert_eq!(on_device(&device, 3), 1);
}

/// What is written after that does not make the file as long as what was given up.
#[test]
fn what_is_given_up_makes_no_file_longer() {
    let (_device, _cache, file) = scene(Io::Blocking);
    for page in 0..HELD_MAX {
        change(&file, page, 7).unwrap();
    }
    let end = file.len();
    let mut page = file.page_mut(PageNo(end / PAGE as u64)).unwrap();
    page.write(0, &[1; 100]);
    assert!(matches!(page.hold_until(7), Err(Error::TooManyHeld { .. })));
    page.write(0, &[1]);
    drop(page);
    assert_eq!(file.len(), end + 1);
}

/// A page that is released while the writes of its file fail is dirty, and not failed: a waiter for
/// a frame looks again all the same when they may be tried again.
#[test]
fn a_page_released_in_a_failing_file_keeps_nobody_waiting() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(23, FaultPlan::default());
        let cache = small(16, 512).device(device.clone()).io(io).build().unwrap();
        let [bad, good] = ["bad", "good"].map(|name| cache.open(name, writable()).unwrap());
        let held: Vec<_> = (20..24)
            .map(|page| {
                good.write_all_at(&[1; 512], page * 512).unwrap();
                good.sync_all().unwrap();
                good.page(PageNo(page)).unwrap()
            })
            .collect();
        let mut page = bad.page_mut(PageNo(0)).unwrap();
        page.hold_until(1).unwrap();
        page.write(0, &[1; 512]);
        drop(page);
        device.refuse_writes("bad", Some(Errno::IO));
        let mut pages = 1..;
        while let Some(page) = pages.next()
            && bad.write_at(&[1; 512], page * 512).is_ok()
        {}
        bad.release_to(1);
        thread::scope(|scope| {
            let reader = scope.spawn(|| good.page(PageNo(30)).map(drop));
            let end = Timestamp::now().after(Duration::from_millis(20));
            while Timestamp::now() < end {
                thread::yield_now();
            }
            device.refuse_writes("bad", None);
            assert_eq!(reader.join().unwrap(), Ok(()), "{io:?}");
        });
        drop(held);
    }
}
