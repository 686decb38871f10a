use std::ptr::NonNull;

use unherd_sys::primitives::Arc;
use unherd_sys::{Alignment, IoBuf};

use super::*;
use crate::FileModel;

const RW: OpenHow = OpenHow {
    write: true,
    create: true,
    create_new: false,
    buffered_fallback: false,
    alignment_max: 4096,
};

/// Memory that is aligned to a page.
#[repr(align(4096))]
struct Page([u8; 4096]);

impl Page {
    fn boxed(byte: u8) -> Box<Self> {
        Box::new(Self([byte; 4096]))
    }

    fn buf(&mut self, len: usize) -> IoBuf {
        IoBuf { start: NonNull::from(&mut self.0).cast(), len }
    }
}

fn read(device: &SimDevice, file: DeviceFile, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut page = Page::boxed(0xcc);
    // SAFETY: the page is this function's own.
    let n = unsafe { device.read(file, offset, page.buf(len).into()) }?;
    Ok(page.0[..n].to_vec())
}

fn write(device: &SimDevice, file: DeviceFile, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let mut page = Page::boxed(0);
    page.0[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: the page is this function's own.
    unsafe { device.write(file, offset, page.buf(bytes.len()).into()) }
}

fn open(device: &SimDevice, path: &str) -> DeviceFile {
    device.open(Path::new(path), RW).unwrap().file
}

#[test]
fn without_faults_it_is_the_model() {
    let mut seed = Seed::of_test(0x0d15_c001);
    let device = SimDevice::new(seed.fork());
    let file = open(&device, "a");
    let mut model = FileModel::default();
    for _ in 0..2000 {
        let offset = seed.below(64) * 512;
        let len = (1 + seed.below(8)) as usize * 512;
        match seed.below(8) {
            0 => {
                let len_bytes = seed.below(64 * 512);
                device.set_len(file, len_bytes).unwrap();
                model.set_len(len_bytes);
            }
            1..4 => {
                let mut bytes = vec![0; len];
                seed.fill(&mut bytes);
                assert_eq!(write(&device, file, offset, &bytes), Ok(len));
                model.write_at(offset, &bytes);
            }
            _ => {
                let mut expected = vec![0; len];
                let n = model.read_at(offset, &mut expected);
                assert_eq!(read(&device, file, offset, len).unwrap(), expected[..n]);
            }
        }
        assert_eq!(device.len(file), Ok(model.len()));
    }
    assert_eq!(device.bytes("a").unwrap(), model.bytes());
}

#[test]
fn misaligned_transfers_are_refused() {
    let device = SimDevice::new(Seed::new(1));
    let file = open(&device, "a");
    let mut page = Page::boxed(1);
    assert_eq!(read(&device, file, 1, 512), Err(Errno::INVAL));
    assert_eq!(read(&device, file, 0, 511), Err(Errno::INVAL));
    let odd = IoBuf { start: NonNull::from(&mut page.0[1]), len: 512 };
    // SAFETY: the page is this function's own.
    assert_eq!(unsafe { device.write(file, 0, odd.into()) }, Err(Errno::INVAL));
    assert_eq!(write(&device, file, FAR, &[1; 512]), Err(Errno::FBIG));
    assert_eq!(device.counts("a"), Counts::default());
    assert_eq!(read(&device, file, FAR, 512), Ok(Vec::new()));
}

/// Further than any simulated file reaches, and aligned.
const FAR: u64 = !511;

#[test]
fn short_transfers_move_whole_units() {
    let plan = FaultPlan { short_per_mille: 1000, ..FaultPlan::default() };
    let device = SimDevice::with_faults(Seed::new(1), plan);
    let file = open(&device, "a");
    let mut lengths = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let n = write(&device, file, 0, &[1; 4096]).unwrap();
        lengths.insert(n);
        assert!((512..4096).contains(&n) && n.is_multiple_of(512), "{n}");
        let n = read(&device, file, 0, 4096).unwrap().len();
        assert!((512..4096).contains(&n) && n.is_multiple_of(512), "{n}");
    }
    assert_eq!(lengths.len(), 7, "every length from 512 to 3584 occurs");
    assert_eq!(write(&device, file, 0, &[1; 512]), Ok(512), "one unit cannot be shortened");
    assert_eq!(device.faults_injected(), 200);
}

#[test]
fn the_nth_read_fails_and_leaves_garbage() {
    let plan = FaultPlan { read: Failure::at(2), ..FaultPlan::default() };
    let device = SimDevice::new(Seed::new(1));
    device.put("a", &[7; 512]);
    let file = open(&device, "a");
    device.set_faults(plan);
    assert_eq!(read(&device, file, 0, 512), Ok(vec![7; 512]));
    let mut page = Page::boxed(7);
    // SAFETY: the page is this function's own.
    assert_eq!(unsafe { device.read(file, 0, page.buf(512).into()) }, Err(Errno::IO));
    assert_ne!(page.0[..512], [7; 512]);
    assert_eq!(read(&device, file, 0, 512), Ok(vec![7; 512]));
    assert_eq!(device.counts("a").reads, 3);
    assert_eq!(device.counts("a").read_bytes, 1024);
}

#[test]
fn failed_write_leaves_some_sectors() {
    let plan = FaultPlan { write: Failure::at(1), ..FaultPlan::default() };
    let device = SimDevice::with_faults(Seed::new(1), plan);
    device.put("a", &[1; 4096]);
    let file = open(&device, "a");
    assert_eq!(write(&device, file, 0, &[2; 4096]), Err(Errno::IO));
    let bytes = device.bytes("a").unwrap();
    let written = bytes.chunks(512).filter(|sector| *sector == [2; 512]).count();
    let kept = bytes.chunks(512).filter(|sector| *sector == [1; 512]).count();
    assert!(written > 0 && kept > 0 && written + kept == 8, "{written} written, {kept} kept");
}

#[test]
fn failed_sync_loses_data_at_crash() {
    let plan = FaultPlan { sync: Failure::at(1), ..FaultPlan::default() };
    let device = SimDevice::with_faults(Seed::new(1), plan);
    device.put("a", &[1; 512]);
    let file = open(&device, "a");
    write(&device, file, 0, &[2; 512]).unwrap();
    assert_eq!(device.sync(file), Err(Errno::IO));
    assert_eq!(device.sync(file), Ok(()));
    assert_eq!(device.bytes("a").unwrap(), [2; 512]);
    device.crash();
    assert_eq!(device.bytes("a").unwrap(), [1; 512]);
    assert_eq!(read(&device, file, 0, 512), Err(Errno::BADF));
    open(&device, "a");
}

#[test]
fn the_power_fails_after_so_many_syncs() {
    let device = SimDevice::new(Seed::new(1));
    let file = open(&device, "a");
    device.set_faults(FaultPlan { power_fails_after_syncs: Some(1), ..FaultPlan::default() });
    write(&device, file, 0, &[1; 512]).unwrap();
    device.sync(file).unwrap();
    assert_eq!(write(&device, file, 0, &[2; 512]), Err(Errno::IO));
    assert_eq!(device.sync(file), Err(Errno::IO));
    device.crash();
    assert_eq!(device.bytes("a").unwrap(), [1; 512]);
    let file = open(&device, "a");
    write(&device, file, 0, &[2; 512]).unwrap();
    device.sync(file).unwrap();
    assert_eq!(device.bytes("a").unwrap(), [2; 512]);
}

#[test]
fn locks_names_and_refusals() {
    let device = SimDevice::new(Seed::new(1));
    let missing = OpenHow { create: false, ..RW };
    assert_eq!(device.open(Path::new("d/a"), missing), Err(Errno::NOENT.into()));
    let first = device.open(Path::new("d/a"), RW).unwrap();
    assert!(device.link("d/a", "d/b"));
    assert_eq!(device.try_lock(first.file, true), Ok(true));
    assert_eq!(device.open(Path::new("d"), RW), Err(OpenError::NotAFile));
    let second = device.open(Path::new("d/b"), RW).unwrap();
    assert_eq!(second.identity, first.identity);
    assert_eq!(device.try_lock(second.file, false), Ok(false));
    device.close(first.file);
    let read_only = OpenHow { write: false, create: false, ..RW };
    let reader = device.open(Path::new("d/a"), read_only).unwrap().file;
    assert_eq!(device.try_lock(reader, false), Ok(true));
    assert_eq!(device.try_lock(second.file, false), Ok(true), "readers share");
    assert_eq!(device.try_lock(second.file, true), Ok(false));
    assert_eq!(write(&device, reader, 0, &[1; 512]), Err(Errno::BADF));

    device.set_faults(FaultPlan { refuse_direct: true, ..FaultPlan::default() });
    assert_eq!(device.open(Path::new("c"), RW), Err(OpenError::DirectRefused));
    assert_eq!(device.bytes("c"), None);
    let how = OpenHow { buffered_fallback: true, ..RW };
    let opened = device.open(Path::new("c"), how).unwrap();
    assert_eq!((opened.direct, opened.alignment), (false, Alignment { memory: 1, offset: 1 }));
    assert_eq!(write(&device, opened.file, 3, b"abc"), Ok(3));
}

#[test]
fn all_queued_transfers_complete_late_unordered() {
    let plan = FaultPlan { held_reaps_max: 3, reorder: true, ..FaultPlan::default() };
    let device = SimDevice::with_faults(Seed::new(3), plan);
    let content: Vec<u8> = (0..64).flat_map(|sector| [sector; 512]).collect();
    device.put("a", &content);
    let file = open(&device, "a");
    let mut pages: Vec<Box<Page>> = (0..64).map(|_| Page::boxed(0xcc)).collect();
    for (tag, page) in pages.iter_mut().enumerate() {
        let (offset, buf) = (tag as u64 * 512, page.buf(512));
        let tag = tag as u64;
        let transfer = Transfer { direction: Direction::Read, file, offset, bufs: buf.into(), tag };
        // SAFETY: the pages live until all have been reaped.
        unsafe { device.submit(transfer) };
    }
    let (mut done, mut reaps) = (Vec::new(), 0);
    while done.len() < 64 {
        let before = done.len();
        device.reap(&mut done, Deadline::NEVER);
        assert!(done.len() > before, "a reap without a deadline brings something");
        reaps += 1;
    }
    assert_eq!(reaps, 4);
    assert!(done.iter().all(|completion| completion.result == Ok(512)));
    let mut tags: Vec<u64> = done.iter().map(|completion| completion.tag).collect();
    assert!(!tags.is_sorted());
    tags.sort_unstable();
    assert_eq!(tags, (0..64).collect::<Vec<_>>());
    for (sector, page) in pages.iter().enumerate() {
        assert!(page.0[..512].iter().all(|&byte| usize::from(byte) == sector));
    }
}

#[test]
fn pieces_are_moved_in_file_order() {
    let device = SimDevice::new(Seed::new(3));
    let file = open(&device, "a");
    let (mut first, mut second) = (Page::boxed(1), Page::boxed(2));
    let pieces = [second.buf(512), first.buf(1024)];
    // SAFETY: the pages and the list outlive the call.
    assert_eq!(unsafe { device.write(file, 512, IoBufs::list(&pieces)) }, Ok(1536));
    let expected = [&[0; 512][..], &[2; 512], &[1; 1024]].concat();
    assert_eq!(device.bytes("a").unwrap(), expected);
    let transfer = Transfer {
        direction: Direction::Read,
        file,
        offset: 1024,
        bufs: IoBufs::list(&pieces),
        tag: 1,
    };
    // SAFETY: the pages and the list live until it has been reaped.
    unsafe { device.submit(transfer) };
    let mut done = Vec::new();
    device.reap(&mut done, Deadline::NEVER);
    assert_eq!(done, [Completion { tag: 1, result: Ok(1024) }]);
    assert_eq!((second.0[0], second.0[511], first.0[511], first.0[512]), (1, 1, 1, 1));
}

#[test]
fn completions_are_reordered_as_planned() {
    let tags = |reorder| {
        let plan = FaultPlan { reorder, ..FaultPlan::default() };
        let device = SimDevice::with_faults(Seed::new(3), plan);
        let file = open(&device, "a");
        let mut page = Page::boxed(1);
        let buf = page.buf(512);
        for tag in 0..16 {
            let transfer =
                Transfer { direction: Direction::Write, file, offset: 0, bufs: buf.into(), tag };
            // SAFETY: the page lives until all have been reaped; writes may share their memory.
            unsafe { device.submit(transfer) };
        }
        let mut done = Vec::new();
        device.reap(&mut done, Deadline::NEVER);
        done.iter().map(|completion| completion.tag).collect::<Vec<_>>()
    };
    assert_eq!(tags(false), (0..16).collect::<Vec<_>>());
    assert_ne!(tags(true), tags(false));
    assert_eq!(tags(true).len(), 16);
}

#[test]
#[should_panic(expected = "memory lent twice")]
fn memory_in_two_transfers_panics() {
    let device = SimDevice::new(Seed::new(1));
    let file = open(&device, "a");
    let mut page = Page::boxed(0);
    for (tag, direction) in [(0, Direction::Write), (1, Direction::Read)] {
        let transfer = Transfer { direction, file, offset: 0, bufs: page.buf(512).into(), tag };
        // SAFETY: the device refuses the second before anything is moved.
        unsafe { device.submit(transfer) };
    }
}

#[test]
fn reaping_ends_by_interrupt_and_by_deadline() {
    let device = SimDevice::new(Seed::new(1));
    let mut done = Vec::new();
    device.interrupt();
    device.reap(&mut done, Deadline::NEVER);
    device.reap(&mut done, Deadline::at(Timestamp::now()));
    assert_eq!(done, []);
    let device = Arc::new(device);
    let reaper = {
        let device = Arc::clone(&device);
        thread::spawn(move || device.reap(&mut Vec::new(), Deadline::NEVER))
    };
    device.interrupt();
    reaper.join().unwrap();
}

#[test]
fn the_gate_holds_reads_and_nothing_else() {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    device.put("a", &[7; 512]);
    let file = open(&device, "a");
    device.block_reads();
    let reader = {
        let device = Arc::clone(&device);
        thread::spawn(move || read(&device, file, 0, 512))
    };
    device.wait_for_held_reads(1);
    let mut page = Page::boxed(0);
    let buf = page.buf(512);
    // SAFETY: the page lives until the completion has been reaped.
    unsafe {
        device.submit(Transfer {
            direction: Direction::Read,
            file,
            offset: 0,
            bufs: buf.into(),
            tag: 5,
        });
    }
    device.wait_for_held_reads(2);
    let mut done = Vec::new();
    device.reap(&mut done, Deadline::at(Timestamp::now()));
    assert_eq!((done.len(), device.counts("a").reads), (0, 0));
    write(&device, file, 0, &[8; 512]).unwrap();
    device.release_reads();
    assert_eq!(reader.join().unwrap(), Ok(vec![8; 512]));
    device.reap(&mut done, Deadline::NEVER);
    assert_eq!(done, [Completion { tag: 5, result: Ok(512) }]);
    assert_eq!(page.0[..512], [8; 512]);
}

#[test]
fn crash_ends_queued_and_held_transfers() {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    device.put("a", &[7; 512]);
    let file = open(&device, "a");
    device.block_reads();
    let reader = {
        let device = Arc::clone(&device);
        thread::spawn(move || read(&device, file, 0, 512))
    };
    device.wait_for_held_reads(1);
    let mut page = Page::boxed(9);
    let buf = page.buf(512);
    // SAFETY: the page lives until the completion has been reaped.
    unsafe {
        device.submit(Transfer {
            direction: Direction::Write,
            file,
            offset: 0,
            bufs: buf.into(),
            tag: 6,
        });
    }
    device.crash();
    assert_eq!(reader.join().unwrap(), Err(Errno::BADF));
    let mut done = Vec::new();
    device.reap(&mut done, Deadline::NEVER);
    assert_eq!(done, [Completion { tag: 6, result: Err(Errno::IO) }]);
    let survived = device.bytes("a").unwrap();
    assert!(survived == [7; 512] || survived == [9; 512]);
}

#[test]
#[should_panic(expected = "closed under a transfer")]
fn closing_under_a_transfer_is_a_panic() {
    let device = SimDevice::new(Seed::new(1));
    let file = open(&device, "a");
    let mut page = Page::boxed(0);
    let buf = page.buf(512);
    // SAFETY: the transfer is never carried out; the device ends before the page.
    unsafe {
        device.submit(Transfer {
            direction: Direction::Read,
            file,
            offset: 0,
            bufs: buf.into(),
            tag: 0,
        });
    }
    device.close(file);
}

#[test]
fn one_seed_one_run() {
    let run = |origin| {
        let plan = FaultPlan {
            read: Failure::per_mille(200),
            write: Failure::per_mille(200),
            short_per_mille: 300,
            ..FaultPlan::default()
        };
        let device = SimDevice::with_faults(Seed::new(origin), plan);
        let file = open(&device, "a");
        let results: Vec<_> = (0..50)
            .map(|n| (write(&device, file, n * 512, &[1; 4096]), read(&device, file, 0, 4096)))
            .collect();
        device.crash();
        (results, device.bytes("a"))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn others_change_files_without_a_lock() {
    let device = SimDevice::new(Seed::new(1));
    let file = open(&device, "a");
    write(&device, file, 0, &[1; 512]).unwrap();
    assert!(device.append("a", &[2; 100]));
    assert!(device.overwrite("a", 10, &[3; 2]));
    assert_eq!(device.len(file), Ok(612));
    assert_eq!(device.bytes("a").unwrap()[9..13], [1, 3, 3, 1]);
    assert!(device.truncate("a", 11));
    assert_eq!(read(&device, file, 0, 512).unwrap()[9..], [1, 3]);
    assert!(!device.append("b", &[1]));
}

#[test]
fn refused_writes_change_nothing() {
    let device = SimDevice::new(Seed::new(1));
    let file = open(&device, "a");
    device.refuse_writes("a", Some(Errno::NOSPC));
    assert_eq!(write(&device, file, 0, &[1; 512]), Err(Errno::NOSPC));
    assert_eq!(device.len(file), Ok(0));
    device.refuse_writes("a", None);
    assert_eq!(write(&device, file, 0, &[1; 512]), Ok(512));
}

#[test]
fn changes_of_length_fail_as_often_as_told() {
    let device = SimDevice::new(Seed::new(1));
    let file = open(&device, "a");
    device.fail_changes_of_length(1);
    assert_eq!(device.set_len(file, 512), Err(Errno::IO));
    assert_eq!(device.len(file), Ok(0));
    assert_eq!(device.set_len(file, 512), Ok(()));
}
