use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::Direction;
use crate::primitives::{AtomicU64, Ordering, thread};

const PAGE: usize = 4096;

fn on_disk() -> tempfile::TempDir {
    // The system's temporary directory may be a tmpfs; the build directory is on a disk.
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

fn for_writing() -> OpenHow {
    OpenHow { write: true, create: true, ..OpenHow::default() }
}

fn map(pages: usize) -> Map {
    Map::new(pages * PAGE, HugePages::AsConfigured).unwrap()
}

fn page(map: &Map, index: usize) -> IoBuf {
    // SAFETY: the tests stay within their maps.
    let start = unsafe { map.start().add(index * PAGE) };
    IoBuf { start, len: PAGE }
}

fn fill(buf: IoBuf, byte: u8) {
    // SAFETY: the tests fill only memory that no transfer is using.
    unsafe { buf.start.as_ptr().write_bytes(byte, buf.len) };
}

fn bytes(buf: IoBuf) -> Vec<u8> {
    let mut out = vec![0; buf.len];
    // SAFETY: both are valid for the length; no transfer is using the memory.
    unsafe { std::ptr::copy_nonoverlapping(buf.start.as_ptr(), out.as_mut_ptr(), buf.len) };
    out
}

fn write(device: &DirectDevice, file: DeviceFile, offset: u64, buf: IoBuf) -> Result<usize, Errno> {
    // SAFETY: the tests keep their maps while a call runs.
    unsafe { device.write(file, offset, buf.into()) }
}

fn read(device: &DirectDevice, file: DeviceFile, offset: u64, buf: IoBuf) -> Result<usize, Errno> {
    // SAFETY: the tests keep their maps while a call runs.
    unsafe { device.read(file, offset, buf.into()) }
}

fn submit(device: &DirectDevice, transfer: Transfer) {
    // SAFETY: the tests keep their maps until all is reaped.
    unsafe { device.submit(transfer) };
}

#[test]
fn what_is_written_is_read() {
    let dir = on_disk();
    let device = DirectDevice::new();
    let opened = device.open(&dir.path().join("file"), for_writing()).unwrap();
    assert!(opened.direct);
    assert!(opened.alignment.offset.is_power_of_two() && opened.alignment.memory.is_power_of_two());
    assert_eq!(opened.len_bytes, 0);
    let map = map(2);
    fill(page(&map, 0), 0xA5);
    assert_eq!(write(&device, opened.file, 4096, page(&map, 0)), Ok(PAGE));
    assert_eq!(device.len(opened.file), Ok(8192));
    device.sync(opened.file).unwrap();
    assert_eq!(read(&device, opened.file, 4096, page(&map, 1)), Ok(PAGE));
    assert_eq!(bytes(page(&map, 1)), vec![0xA5; PAGE]);
    // The hole reads as zeros, the end as nothing.
    assert_eq!(read(&device, opened.file, 0, page(&map, 1)), Ok(PAGE));
    assert_eq!(bytes(page(&map, 1)), vec![0; PAGE]);
    assert_eq!(read(&device, opened.file, 8192, page(&map, 1)), Ok(0));
    device.set_len(opened.file, 5000).unwrap();
    assert_eq!(read(&device, opened.file, 4096, page(&map, 1)), Ok(904));
}

#[test]
fn pieces_are_moved_in_file_order() {
    let dir = on_disk();
    let device = DirectDevice::new();
    let file = device.open(&dir.path().join("file"), for_writing()).unwrap().file;
    let map = map(4);
    for index in 0..4 {
        fill(page(&map, index), index as u8 + 1);
    }
    let pieces = [page(&map, 2), page(&map, 0), page(&map, 3)];
    // SAFETY: the pieces and the map outlive the call.
    assert_eq!(unsafe { device.write(file, 0, IoBufs::list(&pieces)) }, Ok(3 * PAGE));
    let queued = |direction, offset, pieces: &[IoBuf]| {
        let bufs = IoBufs::list(pieces);
        submit(&device, Transfer { direction, file, offset, bufs, tag: 1 });
        let mut done = Vec::new();
        device.reap(&mut done, Deadline::NEVER);
        done[0].result
    };
    assert_eq!(queued(Direction::Write, 3 * PAGE as u64, &pieces[1..]), Ok(2 * PAGE));
    let expected = [3, 1, 4, 1, 4].map(|byte| vec![byte; PAGE]);
    for (at, content) in expected.iter().enumerate() {
        assert_eq!(read(&device, file, (at * PAGE) as u64, page(&map, 1)), Ok(PAGE));
        assert_eq!(&bytes(page(&map, 1)), content, "page {at}");
    }
    // Three pages wanted, two left.
    let into = [page(&map, 1), page(&map, 3), page(&map, 0)];
    // SAFETY: as above.
    let read = unsafe { device.read(file, 3 * PAGE as u64, IoBufs::list(&into)) };
    assert_eq!(read, Ok(2 * PAGE));
    assert_eq!((bytes(into[0]), bytes(into[1])), (vec![1; PAGE], vec![4; PAGE]));
}

#[test]
fn misaligned_and_out_of_range_is_refused() {
    let dir = on_disk();
    let device = DirectDevice::new();
    let opened = device.open(&dir.path().join("file"), for_writing()).unwrap();
    let map = map(1);
    assert_eq!(write(&device, opened.file, 1, page(&map, 0)), Err(Errno::INVAL));
    assert_eq!(read(&device, opened.file, u64::MAX, page(&map, 0)), Err(Errno::INVAL));
    device.close(opened.file);
    assert_eq!(read(&device, opened.file, 0, page(&map, 0)), Err(Errno::BADF));
    assert_eq!(device.sync(opened.file), Err(Errno::BADF));
}

#[test]
fn a_second_opening_finds_the_lock() {
    let dir = on_disk();
    let path = dir.path().join("file");
    let (first, second) = (DirectDevice::new(), DirectDevice::new());
    let opened = first.open(&path, for_writing()).unwrap();
    first.set_len(opened.file, 4096).unwrap();
    assert_eq!(first.try_lock(opened.file, true), Ok(true));
    let other = second.open(&path, OpenHow::default()).unwrap();
    assert_eq!(other.identity, opened.identity);
    assert_eq!(second.try_lock(other.file, false), Ok(false));
    first.close(opened.file);
    assert_eq!(second.try_lock(other.file, false), Ok(true));
    let third = first.open(&path, for_writing()).unwrap();
    assert_eq!(first.try_lock(third.file, false), Ok(true), "readers share");
    assert_eq!(first.try_lock(third.file, true), Ok(false));
    second.close(other.file);
    assert_eq!(first.try_lock(third.file, true), Ok(true));
}

#[test]
fn refused_creation_leaves_no_file() {
    let dir = on_disk();
    let path = dir.path().join("file");
    let device = DirectDevice::refusing_direct();
    assert_eq!(device.open(&path, for_writing()).unwrap_err(), OpenError::DirectRefused);
    assert!(!path.exists());
    let how = OpenHow { alignment_max: 1, ..for_writing() };
    let error = DirectDevice::new().open(&path, how).unwrap_err();
    assert!(matches!(error, OpenError::Misaligned(512..)), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    // One that was there stays.
    std::fs::write(&path, b"old").unwrap();
    assert_eq!(device.open(&path, for_writing()).unwrap_err(), OpenError::DirectRefused);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

/// Also if its name cannot be made durable, as its directory cannot be read.
#[test]
fn creation_in_an_unreadable_directory_leaves_no_file() {
    let dir = on_disk();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o333)).unwrap();
    let path = dir.path().join("pages");
    let opened = thread::scope(|scope| {
        let as_nobody = || {
            // What root may do, this thread may not then, and others still may.
            // SAFETY: it changes the calling thread alone.
            unsafe { libc::setfsuid(65_534) };
            DirectDevice::new().open(&path, for_writing())
        };
        scope.spawn(as_nobody).join().unwrap()
    });
    assert_eq!(opened.unwrap_err(), OpenError::System(Errno::ACCESS));
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_descriptor_that_appends_is_not_written() {
    let dir = on_disk();
    let (path, device) = (dir.path().join("log"), DirectDevice::new());
    let open = || std::fs::File::options().read(true).append(true).create(true).open(&path);
    let refused = device.adopt(open().unwrap().into(), OpenHow { create: false, ..for_writing() });
    assert_eq!(refused.unwrap_err(), OpenError::System(Errno::BADF));
    device.adopt(open().unwrap().into(), OpenHow::default()).unwrap();
}

#[test]
fn root_block_devices_are_direct() {
    let dir = on_disk();
    let path = dir.path().join("disk");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let losetup = |args: &[&str]| {
        let output = std::process::Command::new("losetup").args(args).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let Some(node) = losetup(&["--find", "--show", path.to_str().unwrap()]) else {
        println!("skipped: there is no losetup, or it may make no loop device");
        return;
    };
    for device in with_queues() {
        let how = OpenHow { create: false, ..for_writing() };
        let opened = device.open(Path::new(&node), how).unwrap();
        assert!(opened.direct && opened.len_bytes == 1 << 20, "{opened:?}");
        assert_eq!(opened.block_bytes, u64::from(opened.alignment.offset));
        let map = map(2);
        let (written, read_back) = (page(&map, 0), page(&map, 1));
        fill(written, 9);
        assert_eq!(write(&device, opened.file, 8192, written), Ok(PAGE));
        assert_eq!(device.sync(opened.file), Ok(()));
        assert_eq!(read(&device, opened.file, 8192, read_back), Ok(PAGE));
        assert_eq!(bytes(read_back), bytes(written));
        device.close(opened.file);
    }
    losetup(&["--detach", &node]).unwrap();
}

#[test]
fn creation_follows_dangling_links() {
    let dir = on_disk();
    let (path, target) = (dir.path().join("link"), dir.path().join("file"));
    std::os::unix::fs::symlink("file", &path).unwrap();
    let device = DirectDevice::new();
    let opened = device.open(&path, for_writing()).unwrap();
    device.set_len(opened.file, 7).unwrap();
    assert_eq!(std::fs::metadata(&target).unwrap().len(), 7);
    let missing = dir.path().join("no/file");
    let error = device.open(&missing, for_writing()).unwrap_err();
    assert_eq!(error, OpenError::System(Errno::NOENT));
}

#[test]
fn largest_length_is_known_when_opened() {
    let dir = on_disk();
    let path = dir.path().join("file");
    let device = DirectDevice::new();
    let opened = device.open(&path, for_writing()).unwrap();
    let len_max = opened.len_bytes_max;
    assert_eq!(device.set_len(opened.file, len_max), Ok(()));
    if len_max < i64::MAX as u64 {
        assert_eq!(device.set_len(opened.file, len_max + 1), Err(Errno::FBIG));
    }
    assert_eq!(device.open(&path, for_writing()).unwrap().len_bytes_max, len_max);
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = on_disk();
    let device = DirectDevice::new();
    let refused = |path: PathBuf, how| device.open(&path, how).unwrap_err();
    assert_eq!(refused(dir.path().into(), OpenHow::default()), OpenError::NotAFile);
    assert_eq!(refused(dir.path().into(), for_writing()), OpenError::NotAFile);
    assert_eq!(refused("/dev/null".into(), OpenHow::default()), OpenError::NotAFile);
    let absent = dir.path().join("absent");
    assert_eq!(refused(absent, OpenHow::default()), OpenError::System(Errno::NOENT));
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(refused(fifo, OpenHow::default()), OpenError::NotAFile);
}

#[test]
fn refused_direct_io_is_visible() {
    let dir = on_disk();
    let path = dir.path().join("file");
    let device = DirectDevice::refusing_direct();
    assert_eq!(device.open(&path, for_writing()).unwrap_err(), OpenError::DirectRefused);
    let how = OpenHow { buffered_fallback: true, ..for_writing() };
    let opened = device.open(&path, how).unwrap();
    assert!(!opened.direct);
    let map = map(1);
    fill(page(&map, 0), 3);
    let odd = IoBuf { len: 13, ..page(&map, 0) };
    assert_eq!(write(&device, opened.file, 7, odd), Ok(13));
    assert_eq!(device.len(opened.file), Ok(20));
}

#[test]
fn memory_file_systems_refuse_direct() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm to write in");
        return;
    };
    let path = dir.path().join("file");
    let device = DirectDevice::new();
    assert_eq!(device.open(&path, for_writing()).unwrap_err(), OpenError::DirectRefused);
    let how = OpenHow { buffered_fallback: true, ..for_writing() };
    assert!(!device.open(&path, how).unwrap().direct);
}

#[test]
fn probing_knows_sectors_and_falls_back() {
    let dir = on_disk();
    let device = DirectDevice::new();
    let path = dir.path().join("file");
    let opened = device.open(&path, for_writing()).unwrap();
    let reopen = || open(&path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    assert_eq!(probe_alignment(&reopen()).unwrap(), SAFE_ALIGNMENT, "an empty file tells nothing");
    device.set_len(opened.file, 4096).unwrap();
    let probed = probe_alignment(&reopen()).unwrap();
    assert!(probed.offset >= opened.alignment.offset);
}

/// A device for each kind of queue that there may be here.
fn with_queues() -> impl Iterator<Item = DirectDevice> {
    [QueueKind::IoUring, QueueKind::Aio, QueueKind::Threads].into_iter().filter_map(|kind| {
        let device = DirectDevice::with_queue(kind);
        if device.queue() != Some(kind) {
            println!("skipped: {kind:?} is not allowed here");
            return None;
        }
        Some(device)
    })
}

fn reap_all(device: &DirectDevice, count: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    while out.len() < count {
        device.reap(&mut out, Deadline::NEVER);
    }
    out
}

/// More transfers than a queue's driver has room for, from several threads, each comes back once.
#[test]
fn queued_transfers_all_come_back() {
    const THREADS: usize = 4;
    const EACH: usize = 300;
    for device in with_queues() {
        let dir = on_disk();
        let file = device.open(&dir.path().join("file"), for_writing()).unwrap().file;
        let map = map(THREADS * EACH);
        for direction in [Direction::Write, Direction::Read] {
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (device, map) = (&device, &map);
                    scope.spawn(move || {
                        for index in thread * EACH..(thread + 1) * EACH {
                            let buf = page(map, index);
                            let byte = if direction == Direction::Write { index as u8 } else { 0 };
                            fill(buf, byte);
                            let offset = (index * PAGE) as u64;
                            let tag = index as u64;
                            submit(
                                device,
                                Transfer { direction, file, offset, bufs: buf.into(), tag },
                            );
                        }
                    });
                }
                let done = reap_all(&device, THREADS * EACH);
                assert!(done.iter().all(|done| done.result == Ok(PAGE)));
                let tags: HashSet<u64> = done.iter().map(|done| done.tag).collect();
                assert_eq!((done.len(), tags.len()), (THREADS * EACH, THREADS * EACH));
            });
        }
        for index in 0..THREADS * EACH {
            assert_eq!(bytes(page(&map, index)), vec![index as u8; PAGE]);
        }
    }
}

#[test]
fn failures_of_queued_transfers_are_completions() {
    for device in with_queues() {
        let dir = on_disk();
        let file = device.open(&dir.path().join("file"), for_writing()).unwrap().file;
        device.set_len(file, PAGE as u64).unwrap();
        let map = map(1);
        let buf = page(&map, 0);
        let read = |file, offset, tag| Transfer {
            direction: Direction::Read,
            file,
            offset,
            bufs: buf.into(),
            tag,
        };
        // A misaligned read may be served through the page cache (ext4 does so); a write is
        // refused.
        let write = Transfer { direction: Direction::Write, ..read(file, 1, 1) };
        submit(&device, write);
        submit(&device, read(file, u64::MAX, 2));
        submit(&device, read(DeviceFile(77), 0, 3));
        submit(&device, read(file, 1 << 30, 4));
        let mut done = reap_all(&device, 4);
        done.sort_by_key(|done| done.tag);
        let results: Vec<_> = done.iter().map(|done| done.result).collect();
        let expected = [Err(Errno::INVAL), Err(Errno::INVAL), Err(Errno::BADF), Ok(0)];
        assert_eq!(results, expected);
    }
}

#[test]
fn events_end_a_reapers_sleep() {
    for device in with_queues() {
        let dir = on_disk();
        let file = device.open(&dir.path().join("file"), for_writing()).unwrap().file;
        device.set_len(file, PAGE as u64).unwrap();
        let mut out = Vec::new();
        device.reap(&mut out, Deadline::after(Duration::from_millis(1)));
        device.interrupt();
        device.reap(&mut out, Deadline::NEVER);
        assert!(out.is_empty());
        let map = map(1);
        let turn = AtomicU64::new(0);
        thread::scope(|scope| {
            let reaper = scope.spawn(|| {
                let mut out = Vec::new();
                // 200 submissions, one after another, each most likely into a sleep.
                for tag in 0..200 {
                    device.reap(&mut out, Deadline::NEVER);
                    assert_eq!(out.pop(), Some(Completion { tag, result: Ok(PAGE) }));
                    turn.store(tag + 1, Ordering::Relaxed);
                }
                device.reap(&mut out, Deadline::NEVER);
                assert!(out.is_empty());
            });
            for tag in 0..200 {
                let buf = page(&map, 0);
                submit(
                    &device,
                    Transfer { direction: Direction::Read, file, offset: 0, bufs: buf.into(), tag },
                );
                while turn.load(Ordering::Relaxed) == tag {
                    thread::yield_now();
                }
            }
            device.interrupt();
            reaper.join().unwrap();
        });
    }
}

/// Pages of one large read, and how many reads are under way: long enough that the device is still
/// at work when the threads change.
const LARGE_PAGES: usize = 64;
const LARGE_READS: usize = 64;

/// A file with content on the disk, since holes are read without the device.
fn large_file(device: &DirectDevice, dir: &tempfile::TempDir, map: &Map) -> DeviceFile {
    let file = device.open(&dir.path().join("file"), for_writing()).unwrap().file;
    let all = IoBuf { start: map.start(), len: map.len() };
    fill(all, 9);
    assert_eq!(write(device, file, 0, all), Ok(map.len()));
    device.sync(file).unwrap();
    file
}

fn submit_large_reads(device: &DirectDevice, file: DeviceFile, map: &Map) {
    for index in 0..LARGE_READS {
        let buf = IoBuf { len: LARGE_PAGES * PAGE, ..page(map, index * LARGE_PAGES) };
        let (offset, tag) = ((index * LARGE_PAGES * PAGE) as u64, index as u64);
        submit(
            device,
            Transfer { direction: Direction::Read, file, offset, bufs: buf.into(), tag },
        );
    }
}

fn assert_all_large_reads(reaped: &[Completion]) {
    let tags: HashSet<u64> = reaped.iter().map(|done| done.tag).collect();
    assert_eq!((reaped.len(), tags.len()), (LARGE_READS, LARGE_READS));
    assert!(reaped.iter().all(|done| done.result == Ok(LARGE_PAGES * PAGE)));
}

/// An owner that ends with transfers under way leaves their completions to the next one.
#[test]
fn a_queue_changes_hands_without_loss() {
    for device in with_queues() {
        let (dir, map) = (on_disk(), map(LARGE_PAGES * LARGE_READS));
        let file = large_file(&device, &dir, &map);
        for _round in 0..5 {
            let mut reaped = thread::scope(|scope| {
                let owner = scope.spawn(|| {
                    submit_large_reads(&device, file, &map);
                    let mut out = Vec::new();
                    device.reap(&mut out, Deadline::NEVER);
                    out
                });
                owner.join().unwrap()
            });
            while reaped.len() < LARGE_READS {
                device.reap(&mut reaped, Deadline::NEVER);
            }
            assert_all_large_reads(&reaped);
        }
    }
}

/// While the owner lives and has transfers under way, another thread's reap waits and loses none.
#[test]
fn a_reaper_that_comes_too_early_waits() {
    for device in with_queues() {
        let (dir, map) = (on_disk(), map(LARGE_PAGES * LARGE_READS));
        let file = large_file(&device, &dir, &map);
        submit_large_reads(&device, file, &map);
        let mut out = Vec::new();
        device.reap(&mut out, Deadline::after(Duration::ZERO));
        thread::scope(|scope| {
            let early = scope.spawn(|| {
                let mut out = Vec::new();
                device.reap(&mut out, Deadline::after(Duration::from_millis(1)));
                out
            });
            out.extend(early.join().unwrap());
        });
        while out.len() < LARGE_READS {
            device.reap(&mut out, Deadline::NEVER);
        }
        assert_all_large_reads(&out);
    }
}

/// Whose transfers AIO would make at once, or refuses not to block.
#[test]
fn transfers_of_buffered_files_are_queued() {
    let dirs = [tempfile::tempdir_in("/dev/shm").ok(), Some(on_disk())];
    for dir in dirs.iter().flatten() {
        for mut device in with_queues() {
            device.refuses_direct = true;
            let how = OpenHow { buffered_fallback: true, ..for_writing() };
            let file = device.open(&dir.path().join("file"), how).unwrap().file;
            let map = map(40);
            for (tag, direction) in [(0, Direction::Write), (1, Direction::Read)] {
                for index in 0..40 {
                    let bufs = page(&map, index).into();
                    fill(page(&map, index), if tag == 0 { 7 } else { 0 });
                    let offset = (index * PAGE) as u64;
                    submit(&device, Transfer { direction, file, offset, bufs, tag });
                }
                let done = reap_all(&device, 40);
                assert!(done.iter().all(|done| done.result == Ok(PAGE)), "{done:?}");
            }
            assert!((0..40).all(|index| bytes(page(&map, index)) == vec![7; PAGE]));
        }
    }
}

/// What is queued when the device goes is forgotten or done, and its files are closed.
#[test]
fn a_device_goes_with_transfers_queued() {
    for device in with_queues() {
        let dir = on_disk();
        let path = dir.path().join("file");
        let file = device.open(&path, for_writing()).unwrap().file;
        assert!(device.try_lock(file, true).unwrap());
        let map = map(300);
        for index in 0..300 {
            let (offset, bufs) = ((index * PAGE) as u64, page(&map, index).into());
            let transfer = Transfer { direction: Direction::Write, file, offset, bufs, tag: 0 };
            submit(&device, transfer);
        }
        device.reap(&mut Vec::new(), Deadline::after(Duration::ZERO));
        let kind = device.queue();
        drop(device);
        let next = DirectDevice::new();
        let file = next.open(&path, for_writing()).unwrap().file;
        assert_eq!(next.try_lock(file, true), Ok(true), "{kind:?}");
    }
}
