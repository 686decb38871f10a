//! Pages that are changed while an older version of them is in write-back.
#![expect(unsafe_code, reason = "a device around another passes its raw memory on")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use unherd_cache::{Advice, Cache, Error, File, Io, PageNo};
use unherd_sync::{Ledger, Reason};
use unherd_sys::primitives::{Arc, Condvar, Mutex, thread};
use unherd_sys::{
    Completion, Deadline, Device, DeviceFile, Direction, Errno, IoBufs, OpenError, OpenHow, Opened,
    QueueKind, Timestamp, Transfer,
};
use unherd_testkit::{Failure, FaultPlan, Seed, SimDevice};

use crate::scene::{BOTH, sim, small, turn, writable};

/// A device whose writes can be held up, and that panics if two writes of one place are under way
/// at a time. It is used for files of their own.
struct Gated {
    device: Arc<SimDevice>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    /// Blocking writes at the gate.
    blocked: usize,
    /// Queued writes at the gate.
    held: Vec<Transfer>,
    /// Sectors that are being written.
    under_way: BTreeSet<u64>,
    /// Queued writes that are under way, by tag.
    queued: Vec<(u64, u64, usize)>,
    overlaps: usize,
}

const SECTOR: u64 = 512;

fn sectors(offset: u64, len: usize) -> impl Iterator<Item = u64> {
    offset / SECTOR..(offset + len as u64).div_ceil(SECTOR)
}

impl Gate {
    fn begin(&mut self, offset: u64, len: usize) {
        for sector in sectors(offset, len) {
            self.overlaps += usize::from(!self.under_way.insert(sector));
        }
    }

    fn end(&mut self, offset: u64, len: usize) {
        for sector in sectors(offset, len) {
            self.under_way.remove(&sector);
        }
    }
}

impl Gated {
    fn new(device: Arc<SimDevice>) -> Arc<Self> {
        Arc::new(Self { device, gate: Mutex::default(), changed: Condvar::new() })
    }

    fn close_gate(&self) {
        self.gate.lock().closed = true;
    }

    fn open_gate(&self) {
        let held = {
            let mut gate = self.gate.lock();
            gate.closed = false;
            std::mem::take(&mut gate.held)
        };
        self.changed.notify_all();
        for transfer in held {
            // SAFETY: the promise of the one who submitted it is passed on.
            unsafe { self.device.submit(transfer) };
        }
    }

    fn wait_for_held_writes(&self, n: usize) {
        let mut gate = self.gate.lock();
        while gate.blocked + gate.held.len() < n {
            gate = self.changed.wait(gate);
        }
    }

    fn overlaps(&self) -> usize {
        self.gate.lock().overlaps
    }
}

// SAFETY: all is passed on to a device that keeps the contract, some of it later.
unsafe impl Device for Gated {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Opened, OpenError> {
        self.device.open(path, how)
    }

    fn try_lock(&self, file: DeviceFile, exclusive: bool) -> Result<bool, Errno> {
        self.device.try_lock(file, exclusive)
    }

    fn close(&self, file: DeviceFile) {
        self.device.close(file);
    }

    fn len(&self, file: DeviceFile) -> Result<u64, Errno> {
        self.device.len(file)
    }

    fn set_len(&self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno> {
        self.device.set_len(file, len_bytes)
    }

    unsafe fn read(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.read(file, offset, bufs) }
    }

    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        // SAFETY: the transfer is not complete.
        let len = unsafe { bufs.pieces() }.iter().map(|piece| piece.len).sum();
        {
            let mut gate = self.gate.lock();
            gate.begin(offset, len);
            gate.blocked += 1;
            self.changed.notify_all();
            while gate.closed {
                gate = self.changed.wait(gate);
            }
            gate.blocked -= 1;
        }
        // SAFETY: the caller's promise is passed on.
        let written = unsafe { self.device.write(file, offset, bufs) };
        self.gate.lock().end(offset, len);
        written
    }

    fn sync(&self, file: DeviceFile) -> Result<(), Errno> {
        self.device.sync(file)
    }

    fn queue(&self) -> Option<QueueKind> {
        self.device.queue()
    }

    fn claim_queue(&self) -> bool {
        self.device.claim_queue()
    }

    fn release_queue(&self) {
        self.device.release_queue();
    }

    unsafe fn submit(&self, transfer: Transfer) {
        if transfer.direction == Direction::Write {
            // SAFETY: the transfer is not complete.
            let len = unsafe { transfer.bufs.pieces() }.iter().map(|piece| piece.len).sum();
            let mut gate = self.gate.lock();
            gate.begin(transfer.offset, len);
            gate.queued.push((transfer.tag, transfer.offset, len));
            if gate.closed {
                gate.held.push(transfer);
                self.changed.notify_all();
                return;
            }
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.submit(transfer) }
    }

    fn reap(&self, out: &mut Vec<Completion>, deadline: Deadline) {
        self.device.reap(out, deadline);
        let mut gate = self.gate.lock();
        for completion in out {
            let of_it = |&(tag, _, _): &(u64, u64, usize)| tag == completion.tag;
            if let Some(at) = gate.queued.iter().position(of_it) {
                let (_, offset, len) = gate.queued.swap_remove(at);
                gate.end(offset, len);
            }
        }
    }

    fn interrupt(&self) {
        self.device.interrupt();
    }
}

const PAGE: PageNo = PageNo(1);

fn page(file: &File) -> Vec<u8> {
    file.page(PAGE).unwrap().to_vec()
}

fn gated(seed: u64, frames: usize, io: Io, plan: FaultPlan) -> (Arc<Gated>, Cache) {
    let device = Gated::new(sim(seed, plan));
    let cache = small(frames, 512).device(device.clone()).io(io).build().unwrap();
    (device, cache)
}

/// A writer does not wait for the device, nor does the device see anything of its bytes before it
/// is done with the older ones.
#[test]
fn a_page_in_write_back_is_changed() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = gated(31, 8, io, FaultPlan::default());
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[1; 512], 512).unwrap();
        let first = file.page(PAGE).unwrap();
        device.close_gate();
        thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_all());
            device.wait_for_held_writes(1);
            // A copy, a change in place of what is behind, and a copy of that.
            file.write_at(&[2; 100], 512).unwrap();
            file.write_at(&[3; 100], 612).unwrap();
            let second = file.page(PAGE).unwrap();
            file.write_at(&[4; 100], 712).unwrap();
            let expected = [[2; 100], [3; 100], [1; 100]].concat();
            assert!(second[..300] == expected[..] && second[300..] == [1; 212]);
            assert!(first[..] == [1; 512], "a pinned page has changed");
            drop((first, second));
            let newest = page(&file);
            assert!(newest[200..300] == [4; 100]);
            device.open_gate();
            syncing.join().unwrap().unwrap();
            file.sync_all().unwrap();
            assert!(device.device.bytes("f").unwrap()[512..] == newest[..]);
        });
        assert_eq!(cache.stats().copies, 2);
        assert_eq!(device.overlaps(), 0);
    }
}

/// The older version fails on its way: that is told, and the newer one is written.
#[test]
fn an_older_version_that_fails_harms_no_newer_one() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = gated(32, 8, io, FaultPlan::default());
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[1; 512], 512).unwrap();
        device.close_gate();
        thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_all());
            device.wait_for_held_writes(1);
            file.write_at(&[2; 512], 512).unwrap();
            let once = FaultPlan { write: Failure::per_mille(1000), ..FaultPlan::default() };
            device.device.set_faults(once);
            device.open_gate();
            assert!(syncing.join().unwrap().is_err());
        });
        device.device.set_faults(FaultPlan::default());
        file.sync_all().unwrap();
        assert!(device.device.bytes("f").unwrap()[512..] == [2; 512]);
        assert_eq!(device.overlaps(), 0);
    }
}

/// With no frame for a copy, the writer waits for the write-back.
#[test]
fn without_a_frame_for_a_copy_the_writer_waits() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = gated(33, 4, io, FaultPlan::default());
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[1; 2048], 0).unwrap();
        file.sync_all().unwrap();
        let guards = [0, 2, 3].map(|page| file.page(PageNo(page)).unwrap());
        file.write_at(&[2; 512], 512).unwrap();
        device.close_gate();
        thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_all());
            device.wait_for_held_writes(1);
            let writing = scope.spawn(|| file.write_at(&[3; 512], 512));
            for _ in 0..100 {
                thread::yield_now();
            }
            assert!(!writing.is_finished());
            device.open_gate();
            assert_eq!(writing.join().unwrap().unwrap(), 512);
            syncing.join().unwrap().unwrap();
        });
        drop(guards);
        file.sync_all().unwrap();
        assert!(device.device.bytes("f").unwrap()[512..1024] == [3; 512]);
    }
}

/// Of one page no two versions are on their way at a time, and the last is the one that stays.
#[test]
fn no_version_overtakes_another() {
    let _turn = turn();
    for io in BOTH {
        let plan = FaultPlan {
            short_per_mille: 200,
            held_reaps_max: 4,
            reorder: true,
            ..FaultPlan::default()
        };
        let (device, cache) = gated(34, 24, io, plan);
        let file = cache.open("f", writable()).unwrap();
        file.write_at(&[0; 4096], 0).unwrap();
        // Until a writer has met a write-back, which one storm may miss.
        for _ in 0..50 {
            thread::scope(|scope| {
                for number in 0..6_u64 {
                    let file = &file;
                    scope.spawn(move || {
                        let mut seed = Seed::new(number);
                        for _ in 0..300 {
                            let at = seed.below(8) * 512;
                            match number {
                                0..2 => file.sync_all().unwrap(),
                                _ => {
                                    let bytes = seed.next_u64().to_le_bytes().repeat(64);
                                    assert_eq!(file.write_at(&bytes, at).unwrap(), 512);
                                }
                            }
                        }
                    });
                }
            });
            if cache.stats().copies > 0 {
                break;
            }
        }
        file.sync_all().unwrap();
        let mut bytes = [0; 4096];
        file.read_at(&mut bytes, 0).unwrap();
        assert!(device.device.bytes("f").unwrap() == bytes);
        assert_eq!(device.overlaps(), 0, "two versions were on their way at a time");
        assert!(cache.stats().copies > 0);
    }
}

/// What is appended while a sync runs is not part of it: no zeros stand in its place after a crash.
#[test]
fn a_sync_makes_no_zeros_durable_for_later_appends() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = gated(41, 200, io, FaultPlan::default());
        let file = cache.open("f", writable()).unwrap();
        // Nothing is written behind: the gate would hold it.
        file.advise(Advice::Random);
        file.write_at(&[7; 100], 0).unwrap();
        device.close_gate();
        thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_all());
            device.wait_for_held_writes(1);
            file.write_at(&[7; 40_960], 100).unwrap();
            device.open_gate();
            syncing.join().unwrap().unwrap();
        });
        let durable = device.device.durable_bytes("f").unwrap();
        // As far as a page that was appended to went along with its neighbours.
        assert!(durable.len() < 41_060, "{io:?}: {}", durable.len());
        assert!(durable.iter().all(|&byte| byte == 7), "{io:?}");
        file.sync_all().unwrap();
        assert!(device.device.durable_bytes("f").unwrap() == [7; 41_060], "{io:?}");
    }
}

#[test]
fn pins_that_come_meanwhile_end_a_shrink() {
    let device = Gated::new(sim(1, FaultPlan::default()));
    let cache = small(64, 512).device(device.clone()).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.advise(Advice::Random);
    (0..48).for_each(|page| file.write_all_at(&[1; 512], page * 1024).unwrap());
    device.close_gate();
    thread::scope(|scope| {
        let shrink = scope.spawn(|| cache.resize(16 * 512));
        device.wait_for_held_writes(1);
        let pins: Vec<_> = (20..36).map(|page| file.page(PageNo(page * 2)).unwrap()).collect();
        device.open_gate();
        let outcome = shrink.join().unwrap();
        assert!(matches!(outcome, Err(Error::CannotShrink { .. })), "{outcome:?}");
        assert_eq!((cache.frames(), pins.len()), (64, 16));
        drop(file.page(PageNo(1)).unwrap());
    });
}

#[test]
fn others_write_while_a_shrink_writes_back() {
    let _turn = turn();
    for io in BOTH {
        let (device, cache) = gated(78, 64, io, FaultPlan::default());
        let [a, b] = ["a", "b"].map(|name| cache.open(name, writable()).unwrap());
        a.advise(Advice::Random);
        (0..40).for_each(|page| a.write_all_at(&[1; 512], page * 1024).unwrap());
        device.close_gate();
        thread::scope(|scope| {
            let shrink = scope.spawn(|| cache.resize(8 * 512));
            device.wait_for_held_writes(1);
            b.write_all_at(&[2; 512], 0).unwrap();
            assert!(!shrink.is_finished());
            device.open_gate();
            shrink.join().unwrap().unwrap();
        });
    }
}

/// A waiter for room hears of it, though others stand before it that cannot use it.
#[test]
fn room_is_told_to_those_who_can_use_it() {
    let _turn = turn();
    let device = Gated::new(sim(79, FaultPlan::default()));
    let cache = small(16, 512).device(device.clone()).io(Io::Blocking).build().unwrap();
    let [a, b, d] = ["a", "b", "d"].map(|name| cache.open(name, writable()).unwrap());
    for file in [&a, &d] {
        file.advise(Advice::Random);
        file.set_len(64 * 512).unwrap();
    }
    let held: Vec<_> = (0..12).map(|page| d.page_mut(PageNo(page)).unwrap()).collect();
    (0..3).for_each(|page| a.write_all_at(&[1; 512], page * 1024).unwrap());
    device.close_gate();
    let reason = Reason::register("frame");
    let before = Ledger::snapshot();
    let waits = || Ledger::snapshot().since(&before).reason(reason).waits;
    thread::scope(|scope| {
        let write = |file, page: u64| {
            scope.spawn(move || File::write_all_at(file, &[1; 512], page * 512).unwrap())
        };
        let blocked: Vec<_> = (20..50).map(|page| write(&d, page)).collect();
        // Three of them are writing the pages of `a` back.
        while waits() < 27 {
            thread::yield_now();
        }
        let last = write(&b, 0);
        while waits() < 28 {
            thread::yield_now();
        }
        // It is counted before it sleeps.
        let asleep = Timestamp::now().after(Duration::from_millis(20));
        while Timestamp::now() < asleep {
            thread::yield_now();
        }
        device.open_gate();
        last.join().unwrap();
        assert!(!blocked.iter().all(|writer| writer.is_finished()));
        drop(held);
        blocked.into_iter().for_each(|writer| writer.join().unwrap());
    });
}
