//! Devices that do what the simulated one does not: queued transfers that a signal interrupts are
//! begun again, blocking ones that panic have failed, and some take long to return.
#![expect(unsafe_code, reason = "a device around another passes its raw memory on")]

use std::ops::Range;
use std::path::Path;
use std::sync::Barrier;

use unherd_cache::{Error, File, Io};
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, thread};
use unherd_sys::{
    Completion, Deadline, Device, DeviceFile, Errno, IoBufs, OpenError, OpenHow, Opened, QueueKind,
    Transfer,
};
use unherd_testkit::{FaultPlan, SimDevice};

use crate::durability::failing_syncs;
use crate::scene::{sim, small, turn, writable};

/// A device half of whose queued transfers end with `EINTR` (those did happen, which harms nobody),
/// and whose blocking ones panic, if they shall. A write at the beginning of a file stops at gates,
/// if there are any: before it is made twice, and after it twice. So does the next cut: after it
/// twice.
struct Odd {
    device: Arc<SimDevice>,
    completions: AtomicU64,
    panics: AtomicBool,
    gates: Mutex<Option<Arc<[Barrier; 4]>>>,
    after_cut: Mutex<Option<Arc<[Barrier; 2]>>>,
}

impl Odd {
    fn new(seed: u64) -> Arc<Self> {
        let device = sim(seed, FaultPlan::default());
        let (completions, panics) = (AtomicU64::new(0), AtomicBool::new(false));
        let (gates, after_cut) = (Mutex::new(None), Mutex::new(None));
        Arc::new(Self { device, completions, panics, gates, after_cut })
    }

    fn may_panic(&self) {
        assert!(!self.panics.load(Ordering::Relaxed), "as the test wants it");
    }
}

// SAFETY: all is passed on to a device that keeps the contract; results are only made worse.
unsafe impl Device for Odd {
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
        self.may_panic();
        self.device.len(file)
    }

    fn set_len(&self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno> {
        let cut = self.device.set_len(file, len_bytes);
        let gates = self.after_cut.lock().take();
        gates.iter().flat_map(|gates| gates.iter()).for_each(|gate| {
            gate.wait();
        });
        cut
    }

    unsafe fn read(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        self.may_panic();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.read(file, offset, bufs) }
    }

    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        self.may_panic();
        let gates = self.gates.lock().clone().filter(|_| offset == 0);
        let pass = |nth: Range<usize>| {
            gates.iter().flat_map(|gates| &gates[nth.clone()]).for_each(|gate| {
                gate.wait();
            });
        };
        pass(0..2);
        // SAFETY: the caller's promise is passed on.
        let moved = unsafe { self.device.write(file, offset, bufs) };
        pass(2..4);
        moved
    }

    fn sync(&self, file: DeviceFile) -> Result<(), Errno> {
        self.may_panic();
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
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.submit(transfer) }
    }

    fn reap(&self, out: &mut Vec<Completion>, deadline: Deadline) {
        self.device.reap(out, deadline);
        for completion in out {
            if self.completions.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                completion.result = Err(Errno::INTR);
            }
        }
    }

    fn interrupt(&self) {
        self.device.interrupt();
    }
}

#[test]
fn interrupted_transfers_are_begun_again() {
    let _turn = turn();
    let device = Odd::new(22);
    let cache = small(8, 512).device(device.clone()).io(Io::Queued).build().unwrap();
    let bytes: Vec<u8> = (0..30_000_u32).map(|i| (i % 251) as u8).collect();
    let file = cache.open("f", writable()).unwrap();
    file.write_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    assert!(device.device.bytes("f").unwrap() == bytes);
    let mut read = vec![0; bytes.len()];
    assert_eq!(file.read_at(&mut read, 0).unwrap(), bytes.len());
    assert!(read == bytes);
    assert_eq!(cache.stats().io_errors, 0);
}

#[test]
fn a_device_that_panics_has_failed() {
    let _turn = turn();
    let device = Odd::new(23);
    let cache = small(8, 512).device(device.clone()).io(Io::Blocking).build().unwrap();
    let bytes: Vec<u8> = (0..4 * 4096_u32).map(|i| (i % 251) as u8).collect();
    let file = cache.open("f", writable()).unwrap();
    let shall_panic = |shall| device.panics.store(shall, Ordering::Relaxed);
    let is_eio = |error| matches!(error, Error::Io { errno: Errno::IO, .. });

    file.write_at(&bytes[..2048], 0).unwrap();
    file.write_back().unwrap();
    shall_panic(true);
    // Of the flush; then of a write.
    assert!(is_eio(file.sync_all().unwrap_err()));
    assert!(is_eio(file.sync_all().unwrap_err()));
    shall_panic(false);
    file.sync_all().unwrap();
    assert_eq!(file.write_at(&bytes, 0).unwrap(), bytes.len());
    file.sync_all().unwrap();
    assert!(device.device.bytes("f").unwrap() == bytes);

    // The last pages were written last.
    let mut read = vec![0; 2048];
    let reads = [File::read_at, File::read_uncached_at];
    for read_at in reads {
        shall_panic(true);
        assert!(is_eio(read_at(&file, &mut read, 0).unwrap_err()));
        shall_panic(false);
        assert_eq!(read_at(&file, &mut read, 0).unwrap(), read.len());
        assert!(read == bytes[..2048]);
        file.invalidate(0..u64::MAX).unwrap();
    }
}

/// The write has begun before a flush that succeeds, and its bytes are there before one that fails.
#[test]
fn a_write_under_way_in_a_failed_flush_is_made_again() {
    let _turn = turn();
    let device = Odd::new(25);
    // Enough for two write-backs at a time.
    let cache = small(64, 512).device(device.clone()).io(Io::Blocking).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.write_at(&[5; 512], 0).unwrap();
    let gates = Arc::new([2; 4].map(Barrier::new));
    *device.gates.lock() = Some(gates.clone());
    let sync_other = || {
        file.write_at(&[6; 512], 1536).unwrap();
        file.sync_range(1536..2048)
    };
    thread::scope(|scope| {
        // It may report the flush.
        scope.spawn(|| file.write_back());
        gates[0].wait();
        sync_other().unwrap();
        gates[1].wait();
        gates[2].wait();
        device.device.set_faults(failing_syncs());
        assert!(sync_other().is_err());
        device.device.set_faults(FaultPlan::default());
        *device.gates.lock() = None;
        gates[3].wait();
    });
    file.sync_all().unwrap();
    device.device.crash();
    assert_eq!(device.device.bytes("f").unwrap()[..512], [5; 512]);
}

/// The handles have the length of before until the device says that it is done.
#[test]
fn a_read_beside_a_cut_has_no_more_than_the_device() {
    let _turn = turn();
    const LEN: usize = 700;
    let device = Odd::new(59);
    device.device.put("f", &[1; 10 * 512]);
    let cache = small(16, 512).device(device.clone()).io(Io::Blocking).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let gates = Arc::new([Barrier::new(2), Barrier::new(2)]);
    *device.after_cut.lock() = Some(gates.clone());
    thread::scope(|scope| {
        let cutter = scope.spawn(|| file.set_len(LEN as u64));
        gates[0].wait();
        let mut bytes = [9; 10 * 512];
        let (read, len) = (file.read_at(&mut bytes, 0), file.len());
        gates[1].wait();
        cutter.join().unwrap().unwrap();
        assert_eq!((read, len), (Ok(LEN), 10 * 512));
        assert!(bytes[..LEN].iter().all(|byte| *byte == 1));
    });
    assert_eq!(file.len(), LEN as u64);
}
