//! Pages that one thread holds to change them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_cache::{Error, File, PageNo};
use unherd_sys::primitives::thread;
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: PageNo = PageNo(1);

#[test]
fn changes_are_seen_together_when_it_is_dropped() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(21, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[1; 1024], 0).unwrap();
        let before = file.page(PAGE).unwrap();
        let mut page = file.page_mut(PAGE).unwrap();
        assert!(page[..] == [1; 512]);
        page.write(0, &[2; 200]);
        let read = |file: &File| {
            let mut bytes = [0; 512];
            file.read_at(&mut bytes, 512).map(|_| bytes)
        };
        let seen = thread::scope(|scope| {
            let reader = scope.spawn(|| read(&file));
            let pinner = scope.spawn(|| file.page(PAGE).map(|page| page.to_vec()));
            for _ in 0..100 {
                thread::yield_now();
            }
            page.write(200, &[2; 312]);
            assert!(page[..] == [2; 512]);
            drop(page);
            (reader.join().unwrap().unwrap(), pinner.join().unwrap().unwrap())
        });
        assert!(seen.0 == [2; 512] && seen.1 == [2; 512]);
        assert!(before[..] == [1; 512], "a pinned page has changed");
        drop(before);
        file.sync_all().unwrap();
        assert!(device.bytes("f").unwrap()[512..] == [2; 512]);
    }
}

/// Every call that would wait for what its own thread holds says so, and does nothing.
#[test]
fn a_thread_does_not_wait_for_itself() {
    let _turn = turn();
    let cache = small(8, 512).device(sim(22, FaultPlan::default())).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let other = cache.open("g", writable()).unwrap();
    file.write_at(&[1; 2048], 0).unwrap();
    let mut page = file.page_mut(PAGE).unwrap();
    let refused = |result: Result<(), Error>| {
        let expected = Error::WouldDeadlock { file: file.path().into(), page: PAGE.0 };
        assert_eq!(result, Err(expected));
    };
    refused(file.read_at(&mut [0; 8], 512).map(|_| ()));
    refused(file.read_at(&mut [0; 600], 0).map(|_| ()));
    refused(file.page(PAGE).map(|_| ()));
    refused(file.page_mut(PAGE).map(|_| ()));
    refused(file.write_at(&[7; 8], 600).map(|_| ()));
    refused(file.set_len(0));
    refused(file.set_len(9000));
    refused(file.sync_all());
    refused(cache.open("f", writable().truncate(true)).map(|_| ()));
    // What has nothing to do with it works.
    assert_eq!(file.len(), 2048);
    file.write_at(&[3; 512], 1024).unwrap();
    let mut second = file.page_mut(PageNo(3)).unwrap();
    second.write(0, &[4]);
    other.write_at(&[1; 5000], 0).unwrap();
    other.set_len(100).unwrap();
    other.sync_all().unwrap();
    page.write(1, &[9]);
    drop(page);
    let mut expected = [1; 2048];
    expected[513] = 9;
    expected[1024..1536].fill(3);
    let mut got = [0; 2048];
    // Of another page it is told too.
    assert!(matches!(file.read_at(&mut got, 0), Err(Error::WouldDeadlock { page: 3, .. })));
    drop(second);
    expected[1536] = 4;
    file.sync_all().unwrap();
    file.set_len(2047).unwrap();
    assert_eq!(file.read_at(&mut got, 0).unwrap(), 2047);
    assert!(got[..2047] == expected[..2047]);
}

/// Who holds a page writes elsewhere in the file while another waits to change the file's length.
#[test]
fn a_holder_writes_while_another_changes_the_length() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(23, FaultPlan::default());
        let cache = small(12, 512).device(device).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        thread::scope(|scope| {
            for number in 0..2_u64 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..1500 {
                        let mut page = file.page_mut(PageNo(number)).unwrap();
                        page.write(0, &[1; 9]);
                        file.write_at(&[2; 700], 2048 + round % 3 * 512).unwrap();
                        drop(file.page_mut(PageNo(10 + number)).unwrap());
                    }
                });
            }
            for number in 0..2_u64 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..1500 {
                        file.set_len(700 + number * 2000 + round % 5).unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn pages_beyond_the_end_leave_nothing_unless_written() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(24, FaultPlan::default());
        let cache = small(4, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        for page in 0..20 {
            let held = file.page_mut(PageNo(page)).unwrap();
            assert!(held[..] == [0; 512]);
        }
        assert_eq!(file.len(), 0);
        file.page_mut(PageNo(2)).unwrap().write(10, &[5; 3]);
        assert_eq!(file.len(), 1024 + 13);
        file.sync_all().unwrap();
        let bytes = device.bytes("f").unwrap();
        assert_eq!((bytes.len(), &bytes[1030..]), (1037, &[0, 0, 0, 0, 5, 5, 5][..]));
        drop(file);
    }
}

#[test]
fn a_holder_that_unwinds_lets_go() {
    let _turn = turn();
    let cache = small(8, 512).device(sim(25, FaultPlan::default())).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.write_at(b"before", 512).unwrap();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let mut page = file.page_mut(PAGE).unwrap();
        page.write(0, b"half");
        page.write(510, b"too long");
    }));
    assert!(unwound.is_err());
    let mut bytes = [0; 4];
    file.read_at(&mut bytes, 512).unwrap();
    assert_eq!(&bytes, b"befo");
    file.set_len(3).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn pages_that_may_not_be_held() {
    let _turn = turn();
    let device = sim(26, FaultPlan::default());
    device.put("f", &[1; 600]);
    let cache = small(8, 512).device(device).build().unwrap();
    let file = cache.open("f", unherd_cache::OpenOptions::new()).unwrap();
    assert!(matches!(file.page_mut(PageNo(0)), Err(Error::ReadOnly { .. })));
    drop(file);
    let file = cache.open("f", writable()).unwrap();
    for page in [u64::MAX, u64::MAX / 512, i64::MAX as u64 / 512] {
        assert!(matches!(file.page_mut(PageNo(page)), Err(Error::OutOfRange { .. })));
    }
}

#[test]
fn changes_are_given_up_when_the_thread_unwinds() {
    let _turn = turn();
    for is_dirty in [false, true] {
        let device = sim(26, FaultPlan::default());
        device.put("f", &[1; 700]);
        let cache = small(8, 512).device(device.clone()).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        if is_dirty {
            file.write_at(&[2; 100], 0).unwrap();
        }
        let before = file.page(PageNo(0)).unwrap().to_vec();
        let panics = || {
            let mut first = file.page_mut(PageNo(0)).unwrap();
            let mut beyond = file.page_mut(PageNo(3)).unwrap();
            for _ in 0..10 {
                first.write(10, &[9; 200]);
                first.write(150, &[8; 300]);
            }
            beyond.write(0, &[9]);
            panic!("half-way");
        };
        let unwound = catch_unwind(AssertUnwindSafe(panics));
        assert!(unwound.is_err());
        assert!(file.page(PageNo(0)).unwrap()[..] == before[..], "dirty before: {is_dirty}");
        assert_eq!(file.len(), 700);
        file.sync_all().unwrap();
        assert!(device.bytes("f").unwrap()[..512] == before[..]);
        assert_eq!(device.counts("f").writes, u64::from(is_dirty), "nothing else was dirty");
    }
}

#[test]
fn a_guard_that_is_not_used_dirties_nothing() {
    let _turn = turn();
    let device = sim(27, FaultPlan::default());
    device.put("f", &[1; 512]);
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    drop(file.page_mut(PageNo(0)).unwrap());
    let mut page = file.page_mut(PageNo(0)).unwrap();
    page.write(0, &[2; 512]);
    page.abandon();
    file.sync_all().unwrap();
    assert_eq!(device.counts("f").writes, 0);
    assert_eq!(device.bytes("f").unwrap(), [1; 512]);
}

#[test]
fn a_close_skips_pages_being_changed() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(29, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let (file, other) = (cache.open("f", writable()).unwrap(), cache.open("f", writable()));
        file.write_at(&[1; 1024], 0).unwrap();
        let mut page = file.page_mut(PAGE).unwrap();
        page.fill(0..512, 2);
        thread::scope(|scope| {
            let closed = scope.spawn(|| other.as_ref().map(File::close));
            assert_eq!(closed.join().unwrap(), Ok(Ok(())), "{io:?}");
        });
        assert!(device.bytes("f").unwrap() == [1; 512], "{io:?}");
        drop(page);
        drop((file, other));
        let written = device.bytes("f").unwrap();
        assert!(written[..512] == [1; 512] && written[512..] == [2; 512], "{io:?}");
    }
}
