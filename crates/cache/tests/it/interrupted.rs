//! Queued transfers that a signal interrupts are begun again.
#![expect(unsafe_code, reason = "a device around another passes its raw memory on")]

use std::path::Path;

use unherd_cache::Io;
use unherd_sys::primitives::{Arc, AtomicU64, Ordering};
use unherd_sys::{
    Completion, Deadline, Device, DeviceFile, Errno, IoBufs, OpenError, OpenHow, Opened, QueueKind,
    Transfer,
};
use unherd_testkit::{FaultPlan, SimDevice};

use crate::scene::{sim, small, turn, writable};

/// A device half of whose queued transfers end with `EINTR`. Those did happen, which harms nobody.
struct Interrupted {
    device: Arc<SimDevice>,
    completions: AtomicU64,
}

// SAFETY: all is passed on to a device that keeps the contract; results are only made worse.
unsafe impl Device for Interrupted {
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
        // SAFETY: the caller's promise is passed on.
        unsafe { self.device.write(file, offset, bufs) }
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
    let sim = sim(22, FaultPlan::default());
    let device = Arc::new(Interrupted { device: sim.clone(), completions: AtomicU64::new(0) });
    let cache = small(8, 512).device(device).io(Io::Queued).build().unwrap();
    let bytes: Vec<u8> = (0..30_000_u32).map(|i| (i % 251) as u8).collect();
    let file = cache.open("f", writable()).unwrap();
    file.write_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    assert!(sim.bytes("f").unwrap() == bytes);
    let mut read = vec![0; bytes.len()];
    assert_eq!(file.read_at(&mut read, 0).unwrap(), bytes.len());
    assert!(read == bytes);
    assert_eq!(cache.stats().io_errors, 0);
}
