//! Queued I/O: threads submit transfers and wait for their pages; one thread of the cache reaps.
//!
//! An operation is kept in a slot from its submission until its transfer is complete, be the thread
//! that wanted it there or not: the slot owns the claim or the run, and with it the memory. The
//! tag of a transfer is the number of its slot.
//!
//! The thread that brings a page in waits for the page like everybody else, and finds its pin in
//! the slot.
#![expect(unsafe_code, reason = "frames and runs are given to the device")]

use unherd_sync::{Wait, WaitKey};
use unherd_sys::primitives::{Arc, AtomicBool, Mutex, Ordering};
use unherd_sys::{Completion, Deadline, Device, Direction, Errno, Transfer};

use crate::core::Core;
use crate::error::BuildError;
use crate::files::FileState;
use crate::frame::{Claim, Pin};
use crate::index::Announced;
use crate::run::Run;
use crate::transfer::{Progress, Step};
use crate::writeback::WriteFailure;

#[derive(Debug)]
enum Operation {
    Fill { file: Arc<FileState>, announced: Announced, claim: Claim, progress: Progress },
    Filled(Result<Pin, Errno>),
    Write { run: Run, progress: Progress },
}

#[derive(Debug, Default)]
struct Slot {
    operation: Option<Operation>,
    /// Whether the operation is [`Operation::Filled`]: what its owner looks at when it is woken,
    /// without the lock. Relaxed: set under the lock, and the owner takes that before it believes
    /// what it saw.
    is_filled: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

/// The queue of a device, claimed for one cache.
pub(crate) struct Engine {
    device: Arc<dyn Device>,
    slots: Mutex<Slots>,
    /// Set once, to end the I/O thread. Relaxed: `interrupt` orders it.
    stopping: AtomicBool,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.device.release_queue();
    }
}

impl Engine {
    /// Claims the queue of the device, until dropped.
    pub(crate) fn new(device: Arc<dyn Device>) -> Result<Self, BuildError> {
        if !device.can_queue() {
            return Err(BuildError::NoQueue);
        }
        if !device.claim_queue() {
            return Err(BuildError::QueueTaken);
        }
        Ok(Self { device, slots: Mutex::default(), stopping: AtomicBool::new(false) })
    }

    /// Puts an operation into a slot. Gives what will say that it is filled.
    fn keep(&self, operation: Operation) -> (usize, Arc<AtomicBool>) {
        let mut slots = self.slots.lock();
        let at = slots.free.pop().unwrap_or(slots.slots.len());
        if at == slots.slots.len() {
            slots.slots.push(Slot::default());
        }
        let slot = &mut slots.slots[at];
        slot.operation = Some(operation);
        slot.is_filled.store(false, Ordering::Relaxed);
        (at, slot.is_filled.clone())
    }

    /// Submits the next part of the operation in a slot.
    fn submit(&self, core: &Core, at: usize) {
        let transfer = {
            let mut slots = self.slots.lock();
            match slots.slots[at].operation.as_mut() {
                Some(Operation::Fill { file, announced, claim, progress }) => {
                    let range = progress.request();
                    Transfer {
                        direction: Direction::Read,
                        file: file.device_file,
                        offset: core.offset(announced.key.page) + range.start as u64,
                        buf: core.memory.buf_to_fill(claim, range),
                        tag: at as u64,
                    }
                }
                Some(Operation::Write { run, progress }) => {
                    let range = progress.request();
                    Transfer {
                        direction: Direction::Write,
                        file: run.file.device_file,
                        offset: core.offset(run.first) + range.start as u64,
                        buf: run.buf(range, &core.memory, &core.runs),
                        tag: at as u64,
                    }
                }
                Some(Operation::Filled(_)) | None => return,
            }
        };
        // SAFETY: the slot owns the claim or the run until the transfer is complete.
        unsafe { self.device.submit(transfer) };
    }

    /// Reads a page into a claimed frame, and waits for it under `page-read`.
    pub(crate) fn fill(
        &self,
        core: &Core,
        file: &Arc<FileState>,
        announced: Announced,
        claim: Claim,
    ) -> Result<Pin, Errno> {
        let progress = Progress::new(Direction::Read, core.memory.page_bytes(), file.alignment);
        let operation = Operation::Fill { file: file.clone(), announced, claim, progress };
        let (at, is_filled) = self.keep(operation);
        self.submit(core, at);
        let page: WaitKey = announced.key.into();
        // Without a deadline it cannot time out.
        let how = Wait::new(core.reasons.page_read);
        loop {
            let _ = core.pages.wait_until(&page, || is_filled.load(Ordering::Relaxed), how);
            if let Some(filled) = self.take_filled(at) {
                return filled;
            }
        }
    }

    fn take_filled(&self, at: usize) -> Option<Result<Pin, Errno>> {
        let mut slots = self.slots.lock();
        match slots.slots[at].operation.take() {
            Some(Operation::Filled(filled)) => {
                slots.free.push(at);
                Some(filled)
            }
            other => {
                slots.slots[at].operation = other;
                None
            }
        }
    }

    /// Begins to write a run back.
    pub(crate) fn write(&self, core: &Core, run: Run, progress: Progress) {
        let (at, _) = self.keep(Operation::Write { run, progress });
        self.submit(core, at);
    }

    /// The body of the I/O thread: reaps until [`Engine::stop`].
    pub(crate) fn run(&self, core: &Core) {
        let mut completions = Vec::new();
        while !self.stopping.load(Ordering::Relaxed) {
            self.device.reap(&mut completions, Deadline::NEVER);
            for completion in completions.drain(..) {
                self.complete(core, completion);
            }
        }
    }

    /// Ends the I/O thread. No operation may be under way.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.device.interrupt();
    }

    fn complete(&self, core: &Core, completion: Completion) {
        let at = completion.tag as usize;
        let taken = self.slots.lock().slots.get_mut(at).and_then(|slot| slot.operation.take());
        let Some(operation) = taken else {
            return;
        };
        if completion.result == Err(Errno::INTR) {
            return self.go_on(core, at, operation);
        }
        match operation {
            Operation::Fill { file, announced, claim, mut progress } => {
                let read = match completion.result.map(|bytes| progress.advance(bytes)) {
                    Ok(Step::More) => {
                        let operation = Operation::Fill { file, announced, claim, progress };
                        return self.go_on(core, at, operation);
                    }
                    Ok(Step::Done | Step::Stuck) => Ok(progress.moved()),
                    Err(errno) => Err(errno),
                };
                let filled = core.end_fill(announced.key, claim, read);
                let news = filled.as_ref().map(|_| ()).map_err(|errno| *errno);
                // The pin lies in the slot before anybody is woken.
                self.keep_filled(at, filled);
                core.tell_filled(announced, news);
            }
            Operation::Write { run, mut progress } => {
                let written = match completion.result.map(|bytes| progress.advance(bytes)) {
                    Ok(Step::More) => {
                        return self.go_on(core, at, Operation::Write { run, progress });
                    }
                    Ok(Step::Done) => Ok(()),
                    Ok(Step::Stuck) => Err(WriteFailure::Stuck(progress.moved())),
                    Err(errno) => Err(WriteFailure::Refused(errno)),
                };
                self.slots.lock().free.push(at);
                let buffer = core.end_run(run, written);
                core.runs.put(buffer, &core.waits);
                core.notify_idle(1);
            }
            // Nothing is under way for it.
            Operation::Filled(filled) => self.keep_filled(at, filled),
        }
    }

    fn keep_filled(&self, at: usize, filled: Result<Pin, Errno>) {
        let mut slots = self.slots.lock();
        let slot = &mut slots.slots[at];
        slot.operation = Some(Operation::Filled(filled));
        slot.is_filled.store(true, Ordering::Relaxed);
    }

    /// Submits the rest of a transfer that came out short, or was interrupted.
    fn go_on(&self, core: &Core, at: usize, operation: Operation) {
        self.slots.lock().slots[at].operation = Some(operation);
        self.submit(core, at);
    }
}
