//! Files that are opened and closed while others are, and after guards of theirs were forgotten.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use unherd_cache::{Error, Io, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::DirectDevice;
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, close, real_dir, sim, small, turn, writable};

#[test]
fn forgotten_page_mut_hinders_no_open() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(90, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("a", writable()).unwrap();
        file.write_at(&[1; 1536], 0).unwrap();
        file.sync_all().unwrap();
        file.write_at(&[2; 1024], 0).unwrap();
        for page in 1..3 {
            let mut held = file.page_mut(PageNo(page)).unwrap();
            held.write(0, &[3; 512]);
            mem::forget(held);
        }
        // The first page can be written, the second was not since it changed, the third was.
        // Closing says that this thread holds pages, and the drop goes on without them.
        let held = close(file).unwrap_err();
        assert!(matches!(held, Error::WouldDeadlock { page: 1 | 2, .. }), "{io:?}: {held}");
        let other = cache.open("b", writable()).unwrap();
        other.write_at(&[4; 512], 0).unwrap();
        let file = cache.open("a", writable()).unwrap();
        let lost = file.sync_all().unwrap_err();
        assert!(matches!(lost, Error::LostWrites { pages: 1, offset: 512, .. }), "{io:?}: {lost}");
        let mut bytes = [0; 1536];
        file.read_at(&mut bytes, 0).unwrap();
        assert!(bytes[..512] == [2; 512] && bytes[512..] == [1; 1024], "{io:?}");
        file.write_at(&[5; 512], 512).unwrap();
        file.sync_all().unwrap();
        assert_eq!(device.durable_bytes("a").unwrap()[512..1024], [5; 512]);
        // Two frames are lost, and no more.
        let pages: Vec<_> = (0..6).map(|page| other.page(PageNo(page)).unwrap()).collect();
        drop(pages);
    }
}

/// It has announced a page, and waits for a frame.
#[test]
fn forgotten_future_hinders_no_open() {
    let _turn = turn();
    let device = sim(91, FaultPlan::default());
    device.put("a", &[1; 512]);
    let cache = small(8, 512).device(device).io(Io::Queued).build().unwrap();
    let other = cache.open("b", writable()).unwrap();
    let pins: Vec<_> = (0..8).map(|page| other.page(PageNo(page)).unwrap()).collect();
    let file = cache.open("a", writable()).unwrap();
    let mut future: Pin<Box<_>> = Box::pin(file.page_async(PageNo(0)));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    mem::forget(future);
    drop(file);
    drop(pins);
    let file = cache.open("a", writable()).unwrap();
    assert_eq!(file.page(PageNo(0)).unwrap()[..], [1; 512]);
}

#[test]
fn new_files_flush_directories_side_by_side() {
    let _turn = turn();
    let device = sim(92, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let old = cache.open("old", writable()).unwrap();
    device.block_creations();
    thread::scope(|scope| {
        let open = |path| cache.open(path, writable()).map(|file| file.len());
        let new = ["a", "b"].map(|path| scope.spawn(move || open(path)));
        device.wait_for_held_creations(2);
        // What needs no flush waits for none.
        drop(cache.open("old", writable().create(false)).unwrap());
        drop(old);
        // The length is that of the moment when the file is locked.
        device.append("a", &[1; 700]);
        device.release_creations();
        assert_eq!(new.map(|thread| thread.join().unwrap().unwrap()), [700, 0]);
    });
}

/// Openings of one file: it is there once, with one lock, no matter who comes first.
#[test]
fn one_file_opened_at_once_is_one() {
    let _turn = turn();
    for round in 0..50 {
        let device = sim(93 + round, FaultPlan { yields_max: 3, ..FaultPlan::default() });
        let cache = small(8, 512).device(device.clone()).build().unwrap();
        let options = writable().lock_wait(Duration::ZERO);
        thread::scope(|scope| {
            for number in 0..4u8 {
                let (cache, options) = (&cache, &options);
                scope.spawn(move || {
                    let at = 512 * u64::from(number);
                    for nth in 0..20 {
                        let file = cache.open("f", options.clone()).unwrap();
                        assert!(nth == 0 || file.len() >= at + 512, "it was longer");
                        file.write_at(&[number + 1; 512], at).unwrap();
                        drop(file);
                    }
                });
            }
        });
        let bytes = device.bytes("f").unwrap();
        for (number, page) in bytes.chunks(512).enumerate() {
            assert!(page.iter().all(|&byte| byte as usize == number + 1), "round {round}");
        }
    }
}

#[test]
fn lock_that_goes_in_time_is_waited_for() {
    let _turn = turn();
    let device = sim(94, FaultPlan::default());
    let one = small(8, 512).device(device.clone()).build().unwrap();
    let two = small(8, 512).device(device).build().unwrap();
    let file = one.open("f", writable()).unwrap();
    let at_once = two.open("f", writable().lock_wait(Duration::ZERO));
    assert!(matches!(at_once, Err(Error::Locked { .. })));
    let before = Ledger::snapshot();
    let reason = Reason::register("file-lock");
    let sleeps = || Ledger::snapshot().since(&before).reason(reason).waits;
    thread::scope(|scope| {
        let options = writable().lock_wait(Duration::from_secs(100));
        let opener = scope.spawn(move || two.open("f", options).map(drop));
        while sleeps() < 2 {
            thread::yield_now();
        }
        file.write_at(&[1; 512], 0).unwrap();
        drop(file);
        opener.join().unwrap().unwrap();
    });
}

#[test]
fn refused_open_leaves_no_file() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let refusing = Arc::new(DirectDevice::refusing_direct());
    let cache = small(8, 4096).device(refusing).build().unwrap();
    assert!(matches!(cache.open(&path, writable()), Err(Error::DirectRefused { .. })));
    assert!(!path.exists());
    // Pages that are smaller than what the device moves, if it moves no less than it says.
    let device = sim(
        95,
        FaultPlan {
            alignment: unherd_sys::Alignment { memory: 4096, offset: 4096 },
            ..FaultPlan::default()
        },
    );
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    assert!(matches!(cache.open("f", writable()), Err(Error::Misaligned { .. })));
    assert_eq!(device.bytes("f"), None);
}
