//! What a program can say that names nothing but `unherd`.
#![expect(unsafe_code, reason = "a device promises to give memory back")]

mod kv;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use unherd::device::{
    Completion, DeviceFile, IoBufs, OpenError, OpenHow, Opened, QueueKind, Transfer,
};
use unherd::{
    BuildError, Cache, Deadline, Device, Direct, DirectDevice, Errno, Error, Io, OpenOptions,
    PageNo,
};

/// The kernel's files, with syncs counted.
struct Counting {
    device: DirectDevice,
    syncs: AtomicUsize,
}

// SAFETY: everything is handed on to a device that keeps the promises.
unsafe impl Device for Counting {
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
        // SAFETY: the caller's promise.
        unsafe { self.device.read(file, offset, bufs) }
    }

    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.device.write(file, offset, bufs) }
    }

    fn sync(&self, file: DeviceFile) -> Result<(), Errno> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
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
        // SAFETY: the caller's promise.
        unsafe { self.device.submit(transfer) }
    }

    fn reap(&self, out: &mut Vec<Completion>, deadline: Deadline) {
        self.device.reap(out, deadline);
    }

    fn interrupt(&self) {
        self.device.interrupt();
    }
}

#[test]
fn device_of_ones_own_needs_no_other_crate() {
    let directory = tempfile::tempdir().unwrap();
    let device = Arc::new(Counting { device: DirectDevice::new(), syncs: AtomicUsize::new(0) });
    let builder = Cache::builder().capacity(1 << 20).device(device.clone());
    let cache = builder.io(Io::Queued).build().unwrap();
    let options = OpenOptions::new().write(true).create(true).direct(Direct::OrBuffered);
    let file = cache.open(directory.path().join("data"), options).unwrap();
    file.write_at(b"own", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(device.syncs.load(Ordering::Relaxed), 1);
    assert_eq!(&file.page(PageNo(0)).unwrap()[..4], b"own\0");
}

#[test]
fn errors_can_be_told_apart() {
    let cache = Cache::builder().capacity(1 << 20).build().unwrap();
    let missing = cache.open("/nonexistent/data", OpenOptions::new());
    assert!(matches!(missing, Err(Error::Open { errno: Errno::NOENT, .. })));
    assert!(matches!(Cache::builder().capacity(0).build(), Err(BuildError::TooSmall { .. })));
}
