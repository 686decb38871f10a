//! Each refusal is an error that names what it is about.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Barrier;
use std::time::Duration;

use unherd_cache::{
    BuildError, Cache, Direct, Error, File, Io, OpenOptions, Operation, PageGuard, PageNo,
};
use unherd_sys::primitives::{Arc, thread};
use unherd_sys::{Device, DirectDevice, Errno};
use unherd_testkit::{Failure, FaultPlan, block_on};

use crate::scene::{BOTH, close, real_dir, sim, small, turn, writable};

#[test]
fn builders_name_the_value_that_does_not_do() {
    let build = |capacity, page| Cache::builder().capacity(capacity).page_size(page).build();
    let page = |page_bytes| BuildError::PageSize { page_bytes };
    assert_eq!(build(1 << 20, 5000).unwrap_err(), page(5000));
    assert_eq!(build(1 << 20, 0).unwrap_err(), page(0));
    assert_eq!(build(1 << 20, 256).unwrap_err(), page(256));
    assert_eq!(build(64 << 20, 4 << 20).unwrap_err(), page(4 << 20));
    let told = "a page size of 5000 bytes: it must be a power of two from 512 to 2097152";
    assert_eq!(page(5000).to_string(), told);
    let too_small = |capacity_bytes, page_bytes, frames| BuildError::TooSmall {
        capacity_bytes,
        page_bytes,
        frames,
        least: 4,
    };
    assert_eq!(build(7 << 20, 2 << 20).unwrap_err(), too_small(7 << 20, 2 << 20, 3));
    assert_eq!(build(10_000, 4096).unwrap_err(), too_small(10_000, 4096, 2));
    assert!(
        too_small(10_000, 4096, 2).to_string().ends_with("at least 4 are needed, which is 16 KiB")
    );
    assert!(matches!(build(usize::MAX, 4096), Err(BuildError::TooLarge { .. })));
    match build(1 << 50, 1 << 20).unwrap_err() {
        BuildError::InsufficientMemory { bytes, .. } => assert!(bytes > 1 << 50),
        other => panic!("{other}"),
    }
}

/// Found with the lock or without, and read by those who need no pin.
#[test]
fn a_page_with_as_many_pins_as_it_may_have_is_refused_to_the_next() {
    const PINS_MAX: usize = 1 << 17;
    let device = sim(35, FaultPlan::default());
    device.put("f", &[7; 512]);
    let cache = small(8, 512).device(device).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let mut guards: Vec<_> = (0..PINS_MAX).map(|_| file.page(PageNo(0)).unwrap()).collect();
    let page = || file.page(PageNo(0)).map(|_| ());
    assert!(matches!(page(), Err(Error::TooManyPins { page: 0, .. })), "{:?}", page());
    let mut buf = [0; 512];
    assert_eq!(file.read_at(&mut buf, 0), Ok(512));
    assert_eq!(file.peek(PageNo(0), |peek| peek.get_u8(511)), Ok(7));
    // A writer leaves it to those who have it.
    file.write_at(&[8; 512], 0).unwrap();
    assert_eq!(page(), Ok(()));
    assert!(guards.iter().all(|guard| guard[..] == [7; 512]));
    guards.clear();
    let guards: Vec<_> = (0..8).map(|number| file.page(PageNo(number))).collect();
    assert!(guards.iter().all(Result::is_ok), "a frame is lost: {guards:?}");
}

#[test]
fn a_second_cache_is_locked_out_until_the_first_has_closed() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let (one, two) = (small(8, 4096).build().unwrap(), small(8, 4096).build().unwrap());
    let file = one.open(&path, writable()).unwrap();
    let error = two.open(&path, writable()).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    let told = format!(
        "{} is locked by another cache or process: drop all of its handles there, or wait \
         longer by `lock_wait` (`lock(false)` only if nobody writes it)",
        path.display()
    );
    assert_eq!(error.to_string(), told);
    let again = one.open(&path, writable()).unwrap();
    drop(file);
    assert!(two.open(&path, writable()).is_err(), "the other handle still holds the lock");
    drop(again);
    two.open(&path, writable()).unwrap();
}

#[test]
fn direct_io_that_is_refused_is_an_error_or_a_visible_fallback() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let device = Arc::new(DirectDevice::refusing_direct());
    let cache = small(8, 4096).device(device).build().unwrap();
    let refused = cache.open(&path, writable());
    assert!(matches!(refused, Err(Error::DirectRefused { .. })));
    let file = cache.open(&path, writable().direct(Direct::OrBuffered)).unwrap();
    assert!(!file.is_direct());
    file.write_at(b"buffered", 4090).unwrap();
    close(file).unwrap();
    assert_eq!(&std::fs::read(&path).unwrap()[4090..], b"buffered");
}

#[test]
fn paths_that_are_no_files_are_refused() {
    let _turn = turn();
    let dir = real_dir();
    let cache = small(8, 4096).build().unwrap();
    let open = |path| cache.open(path, OpenOptions::new());
    assert!(matches!(open(dir.path().to_path_buf()), Err(Error::NotAFile { .. })));
    let missing = open(dir.path().join("missing")).unwrap_err();
    assert!(matches!(missing, Error::Open { .. }), "{missing}");
    let inside = open(dir.path().join("no/such/dir")).unwrap_err();
    assert!(matches!(inside, Error::Open { .. }), "{inside}");
}

#[test]
fn offsets_beyond_what_a_file_can_have_are_refused() {
    let _turn = turn();
    let cache = small(8, 512).device(sim(14, FaultPlan::default())).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let out_of_range = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::OutOfRange { .. })), "{result:?}");
    };
    for offset in [u64::MAX, i64::MAX as u64, i64::MAX as u64 - 3] {
        out_of_range(file.read_at(&mut [0; 4], offset).map(|_| ()));
        out_of_range(file.write_at(&[0; 4], offset).map(|_| ()));
    }
    out_of_range(file.set_len(u64::MAX));
    out_of_range(file.page(PageNo(u64::MAX)).map(|_| ()));
    out_of_range(file.page(PageNo(u64::MAX / 512)).map(|_| ()));
    let told = file.page(PageNo(u64::MAX)).unwrap_err().to_string();
    let page = "page 18446744073709551615 of f ends beyond the largest offset, 9223372036854775807";
    assert_eq!(told, page);
    let told = file.read_at(&mut [0; 4], u64::MAX).unwrap_err().to_string();
    assert!(told.starts_with("4 bytes at offset 18446744073709551615 of f would end"), "{told}");
    let told = file.set_len(u64::MAX).unwrap_err().to_string();
    assert!(told.starts_with("a length of 18446744073709551615 is beyond"), "{told}");
    assert_eq!(file.len(), 0);
    assert_eq!(file.read_at(&mut [0; 4], 1 << 40).unwrap(), 0);
    assert_eq!(file.write_at(&[], 1 << 40).unwrap(), 0);
    assert_eq!(file.len(), 0, "no bytes make no file longer");
}

/// A sync of nothing would say that all is safe.
#[test]
fn ranges_that_end_before_they_begin_are_refused() {
    let _turn = turn();
    let cache = small(8, 512).device(sim(14, FaultPlan::default())).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.write_at(&[1; 2048], 0).unwrap();
    type Call = fn(&File, Range<u64>) -> Result<(), Error>;
    let calls: [(&str, Call); 5] = [
        ("sync_range", |file, range| file.sync_range(range)),
        ("sync_range_async", |file, range| block_on(file.sync_range_async(range))),
        ("punch_hole", |file, range| file.punch_hole(range)),
        ("allocate", |file, range| file.allocate(range)),
        ("invalidate", |file, range| file.invalidate(range)),
    ];
    for (name, call) in calls {
        let error = call(&file, Range { start: 1024, end: 512 }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        let told = "the range 1024..512 of f ends before it begins; exchange the two";
        assert_eq!(error.to_string(), told, "{name}");
        assert_eq!(call(&file, 512..512), Ok(()), "{name}");
    }
    let mut bytes = [0; 2048];
    assert_eq!((file.read_at(&mut bytes, 0), bytes), (Ok(2048), [1; 2048]));
}

#[test]
fn read_only_handles_do_not_write() {
    let _turn = turn();
    let device = sim(15, FaultPlan::default());
    device.put("f", b"as it was");
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", OpenOptions::new()).unwrap();
    let read_only = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::ReadOnly { .. })), "{result:?}");
    };
    read_only(file.write_at(b"x", 0).map(|_| ()));
    read_only(file.set_len(0));
    for options in [OpenOptions::new().truncate(true), OpenOptions::new().create(true)] {
        let refused = cache.open("g", options).unwrap_err();
        let told = "cannot create or truncate g without `write(true)`";
        assert_eq!(refused.to_string(), told);
        assert_eq!(std::io::Error::from(refused).kind(), ErrorKind::InvalidInput);
    }
    file.sync_all().unwrap();
    // The file itself was opened read-only, so a later handle cannot write either.
    assert!(matches!(cache.open("f", writable()), Err(Error::HeldReadOnly { .. })));
    drop(file);
    let writer = cache.open("f", writable()).unwrap();
    let reader = cache.open("f", OpenOptions::new()).unwrap();
    writer.write_at(b"is", 3).unwrap();
    read_only(reader.write_at(b"x", 0).map(|_| ()));
    let mut got = [0; 9];
    reader.read_at(&mut got, 0).unwrap();
    assert_eq!(&got, b"as is was");
}

#[test]
fn pages_smaller_than_the_alignment_are_refused() {
    let _turn = turn();
    let alignment = unherd_sys::Alignment { memory: 512, offset: 4096 };
    let device = sim(16, FaultPlan { alignment, ..FaultPlan::default() });
    let cache = small(8, 1024).device(device).build().unwrap();
    match cache.open("f", writable()) {
        Err(Error::Misaligned { alignment_bytes: 4096, page_bytes: 1024, .. }) => {}
        other => panic!("{other:?}"),
    }
}

fn pin_all(file: &File, frames: u64) -> Vec<PageGuard<'_>> {
    (0..frames).map(|page| file.page(PageNo(page)).unwrap()).collect()
}

#[test]
fn running_out_of_frames_is_an_error_that_says_what_holds_them() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(17, FaultPlan::default());
        device.put("f", &[1; 512 * 20]);
        let builder = small(8, 512).device(device).io(io);
        let cache = builder.frame_wait(Duration::from_millis(30)).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let guards = pin_all(&file, 8);
        match file.read_at(&mut [0; 4], 512 * 10) {
            Err(error @ Error::NoFrames { pinned: 8, capacity: 8, .. }) => {
                assert!(error.to_string().contains("8 are pinned, by 1 thread; drop"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        // A copy would need a frame as well.
        assert!(matches!(file.write_at(&[2; 4], 0), Err(Error::NoFrames { .. })));
        drop(guards);
        file.read_at(&mut [0; 4], 512 * 10).unwrap();
        file.write_at(&[2; 4], 0).unwrap();
    }
}

/// What the caller is told when it wants a page more, after four threads have taken all frames. The
/// pages may be `there` before.
fn told_by_four(io: Io, there: bool, frame_wait: Duration) -> Error {
    let device = sim(21, FaultPlan::default());
    device.put("f", &[1; 512 * 20]);
    let cache = small(8, 512).device(device).io(io).frame_wait(frame_wait).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    if there {
        drop(pin_all(&file, 8));
    }
    // All have their pages; the error is there.
    let stages = [Barrier::new(4), Barrier::new(4)];
    thread::scope(|scope| {
        for first in [0, 3] {
            let (file, stages) = (&file, &stages);
            scope.spawn(move || {
                let guards: Vec<_> =
                    (first..first + 3).map(|page| file.page(PageNo(page)).unwrap()).collect();
                stages.iter().for_each(|stage| _ = stage.wait());
                drop(guards);
            });
        }
        scope.spawn(|| {
            let changing = file.page_mut(PageNo(6)).unwrap();
            stages.iter().for_each(|stage| _ = stage.wait());
            drop(changing);
        });
        let last = file.page(PageNo(7)).unwrap();
        stages[0].wait();
        // These have holders.
        let shared = [file.page(PageNo(0)).unwrap(), file.page(PageNo(4)).unwrap()];
        let refused = file.page(PageNo(10)).map(|_| ());
        stages[1].wait();
        drop((last, shared));
        refused.unwrap_err()
    })
}

#[test]
fn running_out_of_frames_is_an_error_that_says_how_many_threads_hold_them() {
    let _turn = turn();
    let frame_wait = Duration::from_millis(30);
    for (io, there) in BOTH.into_iter().flat_map(|io| [(io, false), (io, true)]) {
        let error = told_by_four(io, there, frame_wait);
        match error {
            Error::NoFrames {
                pinned: 8, threads: 4, unwritten: 0, capacity: 8, waited, ..
            } => {
                assert!(waited >= frame_wait, "before the deadline: {error}");
            }
            _ => panic!("{io:?} {there} {error:?}"),
        }
        assert!(error.to_string().contains("8 are pinned, by 4 threads"), "{error}");
    }
}

#[test]
fn a_thread_that_waits_for_a_frame_gets_the_one_that_is_unpinned() {
    let _turn = turn();
    for filtered in [true, false] {
        let device = sim(18, FaultPlan::default());
        device.put("f", &[1; 512 * 20]);
        let builder = small(8, 512).device(device).filtered(filtered);
        let cache = builder.frame_wait(Duration::from_secs(3600)).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let mut guards = pin_all(&file, 8);
        thread::scope(|scope| {
            let waiters: Vec<_> = (10..13)
                .map(|page| {
                    scope.spawn({
                        let file = &file;
                        move || file.read_at(&mut [0; 4], 512 * page).unwrap()
                    })
                })
                .collect();
            // One frame is enough for all of them, one after the other.
            guards.pop();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), 4);
            }
        });
    }
}

#[test]
fn pages_that_cannot_be_written_do_not_hang_those_who_want_frames() {
    let _turn = turn();
    for io in BOTH {
        let plan = FaultPlan { write: Failure::from(1), ..FaultPlan::default() };
        let device = sim(19, plan);
        let builder = small(8, 512).device(device.clone()).io(io);
        let cache = builder.frame_wait(Duration::from_secs(3600)).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let bytes: Vec<u8> = (0..512 * 20_u32).map(|i| i as u8).collect();
        let written = file.write_at(&bytes, 0).unwrap();
        assert_eq!(written, 512 * 6, "three quarters of the frames");
        match file.write_at(&bytes[written..], written as u64) {
            Err(Error::Io { operation: Operation::Write, errno: Errno::IO, .. }) => {}
            other => panic!("{other:?}"),
        }
        device.set_faults(FaultPlan::default());
        assert!(file.sync_all().is_err(), "reported once");
        file.write_at(&bytes[written..], written as u64).unwrap();
        file.sync_all().unwrap();
        assert!(device.bytes("f").unwrap() == bytes);
    }
}

/// Two caches would take each other's completions.
#[test]
fn one_cache_at_a_time_has_the_queue_of_a_device() {
    let devices: [Arc<dyn Device>; 2] =
        [sim(21, FaultPlan::default()), Arc::new(DirectDevice::new())];
    for device in devices {
        let build = |io| small(8, 4096).device(device.clone()).io(io).build();
        let one = build(Io::Auto).unwrap();
        assert_eq!(one.queue(), device.queue());
        assert_eq!(build(Io::Queued).unwrap_err(), BuildError::QueueTaken);
        let other = build(Io::Auto).unwrap();
        assert_eq!(other.queue(), None, "it is taken");
        drop(other);
        build(Io::Blocking).unwrap();
        assert_eq!(build(Io::Queued).unwrap_err(), BuildError::QueueTaken);
        drop(one);
        build(Io::Queued).unwrap();
    }
}

/// The largest offset of a file system is less than that of a file of any kind.
#[test]
fn too_large_files_fail_at_the_write() {
    let _turn = turn();
    let device = sim(17, FaultPlan::default());
    let cache = small(8, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let len_max = 1 << 30;
    let is_too_large = |error: Error| {
        let told = error.to_string();
        assert!(matches!(error, Error::FileTooLarge { .. }), "{told}");
        assert!(told.contains("1073741824"), "{told}");
    };
    is_too_large(file.write_at(&[1; 2], len_max - 1).unwrap_err());
    is_too_large(file.page_mut(PageNo(len_max / 512)).map(drop).unwrap_err());
    is_too_large(file.set_len(len_max + 1).unwrap_err());
    assert_eq!(file.len(), 0);
    assert_eq!(file.write_at(&[], len_max + 1), Ok(0));
    file.set_len(len_max).unwrap();
    file.set_len(0).unwrap();

    let dir = real_dir();
    let cache = small(8, 4096).build().unwrap();
    let options = writable().direct(Direct::OrBuffered);
    let file = cache.open(dir.path().join("f"), options).unwrap();
    let mut offset = (i64::MAX as u64) & !8191;
    while matches!(file.write_at(&[1; 4096], offset), Err(Error::FileTooLarge { .. })) {
        offset = (offset >> 1) & !8191;
    }
    assert!(offset > 1 << 30, "{offset}");
    file.sync_all().unwrap();
}
