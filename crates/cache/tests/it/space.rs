//! Holes and reserved space.

use std::os::unix::fs::MetadataExt;

use unherd_cache::{Advice, Cache, Direct, Error, File, Io, Operation, PageNo};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{Failure, FaultPlan, SimDevice};

use crate::durability::failing_syncs;
use crate::scene::{BOTH, real_dir, sim, small, turn, writable};

const PAGE: u64 = 512;

fn scene(io: Io) -> (Arc<SimDevice>, Cache, File) {
    let device = sim(41, FaultPlan::default());
    let cache = small(64, PAGE as usize).device(device.clone()).io(io).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.advise(Advice::Random);
    (device, cache, file)
}

fn read(file: &File) -> Vec<u8> {
    let mut bytes = vec![9; file.len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Ones with a hole.
fn with_hole(len: u64, hole: std::ops::Range<u64>) -> Vec<u8> {
    (0..len).map(|at| u8::from(!hole.contains(&at))).collect()
}

#[test]
fn a_hole_gives_zeros_and_its_dirty_pages_are_not_written() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io);
        file.write_all_at(&[1; 8 * PAGE as usize], 0).unwrap();
        let hole = PAGE + 100..5 * PAGE + 7;
        let (first, inside) = (file.page(PageNo(1)).unwrap(), file.page(PageNo(3)).unwrap());
        file.punch_hole(hole.clone()).unwrap();
        assert!(first[..] == [1; 512] && inside[..] == [1; 512], "guards keep what they had");
        let expected = with_hole(8 * PAGE, hole);
        assert!(read(&file) == expected, "{io:?}");
        file.sync_all().unwrap();
        assert_eq!(device.counts("f").written_bytes, 5 * PAGE, "{io:?}: pages 0, 1, 5, 6 and 7");
        device.crash();
        assert!(device.bytes("f").unwrap() == expected, "{io:?}");
    }
}

#[test]
fn a_hole_at_the_end_keeps_the_length() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache, file) = scene(io);
        file.write_all_at(&[1; 1000], 0).unwrap();
        file.punch_hole(0..u64::MAX).unwrap();
        file.punch_hole(5000..6000).unwrap();
        assert!(read(&file) == [0; 1000], "{io:?}");
        file.sync_all().unwrap();
        device.crash();
        assert!(device.bytes("f").unwrap() == [0; 1000], "{io:?}: nothing else makes it so long");
        drop((file, cache));
    }
}

/// A write-back that was under way is waited for, and a sync that comes later writes nothing there.
#[test]
fn no_write_back_fills_a_hole_up() {
    let _turn = turn();
    let (device, _cache, file) = scene(Io::Queued);
    let file = &file;
    (0..8).for_each(|page| file.write_all_at(&[1; 512], 2 * page * PAGE).unwrap());
    device.block_queued_writes();
    thread::scope(|scope| {
        let synced = scope.spawn(|| file.sync_all());
        while device.queued_writes() == 0 {
            thread::yield_now();
        }
        let punched = scope.spawn(|| file.punch_hole(0..u64::MAX));
        (0..1000).for_each(|_| thread::yield_now());
        device.release_queued_writes();
        assert_eq!((synced.join().unwrap(), punched.join().unwrap()), (Ok(()), Ok(())));
    });
    file.sync_all().unwrap();
    assert!(device.bytes("f").unwrap().iter().all(|&byte| byte == 0));
    assert!(read(file).iter().all(|&byte| byte == 0));
}

#[test]
fn a_hole_ends_the_holds_of_its_pages() {
    let _turn = turn();
    for io in BOTH {
        let (_device, _cache, file) = scene(io);
        for page in 0..4 {
            let mut page = file.page_mut(PageNo(page)).unwrap();
            page.write(0, &[1; 512]);
            page.hold_until(7).unwrap();
        }
        assert!(matches!(file.sync_all(), Err(Error::Held { .. })));
        file.punch_hole(0..3 * PAGE).unwrap();
        assert!(matches!(file.sync_all(), Err(Error::Held { page: 3, .. })), "{io:?}");
        // Each is dirty, and not held.
        file.write_all_at(&[2; 3 * PAGE as usize], 0).unwrap();
        assert_eq!(file.sync_range(0..3 * PAGE), Ok(()), "{io:?}");
        file.release_to(7);
        file.sync_all().unwrap();
    }
}

#[test]
fn a_hole_that_fails_changes_nothing_and_can_be_tried_again() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io);
        file.write_all_at(&[1; 4 * PAGE as usize], 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&[2; PAGE as usize], PAGE).unwrap();
        device.set_faults(FaultPlan { write: Failure::at(1), ..FaultPlan::default() });
        let error = file.punch_hole(0..3 * PAGE).unwrap_err();
        assert!(matches!(error, Error::Io { operation: Operation::PunchHole, .. }), "{error}");
        assert!(read(&file)[..3 * 512] == [[1; 512], [2; 512], [1; 512]].concat(), "{io:?}");
        file.punch_hole(0..3 * PAGE).unwrap();
        // A flush that fails forgets what was written, not the hole; the next covers it.
        device.set_faults(failing_syncs());
        file.sync_all().unwrap_err();
        device.set_faults(FaultPlan::default());
        file.sync_all().unwrap();
        device.crash();
        assert!(device.bytes("f").unwrap() == with_hole(4 * PAGE, 0..3 * PAGE), "{io:?}");
    }
}

#[test]
fn what_has_no_holes_or_no_space_says_so() {
    let io = |operation, errno| Error::Io {
        operation,
        file: Arc::from(std::path::Path::new("f")),
        offset: 5,
        errno,
    };
    let cases = [
        (io(Operation::PunchHole, Errno::OPNOTSUPP), "write zeros instead"),
        (io(Operation::Allocate, Errno::OPNOTSUPP), "use `set_len` instead"),
        (io(Operation::Allocate, Errno::NOSPC), "make room, and call `allocate` again"),
    ];
    for (error, advice) in cases {
        assert!(error.to_string().contains(advice), "{error}");
    }
    let (_device, cache, file) = scene(Io::Blocking);
    let reader = || {
        drop(cache.open("g", writable()).unwrap());
        cache.open("g", unherd_cache::OpenOptions::new()).unwrap()
    };
    let reader = reader();
    assert!(matches!(reader.punch_hole(0..1), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.allocate(0..1), Err(Error::ReadOnly { .. })));
    assert!(matches!(file.allocate(0..u64::MAX), Err(Error::OutOfRange { .. })));
    assert!(matches!(file.allocate(0..1 << 62), Err(Error::FileTooLarge { .. })));
    let held = file.page_mut(PageNo(0)).unwrap();
    assert!(matches!(file.punch_hole(0..1), Err(Error::WouldDeadlock { .. })));
    assert!(matches!(file.allocate(0..1), Err(Error::WouldDeadlock { .. })));
    drop(held);
    assert_eq!(file.len(), 0);
}

#[test]
fn a_reservation_makes_the_file_longer_and_one_that_fails_does_not() {
    let _turn = turn();
    for io in BOTH {
        let (device, _cache, file) = scene(io);
        file.write_all_at(&[1; 100], 0).unwrap();
        for origin in 0..8 {
            device.refuse_writes("f", Some(Errno::NOSPC));
            let error = file.allocate(0..(20 + origin) * PAGE).unwrap_err();
            let is_full = matches!(
                error,
                Error::Io { operation: Operation::Allocate, errno: Errno::NOSPC, .. }
            );
            assert!(is_full && file.len() == 100, "{error}");
            device.refuse_writes("f", None);
            file.sync_all().unwrap();
            let on_device = device.bytes("f").unwrap();
            assert!(on_device == [1; 100], "{io:?}: {} bytes", on_device.len());
        }
        file.allocate(0..50).unwrap();
        file.allocate(70..2000).unwrap();
        assert_eq!(file.len(), 2000);
        file.write_all_at(&[1; 100], 50).unwrap();
        file.sync_all().unwrap();
        assert!(device.bytes("f").unwrap() == with_hole(2000, 150..2000), "{io:?}");
        // It is durable by itself.
        file.allocate(0..3000).unwrap();
        file.sync_range(2500..2501).unwrap();
        device.crash();
        assert!(device.bytes("f").unwrap() == with_hole(3000, 150..3000), "{io:?}");
    }
}

/// Bytes that the file has on the disk.
fn allocated(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn the_real_disk_reserves_and_gives_back() {
    const LEN: u64 = 1 << 20;
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let cache = small(512, 4096).build().unwrap();
    let file = cache.open(&path, writable()).unwrap();
    file.allocate(0..LEN).unwrap();
    assert!(allocated(&path) >= LEN && file.len() == LEN);
    file.write_all_at(&[1; LEN as usize / 2], 0).unwrap();
    file.sync_all().unwrap();
    assert!(allocated(&path) >= LEN, "a sync keeps the reservation");
    let (before, hole) = (allocated(&path), 4096..LEN - 4096);
    file.punch_hole(hole.start - 10..hole.end + 10).unwrap();
    assert!(allocated(&path) + (LEN / 2) <= before, "{} of {before}", allocated(&path));
    file.sync_all().unwrap();
    drop(file);
    let expected: Vec<u8> = (0..LEN).map(|at| u8::from(at < 4096 - 10)).collect();
    assert!(std::fs::read(&path).unwrap() == expected);
}

/// What this thread mounts from now on nobody else sees, except its children, and is gone with it.
/// False without root.
#[expect(unsafe_code, reason = "unshare, mount")]
pub(crate) fn own_mounts() -> bool {
    // SAFETY: no pointers.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let (null, root) = (std::ptr::null(), c"/".as_ptr());
    // SAFETY: strings that end with zero, or none where the kernel needs none.
    alone && unsafe { libc::mount(null, root, null, private, null.cast()) } == 0
}

/// A file system for the calling thread alone.
#[expect(unsafe_code, reason = "mount")]
fn mount_small_disk(dir: &std::path::Path) -> bool {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    let dir = CString::new(dir.as_os_str().as_bytes()).unwrap();
    let (tmpfs, options) = (c"tmpfs".as_ptr(), c"size=1M".as_ptr().cast());
    // SAFETY: strings that end with zero.
    own_mounts() && unsafe { libc::mount(tmpfs, dir.as_ptr(), tmpfs, 0, options) } == 0
}

/// On a real file system of 1 MiB.
#[test]
fn root_a_full_disk_is_met_by_the_reservation_and_not_by_write_back() {
    const KIB: u64 = 1 << 10;
    let _turn = turn();
    let dir = real_dir();
    let run = || {
        if !mount_small_disk(dir.path()) {
            return eprintln!("skipped: it takes root to mount a small disk");
        }
        let cache = small(512, 4096).build().unwrap();
        let options = writable().direct(Direct::OrBuffered);
        let [a, b] =
            ["a", "b"].map(|name| cache.open(dir.path().join(name), options.clone()).unwrap());
        a.allocate(0..512 * KIB).unwrap();
        b.write_all_at(&[1; 768 << 10], 0).unwrap();
        let error = b.sync_all().unwrap_err();
        assert!(matches!(error, Error::Io { errno: Errno::NOSPC, .. }), "{error}");
        a.write_all_at(&[2; 512 << 10], 0).unwrap();
        assert_eq!(a.sync_all(), Ok(()), "its space is reserved");
        let error = a.allocate(512 * KIB..1024 * KIB).unwrap_err();
        let is_refused =
            matches!(error, Error::Io { operation: Operation::Allocate, errno: Errno::NOSPC, .. });
        assert!(is_refused && a.len() == 512 * KIB, "{error}");
        // Room is made, and nothing was lost.
        a.punch_hole(0..512 * KIB).unwrap();
        b.sync_all().unwrap();
        assert!(std::fs::read(dir.path().join("b")).unwrap() == [1; 768 << 10]);
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
}
