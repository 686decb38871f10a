//! What clients of the cache need besides reads and writes.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_cache::{Direct, Error, File, OpenOptions, Operation, OwnedPageGuard, PageNo};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering, thread};
use unherd_testkit::{Failure, FaultPlan};

use crate::scene::{BOTH, close, real_dir, sim, small, turn, writable};

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
    assert_eq!(
        ended.to_string(),
        "f has 999 of the 1000 bytes from offset 25 on; compare File::len, or use read_at, which \
         says how many there are"
    );
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
    model[..2].copy_from_slice(&0x0102_u16.to_le_bytes());
    model[2..6].copy_from_slice(&0x0304_0506_u32.to_le_bytes());
    model[6..14].copy_from_slice(&0x0708_090a_0b0c_0d0e_u64.to_le_bytes());
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
        Ok(u64::from_le_bytes(model[6..14].try_into().unwrap()))
    });
    file.page_mut(PAGE).unwrap().fill(0..512, 0);
    file.page_mut(PAGE).unwrap().abandon();
    let mut page = file.page_mut(PAGE).unwrap();
    page.copy_within(0..256, 256);
    page.fill(0..10, 1);
    page.abandon();
    assert!(file.page(PAGE).unwrap()[..] == [0; 512]);
}

#[test]
fn shared_handle_is_closed_and_tells_once() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(65, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = Arc::new(cache.open("f", writable()).unwrap());
        let other = cache.open("f", writable()).unwrap();
        file.write_all_at(&[1; 1024], 0).unwrap();
        let held = file.page_mut(PAGE).unwrap();
        assert!(matches!(file.close(), Err(Error::WouldDeadlock { page: 1, .. })));
        drop(held);
        file.write_all_at(&[2; 512], 0).unwrap();
        device.set_faults(FaultPlan { write: Failure::from(1), ..FaultPlan::default() });
        let told = file.clone().close();
        assert!(matches!(told, Err(Error::Io { operation: Operation::Write, .. })), "{told:?}");
        assert_eq!(file.close(), Ok(()), "told once");
        let closed = Err(Error::Closed { file: file.path().into() });
        assert_eq!(file.write_at(&[3; 512], 0), closed.clone().map(|()| 0));
        assert_eq!(file.set_len(0), closed);
        assert_eq!((file.punch_hole(0..9), file.allocate(0..9)), (closed.clone(), closed.clone()));
        assert_eq!(file.sync_all(), closed);
        assert_eq!(file.page_mut(PAGE).map(drop), closed);
        assert!(file.page(PageNo(0)).unwrap()[..] == [2; 512], "reads go on");
        device.set_faults(FaultPlan::default());
        drop(file);
        other.write_all_at(&[4; 512], 512).unwrap();
        assert!(other.sync_all().is_err(), "each handle is told");
        other.sync_all().unwrap();
        assert_eq!(device.durable_bytes("f").unwrap(), [[2; 512], [4; 512]].concat());
    }
}

/// What the device was given outlives the process, but not a power cut.
#[test]
fn written_back_pages_are_not_flushed() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(74, FaultPlan::default());
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let other = cache.open("f", writable()).unwrap();
        file.write_all_at(&[1; 700], 0).unwrap();
        let mut held = file.page_mut(PAGE).unwrap();
        assert!(matches!(other.write_back(), Err(Error::WouldDeadlock { page: 1, .. })));
        held.fill(188..300, 1);
        drop(held);
        assert_eq!(other.write_back(), Ok(()));
        assert_eq!(device.bytes("f").unwrap(), [1; 812], "whole, and without padding");
        assert_eq!(device.durable_bytes("f").unwrap(), []);
        file.write_all_at(&[2; 812], 0).unwrap();
        device.set_faults(FaultPlan { write: Failure::from(1), ..FaultPlan::default() });
        let told = file.write_back();
        assert!(matches!(told, Err(Error::Io { operation: Operation::Write, .. })), "{told:?}");
        device.set_faults(FaultPlan::default());
        assert_eq!(file.write_back(), Ok(()), "told once, and tried again");
        assert_eq!(device.bytes("f").unwrap(), [2; 812]);
        file.close().unwrap();
        assert_eq!(file.write_back(), Err(Error::Closed { file: file.path().into() }));
    }
}

/// An error that another handle has met, and reported.
#[test]
fn close_reports_errors_in_between() {
    let _turn = turn();
    let device = sim(73, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let other = cache.open("f", writable()).unwrap();
    file.write_all_at(&[1; 512], 0).unwrap();
    device.set_faults(FaultPlan { write: Failure::from(1), ..FaultPlan::default() });
    let met = other.sync_all().unwrap_err();
    device.set_faults(FaultPlan::default());
    assert_eq!(file.close(), Err(met));
    assert_eq!(device.bytes("f").unwrap(), [1; 512]);
    assert_eq!(other.close(), Ok(()));
}

/// What a handle could not write when it was closed, its drop writes if the device has recovered.
#[test]
fn drop_after_close_tries_again() {
    let _turn = turn();
    let device = sim(66, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.write_all_at(&[1; 700], 0).unwrap();
    assert_eq!(file.close(), Ok(()));
    assert_eq!(device.bytes("f").unwrap(), [1; 700], "written, and the padding cut off");
    let again = cache.open("f", writable()).unwrap();
    again.write_all_at(&[2; 700], 0).unwrap();
    device.set_faults(FaultPlan { write: Failure::from(1), ..FaultPlan::default() });
    again.close().unwrap_err();
    device.set_faults(FaultPlan::default());
    drop((file, again));
    assert_eq!(device.bytes("f").unwrap(), [2; 700]);
    cache.open("f", writable()).unwrap().sync_all().unwrap();
}

#[test]
fn new_file_is_created_once() {
    let _turn = turn();
    let dir = real_dir();
    let real = small(8, 4096).build().unwrap();
    let simulated = small(8, 4096).device(sim(67, FaultPlan::default())).build().unwrap();
    for (cache, path) in [(real, dir.path().join("f")), (simulated, "f".into())] {
        let new = OpenOptions::new().write(true).create_new(true).direct(Direct::OrBuffered);
        assert!(matches!(
            cache.open(&path, new.clone().write(false)),
            Err(Error::CreateNeedsWrite { .. })
        ));
        let file = cache.open(&path, new.clone()).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        for options in [new.clone(), new.create(true)] {
            let exists = cache.open(&path, options).unwrap_err();
            assert_eq!(exists, Error::Open { file: path.as_path().into(), errno: Errno::EXIST });
            assert_eq!(std::io::Error::from(exists).kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(file.len(), 3);
        close(file).unwrap();
    }
    assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"new");
}

#[test]
fn open_file_is_taken_over() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    for io in BOTH {
        let cache = small(8, 4096).io(io).build().unwrap();
        let options = OpenOptions::new().write(true).direct(Direct::OrBuffered);
        let mut how = fs::OpenOptions::new();
        let named = how.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let file = cache.open_file(named.try_clone().unwrap(), options.clone()).unwrap();
        assert_eq!(file.path(), path.canonicalize().unwrap());
        file.write_all_at(&[7; 5000], 0).unwrap();
        // By name it is the same file here, and locked elsewhere.
        assert_eq!(cache.open(&path, options.clone()).unwrap().len(), 5000);
        let elsewhere = small(8, 4096).build().unwrap();
        let refused = elsewhere.open(&path, options.lock_wait(std::time::Duration::ZERO));
        assert!(matches!(refused, Err(Error::Locked { .. })));
        // It needs no name.
        fs::remove_file(&path).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let mut bytes = vec![0; 5000];
        let unlinked = cache.open_file(named, OpenOptions::new().direct(Direct::OrBuffered));
        unlinked.unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == [7; 5000]);
    }
}

#[test]
fn unfit_descriptors_are_refused() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    fs::write(&path, b"").unwrap();
    let cache = small(8, 4096).build().unwrap();
    let options = OpenOptions::new().write(true).direct(Direct::OrBuffered);
    let refusal = |result: Result<File, Error>| match result {
        Err(Error::Open { errno, .. }) => Some(errno),
        _ => None,
    };
    let read_only = fs::File::open(&path).unwrap();
    let write_only = fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(refusal(cache.open_file(read_only, options.clone())), Some(Errno::BADF));
    assert_eq!(refusal(cache.open_file(write_only, options)), Some(Errno::BADF));
    let (pipe, _) = std::io::pipe().unwrap();
    let not_a_file = cache.open_file(pipe, OpenOptions::new());
    assert!(matches!(not_a_file, Err(Error::NotAFile { .. })), "{not_a_file:?}");
    let simulated = small(8, 4096).device(sim(68, FaultPlan::default())).build().unwrap();
    let named = fs::File::open(&path).unwrap();
    assert_eq!(refusal(simulated.open_file(named, OpenOptions::new())), Some(Errno::OPNOTSUPP));
}

#[test]
fn invalidated_pages_are_read_again() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(69, FaultPlan::default());
        device.put("f", &[1; 2048]);
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable().lock(false)).unwrap();
        let first = |page| file.page(PageNo(page)).unwrap()[0];
        let pinned = file.page(PageNo(1)).unwrap();
        assert_eq!([0, 1, 2, 3].map(first), [1; 4]);
        device.overwrite("f", 0, &[2; 2048]);
        assert_eq!([0, 1, 2, 3].map(first), [1; 4], "cached");
        file.invalidate(600..1025).unwrap();
        assert_eq!([0, 1, 2, 3].map(first), [1, 2, 2, 1]);
        assert!(pinned[..] == [1; 512], "a pinned page has changed");
        for nothing in [0..0, 5..5] {
            file.invalidate(nothing).unwrap();
        }
        assert_eq!([0, 1].map(first), [1, 2]);
        // What is written here stays, whether the device has it or not, until it is synced.
        file.write_at(&[3; 512], 512).unwrap();
        device.overwrite("f", 0, &[4; 2048]);
        let kept = Err(Error::NotSynced { file: file.path().into(), page: 1 });
        assert_eq!(file.invalidate(0..u64::MAX), kept);
        assert_eq!([0, 1, 2, 3].map(first), [4, 3, 4, 4]);
        let held = file.page_mut(PageNo(2)).unwrap();
        assert!(matches!(file.invalidate(0..1), Err(Error::WouldDeadlock { page: 2, .. })));
        drop(held);
        file.sync_all().unwrap();
        device.overwrite("f", 512, &[5; 512]);
        file.invalidate(0..u64::MAX).unwrap();
        assert_eq!([0, 1, 2, 3].map(first), [4, 5, 4, 4]);
    }
}

#[test]
fn invalidated_file_has_the_length_of_the_device() {
    let _turn = turn();
    let device = sim(70, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable().lock(false)).unwrap();
    file.write_all_at(&[1; 700], 0).unwrap();
    file.sync_all().unwrap();
    file.invalidate(0..u64::MAX).unwrap();
    assert_eq!(file.len(), 700);
    device.append("f", &[2; 800]);
    file.invalidate(0..10).unwrap();
    assert_eq!(file.len(), 700, "the range ends before");
    let read = |len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    assert_eq!(read(700).unwrap(), [1; 700]);
    file.invalidate(0..u64::MAX).unwrap();
    assert_eq!(file.len(), 1500);
    assert_eq!(read(1500).unwrap(), [&[1; 700][..], &[2; 800]].concat());
    device.truncate("f", 300);
    file.invalidate(2048..u64::MAX).unwrap();
    assert_eq!((file.len(), read(300).unwrap()), (300, vec![1; 300]));
    // What was cut off is zeros if the file grows again, and no length of before comes back.
    file.write_all_at(&[3], 599).unwrap();
    assert_eq!(read(600).unwrap()[300..599], [0; 299]);
    let kept = file.invalidate(2048..u64::MAX);
    assert!(matches!(kept, Err(Error::NotSynced { page: 1, .. })), "{kept:?}");
    file.sync_all().unwrap();
    assert_eq!(device.bytes("f").unwrap().len(), 600);
}

#[test]
fn invalidate_takes_no_padding_for_length() {
    let _turn = turn();
    let device = sim(71, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable().lock(false)).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    device.fail_changes_of_length(1);
    assert!(file.sync_all().is_err());
    assert_eq!(device.bytes("f").unwrap().len(), 512);
    file.invalidate(0..u64::MAX).unwrap();
    assert_eq!((file.len(), device.bytes("f").unwrap().len()), (100, 100));
}

/// A read that is under way may have bytes from before.
#[test]
fn invalidation_waits_for_reads_under_way() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(72, FaultPlan::default());
        device.put("f", &[1; 512]);
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", OpenOptions::new().lock(false)).unwrap();
        device.block_reads();
        thread::scope(|scope| {
            let reader = scope.spawn(|| file.page(PageNo(0)).map(drop));
            device.wait_for_held_reads(1);
            let invalidation = scope.spawn(|| file.invalidate(0..512));
            for _ in 0..1000 {
                thread::yield_now();
            }
            let is_early = invalidation.is_finished();
            device.release_reads();
            invalidation.join().unwrap().unwrap();
            reader.join().unwrap().unwrap();
            assert!(!is_early, "{io:?}");
        });
        file.page(PageNo(0)).unwrap();
        assert_eq!(device.counts("f").reads, 2, "{io:?}: it was forgotten when it was there");
    }
}

/// Nobody reads what was overwritten before the last `invalidate` that he saw end.
#[test]
fn readers_find_no_page_older_than_invalidated() {
    let _turn = turn();
    for io in BOTH {
        let device =
            sim(71, FaultPlan { held_reaps_max: 2, yields_max: 5, ..FaultPlan::default() });
        device.put("f", &[0; 2048]);
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", OpenOptions::new().lock(false)).unwrap();
        let (newest, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for reader in 0..3 {
                let (file, newest, is_over) = (&file, &newest, &is_over);
                scope.spawn(move || {
                    let mut page = reader;
                    while !is_over.load(Ordering::Relaxed) {
                        page = (page + 1) % 4;
                        let least = newest.load(Ordering::Acquire);
                        let found = match reader {
                            0 => file.peek(PageNo(page), |page| page.get_u8(7)).unwrap(),
                            _ => file.page(PageNo(page)).unwrap()[7],
                        };
                        assert!(u64::from(found) >= least, "{found} after {least}");
                    }
                });
            }
            for round in 1..=200 {
                device.overwrite("f", 0, &[round; 2048]);
                file.invalidate(0..u64::MAX).unwrap();
                newest.store(u64::from(round), Ordering::Release);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
