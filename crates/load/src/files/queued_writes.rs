//! Direct writes of many files by one thread's ring: what writes cost at least that come in no
//! order, as all of them are known when the first begins.
#![expect(unsafe_code, reason = "a device reads memory while its writes are under way")]

use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::mpsc::{Sender, channel};

use unherd_sys::primitives::{Arc, AtomicBool, Mutex, Ordering, thread};
use unherd_sys::{
    Completion, Deadline, Device, DeviceFile, DirectDevice, Direction, IoBuf, OpenHow, QueueKind,
    Transfer,
};

/// Writes under way at a time: what a device's queue takes.
const DEPTH: usize = 128;

/// A ring, and the thread that has it.
pub(crate) struct QueuedWrites {
    ring: Arc<Ring>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Ring {
    device: DirectDevice,
    /// Those that were not begun.
    orders: Mutex<Vec<Order>>,
    /// Relaxed: the lock in `Device::interrupt` orders it.
    is_over: AtomicBool,
}

/// What one thread wants written, and waits for.
struct Order {
    file: DeviceFile,
    /// Those that were not begun, the last one first: memory, and where it goes.
    writes: Vec<(IoBuf, u64)>,
    /// How many have not ended.
    left: usize,
    /// Bytes of each.
    len: usize,
    result: io::Result<()>,
    done: Sender<io::Result<()>>,
}

impl QueuedWrites {
    pub(crate) fn new() -> io::Result<Self> {
        let device = DirectDevice::new();
        if device.queue() != Some(QueueKind::IoUring) || !device.claim_queue() {
            return Err(io::Error::other("io_uring is not available, which these writes need"));
        }
        let (orders, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let ring = Arc::new(Ring { device, orders, is_over });
        let thread = thread::Builder::new().name("floor".to_owned()).spawn({
            let ring = ring.clone();
            move || ring.run()
        })?;
        Ok(Self { ring, thread: Some(thread) })
    }

    /// Opens a file that is there.
    pub(crate) fn open(&self, path: &Path) -> io::Result<DeviceFile> {
        let how = OpenHow { write: true, ..OpenHow::default() };
        Ok(self.ring.device.open(path, how).map_err(io::Error::other)?.file)
    }

    pub(crate) fn close(&self, file: DeviceFile) {
        self.ring.device.close(file);
    }

    /// Writes blocks of one length, each to its offset, and begins with the first. Blocks until
    /// all are written.
    pub(crate) fn write(&self, file: DeviceFile, blocks: &[(&[u8], u64)]) -> io::Result<()> {
        let Some((first, _)) = blocks.first() else { return Ok(()) };
        let (done, ended) = channel();
        let write = |&(block, offset): &(&[u8], u64)| {
            debug_assert_eq!(block.len(), first.len());
            (IoBuf { start: NonNull::from(block).cast(), len: block.len() }, offset)
        };
        self.ring.orders.lock().push(Order {
            file,
            writes: blocks.iter().rev().map(write).collect(),
            left: blocks.len(),
            len: first.len(),
            result: Ok(()),
            done,
        });
        self.ring.device.interrupt();
        ended.recv().unwrap_or_else(|_| unreachable!("the process ends with the ring's thread"))
    }
}

/// Ends the process if the ring's thread panics: nobody else knows when the device is done with
/// borrowed memory.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

impl Ring {
    fn run(&self) {
        let _guard = AbortOnPanic;
        // An order's place is the tag of its writes.
        let mut orders: Vec<Option<Order>> = Vec::new();
        let (mut under_way, mut completed) = (0, Vec::with_capacity(DEPTH));
        while under_way > 0 || !self.is_over.load(Ordering::Relaxed) {
            for order in self.orders.lock().drain(..) {
                match orders.iter_mut().find(|place| place.is_none()) {
                    Some(place) => *place = Some(order),
                    None => orders.push(Some(order)),
                }
            }
            for (place, order) in orders.iter_mut().enumerate() {
                let Some(order) = order else { continue };
                while under_way < DEPTH
                    && let Some((buf, offset)) = order.writes.pop()
                {
                    self.submit(order.file, buf, offset, place);
                    under_way += 1;
                }
            }
            self.device.reap(&mut completed, Deadline::NEVER);
            under_way -= completed.len();
            completed.drain(..).for_each(|completion| end(&mut orders, completion));
        }
    }

    fn submit(&self, file: DeviceFile, buf: IoBuf, offset: u64, place: usize) {
        let (direction, bufs, tag) = (Direction::Write, buf.into(), place as u64);
        // SAFETY: `write` has borrowed the memory, and returns only when all of its writes have
        // been reaped: this thread ends after them, or the process ends with it.
        unsafe { self.device.submit(Transfer { direction, file, offset, bufs, tag }) }
    }
}

/// One write of the order in the completion's place has ended; the last one's end is told.
fn end(orders: &mut [Option<Order>], Completion { tag, result }: Completion) {
    let place = &mut orders[tag as usize];
    let Some(order) = place else { return };
    order.left -= 1;
    match result {
        Ok(written) if written == order.len => {}
        Ok(_) => order.result = Err(io::ErrorKind::WriteZero.into()),
        Err(errno) => order.result = Err(errno.into()),
    }
    if order.left == 0
        && let Some(order) = place.take()
    {
        let _ = order.done.send(order.result);
    }
}

impl Drop for QueuedWrites {
    fn drop(&mut self) {
        self.ring.is_over.store(true, Ordering::Relaxed);
        self.ring.device.interrupt();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.ring.device.release_queue();
    }
}
