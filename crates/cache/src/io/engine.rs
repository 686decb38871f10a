//! Queued I/O: transfers are submitted, and one thread of the cache reaps.
//!
//! What is queued is what nobody's thread waits for: writes behind, reads ahead, and the reads of
//! tasks. A thread that misses a page reads it itself, as it would sleep either way, and is woken
//! once instead of having another woken first.
//!
//! An operation is kept in a slot from its submission until its transfer is complete, be the thread
//! that wanted it there or not: the slot owns the claim or the run, and with it the memory. The
//! tag of a transfer is the number of its slot.
//!
//! A task that brings a page in waits for the page like everybody else, and finds its pin in the
//! slot, for which it has a [`Ticket`]. It may be dropped while it waits:
//!
//! ```text
//!  the ticket is dropped                    the I/O thread completes the read
//!  ---------------------                    ---------------------------------
//!                                           publish the page, pinned
//!  lock the slots                           lock the slots
//!  filled: take the pin, free the slot      abandoned: take the pin, free the slot
//!  else: abandoned                          else: filled
//!  unlock; unpin what was taken             unlock; unpin what was taken
//!                                           wake the waiters for the page
//! ```
//!
//! Excluded: that both leave the pin, or both take it; the one that locks first leaves, the other
//! takes. The claim is the slot's until the transfer is complete, so no memory is freed that the
//! device writes; and the page comes in for the others.
#![expect(unsafe_code, reason = "frames and runs are given to the device")]

use unherd_sync::{Outcome, Wait, WaitKey};
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU32, Mutex, Ordering};
use unherd_sys::{Completion, Deadline, Device, Errno, Timestamp};

use crate::error::BuildError;
use crate::file::{Core, Expired};
use crate::frames::{Alarm, Pin};
use crate::io::{Run, RunFrames, TransferError};
use crate::page::PageKey;
use crate::pages::Want;

mod completing;
pub(crate) use completing::Completing;

/// With this many threads that read by themselves, or this many full runs under way that nobody
/// has asked for, no more are begun ahead. A read that its own thread waits for costs less, and the
/// device is busy.
const READS_MAX: u32 = 2;

/// As how many pages a run counts at least that nobody has asked for: a page alone keeps the device
/// busy for as long.
const RUN_PAGES_MIN: u32 = 16;

#[derive(Debug)]
enum Operation {
    Run(Run),
    Filled(Result<Pin, Errno>),
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
    /// Threads that read by themselves now. Relaxed: a count.
    own_reads: AtomicU32,
    /// Pages that are being read and that nobody has asked for, [`RUN_PAGES_MIN`] at least for
    /// each run; very many when the I/O thread has died. Relaxed: a count.
    ahead_pages: AtomicU32,
    /// Set once, to end the I/O thread. Relaxed: `interrupt` orders it.
    stopping: AtomicBool,
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

#[cfg(feature = "async")]
impl Ticket<'_> {
    fn take(&mut self) -> Option<Result<Pin, Errno>> {
        let filled = self.engine.slots.lock().take_filled(self.at);
        self.is_taken = filled.is_some();
        filled
    }

    /// Waits for the end of the read, under `page-read`.
    pub(crate) async fn wait(mut self) -> Result<Pin, Errno> {
        // Shared, as all readers are woken at a time: who is dropped leaves nobody behind.
        let how = Wait::new(self.core.reasons().page_read).tag(Want::Read.tag()).shared();
        loop {
            let still = || !self.is_filled.load(Ordering::Relaxed);
            let outcome = self.core.pages.waits.wait_async(&self.page, still, how).await;
            if let Some(filled) = self.take() {
                return filled;
            }
            if matches!(outcome, Outcome::Woken(_)) {
                self.core.pages.waits.note_needless(self.core.reasons().page_read);
            }
        }
    }
}

/// That a thread is counted among those that read by themselves, until dropped.
pub(crate) struct OwnRead<'a>(&'a Engine);

impl Drop for OwnRead<'_> {
    fn drop(&mut self) {
        self.0.own_reads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // In a child of fork(2) the read is the parent's.
        if !self.is_taken
            && !self.core.fork().is_forked()
            && let Some(Ok(pin)) = self.engine.abandon(self.at)
        {
            self.core.pages.unpin(pin);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Nothing is under way: if the I/O thread died, this is never dropped.
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
            own_reads: AtomicU32::new(0),
            ahead_pages: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// The device that transfers are queued on.
    pub(crate) fn queue(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether the I/O thread has died.
    pub(crate) fn is_over(&self) -> bool {
        self.slots.lock().is_over
    }

    /// The I/O thread dies of a panic: all operations under way fail, and so will all to come, and
    /// the one that it was `completing`. What the device was given is its own for ever: those
    /// frames are lost, or stay pinned.
    pub(crate) fn give_up(&self, core: &Core, mut completing: Completing) {
        let is_unfilled;
        let given_up: Vec<(usize, Run)> = {
            let mut slots = self.slots.lock();
            slots.is_over = true;
            self.ahead_pages.store(u32::MAX / 2, Ordering::Relaxed);
            is_unfilled = completing
                .slot()
                .is_some_and(|at| slots.slots[at].operation.is_none() && !slots.free.contains(&at));
            let take_run = |(at, slot): (usize, &mut Slot)| match slot.operation.take() {
                Some(Operation::Run(run)) => Some((at, run)),
                other => {
                    slot.operation = other;
                    None
                }
            };
            slots.slots.iter_mut().enumerate().filter_map(take_run).collect()
        };
        for (at, run) in given_up {
            match run.abandon() {
                RunFrames::Fill(fill) => {
                    core.lose_fill(&fill, |filled| self.keep_filled(core, at, filled));
                }
                RunFrames::WriteBack(mut pages) => {
                    pages.pin_for_ever(core.frames());
                    core.end_write_back(&mut pages, Err(TransferError::IO));
                    completing.note_ended(core.leave_write_back(pages));
                }
            }
        }
        completing.give_up(core, self, is_unfilled);
        core.pages.notify_idle(usize::MAX);
        core.supply().room.tell_all(core.waits());
    }

    /// Puts a run into a slot. Gives what will say that it is filled; or the run, if the I/O thread
    /// has died.
    fn keep(&self, run: Run) -> Result<(usize, Arc<AtomicBool>), Box<Run>> {
        let mut slots = self.slots.lock();
        if slots.is_over {
            return Err(Box::new(run));
        }
        let at = slots.free.pop().unwrap_or(slots.slots.len());
        if at == slots.slots.len() {
            slots.slots.push(Slot::default());
        }
        let slot = &mut slots.slots[at];
        slot.operation = Some(Operation::Run(run));
        slot.is_abandoned = false;
        slot.is_filled.store(false, Ordering::Relaxed);
        Ok((at, slot.is_filled.clone()))
    }

    /// Submits the next part of the operation in a slot.
    fn submit(&self, core: &Core, at: usize) {
        let transfer = {
            let mut slots = self.slots.lock();
            match slots.slots[at].operation.as_mut() {
                Some(Operation::Run(run)) => run.transfer(core.memory(), at as u64),
                Some(Operation::Filled(_)) | None => return,
            }
        };
        // SAFETY: the slot owns the run, with its frames and its list of pieces, until the transfer
        // is complete.
        unsafe { self.device.submit(transfer) };
    }

    /// A thread reads by itself.
    pub(crate) fn begin_own_read(&self) -> OwnRead<'_> {
        self.own_reads.fetch_add(1, Ordering::Relaxed);
        OwnRead(self)
    }

    /// Whether so little is being read that the device is idle unless somebody reads ahead.
    pub(crate) fn may_read_ahead(&self, run_pages: usize) -> bool {
        self.own_reads.load(Ordering::Relaxed) < READS_MAX
            && self.ahead_pages.load(Ordering::Relaxed) < READS_MAX * run_pages as u32
    }

    /// Begins to read a run that nobody has asked for. Gives it back if the I/O thread has died.
    pub(crate) fn begin_ahead(&self, core: &Core, run: Run, pages: usize) -> Result<(), Box<Run>> {
        let pages = weight(pages);
        self.ahead_pages.fetch_add(pages, Ordering::Relaxed);
        let begun = self.begin_unwanted(core, run);
        if begun.is_err() {
            self.ahead_pages.fetch_sub(pages, Ordering::Relaxed);
        }
        begun
    }

    /// Begins to move a run. Gives the right to its first page, of which that is read; or the run,
    /// if the I/O thread has died.
    pub(crate) fn begin<'a>(
        &'a self,
        core: &'a Core,
        run: Run,
        first: PageKey,
    ) -> Result<Ticket<'a>, Box<Run>> {
        let page = first.into();
        let (at, is_filled) = self.keep(run)?;
        self.submit(core, at);
        Ok(Ticket { core, engine: self, at, page, is_filled, is_taken: false })
    }

    /// Begins to move a run that nobody waits for. Gives it back if the I/O thread has died.
    pub(crate) fn begin_unwanted(&self, core: &Core, run: Run) -> Result<(), Box<Run>> {
        self.keep(run).map(|(at, _)| self.submit(core, at))
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

    /// The body of the I/O thread: reaps until [`Engine::stop`].
    pub(crate) fn run(&self, core: &Core, completing: &mut Completing) {
        let (mut completions, mut expired) = (Vec::new(), Expired::default());
        while !self.stopping.load(Ordering::Relaxed) {
            let alarm = core.supply().alarm.as_ref();
            self.device.reap(&mut completions, alarm.map_or(Deadline::NEVER, Alarm::next));
            for completion in completions.drain(..) {
                self.complete(core, completion, completing);
            }
            completing.end_group(core);
            alarm.into_iter().for_each(|alarm| look_after(core, alarm, &mut expired));
        }
    }

    /// Ends the I/O thread. No operation may be under way.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.device.interrupt();
    }

    fn complete(&self, core: &Core, completion: Completion, completing: &mut Completing) {
        let at = completion.tag as usize;
        let taken = self.slots.lock().slots.get_mut(at).and_then(|slot| slot.operation.take());
        let Some(operation) = taken else {
            return;
        };
        let mut run = match operation {
            Operation::Run(run) => run,
            // Nothing is under way for it.
            Operation::Filled(filled) => return self.keep_filled(core, at, filled),
        };
        let Some(moved) = run.advance(completion.result) else {
            return self.go_on(core, at, run);
        };
        let frames = run.into_frames();
        completing.begin(core, at, &frames);
        match frames {
            RunFrames::Fill(fill) => {
                // The pin lies in the slot before anybody is woken.
                let deliver = |filled| {
                    self.keep_filled(core, at, filled);
                    #[cfg(test)]
                    tests::reach(core, tests::Step::Filled);
                };
                let ahead = fill.is_ahead.then(|| weight(fill.ahead()));
                let again = core.end_fill(fill, moved, deliver);
                completing.end(core);
                if let Some(again) = again {
                    self.go_on(core, at, again);
                } else if let Some(pages) = ahead {
                    self.ahead_pages.fetch_sub(pages, Ordering::Relaxed);
                    self.slots.lock().free.push(at);
                }
            }
            RunFrames::WriteBack(mut pages) => {
                self.slots.lock().free.push(at);
                core.end_write_back(&mut pages, moved);
                completing.end(core);
                completing.note_ended(core.leave_write_back(pages));
            }
        }
    }

    fn keep_filled(&self, core: &Core, at: usize, filled: Result<Pin, Errno>) {
        let unwanted = self.slots.lock().fill(at, filled);
        if let Some(Ok(pin)) = unwanted {
            core.pages.unpin(pin);
        }
    }

    /// Submits the rest of a transfer that came out short, or was interrupted.
    fn go_on(&self, core: &Core, at: usize, run: Run) {
        self.slots.lock().slots[at].operation = Some(Operation::Run(run));
        self.submit(core, at);
    }
}

/// As how many pages a run counts that nobody has asked for.
fn weight(pages: usize) -> u32 {
    (pages as u32).max(RUN_PAGES_MIN)
}

/// If it is time, wakes the tasks whose deadline has come, gives others the frames of those that
/// were told and have not come, and writes back pages that are dirty for too long.
fn look_after(core: &Core, alarm: &Alarm, expired: &mut Expired) {
    let [deadline, polled, expiry, goes_on] = alarm.take_due();
    if deadline && let Some(next) = core.supply().waiters.expire(core.waits(), Timestamp::now()) {
        alarm.set_deadline(next);
    }
    if polled {
        core.pages.hand_out_frames();
    }
    if expiry {
        expired.ring();
    }
    if !expired.is_over() {
        alarm.go_on_after(core.write_expired(expired, expiry || goes_on));
    }
}

#[cfg(test)]
mod tests;
