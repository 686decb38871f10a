//! Queued I/O: threads submit transfers and wait for their pages; one thread of the cache reaps.
//!
//! An operation is kept in a slot from its submission until its transfer is complete, be the thread
//! that wanted it there or not: the slot owns the claim or the run, and with it the memory. The
//! tag of a transfer is the number of its slot.
//!
//! The thread or task that brings a page in waits for the page like everybody else, and finds its
//! pin in the slot, for which it has a [`Ticket`]. A task may be dropped while it waits:
//!
//! ```text
//!  the ticket is dropped                    the I/O thread completes the read
//!  ---------------------                    ---------------------------------
//!                                           publish the page, pinned
//!  lock the slots                           lock the slots
//!  filled: take the pin, free the slot      abandoned: take the pin, free the slot
//!  else: abandoned                          else: filled
//!  unlock; unpin what was taken             unlock; unpin what was taken
//!                                           wake those who wait for the page
//! ```
//!
//! Excluded: that both leave the pin, or both take it; the one that locks first leaves, the other
//! takes. The claim is the slot's until the transfer is complete, so no memory is freed that the
//! device writes; and the page comes in for the others.
#![expect(unsafe_code, reason = "frames and runs are given to the device")]

use unherd_sync::{Outcome, Wait, WaitKey};
use unherd_sys::primitives::{Arc, AtomicBool, Mutex, Ordering};
use unherd_sys::{Completion, Deadline, Device, Direction, Errno, Timestamp, Transfer};

use crate::core::{Core, Want};
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
    /// Nobody will come for what the slot is filled with.
    is_abandoned: bool,
}

#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The I/O thread has died: nobody takes completions any more.
    is_over: bool,
}

impl Slots {
    /// Frees the slot if it is filled. Gives what was in it.
    fn take_filled(&mut self, at: usize) -> Option<Result<Pin, Errno>> {
        match self.slots[at].operation.take() {
            Some(Operation::Filled(filled)) => {
                self.free.push(at);
                Some(filled)
            }
            other => {
                self.slots[at].operation = other;
                None
            }
        }
    }

    /// Fills the slot, whose operation has ended. Gives back what nobody will come for.
    fn fill(&mut self, at: usize, filled: Result<Pin, Errno>) -> Option<Result<Pin, Errno>> {
        let slot = &mut self.slots[at];
        if slot.is_abandoned {
            self.free.push(at);
            return Some(filled);
        }
        slot.operation = Some(Operation::Filled(filled));
        slot.is_filled.store(true, Ordering::Relaxed);
        None
    }
}

/// The queue of a device, claimed for one cache.
pub(crate) struct Engine {
    device: Arc<dyn Device>,
    slots: Mutex<Slots>,
    /// Set once, to end the I/O thread. Relaxed: `interrupt` orders it.
    stopping: AtomicBool,
    /// When the I/O thread is to look at the deadlines of tasks: they have no clock.
    alarm: Mutex<Deadline>,
}

/// The right to what a read will put into its slot: a pin, or an error.
#[must_use]
pub(crate) struct Ticket<'a> {
    core: &'a Core,
    engine: &'a Engine,
    at: usize,
    page: WaitKey,
    is_filled: Arc<AtomicBool>,
    is_taken: bool,
}

impl Ticket<'_> {
    fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Relaxed)
    }

    fn how_to_wait(&self) -> Wait {
        Wait::new(self.core.reasons.page_read).tag(Want::Read.tag())
    }

    fn take(&mut self) -> Option<Result<Pin, Errno>> {
        let filled = self.engine.take_filled(self.at);
        self.is_taken = filled.is_some();
        filled
    }

    /// Waits for the end of the read, under `page-read`.
    pub(crate) fn wait(mut self) -> Result<Pin, Errno> {
        // Without a deadline it cannot time out.
        let how = self.how_to_wait();
        loop {
            let _ = self.core.pages.wait_until(&self.page, || self.is_filled(), how);
            if let Some(filled) = self.take() {
                return filled;
            }
        }
    }

    /// As [`Ticket::wait`], in a task.
    pub(crate) async fn wait_async(mut self) -> Result<Pin, Errno> {
        // Shared, as all readers are woken at a time: who is dropped leaves nobody behind.
        let how = self.how_to_wait().shared();
        loop {
            let still = || !self.is_filled();
            let outcome = self.core.pages.wait_async(&self.page, still, how).await;
            if let Some(filled) = self.take() {
                return filled;
            }
            if matches!(outcome, Outcome::Woken(_)) {
                self.core.pages.note_needless(self.core.reasons.page_read);
            }
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // In a child of fork(2) the read is the parent's.
        if !self.is_taken
            && !self.core.fork.is_forked()
            && let Some(Ok(pin)) = self.engine.abandon(self.at)
        {
            self.core.unpin(pin);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // If the I/O thread died, there may be something under way in it.
        if self.is_over() {
            return;
        }
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
        Ok(Self {
            device,
            slots: Mutex::default(),
            stopping: AtomicBool::new(false),
            alarm: Mutex::new(Deadline::NEVER),
        })
    }

    /// Whether the I/O thread has died.
    pub(crate) fn is_over(&self) -> bool {
        self.slots.lock().is_over
    }

    /// The I/O thread dies of a panic: all operations under way fail, and so will all to come. What
    /// the device was given is its own for ever: those frames are lost, or stay pinned.
    pub(crate) fn give_up(&self, core: &Core) {
        let given_up: Vec<(usize, Operation)> = {
            let mut slots = self.slots.lock();
            slots.is_over = true;
            let under_way = |slot: &mut Slot| {
                let under_way = |it: &mut Operation| !matches!(it, Operation::Filled(_));
                slot.operation.take_if(under_way)
            };
            let slots = slots.slots.iter_mut().enumerate();
            slots.filter_map(|(at, slot)| Some((at, under_way(slot)?))).collect()
        };
        for (at, operation) in given_up {
            match operation {
                // Its claim is never given back.
                Operation::Fill { announced, .. } => {
                    core.shard(announced.key).remove();
                    self.keep_filled(core, at, Err(Errno::IO));
                    core.tell_filled(announced, Err(Errno::IO));
                }
                Operation::Write { run, .. } => {
                    run.pin_for_ever(&core.frames);
                    let buffer = core.end_run(run, Err(WriteFailure::Refused(Errno::IO, 0)));
                    core.runs.put(buffer, &core.waits);
                }
                Operation::Filled(_) => {}
            }
        }
        core.notify_idle(usize::MAX);
    }

    /// Puts an operation into a slot. Gives what will say that it is filled; or the operation, if
    /// the I/O thread has died.
    fn keep(&self, operation: Operation) -> Result<(usize, Arc<AtomicBool>), Box<Operation>> {
        let mut slots = self.slots.lock();
        if slots.is_over {
            return Err(Box::new(operation));
        }
        let at = slots.free.pop().unwrap_or(slots.slots.len());
        if at == slots.slots.len() {
            slots.slots.push(Slot::default());
        }
        let slot = &mut slots.slots[at];
        slot.operation = Some(operation);
        slot.is_abandoned = false;
        slot.is_filled.store(false, Ordering::Relaxed);
        Ok((at, slot.is_filled.clone()))
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
                        bufs: core.memory.buf_to_fill(claim, range).into(),
                        tag: at as u64,
                    }
                }
                Some(Operation::Write { run, progress }) => {
                    let range = progress.request();
                    Transfer {
                        direction: Direction::Write,
                        file: run.file.device_file,
                        offset: core.offset(run.first) + range.start as u64,
                        bufs: run.buf(range, &core.memory, &core.runs).into(),
                        tag: at as u64,
                    }
                }
                Some(Operation::Filled(_)) | None => return,
            }
        };
        // SAFETY: the slot owns the claim or the run until the transfer is complete.
        unsafe { self.device.submit(transfer) };
    }

    /// Begins to read a page into a claimed frame. Gives the claim back if the I/O thread has died.
    pub(crate) fn begin_fill<'a>(
        &'a self,
        core: &'a Core,
        file: &Arc<FileState>,
        announced: Announced,
        claim: Claim,
    ) -> Result<Ticket<'a>, Claim> {
        let progress = Progress::new(Direction::Read, core.memory.page_bytes(), file.alignment);
        let operation = Operation::Fill { file: file.clone(), announced, claim, progress };
        let (at, is_filled) = self.keep(operation).map_err(|operation| match *operation {
            Operation::Fill { claim, .. } => claim,
            _ => unreachable!("it is given back as it was"),
        })?;
        self.submit(core, at);
        let page = announced.key.into();
        Ok(Ticket { core, engine: self, at, page, is_filled, is_taken: false })
    }

    fn take_filled(&self, at: usize) -> Option<Result<Pin, Errno>> {
        self.slots.lock().take_filled(at)
    }

    /// Nobody will come for what the slot is filled with. Gives it, if it is there already.
    fn abandon(&self, at: usize) -> Option<Result<Pin, Errno>> {
        let mut slots = self.slots.lock();
        let filled = slots.take_filled(at);
        if filled.is_none() {
            slots.slots[at].is_abandoned = true;
        }
        filled
    }

    /// Begins to write a run back.
    pub(crate) fn write(&self, core: &Core, run: Run, progress: Progress) {
        let given_back = match self.keep(Operation::Write { run, progress }) {
            Ok((at, _)) => return self.submit(core, at),
            Err(operation) => *operation,
        };
        if let Operation::Write { run, .. } = given_back {
            let buffer = core.end_run(run, Err(WriteFailure::Refused(Errno::IO, 0)));
            core.runs.put(buffer, &core.waits);
        }
    }

    /// The body of the I/O thread: reaps until [`Engine::stop`].
    pub(crate) fn run(&self, core: &Core) {
        let mut completions = Vec::new();
        while !self.stopping.load(Ordering::Relaxed) {
            let alarm = *self.alarm.lock();
            self.device.reap(&mut completions, alarm);
            for completion in completions.drain(..) {
                self.complete(core, completion);
            }
            self.expire_tasks(core);
        }
    }

    /// Has the I/O thread look at the deadlines of tasks at `at`. The caller's task is in its queue
    /// by then.
    pub(crate) fn set_alarm(&self, at: Timestamp) {
        {
            let mut alarm = self.alarm.lock();
            if alarm.timestamp().is_some_and(|set| set <= at) {
                return;
            }
            *alarm = Deadline::at(at);
        }
        self.device.interrupt();
    }

    /// If it is time, wakes the tasks whose deadline has come.
    fn expire_tasks(&self, core: &Core) {
        let now = {
            let mut alarm = self.alarm.lock();
            if *alarm == Deadline::NEVER {
                return;
            }
            let now = Timestamp::now();
            if !alarm.has_passed(now) {
                return;
            }
            // First: whoever comes too late for the look that follows sets it anew.
            *alarm = Deadline::NEVER;
            now
        };
        if let Some(next) = core.reclaim.waiters.expire(&core.waits, now) {
            self.set_alarm(next);
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
                self.keep_filled(core, at, filled);
                core.tell_filled(announced, news);
            }
            Operation::Write { run, mut progress } => {
                let written = match completion.result.map(|bytes| progress.advance(bytes)) {
                    Ok(Step::More) => {
                        return self.go_on(core, at, Operation::Write { run, progress });
                    }
                    Ok(Step::Done) => Ok(()),
                    Ok(Step::Stuck) => Err(WriteFailure::Stuck(progress.moved())),
                    Err(errno) => Err(WriteFailure::Refused(errno, progress.moved())),
                };
                self.slots.lock().free.push(at);
                let buffer = core.end_run(run, written);
                core.runs.put(buffer, &core.waits);
                core.notify_idle(1);
            }
            // Nothing is under way for it.
            Operation::Filled(filled) => self.keep_filled(core, at, filled),
        }
    }

    fn keep_filled(&self, core: &Core, at: usize, filled: Result<Pin, Errno>) {
        let unwanted = self.slots.lock().fill(at, filled);
        if let Some(Ok(pin)) = unwanted {
            core.unpin(pin);
        }
    }

    /// Submits the rest of a transfer that came out short, or was interrupted.
    fn go_on(&self, core: &Core, at: usize, operation: Operation) {
        self.slots.lock().slots[at].operation = Some(operation);
        self.submit(core, at);
    }
}
