//! What clients of the cache need besides reads and writes.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_cache::{Error, OwnedPageGuard, PageNo};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{Failure, FaultPlan};

use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: PageNo = PageNo(1);

#[test]
fn exact_reads_fill_the_buffer_or_fail() {
    let _turn = turn();
    let cache = small(8, 512).device(sim(61, FaultPlan::default())).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.write_all_at(&[7; 1000], 24).unwrap();
    let mut buf = [0; 1000];
    file.read_exact_at(&mut buf, 24).unwrap();
    assert!(buf == [7; 1000]);
    file.read_exact_at(&mut [], 5000).unwrap();
    let ended = file.read_exact_at(&mut buf, 25).unwrap_err();
    let file = file.path().into();
    assert_eq!(ended, Error::UnexpectedEof { file, offset: 25, wanted: 1000, read: 999 });
    assert_eq!(ended.to_string(), "f ends after 999 of the 1000 bytes to read at offset 25");
    assert_eq!(std::io::Error::from(ended).kind(), ErrorKind::UnexpectedEof);
}

/// A write that stops in the middle goes on, and meets the error that stopped it.
#[test]
fn write_of_all_tells_what_stopped_it() {
    let _turn = turn();
    // The second page of the write is written in part, so it is read first, which fails.
    let device = sim(62, FaultPlan { read: Failure::from(1), ..FaultPlan::default() });
    let before = small(8, 512).device(device.clone()).build().unwrap();
    before.open("f", writable()).unwrap().write_all_at(&[9; 2048], 0).unwrap();
    let cache = small(8, 512).device(device).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    assert_eq!(file.write_at(&[1; 700], 0), Ok(512));
    match file.write_all_at(&[1; 700], 0) {
        Err(Error::Io { offset: 512, errno: Errno::IO, .. }) => {}
        other => panic!("{other:?}"),
    }
    let mut page = [0; 512];
    file.read_exact_at(&mut page, 0).unwrap();
    assert!(page == [1; 512]);
}

#[test]
fn owned_guard_outlives_its_handle() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(63, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = Arc::new(cache.open("f", writable()).unwrap());
        file.write_all_at(&[1; 1024], 0).unwrap();
        let guard = file.page_owned(PAGE).unwrap();
        file.write_all_at(&[2; 1024], 0).unwrap();
        drop((file, cache));
        let read = |guard: OwnedPageGuard| guard.to_vec();
        assert!(thread::spawn(move || read(guard)).join().unwrap() == [1; 512]);
        // It was the last share: the file was written back and closed.
        assert!(device.bytes("f").unwrap() == [2; 1024]);
        let cache = small(8, 512).device(device).build().unwrap();
        cache.open("f", writable()).unwrap();
    }
}

#[test]
fn page_is_changed_in_place() {
    let _turn = turn();
    let cache = small(8, 512).device(sim(64, FaultPlan::default())).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.write_all_at(&[9; 1024], 0).unwrap();
    let mut model = [9; 512];
    let mut page = file.page_mut(PAGE).unwrap();
    page.write_u16(0, 0x0102);
    page.write_u32(2, 0x0304_0506);
    page.write_u64(6, 0x0708_090a_0b0c_0d0e);
    model[..2].copy_from_slice(&0x0102_u16.to_ne_bytes());
    model[2..6].copy_from_slice(&0x0304_0506_u32.to_ne_bytes());
    model[6..14].copy_from_slice(&0x0708_090a_0b0c_0d0e_u64.to_ne_bytes());
    for (from, to) in [(0..14, 3), (3..17, 0), (0..0, 512), (500..512, 0)] {
        page.copy_within(from.clone(), to);
        model.copy_within(from, to);
    }
    page.fill(100..400, 4);
    model[100..400].fill(4);
    assert!(page[..] == model);
    for panics in [
        catch_unwind(AssertUnwindSafe(|| page.fill(500..513, 1))),
        catch_unwind(AssertUnwindSafe(|| page.copy_within(0..2, 511))),
        catch_unwind(AssertUnwindSafe(|| page.copy_within(511..513, 0))),
        catch_unwind(AssertUnwindSafe(|| page.write_u64(505, 1))),
    ] {
        assert!(panics.is_err());
    }
    assert!(page[..] == model);
    drop(page);
    assert_eq!(file.peek(PAGE, |page| page.get_u64(6)), {
        Ok(u64::from_ne_bytes(model[6..14].try_into().unwrap()))
    });
    file.page_mut(PAGE).unwrap().fill(0..512, 0);
    file.page_mut(PAGE).unwrap().abandon();
    let mut page = file.page_mut(PAGE).unwrap();
    page.copy_within(0..256, 256);
    page.fill(0..10, 1);
    page.abandon();
    assert!(file.page(PAGE).unwrap()[..] == [0; 512]);
}
