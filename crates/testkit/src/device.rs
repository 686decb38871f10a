//! A device in memory, with faults.
//!
//! Files may be written, extended and truncated by others meanwhile ([`SimDevice::append`]).
//!
//! Space is not counted: a reservation makes the file as long as it should be, and is refused where
//! writes are ([`SimDevice::refuse_writes`]).
//!
//! Fault model: operations fail with `EIO`, once or from then on; transfers are short; completions
//! are late and out of order; a failed write leaves some of its sectors written; a failed sync is
//! reported once, and the writes that it should have made durable are lost in the next crash; a
//! crash keeps what was synced and a random selection of the sectors that were not. Misaligned
//! transfers are refused with `EINVAL`, as direct I/O refuses them.
//!
//! Not modelled: time, except what others do while a transfer is under way; silent corruption,
//! sectors that are torn inside, the loss of a directory entry.
//!
//! All choices come from one [`Seed`]. A contract that the caller breaks (a file closed under a
//! transfer, memory lent to two transfers at once) is a panic.
#![expect(unsafe_code, reason = "a device moves bytes through raw memory")]

mod faults;
mod image;
mod state;

use std::ops::Range;
use std::path::Path;

use unherd_sys::primitives::{Condvar, Mutex, MutexGuard, thread};
use unherd_sys::{
    Completion, Deadline, Device, DeviceFile, Direction, Errno, IoBufs, OpenError, OpenHow, Opened,
    QueueKind, Timestamp, Transfer,
};

use crate::Seed;
pub use faults::{Failure, FaultPlan, When};
use state::State;

/// How much one file was used. Operations that failed are counted, refused ones are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

/// A [`Device`] in memory. See the module's text for what it models.
///
/// Several users may share one; advisory locks belong to one [`Device::open`], as those of flock(2)
/// do, so a second opening of a locked file gets none.
#[derive(Debug)]
pub struct SimDevice {
    state: Mutex<State>,
    /// Anything that somebody may wait for: a queued transfer, the gate, an interrupt, a crash.
    changed: Condvar,
    queue_is_claimed: Mutex<bool>,
}

impl SimDevice {
    /// A device without files and without faults.
    pub fn new(seed: Seed) -> Self {
        Self {
            state: Mutex::new(State::new(seed)),
            changed: Condvar::new(),
            queue_is_claimed: Mutex::new(false),
        }
    }

    /// A device without files, with the faults of `plan`.
    pub fn with_faults(seed: Seed, plan: FaultPlan) -> Self {
        let device = Self::new(seed);
        device.set_faults(plan);
        device
    }

    /// From now on `plan` says what goes wrong; its operations are counted from here.
    ///
    /// Files that are open keep their alignment.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.state.lock().set_plan(plan);
    }

    /// How many operations have failed or were shortened so far.
    pub fn faults_injected(&self) -> u64 {
        self.state.lock().faults_injected()
    }

    /// Puts a file with these bytes, all durable, at `path`, in place of what was there.
    pub fn put(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        self.state.lock().put(path.as_ref(), bytes);
    }

    /// Removes the file at `path`, which nobody has open; the next that is made has its number.
    pub fn remove(&self, path: impl AsRef<Path>) {
        self.state.lock().remove(path.as_ref());
    }

    /// Gives the file at `path` a second name, as a hard link does. False if there is no file.
    pub fn link(&self, path: impl AsRef<Path>, name: impl AsRef<Path>) -> bool {
        self.state.lock().link(path.as_ref(), name.as_ref())
    }

    /// The bytes that a read of the file at `path` would see.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.state.lock().bytes(path.as_ref())
    }

    /// The bytes that a crash now would leave of the file at `path` at least.
    pub fn durable_bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.state.lock().durable_bytes(path.as_ref())
    }

    /// Somebody else appends to the file at `path`, as a process that asks for no lock can. False
    /// if there is no file.
    pub fn append(&self, path: impl AsRef<Path>, bytes: &[u8]) -> bool {
        self.state.lock().change(path.as_ref(), |image| image.write(image.live().len(), bytes))
    }

    /// Somebody else writes to the file at `path`.
    pub fn overwrite(&self, path: impl AsRef<Path>, offset: usize, bytes: &[u8]) -> bool {
        self.state.lock().change(path.as_ref(), |image| image.write(offset, bytes))
    }

    /// Somebody else makes the file at `path` this long.
    pub fn truncate(&self, path: impl AsRef<Path>, len_bytes: usize) -> bool {
        self.state.lock().change(path.as_ref(), |image| image.set_len(len_bytes))
    }

    /// From now on each write to the file at `path`, and each reservation of space for it, fails
    /// with this error and changes nothing, whatever the plan says; with `None`, no longer.
    pub fn refuse_writes(&self, path: impl AsRef<Path>, errno: Option<Errno>) {
        self.state.lock().refuse_writes(path.as_ref(), errno);
    }

    /// Who opens the file at `path` from now on is told that it lies on the device of this number.
    pub fn set_device(&self, path: impl AsRef<Path>, device: u64) {
        self.state.lock().set_device(path.as_ref(), device);
    }

    /// The next changes of a file's length fail, as many as this.
    pub fn fail_changes_of_length(&self, changes: u32) {
        self.state.lock().failing_changes_of_length = changes;
    }

    /// The next reap panics, once.
    pub fn panic_in_reap(&self) {
        self.state.lock().reap_panics = true;
        self.changed.notify_all();
    }

    /// How often a thread has come to reap.
    pub fn reaps(&self) -> u64 {
        self.state.lock().reaps
    }

    /// How much the file at `path` was used; nothing if there is none.
    pub fn counts(&self, path: impl AsRef<Path>) -> Counts {
        self.state.lock().counts(path.as_ref())
    }

    /// Closes the gate: reads that come from now on, blocking or queued, are held at it.
    pub fn block_reads(&self) {
        self.state.lock().reads_blocked = true;
    }

    /// Opens the gate, and lets the reads go that it has held.
    pub fn release_reads(&self) {
        self.state.lock().reads_blocked = false;
        self.changed.notify_all();
    }

    /// How many reads are held at the gate.
    pub fn held_reads(&self) -> usize {
        self.state.lock().held_reads()
    }

    /// Waits until at least `n` reads are held at the gate.
    pub fn wait_for_held_reads(&self, n: usize) {
        let mut state = self.state.lock();
        while state.held_reads() < n {
            state = self.changed.wait(state);
        }
    }

    /// Queued writes do not complete from now on.
    pub fn block_queued_writes(&self) {
        self.state.lock().writes_blocked = true;
    }

    /// Lets them complete again.
    pub fn release_queued_writes(&self) {
        self.state.lock().writes_blocked = false;
        self.changed.notify_all();
    }

    /// How many writes are in the queue.
    pub fn queued_writes(&self) -> usize {
        self.state.lock().queued(Direction::Write)
    }

    /// From now on the flush of a directory, by which the name of a new file becomes durable, does
    /// not end.
    pub fn block_creations(&self) {
        self.state.lock().creations_blocked = true;
    }

    /// Lets those flushes end.
    pub fn release_creations(&self) {
        self.state.lock().creations_blocked = false;
        self.changed.notify_all();
    }

    /// Waits until `n` openings are in the flush of a directory.
    pub fn wait_for_held_creations(&self, n: usize) {
        let mut state = self.state.lock();
        while state.held_creations < n {
            state = self.changed.wait(state);
        }
    }

    /// The power fails, and comes back.
    ///
    /// Synced bytes survive, with a random selection of the sectors that were written since. Every
    /// file is closed and every lock gone: what still uses an old [`DeviceFile`] gets `EBADF`.
    /// Queued transfers end with `EIO`, their writes perhaps done in part. The gate is open.
    pub fn crash(&self) {
        self.state.lock().crash();
        self.changed.notify_all();
    }

    /// Yields the processor a random number of times, where the plan delays completions.
    fn dawdle(&self) {
        let yields = {
            let mut state = self.state.lock();
            state.draw_delay() + state.draw_yields()
        };
        for _ in 0..yields {
            thread::yield_now();
        }
    }

    /// What was asked for has been done: others see that before the caller knows it.
    fn return_late(&self, mut state: MutexGuard<'_, State>) {
        let yields = state.draw_yields();
        drop(state);
        for _ in 0..yields {
            thread::yield_now();
        }
    }

    /// Lets the time pass that queued transfers take, if there are any.
    fn pass_time<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let yields = if state.has_queued() { state.draw_yields() } else { 0 };
        if yields == 0 {
            return state;
        }
        drop(state);
        for _ in 0..yields {
            thread::yield_now();
        }
        self.state.lock()
    }
}

// SAFETY: memory is used under the lock of the state only, within the call of a blocking transfer
// and before the completion of a queued one is given out, which happens once.
unsafe impl Device for SimDevice {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Opened, OpenError> {
        let mut state = self.state.lock();
        let opened = state.open(path, how)?;
        if how.create && opened.len_bytes == 0 {
            state.held_creations += 1;
            self.changed.notify_all();
            while state.creations_blocked {
                state = self.changed.wait(state);
            }
            state.held_creations -= 1;
        }
        Ok(opened)
    }

    fn try_lock(&self, file: DeviceFile, exclusive: bool) -> Result<bool, Errno> {
        self.state.lock().try_lock(file, exclusive)
    }

    fn close(&self, file: DeviceFile) {
        self.state.lock().close(file);
    }

    fn len(&self, file: DeviceFile) -> Result<u64, Errno> {
        self.state.lock().len(file)
    }

    fn set_len(&self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let done = state.set_len(file, len_bytes);
        self.return_late(state);
        done
    }

    fn punch_hole(&self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        self.dawdle();
        let mut state = self.state.lock();
        let done = state.punch_hole(file, range);
        self.return_late(state);
        done
    }

    fn allocate(&self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        self.state.lock().allocate(file, range)
    }

    unsafe fn read(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        self.dawdle();
        let mut state = self.state.lock();
        if state.reads_blocked {
            state.hold(file);
            self.changed.notify_all();
            while state.reads_blocked {
                state = self.changed.wait(state);
            }
            state.let_go(file);
        }
        // SAFETY: the caller's promise about the memory lasts until this function returns.
        let moved = unsafe { state.transfer(Direction::Read, file, offset, bufs) };
        self.return_late(state);
        moved
    }

    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        self.dawdle();
        // SAFETY: the caller's promise about the memory lasts until this function returns.
        unsafe { self.state.lock().transfer(Direction::Write, file, offset, bufs) }
    }

    fn sync(&self, file: DeviceFile) -> Result<(), Errno> {
        self.dawdle();
        self.state.lock().sync(file)
    }

    fn queue(&self) -> Option<QueueKind> {
        Some(QueueKind::Own)
    }

    fn claim_queue(&self) -> bool {
        !std::mem::replace(&mut *self.queue_is_claimed.lock(), true)
    }

    fn release_queue(&self) {
        *self.queue_is_claimed.lock() = false;
    }

    unsafe fn submit(&self, transfer: Transfer) {
        // SAFETY: the caller's promise lasts until the completion is reaped, which is when the
        // state has let go of the memory.
        unsafe { self.state.lock().submit(transfer) };
        self.changed.notify_all();
    }

    /// The deadline is one of the real clock; a simulation that must repeat waits for ever.
    fn reap(&self, out: &mut Vec<Completion>, deadline: Deadline) {
        let mut state = self.state.lock();
        state.reaps += 1;
        loop {
            if std::mem::take(&mut state.reap_panics) {
                drop(state);
                panic!("as the test has asked for");
            }
            state = self.pass_time(state);
            let before = out.len();
            state.complete(out);
            if state.take_interrupt() || out.len() > before {
                return;
            }
            state = match deadline.timestamp() {
                None => self.changed.wait(state),
                Some(at) => {
                    let now = Timestamp::now();
                    if at <= now {
                        return;
                    }
                    self.changed.wait_timeout(state, at.since(now))
                }
            };
        }
    }

    fn interrupt(&self) {
        self.state.lock().interrupt();
        self.changed.notify_all();
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
