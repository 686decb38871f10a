//! A file that cannot be written, and those that can.

use std::time::Duration;

use unherd_cache::{Cache, Error, File, Io, Operation, PageNo};
use unherd_sys::primitives::Arc;
use unherd_sys::{Errno, Timestamp};
use unherd_testkit::{FaultPlan, SimDevice};

use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: usize = 512;

/// A file that has no space left, and one that is well.
fn full(io: Io, frames: usize) -> (Arc<SimDevice>, Cache, File, File) {
    let device = sim(70, FaultPlan::default());
    device.put("healthy", &[1; PAGE * 200]);
    let builder = small(frames, PAGE).device(device.clone()).io(io);
    let cache = builder.frame_wait(Duration::from_millis(500)).build().unwrap();
    let full = cache.open("full", writable()).unwrap();
    let healthy = cache.open("healthy", writable()).unwrap();
    device.refuse_writes("full", Some(Errno::NOSPC));
    (device, cache, full, healthy)
}

fn is_no_space(error: &Error) -> bool {
    matches!(error, Error::Io { operation: Operation::Write, errno: Errno::NOSPC, .. })
}

#[test]
fn a_full_device_leaves_frames_to_other_files() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, full, healthy) = full(io, 64);
        let written = full.write_at(&[5; PAGE * 64], 0).unwrap();
        assert_eq!(written, PAGE * 48, "{io:?}: three quarters of the frames");
        for round in 0..1000 {
            let error = full.write_at(&[5; PAGE], written as u64).unwrap_err();
            assert!(is_no_space(&error), "{io:?}: {error}");
            let page = round % 200;
            assert_eq!(healthy.page(PageNo(page)).unwrap().len(), PAGE);
            healthy.write_at(&[2; PAGE], page * PAGE as u64).unwrap();
        }
        healthy.sync_all().unwrap();
        // A second file that fails leaves some, too.
        let other = cache.open("other", writable()).unwrap();
        device.refuse_writes("other", Some(Errno::NOSPC));
        assert_eq!(other.write_at(&[5; PAGE * 64], 0), Ok(PAGE * 12));
        (0..200).for_each(|page| drop(healthy.page(PageNo(page)).unwrap()));
        device.refuse_writes("full", None);
        device.refuse_writes("other", None);
        let _ = (full.sync_all(), other.sync_all());
        full.sync_all().unwrap();
        other.sync_all().unwrap();
        assert!(device.bytes("full").unwrap() == [5; PAGE * 48]);
    }
}

#[test]
fn failing_writes_are_repeated_at_a_bounded_rate() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, full, healthy) = full(io, 64);
        let written = full.write_at(&[5; PAGE * 64], 0).unwrap() as u64;
        let (began, before) = (Timestamp::now(), device.counts("full").writes);
        for page in 0..20_000 {
            full.write_at(&[5; PAGE], written).unwrap_err();
            drop(healthy.page(PageNo(page % 200)).unwrap());
        }
        let allowed = Timestamp::now().since(began).as_millis() as u64 / 100 + 2;
        let repeated = device.counts("full").writes - before;
        assert!(repeated <= allowed * 2, "{io:?}: {repeated} writes, {allowed} periods");
        drop(cache);
    }
}

#[test]
fn a_sync_stops_when_no_space_is_left() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, full, _healthy) = full(io, 512);
        // Each of its pages is a transfer of its own.
        for page in (0..300).step_by(3) {
            full.write_at(&[5; PAGE], page * PAGE as u64).unwrap();
        }
        let error = full.sync_all().unwrap_err();
        assert!(is_no_space(&error), "{error}");
        let writes = device.counts("full").writes;
        assert!(writes <= 20, "{io:?}: {writes} of 100 pages were tried");
    }
}

#[test]
fn a_sync_names_the_first_offset_that_failed() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, full, _healthy) = full(io, 512);
        device.refuse_writes("full", Some(Errno::IO));
        for page in (6..60).step_by(3) {
            full.write_at(&[5; PAGE], page * PAGE as u64).unwrap();
        }
        match full.sync_all().unwrap_err() {
            Error::Io { operation: Operation::Write, offset: 3072, errno: Errno::IO, .. } => {}
            error => panic!("{io:?}: {error}"),
        }
    }
}

#[test]
fn missing_frames_name_the_write_that_failed() {
    let _turn = turn();
    let (_device, _cache, full, healthy) = full(Io::Blocking, 8);
    let written = full.write_at(&[5; PAGE * 8], 0).unwrap();
    full.write_at(&[5; PAGE], written as u64).unwrap_err();
    let guards: Vec<_> = (0..2).map(|page| healthy.page(PageNo(page)).unwrap()).collect();
    let error = healthy.page(PageNo(2)).map(|_| ()).unwrap_err();
    drop(guards);
    match &error {
        Error::NoFrames { unwritten: 6, pinned: 2, write_error: Some(cause), .. } => {
            assert!(is_no_space(cause), "{cause}");
        }
        other => panic!("{other}"),
    }
    assert!(
        error.to_string().contains("write of full at offset 0 failed: No space left"),
        "{error}"
    );
    assert!(error.to_string().contains("make room, and call `sync_all` again"), "{error}");
    assert_eq!(format!("{error:?}"), error.to_string());
}
