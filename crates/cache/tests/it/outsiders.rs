//! Files that others write, extend and truncate meanwhile, as flock(2) does not keep them from it.

use unherd_cache::PageNo;
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
