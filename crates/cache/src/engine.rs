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
use unherd_sys::{Completion, Deadline, Direction, Errno, Transfer};

use crate::core::Core;
use crate::files::FileState;
use crate::frame::{Claim, Pin};
use crate::page::PageKey;
use crate::run::Run;
use crate::transfer::{Progress, Step};
use crate::writeback::WriteFailure;

#[derive(Debug)]
enum Operation {
    Fill { file: Arc<FileState>, key: PageKey, claim: Claim, progress: Progress },
    Filled(Result<Pin, Errno>),
    Write { run: Run, progress: Progress },
}

#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Option<Operation>>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Engine {
    slots: Mutex<Slots>,
    /// Set once, to end the I/O thread. Relaxed: `interrupt` orders it.
    stopping: AtomicBool,
}

impl Engine {
    /// Puts an operation into a slot.
    fn keep(&self, operation: Operation) -> usize {
        let mut slots = self.slots.lock();
        match slots.free.pop() {
            Some(at) => {
                slots.slots[at] = Some(operation);
                at
            }
            None => {
                slots.slots.push(Some(operation));
                slots.slots.len() - 1
            }
        }
    }

    /// Submits the next part of the operation in a slot.
    fn submit(&self, core: &Core, at: usize) {
        let transfer = {
            let mut slots = self.slots.lock();
            match slots.slots[at].as_mut() {
                Some(Operation::Fill { file, key, claim, progress }) => {
                    let range = progress.request();
                    Transfer {
                        direction: Direction::Read,
                        file: file.device_file,
                        offset: core.offset(key.page) + range.start as u64,
                        buf: core.frames.buf_to_fill(claim, range),
                        tag: at as u64,
                    }
                }
                Some(Operation::Write { run, progress }) => {
                    let range = progress.request();
                    Transfer {
                        direction: Direction::Write,
                        file: run.file.device_file,
                        offset: core.offset(run.first) + range.start as u64,
                        buf: run.buf(range, &core.frames, &core.runs),
                        tag: at as u64,
                    }
                }
                Some(Operation::Filled(_)) | None => return,
            }
        };
        // SAFETY: the slot owns the claim or the run until the transfer is complete.
        unsafe { core.device.submit(transfer) };
    }

    /// Reads a page into a claimed frame, and waits for it under `page-read`.
    pub(crate) fn fill(
        &self,
        core: &Core,
        file: &Arc<FileState>,
        key: PageKey,
        claim: Claim,
    ) -> Result<Pin, Errno> {
        let progress = Progress::new(Direction::Read, core.frames.page_bytes(), file.alignment);
        let at = self.keep(Operation::Fill { file: file.clone(), key, claim, progress });
        self.submit(core, at);
        let page: WaitKey = key.into();
        // Without a deadline it cannot time out.
        let how = Wait::new(core.reasons.page_read);
        loop {
            let _ = core.pages.wait_until(&page, || self.is_filled(at), how);
            if let Some(filled) = self.take_filled(at) {
                return filled;
            }
        }
    }

    fn is_filled(&self, at: usize) -> bool {
        matches!(self.slots.lock().slots[at], Some(Operation::Filled(_)))
    }

    fn take_filled(&self, at: usize) -> Option<Result<Pin, Errno>> {
        let mut slots = self.slots.lock();
        match slots.slots[at].take() {
            Some(Operation::Filled(filled)) => {
                slots.free.push(at);
                Some(filled)
            }
            other => {
                slots.slots[at] = other;
                None
            }
        }
    }

    /// Begins to write a run back.
    pub(crate) fn write(&self, core: &Core, run: Run, progress: Progress) {
        let at = self.keep(Operation::Write { run, progress });
        self.submit(core, at);
    }

    /// The body of the I/O thread: reaps until [`Engine::stop`].
    pub(crate) fn run(&self, core: &Core) {
        let mut completions = Vec::new();
        while !self.stopping.load(Ordering::Relaxed) {
            core.device.reap(&mut completions, Deadline::NEVER);
            for completion in completions.drain(..) {
                self.complete(core, completion);
            }
        }
    }

    /// Ends the I/O thread. No operation may be under way.
    pub(crate) fn stop(&self, core: &Core) {
        self.stopping.store(true, Ordering::Relaxed);
        core.device.interrupt();
    }

    fn complete(&self, core: &Core, completion: Completion) {
        let at = completion.tag as usize;
        let Some(operation) = self.slots.lock().slots.get_mut(at).and_then(Option::take) else {
            return;
        };
        match operation {
            Operation::Fill { file, key, claim, mut progress } => {
                let read = match completion.result.map(|bytes| progress.advance(bytes)) {
                    Ok(Step::More) => {
                        let operation = Operation::Fill { file, key, claim, progress };
                        return self.go_on(core, at, operation);
                    }
                    Ok(Step::Done | Step::Stuck) => Ok(progress.moved()),
                    Err(errno) => Err(errno),
                };
                let filled = core.end_fill(key, claim, read);
                let news = filled.as_ref().map(|_| ()).map_err(|errno| *errno);
                // The pin lies in the slot before anybody is woken.
                self.slots.lock().slots[at] = Some(Operation::Filled(filled));
                core.tell_filled(key, news);
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
            filled @ Operation::Filled(_) => self.slots.lock().slots[at] = Some(filled),
        }
    }

    /// Submits the rest of a transfer that came out short.
    fn go_on(&self, core: &Core, at: usize, operation: Operation) {
        self.slots.lock().slots[at] = Some(operation);
        self.submit(core, at);
    }
}
