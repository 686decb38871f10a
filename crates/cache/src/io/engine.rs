//! Queued I/O: transfers are submitted, and one thread of the cache reaps. The body of that thread
//! is the owner's, which says what becomes of a run that has ended.
//!
//! What is queued is what nobody's thread waits for: writes behind, reads ahead, and the reads of
//! tasks. A thread that misses a page reads it itself, as it would sleep either way, and is woken
//! once instead of having another woken first. But where [`BLOCKING_READS_MAX`] threads do, the
//! next ones have their reads queued, and sleep until these have ended. Reads that somebody waits
//! for are begun in the order in which they are queued, while there are fewer than [`READS_MAX`]
//! with those of threads, and [`QUEUED_READS_MIN`] always; the others are deferred.
//!
//! A run is kept in a slot until its transfer is complete, be the thread that wanted it there or
//! not: the slot owns it, and with it the memory. The tag of a transfer is the number of its slot.
//!
//! Who brings a page in so waits for the page like everybody else, and finds the pin in the slot,
//! for which it has a `QueuedRead` (`file/queued_read.rs`). A task may be dropped while it waits:
//!
//! ```text
//!  the queued read is dropped               the I/O thread completes the read
//!  --------------------------               ---------------------------------
//!                                           publish the page, pinned
//!  lock the slots                           lock the slots
//!  a result: take it, free the slot         abandoned: take the pin, free the slot
//!  else: abandoned                          else: the result is there
//!  unlock; unpin what was taken             unlock; unpin what was taken
//!                                           wake the waiters for the page
//! ```
//!
//! Excluded: that both leave the pin, or both take it; the one that locks first leaves, the other
//! takes. The claim is the slot's until the transfer is complete, so no memory is freed that the
//! device writes; and the page comes in for the others.
#![expect(unsafe_code, reason = "frames and runs are given to the device")]

use std::collections::VecDeque;

use unherd_sys::primitives::{Arc, AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering};
use unherd_sys::{Completion, Device, Errno};

use crate::error::BuildError;
use crate::frames::{FrameMemory, Pin};
use crate::io::{Moved, Payload, Run};

/// With this many threads that read by themselves, or this many full runs under way that nobody
/// has asked for, no more are begun ahead. A read that its own thread waits for costs less, and the
/// device is busy.
const BUSY_READS: u32 = 2;

/// The most threads that read by themselves where others can be queued. Linux has 256
/// requests for a device mostly, and a thread that finds none sleeps for one, and for the device
/// then. Chosen by measurement: where 512 threads read at random, 128 take 6 to 13 % more CPU.
pub(crate) const BLOCKING_READS_MAX: u32 = if cfg!(shuttle) { 1 } else { 192 };

/// With this many reads, of threads themselves and queued, no queued one is begun: a few of those
/// 256 requests are left to others. Chosen by measurement: with all, a quarter of the sleeps of 512
/// threads that read in order were for a request.
pub(crate) const READS_MAX: u32 = if cfg!(shuttle) { 2 } else { 224 };

/// As many queued reads are begun however many threads read.
const QUEUED_READS_MIN: u32 = READS_MAX - BLOCKING_READS_MAX;

/// As how many pages a run counts at least that nobody has asked for: a page alone keeps the device
/// busy for as long.
const RUN_PAGES_MIN: u32 = 16;

#[derive(Debug)]
struct Slot<T> {
    /// Under way, or deferred; not while the I/O thread completes it.
    run: Option<Run<T>>,
    /// What came of it, for its owner.
    result: Option<Result<Pin, Errno>>,
    /// Whether there is a `result`: what its owner looks at when it is woken, without the lock.
    /// Relaxed: set under the lock, and the owner takes that before it believes what it saw.
    has_result: Arc<AtomicBool>,
    /// Nobody will come for the result.
    is_abandoned: bool,
}

#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    /// Reads that somebody waits for: how many were begun, and those that are deferred. There are
    /// none of these without [`QUEUED_READS_MIN`] of those.
    reads: u32,
    deferred: VecDeque<usize>,
    /// The I/O thread has died: nobody takes completions any more.
    is_over: bool,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        let (slots, free, deferred) = Default::default();
        Self { slots, free, reads: 0, deferred, is_over: false }
    }
}

impl<T> Slots<T> {
    /// Puts the run into a slot. Gives that, and what will say that there is a result.
    fn put(&mut self, run: Run<T>) -> (usize, Arc<AtomicBool>) {
        let at = self.free.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            let has_result = Arc::default();
            self.slots.push(Slot { run: None, result: None, has_result, is_abandoned: false });
        }
        let slot = &mut self.slots[at];
        slot.run = Some(run);
        slot.is_abandoned = false;
        slot.has_result.store(false, Ordering::Relaxed);
        (at, slot.has_result.clone())
    }

    /// Frees the slot if there is a result, which it gives.
    fn take_result(&mut self, at: usize) -> Option<Result<Pin, Errno>> {
        let result = self.slots[at].result.take();
        if result.is_some() {
            self.free.push(at);
        }
        result
    }
}

/// The queue of a device, claimed for one cache.
pub(crate) struct Engine<T> {
    device: Arc<dyn Device>,
    slots: Mutex<Slots<T>>,
    /// Threads that read by themselves now. Relaxed: a count.
    blocking_reads: AtomicU32,
    /// How many reads are deferred. Relaxed: a thread that has read by itself looks here whether
    /// to begin one. If it is mistaken, the next end of a read does.
    deferred: AtomicU32,
    /// Pages that are being read and that nobody has asked for, [`RUN_PAGES_MIN`] at least for
    /// each run; very many when the I/O thread has died. Relaxed: a count.
    ahead_pages: AtomicU32,
    /// Set once, to end the I/O thread. Relaxed: `interrupt` orders it.
    stopping: AtomicBool,
}

/// The slot of a run, and what will say that there is a result; or the run, if the I/O thread has
/// died.
type Submitted<T> = Result<(usize, Arc<AtomicBool>), Box<Run<T>>>;

/// That a thread is counted among those that read by themselves, until dropped.
pub(crate) struct BlockingRead<'a, T: Payload> {
    engine: &'a Engine<T>,
    memory: &'a FrameMemory,
}

impl<T: Payload> Drop for BlockingRead<'_, T> {
    fn drop(&mut self) {
        self.engine.blocking_reads.fetch_sub(1, Ordering::Relaxed);
        if self.engine.deferred.load(Ordering::Relaxed) > 0 {
            self.engine.begin_deferred(self.memory, self.engine.slots.lock());
        }
    }
}

impl<T> Drop for Engine<T> {
    fn drop(&mut self) {
        // Nothing is under way: if the I/O thread died, this is never dropped.
        self.device.release_queue();
    }
}

impl<T: Payload> Engine<T> {
    /// Claims the queue of the device until dropped.
    pub(crate) fn new(device: Arc<dyn Device>) -> Result<Self, BuildError> {
        if device.queue().is_none() {
            return Err(BuildError::NoQueue);
        }
        if !device.claim_queue() {
            return Err(BuildError::QueueTaken);
        }
        Ok(Self {
            device,
            slots: Mutex::new(Slots::default()),
            blocking_reads: AtomicU32::new(0),
            deferred: AtomicU32::new(0),
            ahead_pages: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Whether the I/O thread has died.
    pub(crate) fn is_over(&self) -> bool {
        self.slots.lock().is_over
    }

    /// The I/O thread has died: all operations to come fail. Gives the runs that are under way, of
    /// which the device may use the memory for ever, and those that are deferred, with their
    /// slots; and whether there is no result of the run that was `completing`.
    pub(crate) fn give_up(&self, completing: Option<usize>) -> (Vec<(usize, T)>, bool) {
        let mut slots = self.slots.lock();
        slots.is_over = true;
        slots.deferred.clear();
        self.deferred.store(0, Ordering::Relaxed);
        self.ahead_pages.store(u32::MAX / 2, Ordering::Relaxed);
        let is_empty = |slot: &Slot<T>| slot.run.is_none() && slot.result.is_none();
        let lacks_result =
            completing.is_some_and(|at| is_empty(&slots.slots[at]) && !slots.free.contains(&at));
        let take = |(at, slot): (usize, &mut Slot<T>)| Some((at, slot.run.take()?.abandon()));
        (slots.slots.iter_mut().enumerate().filter_map(take).collect(), lacks_result)
    }

    /// Submits what is next to be moved of the run in a slot.
    fn submit(&self, memory: &FrameMemory, at: usize) {
        let transfer = {
            let mut slots = self.slots.lock();
            let Some(run) = slots.slots[at].run.as_mut() else { return };
            run.transfer(memory, at as u64)
        };
        // SAFETY: the slot owns the run, with its frames and its list of pieces, until the transfer
        // is complete.
        unsafe { self.device.submit(transfer) };
    }

    /// A thread is to read by itself, unless there are enough that do, and it `may_queue`.
    pub(crate) fn try_begin_blocking_read<'a>(
        &'a self,
        memory: &'a FrameMemory,
        may_queue: bool,
    ) -> Option<BlockingRead<'a, T>> {
        let before = self.blocking_reads.fetch_add(1, Ordering::Relaxed);
        let own = BlockingRead { engine: self, memory };
        (!may_queue || before < BLOCKING_READS_MAX).then_some(own)
    }

    /// Whether so little is being read that the device is idle unless somebody reads ahead.
    pub(crate) fn may_read_ahead(&self, run_pages: usize) -> bool {
        self.blocking_reads.load(Ordering::Relaxed) < BUSY_READS
            && self.ahead_pages.load(Ordering::Relaxed) < BUSY_READS * run_pages as u32
    }

    /// As [`Engine::begin`], for a run to read that nobody has asked for.
    pub(crate) fn begin_ahead(
        &self,
        memory: &FrameMemory,
        run: Run<T>,
        pages: usize,
    ) -> Submitted<T> {
        let pages = weight(pages);
        self.ahead_pages.fetch_add(pages, Ordering::Relaxed);
        self.begin(memory, run).inspect_err(|_| {
            self.ahead_pages.fetch_sub(pages, Ordering::Relaxed);
        })
    }

    /// Begins to move a run.
    pub(crate) fn begin(&self, memory: &FrameMemory, run: Run<T>) -> Submitted<T> {
        let mut slots = self.slots.lock();
        if slots.is_over {
            return Err(Box::new(run));
        }
        let begun = slots.put(run);
        drop(slots);
        self.submit(memory, begun.0);
        Ok(begun)
    }

    /// As [`Engine::begin`], for a run to read that somebody waits for: it may be deferred.
    pub(crate) fn begin_read(&self, memory: &FrameMemory, run: Run<T>) -> Submitted<T> {
        let mut slots = self.slots.lock();
        if slots.is_over {
            return Err(Box::new(run));
        }
        let begun = slots.put(run);
        slots.deferred.push_back(begun.0);
        self.begin_deferred(memory, slots);
        Ok(begun)
    }

    /// Begins reads that are deferred, as many as may be.
    fn begin_deferred<'a>(&'a self, memory: &FrameMemory, mut slots: MutexGuard<'a, Slots<T>>) {
        while self.may_read(&slots)
            && let Some(next) = slots.deferred.pop_front()
        {
            slots.reads += 1;
            drop(slots);
            self.submit(memory, next);
            slots = self.slots.lock();
        }
        self.deferred.store(slots.deferred.len() as u32, Ordering::Relaxed);
    }

    /// Whether one more of the reads that somebody waits for may be given to the device.
    fn may_read(&self, slots: &Slots<T>) -> bool {
        let blocking_reads = self.blocking_reads.load(Ordering::Relaxed);
        slots.reads < QUEUED_READS_MIN || slots.reads.saturating_add(blocking_reads) < READS_MAX
    }

    /// Frees the slot if there is a result, which it gives.
    pub(crate) fn take_result(&self, at: usize) -> Option<Result<Pin, Errno>> {
        self.slots.lock().take_result(at)
    }

    /// Nobody will come for the result. Gives the pin, if it is there already.
    pub(crate) fn abandon(&self, at: usize) -> Option<Pin> {
        let mut slots = self.slots.lock();
        slots.slots[at].is_abandoned = true;
        slots.take_result(at)?.ok()
    }

    #[cfg(test)]
    pub(crate) fn used_slots(&self) -> usize {
        let slots = self.slots.lock();
        slots.slots.len() - slots.free.len()
    }

    #[cfg(test)]
    pub(crate) fn deferred(&self) -> usize {
        self.slots.lock().deferred.len()
    }

    /// Ends the I/O thread. No operation may be under way.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.device.interrupt();
    }

    /// Whether [`Engine::stop`] was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Gives what a run carried that has ended, and how. One that came out short, or was
    /// interrupted, goes on.
    pub(crate) fn complete(&self, memory: &FrameMemory, done: Completion) -> Option<(T, Moved)> {
        let at = done.tag as usize;
        // Else nothing is under way for it.
        let mut run = self.slots.lock().slots.get_mut(at)?.run.take()?;
        let Some(moved) = run.advance(done.result) else {
            self.resubmit(memory, at, run);
            return None;
        };
        Some((run.into_payload(), moved))
    }

    /// The run that was taken out of the slot, or another in its place, goes on.
    pub(crate) fn resubmit(&self, memory: &FrameMemory, at: usize, run: Run<T>) {
        self.slots.lock().slots[at].run = Some(run);
        self.submit(memory, at);
    }

    /// Puts the result into the slot of a read that has ended, and begins others. Gives back a pin
    /// that nobody will come for.
    pub(crate) fn put_result(
        &self,
        memory: &FrameMemory,
        at: usize,
        result: Result<Pin, Errno>,
    ) -> Option<Pin> {
        let mut slots = self.slots.lock();
        let slot = &mut slots.slots[at];
        let mut unwanted = None;
        if slot.is_abandoned {
            slots.free.push(at);
            unwanted = result.ok();
        } else {
            slot.result = Some(result);
            slot.has_result.store(true, Ordering::Relaxed);
        }
        debug_assert!(slots.reads > 0 || slots.is_over, "a read ends once");
        slots.reads = slots.reads.saturating_sub(1);
        self.begin_deferred(memory, slots);
        unwanted
    }

    /// A run has ended that nobody waits for.
    pub(crate) fn free(&self, at: usize) {
        self.slots.lock().free.push(at);
    }

    /// As [`Engine::free`], of one that [`Engine::begin_ahead`] was given, with as many pages.
    pub(crate) fn end_ahead(&self, at: usize, pages: usize) {
        self.ahead_pages.fetch_sub(weight(pages), Ordering::Relaxed);
        self.free(at);
    }
}

/// As how many pages a run counts that nobody has asked for.
fn weight(pages: usize) -> u32 {
    (pages as u32).max(RUN_PAGES_MIN)
}
