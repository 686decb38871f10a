//! Files that others write, extend and truncate meanwhile, as flock(2) does not keep them from it.

use unherd_cache::{Error, File, PageNo};
use unherd_sys::primitives::thread;
use unherd_testkit::{Failure, FaultPlan};

use crate::scene::{BOTH, sim, small, turn, writable};

#[test]
fn what_others_append_stays() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(60, FaultPlan::default());
        device.put("f", &[1; 700]);
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        device.append("f", b"appended");
        drop(file);
        assert_eq!(device.bytes("f").unwrap()[700..], *b"appended", "{io:?}: dropped unused");
        let file = cache.open("f", writable()).unwrap();
        device.append("f", b" again");
        file.write_at(&[2; 512], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(device.bytes("f").unwrap()[700..], *b"appended again", "{io:?}: synced");
    }
}

#[test]
fn what_others_cut_off_is_not_filled_up() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(61, FaultPlan::default());
        device.put("f", &[1; 5000]);
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        device.truncate("f", 1000);
        file.write_at(&[2; 512], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(device.bytes("f").unwrap().len(), 1000, "{io:?}");
        drop(file);
        assert_eq!(device.bytes("f").unwrap().len(), 1000, "{io:?}");
    }
}

/// The whole page that was written is longer than the file, and then somebody appends.
#[test]
fn what_others_append_to_a_padded_page_stays() {
    let _turn = turn();
    let device = sim(62, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let other = cache.open("g", writable()).unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    let pins: Vec<_> = (0..8).map(|page| other.page(PageNo(page)).unwrap()).collect();
    assert_eq!(device.bytes("f").unwrap().len(), 512, "written back for its frame");
    drop(pins);
    device.append("f", b"appended");
    file.sync_all().unwrap();
    assert_eq!(device.bytes("f").unwrap()[512..], *b"appended");
}

/// Our own padding goes, also what a write left that failed in the middle.
#[test]
fn what_write_backs_added_is_cut_off() {
    let _turn = turn();
    for io in BOTH {
        for seed in 63..83 {
            let plan = FaultPlan { write: Failure::from(1), ..FaultPlan::default() };
            let device = sim(seed, plan);
            let cache = small(8, 2048).device(device.clone()).io(io).build().unwrap();
            let file = cache.open("f", writable()).unwrap();
            file.write_at(&[1; 100], 0).unwrap();
            file.sync_all().unwrap_err();
            assert_eq!(device.bytes("f").unwrap().len(), 0, "{io:?}: nothing was written");
            device.set_faults(FaultPlan::default());
            file.sync_all().unwrap();
            assert_eq!(device.bytes("f").unwrap(), [1; 100], "{io:?}");
        }
    }
}

#[test]
fn a_cut_that_failed_is_tried_again() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(83, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        device.fail_changes_of_length(1);
        assert!(matches!(file.sync_all(), Err(Error::Io { offset: 100, .. })), "{io:?}");
        file.sync_all().unwrap();
        assert_eq!(device.durable_bytes("f").unwrap(), [1; 100], "{io:?}");
    }
}

#[test]
fn padding_that_a_close_leaves_is_told_to_the_next() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(84, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        device.fail_changes_of_length(3);
        drop(file);
        let file = cache.open("f", writable()).unwrap();
        assert_eq!(file.len(), 512, "{io:?}");
        assert!(matches!(file.sync_all(), Err(Error::Io { offset: 100, .. })), "{io:?}");
    }
}

#[test]
fn cut_bytes_are_no_zeros() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(84, FaultPlan::default());
        device.put("f", &[1; 8 * 512]);
        let cache = small(16, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        device.truncate("f", 2 * 512 + 100);
        let cut = |page: u64| match file.page(PageNo(page)).map(|page| page.to_vec()) {
            Err(Error::Truncated { offset, len: 4096, .. }) if offset == page * 512 => {}
            other => panic!("{io:?}, page {page}: {other:?}"),
        };
        cut(2);
        cut(5);
        // In one transfer with what is there: that is read, and the rest is not.
        let mut bytes = [0; 4096];
        let error = file.read_at(&mut bytes, 0).unwrap_err();
        assert!(matches!(error, Error::Truncated { offset: 1024, .. }), "{io:?}: {error}");
        assert_eq!(file.read_at(&mut bytes[..1024], 0), Ok(1024));
        assert!(bytes[..1024] == [1; 1024]);
        // A part of a page cannot be changed without the rest; a whole one can.
        let error = file.write_at(&[2; 10], 6 * 512).unwrap_err();
        assert!(matches!(error, Error::Truncated { offset: 3072, .. }), "{io:?}: {error}");
        file.write_at(&[2; 512], 7 * 512).unwrap();
        // Not for ever: the device is asked again.
        device.overwrite("f", 512, &[3; 7 * 512]);
        assert_eq!(file.page(PageNo(5)).unwrap()[..], [3; 512]);
        cut_by_us(&file);
    }
}

/// What this cache has cut, or made longer and not written yet, is no loss.
fn cut_by_us(file: &File) {
    file.set_len(700).unwrap();
    file.set_len(4000).unwrap();
    file.write_at(&[4; 512], 20 * 512).unwrap();
    for page in 3..20 {
        assert_eq!(file.page(PageNo(page)).unwrap()[..], [0; 512], "page {page}");
    }
}

/// Reads that are under way while the file is cut here end with its bytes or zeros.
#[test]
fn reads_during_own_cuts_succeed() {
    let _turn = turn();
    for (seed, io) in (85..91).zip(BOTH.into_iter().cycle()) {
        let plan = FaultPlan { yields_max: 5, held_reaps_max: 2, ..FaultPlan::default() };
        let device = sim(seed, plan);
        device.put("f", &[1; 16 * 512]);
        let cache = small(6, 512).device(device).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        thread::scope(|scope| {
            for reader in 0..2 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..1500 {
                        let page = file.page(PageNo((round * 7 + reader) % 20)).unwrap();
                        assert!(page.iter().all(|&byte| byte <= 1));
                    }
                });
            }
            for round in 0..150 {
                file.set_len(512 * (round % 5)).unwrap();
                file.write_at(&[1; 3 * 512], 512 * (10 + round % 6)).unwrap();
            }
        });
    }
}
