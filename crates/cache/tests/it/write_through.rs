//! Handles whose writes return when the device has them.

use unherd_cache::{Advice, Error, Io, Operation, PageNo};
use unherd_sys::Errno;
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, real_dir, sim, small, turn, writable};

#[test]
fn the_device_has_what_a_write_has_returned_for_and_nothing_else() {
    let _turn = turn();
    for io in BOTH {
        let plan = FaultPlan { short_per_mille: 300, held_reaps_max: 2, ..FaultPlan::default() };
        let device = sim(71, plan);
        let cache = small(32, 512).device(device.clone()).io(io).build().unwrap();
        let [through, other] =
            [true, false].map(|it| cache.open("f", writable().write_through(it)).unwrap());
        other.advise(Advice::Random);
        other.write_all_at(&[9; 512], 10 * 512).unwrap();
        let mut expected = Vec::new();
        for nth in 0..20_u8 {
            let record = vec![nth; 100];
            through.write_all_at(&record, expected.len() as u64).unwrap();
            expected.extend(record);
            let on_device = device.bytes("f").unwrap();
            assert!(on_device.starts_with(&expected), "{io:?}: record {nth}");
        }
        assert_eq!(device.bytes("f").unwrap().len(), 2048, "{io:?}: page 10 is not written");
        through.punch_hole(10..700).unwrap();
        expected[10..700].fill(0);
        assert!(device.bytes("f").unwrap().starts_with(&expected), "{io:?}: a hole");
        assert_eq!(device.counts("f").syncs, 0, "{io:?}");
        let mut page = through.page_mut(PageNo(0)).unwrap();
        page.write(0, &[8; 10]);
        page.hold_until(1).unwrap();
        drop(page);
        assert!(matches!(through.write_at(&[7], 1), Err(Error::Held { page: 0, .. })), "{io:?}");
        assert!(device.bytes("f").unwrap().starts_with(&expected), "{io:?}: it is held");
        through.release_to(1);
    }
}

#[test]
fn a_write_that_the_device_refuses_is_an_error_and_stays_dirty() {
    let _turn = turn();
    for io in BOTH {
        for errno in [Errno::NOSPC, Errno::IO] {
            let device = sim(72, FaultPlan::default());
            let cache = small(32, 512).device(device.clone()).io(io).build().unwrap();
            let file = cache.open("f", writable().write_through(true)).unwrap();
            file.write_all_at(&[1; 700], 0).unwrap();
            device.refuse_writes("f", Some(errno));
            let error = file.write_at(&[2; 700], 0).unwrap_err();
            let is_it = matches!(error, Error::Io { operation: Operation::Write, .. });
            assert!(is_it && device.bytes("f").unwrap() == [1; 700], "{io:?}: {error}");
            device.refuse_writes("f", None);
            // It was told.
            assert_eq!(file.sync_all(), Ok(()), "{io:?}");
            assert!(device.bytes("f").unwrap() == [2; 700], "{io:?}");
        }
    }
}

#[test]
fn another_program_finds_each_write_and_the_length() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let cache = small(32, 4096).io(Io::Auto).build().unwrap();
    let file = cache.open(&path, writable().write_through(true)).unwrap();
    for nth in 1..10 {
        file.write_all_at(&[nth; 1000], file.len()).unwrap();
        let seen = std::fs::read(&path).unwrap();
        assert_eq!((seen.len(), seen.last()), (1000 * usize::from(nth), Some(&nth)));
    }
}
