//! Queued transfers: any thread submits, one thread drives an io_uring, or AIO where that is
//! forbidden.
//!
//! What is submitted lies in the inbox (`queue/inbox.rs`, which has the order of sleep and wake).
//! The reaper moves it into its driver (`queue/driver.rs`), a batch for each system call. What the
//! driver has no room for stays in the inbox; what it would block for, workers make
//! (`queue/workers.rs`), and all where there is no driver.
//!
//! **One thread.** Where the kernel has them (6.1), a ring is made with SINGLE_ISSUER and
//! DEFER_TASKRUN: completions are worked off in the reaper's own call instead of interrupting
//! somebody, but only the thread that made the ring may drive it, and it must live to do so. The
//! same is kept to with AIO, which would not need it, and which goes from hand to hand:
//!
//! | the thread that reaps | is | so |
//! |---|---|---|
//! | made the driver | the owner | drives it |
//! | did not; nothing is in flight | the next owner | makes a ring of its own, or takes AIO over |
//! | did not; something is in flight | too early | sleeps until the owner has reaped it or ended |
//!
//! An owner that ends, be it by a panic, first waits for what it has in flight and leaves the
//! completions for the next one to reap. A former owner that ends must not wait for the reaper's
//! lock, which the present one sleeps with; so it looks at `owner` first. A child of fork(2) must
//! not use its parent's device.
//!
//! **Groups.** A reaper that is woken for each completion wakes its waiters one by one, each on a
//! processor that has just gone idle. So where many transfers are in flight, it sleeps until a part
//! of them has completed, or one has and a moment has passed (io_uring from 6.12; before that,
//! until the first).
//!
//! **Refusals.** Should the kernel refuse to take entries for a reason that does not pass, their
//! transfers complete with that error (or workers make them: AIO). From then on workers make all
//! transfers. What the driver took before is still waited for, and then it is given up for good.

mod aio;
mod driver;
mod inbox;
mod ring;
#[cfg(test)]
mod tests;
mod workers;

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::gettid;

use crate::file_table::KeptUse;
use crate::primitives::{Arc, AtomicU32, Mutex, MutexGuard, Ordering, thread};
use crate::{Completion, Deadline, QueueKind, Timestamp, Transfer};
use aio::Aio;
use driver::{BELL, Driver, IN_FLIGHT_MAX, Outcome, Settled, Wait};
use inbox::{Inbox, Queued};
use ring::Ring;
use workers::Workers;

/// Where many transfers are in flight, the reaper sleeps until one in this many has completed, at
/// most [`SEVERAL_MAX`], so that it and the waiters for them are woken in groups.
const SHARE_OF_IN_FLIGHT: usize = 4;
const SEVERAL_MAX: usize = 32;

/// How long to let the kernel come by memory or room before it is asked again.
const PAUSE: Duration = Duration::from_millis(1);

/// No thread has this number.
const NOBODY: u32 = 0;

/// The files and the queued transfers of one device.
#[derive(Debug)]
pub(crate) struct TransferQueue {
    pub(crate) inbox: Arc<Inbox>,
    reaper: Mutex<Reaper>,
    /// The thread that the driver is of, or `NOBODY`. Written with the reaper's lock held, read
    /// without. Relaxed: what the driver holds is ordered by the lock, and a thread that finds its
    /// own number here has written it itself.
    owner: AtomicU32,
    kind: Option<QueueKind>,
    workers: Arc<Workers>,
}

#[derive(Debug, Default)]
struct Reaper {
    driver: Option<Box<dyn Driver>>,
    /// A driver broke: there will be none any more.
    is_driverless: bool,
    bell_armed: bool,
    /// What the driver has, by the mark of its entry.
    in_flight: Vec<Option<(Transfer, KeptUse)>>,
    free_marks: Vec<u32>,
    batch: Vec<Queued>,
}

/// Who may use the driver; see the module's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drive {
    Owner,
    TooEarly,
    /// There is no driver: workers make all transfers.
    Nobody,
}

impl TransferQueue {
    /// The best queue that this process may have, of the kinds from this one on.
    pub(crate) fn new(best: QueueKind) -> Arc<Self> {
        let inbox = Arc::new(Inbox::new());
        let mut reaper = Reaper::default();
        let kind = inbox.bell.as_ref().ok().map(|bell| {
            if best == QueueKind::IoUring && Ring::new().is_ok() {
                return QueueKind::IoUring;
            }
            let aio = if best == QueueKind::Threads { None } else { Aio::with_bell(bell.as_fd()) };
            let Some(aio) = aio else { return QueueKind::Threads };
            reaper.driver = Some(Box::new(aio));
            reaper.bell_armed = true;
            QueueKind::Aio
        });
        let workers = Workers::new(inbox.clone());
        let (reaper, owner) = (Mutex::new(reaper), AtomicU32::new(NOBODY));
        Arc::new(Self { inbox, reaper, owner, kind, workers })
    }

    /// `None` where nothing can be queued, for want of a descriptor.
    pub(crate) fn kind(&self) -> Option<QueueKind> {
        self.kind
    }

    pub(crate) fn reap(self: &Arc<Self>, out: &mut Vec<Completion>, deadline: Deadline) {
        let start = out.len();
        loop {
            let late = deadline.has_passed(Timestamp::now());
            let mut reaper = self.reaper.lock();
            let drive = self.take_over(&mut reaper);
            self.harvest(&mut reaper, out);
            let interrupted = {
                let mut pending = self.inbox.pending.lock();
                out.append(&mut pending.done);
                let interrupted = std::mem::take(&mut pending.interrupted);
                let room = match drive {
                    Drive::TooEarly => 0,
                    Drive::Owner if !reaper.is_broken() => IN_FLIGHT_MAX - reaper.in_flight_count(),
                    Drive::Owner | Drive::Nobody => usize::MAX,
                };
                let batch = room.min(pending.queue.len());
                reaper.batch.extend(pending.queue.drain(..batch));
                pending.asleep = !(late || interrupted || out.len() > start);
                interrupted
            };
            self.start_batch(&mut reaper, out);
            let over = late || interrupted || out.len() > start;
            let until = if over { None } else { Some(deadline) };
            match drive {
                Drive::Owner => {
                    match until {
                        Some(deadline) => self.enter_and_wait(&mut reaper, deadline),
                        None => reaper.enter(out.len() > start),
                    }
                    self.harvest(&mut reaper, out);
                }
                Drive::TooEarly | Drive::Nobody => {
                    // The owner may need this lock to end.
                    drop(reaper);
                    if let Some(deadline) = until {
                        self.inbox.sleep_on_bell(deadline);
                    }
                }
            }
            if over || out.len() > start {
                self.inbox.pending.lock().asleep = false;
                return;
            }
        }
    }

    /// Sees to it that the driver is the calling thread's, where it may be.
    fn take_over(self: &Arc<Self>, reaper: &mut Reaper) -> Drive {
        let me = this_thread();
        let mine = self.owner.load(Ordering::Relaxed) == me;
        match &reaper.driver {
            Some(driver) if mine && !driver.is_broken() => return Drive::Owner,
            Some(_) if reaper.in_flight_count() > 0 => {
                return if mine { Drive::Owner } else { Drive::TooEarly };
            }
            Some(_) | None => self.give_up_driver(reaper),
        }
        if reaper.driver.is_none() {
            if self.kind != Some(QueueKind::IoUring) || reaper.is_driverless {
                return Drive::Nobody;
            }
            let Ok(ring) = Ring::new() else { return Drive::Nobody };
            reaper.driver = Some(Box::new(ring));
        }
        self.owner.store(me, Ordering::Relaxed);
        owe_drain(self);
        Drive::Owner
    }

    /// Nothing may be in flight. What another thread may drive stays for that.
    fn give_up_driver(&self, reaper: &mut Reaper) {
        self.owner.store(NOBODY, Ordering::Relaxed);
        let Some(driver) = &reaper.driver else { return };
        reaper.is_driverless = driver.is_broken();
        if driver.is_broken() || driver.is_of_one_thread() {
            reaper.driver = None;
            reaper.bell_armed = false;
        }
    }

    /// Has the batch made by the driver, which has room if it works, or else by workers; what
    /// cannot start completes with an error.
    fn start_batch(&self, reaper: &mut Reaper, out: &mut Vec<Completion>) {
        let mut batch = std::mem::take(&mut reaper.batch);
        for Queued { transfer, file } in batch.drain(..) {
            let tag = transfer.tag;
            match file {
                Err(errno) => out.push(Completion { tag, result: Err(errno) }),
                // A ring takes offsets beyond `i64` for "where the file stands", so look first.
                Ok(file) if transfer.offset > i64::MAX as u64 => {
                    self.inbox.files.release(file);
                    out.push(Completion { tag, result: Err(Errno::INVAL) });
                }
                Ok(file) => {
                    if let Some((transfer, file)) = reaper.start(transfer, file) {
                        self.workers.give(transfer, file);
                    }
                }
            }
        }
        reaper.batch = batch;
    }

    /// Submits, and waits for a completion, the bell or the deadline.
    fn enter_and_wait(&self, reaper: &mut Reaper, deadline: Deadline) {
        if reaper.is_broken() {
            reaper.enter(false);
            return self.pause(deadline);
        }
        let in_flight = reaper.in_flight_count();
        let Reaper { driver: Some(driver), bell_armed, .. } = reaper else { return };
        if let Ok(bell) = &self.inbox.bell
            && !*bell_armed
        {
            driver.push_bell(bell.as_fd());
            *bell_armed = true;
        }
        let timeout = deadline.timestamp().map(|at| at.since(Timestamp::now()));
        let wanted = (in_flight / SHARE_OF_IN_FLIGHT).clamp(1, SEVERAL_MAX);
        if driver.enter(Some(Wait { wanted, timeout })) == Settled::Short {
            self.pause(deadline);
        }
    }

    /// Waits for the kernel to get what it lacked, the bell or the deadline.
    fn pause(&self, deadline: Deadline) {
        let end = Timestamp::now().after(PAUSE);
        let end = deadline.timestamp().map_or(end, |at| at.min(end));
        self.inbox.sleep_on_bell(Deadline::at(end));
    }

    /// Takes what has completed from the driver. No system call but the bell's, if it rang.
    fn harvest(&self, reaper: &mut Reaper, out: &mut Vec<Completion>) {
        let Reaper { driver: Some(driver), bell_armed, in_flight, free_marks, .. } = reaper else {
            return;
        };
        while let Some((mark, outcome)) = driver.next_done() {
            if mark == BELL {
                *bell_armed = false;
                self.inbox.silence_bell();
                continue;
            }
            let done = in_flight.get_mut(mark as usize).and_then(Option::take);
            let Some((transfer, file)) = done else {
                debug_assert!(false, "a completion of no transfer: {mark}");
                continue;
            };
            free_marks.push(mark as u32);
            match outcome {
                Outcome::WouldBlock => self.workers.give(transfer, file),
                Outcome::Done(result) => {
                    self.inbox.files.release(file);
                    out.push(Completion { tag: transfer.tag, result });
                }
            }
        }
    }

    /// The reaper if the driver is the calling thread's, else `None`, and never a long wait: an
    /// owner sleeps with the lock. A thread that has it while the driver is still this thread's is
    /// about to find that it came too early, or to take the driver over, which shows in `owner`.
    fn lock_own(&self) -> Option<MutexGuard<'_, Reaper>> {
        let me = this_thread();
        while self.owner.load(Ordering::Relaxed) == me {
            if let Some(reaper) = self.reaper.try_lock() {
                return (self.owner.load(Ordering::Relaxed) == me).then_some(reaper);
            }
            thread::yield_now();
        }
        None
    }

    /// Waits for all that this thread's driver has in flight, and gives it up.
    fn drain(&self) {
        let Some(mut reaper) = self.lock_own() else { return };
        let mut done = Vec::new();
        self.harvest(&mut reaper, &mut done);
        while reaper.in_flight_count() > 0 {
            self.enter_and_wait(&mut reaper, Deadline::NEVER);
            self.harvest(&mut reaper, &mut done);
        }
        self.give_up_driver(&mut reaper);
        self.inbox.complete(done);
        // A thread that came too early sleeps on a bell that may have been silenced here.
        self.inbox.ring_bell();
    }

    /// Ends the queue of a device that is dropped. What another thread's driver has in flight
    /// is waited for by that thread when it ends; its memory stays promised until then.
    pub(crate) fn shut_down(&self) {
        self.drain();
        let mut reaper = self.reaper.lock();
        if reaper.in_flight_count() == 0 {
            self.owner.store(NOBODY, Ordering::Relaxed);
            reaper.driver = None;
        }
        drop(reaper);
        let forgotten = std::mem::take(&mut self.inbox.pending.lock().queue);
        for file in forgotten.into_iter().filter_map(|queued| queued.file.ok()) {
            self.inbox.files.release(file);
        }
        self.workers.end();
        self.inbox.files.close_all();
        let _ = DRAIN_AT_EXIT.try_with(|DrainAtExit(owed)| {
            owed.borrow_mut().retain(|queue| !std::ptr::eq(Arc::as_ptr(queue), self));
        });
    }
}

impl Reaper {
    fn in_flight_count(&self) -> usize {
        self.in_flight.len() - self.free_marks.len()
    }

    fn is_broken(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.is_broken())
    }

    /// Pushes a transfer for the driver; gives it back if there is none, or a broken one.
    fn start(&mut self, transfer: Transfer, file: KeptUse) -> Option<(Transfer, KeptUse)> {
        let Some(driver) = self.driver.as_mut().filter(|driver| !driver.is_broken()) else {
            return Some((transfer, file));
        };
        let mark = self.free_marks.pop().unwrap_or(self.in_flight.len() as u32);
        driver.push(u64::from(mark), file.fd(), &transfer);
        let in_flight = Some((transfer, file));
        match self.in_flight.get_mut(mark as usize) {
            Some(place) => *place = in_flight,
            None => self.in_flight.push(in_flight),
        }
        None
    }

    /// Submits, and lets the kernel post what has completed, unless the caller has `found` some
    /// already; does not wait.
    fn enter(&mut self, found: bool) {
        let nothing_to_post = found || self.in_flight_count() == 0;
        if let Some(driver) = &mut self.driver
            && (driver.has_pushed() || !nothing_to_post)
        {
            // Who does not wait comes again, so what passes needs no pause here.
            let _ = driver.enter(None);
        }
    }
}

fn this_thread() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The queues whose driver the thread owns or owned, drained when it ends.
struct DrainAtExit(RefCell<Vec<Arc<TransferQueue>>>);

impl Drop for DrainAtExit {
    fn drop(&mut self) {
        for queue in self.0.take() {
            queue.drain();
        }
    }
}

thread_local! {
    static DRAIN_AT_EXIT: DrainAtExit = const { DrainAtExit(RefCell::new(Vec::new())) };
}

/// Notes that the calling thread, which now owns the driver of `queue`, must drain it when it ends.
fn owe_drain(queue: &Arc<TransferQueue>) {
    // A thread that reaps while its thread-locals are being dropped cannot note it any more.
    let _ = DRAIN_AT_EXIT.try_with(|DrainAtExit(owed)| {
        let mut owed = owed.borrow_mut();
        let me = this_thread();
        // Forget the drivers that were given up.
        owed.retain(|other| {
            !Arc::ptr_eq(other, queue) && other.owner.load(Ordering::Relaxed) == me
        });
        owed.push(Arc::clone(queue));
    });
}
