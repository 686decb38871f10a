//! A queue of transfers where the device has none: threads that make blocking calls.
//!
//! | a transfer is | lies in | its memory is used by |
//! |---|---|---|
//! | queued | `Queue::queued` | nobody |
//! | under way | a worker, which took it out under the lock | that worker |
//! | done | `Queue::done`, as a completion | nobody; who reaps it, from then on |
//!
//! It belongs to one cache, whose engine gives it up when nothing is queued or under way. In a
//! child of fork(2), where the workers are not, it is never dropped: there the reference of the I/O
//! thread to the cache is not given back.
#![expect(unsafe_code, reason = "transfers are made in the place of the one who queues them")]

use std::collections::VecDeque;
use std::path::Path;

use unherd_sys::primitives::{Arc, Condvar, Mutex, thread};
use unherd_sys::{
    Completion, Deadline, Device, DeviceFile, Direction, Errno, IoBufs, OpenError, OpenHow, Opened,
    Timestamp, Transfer,
};

use crate::error::BuildError;

#[derive(Debug, Default)]
struct Queue {
    queued: VecDeque<Transfer>,
    done: Vec<Completion>,
    is_interrupted: bool,
    /// The workers are to end.
    is_over: bool,
}

struct Shared {
    device: Arc<dyn Device>,
    queue: Mutex<Queue>,
    /// There is a transfer to make, or the workers are to end.
    work: Condvar,
    /// There is something to reap, or an interrupt.
    ended: Condvar,
}

impl Shared {
    /// The body of a worker.
    fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(transfer) = queue.queued.pop_front() {
                drop(queue);
                let result = self.transfer(transfer);
                queue = self.queue.lock();
                queue.done.push(Completion { tag: transfer.tag, result });
                self.ended.notify_one();
            } else if queue.is_over {
                return;
            } else {
                queue = self.work.wait(queue);
            }
        }
    }

    fn transfer(&self, transfer: Transfer) -> Result<usize, Errno> {
        let Transfer { file, offset, bufs, .. } = transfer;
        match transfer.direction {
            // SAFETY: the caller of `submit` promised the memory until the completion is reaped.
            Direction::Read => unsafe { self.device.read(file, offset, bufs) },
            // SAFETY: as above.
            Direction::Write => unsafe { self.device.write(file, offset, bufs) },
        }
    }
}

/// A device with a queue, made of one without.
pub(crate) struct WorkerQueue {
    shared: Arc<Shared>,
    workers: Vec<thread::JoinHandle<()>>,
}

impl WorkerQueue {
    /// Starts this many workers.
    pub(crate) fn new(device: Arc<dyn Device>, workers: usize) -> Result<Self, BuildError> {
        let (queue, work, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { device, queue, work, ended });
        let mut this = Self { shared, workers: Vec::new() };
        for _ in 0..workers {
            let shared = this.shared.clone();
            let worker = thread::Builder::new()
                .name("unherd-cache-rw".into())
                .spawn(move || shared.run())
                .map_err(|error| BuildError::Thread(error.to_string()))?;
            this.workers.push(worker);
        }
        Ok(this)
    }
}

impl Drop for WorkerQueue {
    fn drop(&mut self) {
        self.shared.queue.lock().is_over = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // It does not panic; if it did, there is nothing more to do about it here.
            let _ = worker.join();
        }
    }
}

// SAFETY: a worker makes the blocking call of each queued transfer, and gives its completion after
// that has returned, once; all else is the device's own.
unsafe impl Device for WorkerQueue {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Opened, OpenError> {
        self.shared.device.open(path, how)
    }

    fn try_lock(&self, file: DeviceFile, exclusive: bool) -> Result<bool, Errno> {
        self.shared.device.try_lock(file, exclusive)
    }

    fn close(&self, file: DeviceFile) {
        self.shared.device.close(file);
    }

    fn len(&self, file: DeviceFile) -> Result<u64, Errno> {
        self.shared.device.len(file)
    }

    fn set_len(&self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno> {
        self.shared.device.set_len(file, len_bytes)
    }

    unsafe fn read(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.shared.device.read(file, offset, bufs) }
    }

    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.shared.device.write(file, offset, bufs) }
    }

    fn sync(&self, file: DeviceFile) -> Result<(), Errno> {
        self.shared.device.sync(file)
    }

    fn can_queue(&self) -> bool {
        true
    }

    fn claim_queue(&self) -> bool {
        true
    }

    fn release_queue(&self) {}

    unsafe fn submit(&self, transfer: Transfer) {
        self.shared.queue.lock().queued.push_back(transfer);
        self.shared.work.notify_one();
    }

    fn reap(&self, out: &mut Vec<Completion>, deadline: Deadline) {
        let mut queue = self.shared.queue.lock();
        loop {
            if std::mem::take(&mut queue.is_interrupted) || !queue.done.is_empty() {
                out.append(&mut queue.done);
                return;
            }
            queue = match deadline.timestamp() {
                None => self.shared.ended.wait(queue),
                Some(at) => {
                    let now = Timestamp::now();
                    if at <= now {
                        return;
                    }
                    self.shared.ended.wait_timeout(queue, at.since(now))
                }
            };
        }
    }

    fn interrupt(&self) {
        self.shared.queue.lock().is_interrupted = true;
        self.shared.ended.notify_one();
    }
}
