//! Queued transfers: any thread submits, one thread drives an io_uring.
//!
//! A submitter pushes onto a queue under a short lock and, only if the reaping thread sleeps, rings
//! the bell (an eventfd that the sleeping ring polls). The reaper moves the queue into its ring, a
//! batch for each system call. What the ring has no room for stays queued.
//!
//! **Sleep and wake.** The flag `asleep` stands under the queue's lock, so that the lock is all the
//! order there is:
//!
//! ```text
//! submitter                          reaper
//! lock                               lock
//! push                               take the queue
//! was_asleep = asleep                asleep = true
//! asleep = false                     unlock
//! unlock                             io_uring_enter: sleep until a completion or the bell
//! if was_asleep: ring the bell
//! ```
//!
//! Whichever locks first: either the reaper takes the push, or the submitter sees `asleep` and
//! rings. The bell is a counter: rung before the reaper sleeps, it ends the sleep at once. So there
//! is no sleep with a push that was not announced, and one ring of the bell for each sleep at most.
//!
//! **One thread.** Where the kernel has them (6.1), the ring is made with SINGLE_ISSUER and
//! DEFER_TASKRUN: completions are worked off in the reaper's own call instead of interrupting
//! somebody, but only the thread that made the ring may drive it, and it must live to do so:
//!
//! | the thread that reaps | is | so |
//! |---|---|---|
//! | made the ring | the owner | drives it |
//! | did not; nothing is in flight | the next owner | makes a ring of its own |
//! | did not; something is in flight | too early | sleeps until the owner has reaped it or ended |
//!
//! An owner that ends, be it by a panic, first waits for what it has in flight and leaves the
//! completions for the next one to reap. A former owner that ends must not wait for the reaper's
//! lock, which the present one sleeps with; so it looks at `owner` first. A child of fork(2) must
//! not use its parent's device.
//!
//! **Groups.** A reaper that is woken for each completion wakes its waiters one by one, each on a
//! processor that has just gone idle. So where many transfers are in flight, it sleeps until a part
//! of them has completed, or one has and a moment has passed (6.12; before that, until the first).
//!
//! **Refusals.** Should the kernel refuse to take entries for a reason that does not pass, their
//! transfers complete with that error. What it took before is still waited for; the ring, which
//! takes nothing more, is then given up for a new one.
#![expect(unsafe_code, reason = "submission entries carry raw memory and descriptors")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::gettid;

use crate::file_table::{FileTable, KeptUse};
use crate::primitives::{Arc, AtomicU32, Mutex, MutexGuard, Ordering, thread};
use crate::readiness::poll_until;
use crate::{Completion, Deadline, Direction, IoBuf, IoBufs, Timestamp, Transfer};

/// Entries of the submission ring. One is kept for the bell; the completion ring has twice as many,
/// so it cannot overflow.
const ENTRIES: u32 = 256;
const IN_FLIGHT_MAX: usize = ENTRIES as usize - 1;

/// Where many transfers are in flight, the reaper sleeps until one in this many has completed, at
/// most [`SEVERAL_MAX`], so that it and the waiters for them are woken in groups.
const SHARE_OF_IN_FLIGHT: usize = 4;
const SEVERAL_MAX: usize = 32;

/// After that time, in microseconds, one completion ends that sleep, or the bell.
const SEVERAL_WAIT_US: u32 = 100;

/// The mark of the bell's completion; transfers are marked by their place, which is small.
const BELL: u64 = u64::MAX;

/// The most bytes that one system call moves (`MAX_RW_COUNT`), a whole number of pages.
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// How long to let the kernel come by memory or room before it is asked again.
const PAUSE: Duration = Duration::from_millis(1);

/// No thread has this number.
const NOBODY: u32 = 0;

/// The files and the queued transfers of one device.
#[derive(Debug)]
pub(crate) struct TransferQueue {
    pub(crate) files: FileTable,
    pending: Mutex<Pending>,
    reaper: Mutex<Reaper>,
    /// The thread that the ring is of, or `NOBODY`. Written with the reaper's lock held, read
    /// without. Relaxed: what the ring holds is ordered by the lock, and a thread that finds its
    /// own number here has written it itself.
    owner: AtomicU32,
    bell: Result<OwnedFd, Errno>,
    available: bool,
}

#[derive(Debug, Default)]
struct Pending {
    queue: VecDeque<Queued>,
    /// What a former owner of the ring waited for before it ended.
    done: Vec<Completion>,
    asleep: bool,
    interrupted: bool,
}

#[derive(Debug)]
struct Queued {
    transfer: Transfer,
    file: Result<KeptUse, Errno>,
}

#[derive(Debug, Default)]
struct Reaper {
    ring: Option<OwnedRing>,
    /// What the ring has, by the mark of its entry.
    in_flight: Vec<Option<InFlight>>,
    free_marks: Vec<u32>,
    /// The marks of what the kernel has not taken out of the submission ring, oldest first.
    unsubmitted: VecDeque<u64>,
    batch: Vec<Queued>,
}

#[derive(Debug)]
struct InFlight {
    tag: u64,
    file: KeptUse,
}

struct OwnedRing {
    ring: IoUring,
    /// A wait may ask for several completions, and still end early.
    waits_for_several: bool,
    bell_armed: bool,
    /// The kernel refused entries that are still in the submission ring: nothing may be submitted.
    broken: bool,
}

impl std::fmt::Debug for OwnedRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedRing").field("broken", &self.broken).finish_non_exhaustive()
    }
}

/// How a call that may have submitted ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// There is no reason not to call again at once.
    Well,
    /// The kernel lacks memory or room just now.
    Short,
}

/// Who may drive the ring; see the module's table.
enum Drive {
    Owner,
    TooEarly,
    /// No ring could be made.
    Refused(Errno),
}

impl TransferQueue {
    pub(crate) fn new() -> Arc<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let available = bell.is_ok() && make_ring().is_ok();
        Arc::new(Self {
            files: FileTable::new(),
            pending: Mutex::default(),
            reaper: Mutex::default(),
            owner: AtomicU32::new(NOBODY),
            bell,
            available,
        })
    }

    pub(crate) fn available(&self) -> bool {
        self.available
    }

    pub(crate) fn submit(&self, transfer: Transfer) {
        let file = self.files.enter(transfer.file).map(|file| file.keep());
        let was_asleep = {
            let mut pending = self.pending.lock();
            pending.queue.push_back(Queued { transfer, file });
            std::mem::take(&mut pending.asleep)
        };
        if was_asleep {
            self.ring_bell();
        }
    }

    pub(crate) fn interrupt(&self) {
        let was_asleep = {
            let mut pending = self.pending.lock();
            pending.interrupted = true;
            std::mem::take(&mut pending.asleep)
        };
        if was_asleep {
            self.ring_bell();
        }
    }

    #[cold]
    fn ring_bell(&self) {
        if let Ok(bell) = &self.bell {
            // It fails only when the counter is full, and then the bell is ringing already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn reap(self: &Arc<Self>, out: &mut Vec<Completion>, deadline: Deadline) {
        let start = out.len();
        loop {
            let late = deadline.has_passed(Timestamp::now());
            let mut reaper = self.reaper.lock();
            let drive = self.take_over(&mut reaper);
            self.harvest(&mut reaper, out);
            let interrupted = {
                let mut pending = self.pending.lock();
                out.append(&mut pending.done);
                let interrupted = std::mem::take(&mut pending.interrupted);
                let room = match drive {
                    Drive::Owner if reaper.is_broken() => 0,
                    Drive::Owner => IN_FLIGHT_MAX - reaper.in_flight_count(),
                    Drive::TooEarly => 0,
                    Drive::Refused(_) => usize::MAX,
                };
                let batch = room.min(pending.queue.len());
                reaper.batch.extend(pending.queue.drain(..batch));
                pending.asleep = !(late || interrupted || out.len() > start);
                interrupted
            };
            let refusal = match drive {
                Drive::Refused(errno) => Some(errno),
                Drive::Owner | Drive::TooEarly => None,
            };
            self.start_batch(&mut reaper, refusal, out);
            let over = late || interrupted || out.len() > start;
            let until = if over { None } else { Some(deadline) };
            match drive {
                Drive::Owner => {
                    match until {
                        Some(deadline) => self.enter_and_wait(&mut reaper, deadline, out),
                        None => self.enter(&mut reaper, out.len() > start, out),
                    }
                    self.harvest(&mut reaper, out);
                }
                Drive::TooEarly | Drive::Refused(_) => {
                    // The owner may need this lock to end.
                    drop(reaper);
                    if let Some(deadline) = until {
                        self.sleep_on_bell(deadline);
                    }
                }
            }
            if over || out.len() > start {
                self.pending.lock().asleep = false;
                return;
            }
        }
    }

    /// Sees to it that the ring is the calling thread's, where it may be.
    fn take_over(self: &Arc<Self>, reaper: &mut Reaper) -> Drive {
        let me = this_thread();
        let mine = self.owner.load(Ordering::Relaxed) == me;
        match &reaper.ring {
            Some(ring) if mine && !ring.broken => return Drive::Owner,
            Some(_) if reaper.in_flight_count() > 0 => {
                return if mine { Drive::Owner } else { Drive::TooEarly };
            }
            Some(_) | None => self.give_up_ring(reaper),
        }
        if let Err(errno) = &self.bell {
            return Drive::Refused(*errno);
        }
        match make_ring() {
            Ok(ring) => {
                // KERNEL: 6.12, MIN_TIMEOUT.
                let waits_for_several = ring.params().is_feature_min_timeout();
                reaper.ring =
                    Some(OwnedRing { ring, waits_for_several, bell_armed: false, broken: false });
                self.owner.store(me, Ordering::Relaxed);
                owe_drain(self);
                Drive::Owner
            }
            Err(errno) => Drive::Refused(errno),
        }
    }

    /// Nothing may be in flight.
    fn give_up_ring(&self, reaper: &mut Reaper) {
        reaper.ring = None;
        reaper.unsubmitted.clear();
        self.owner.store(NOBODY, Ordering::Relaxed);
    }

    /// Puts the batch into the ring, which has room; what cannot start completes with an error.
    fn start_batch(&self, reaper: &mut Reaper, refusal: Option<Errno>, out: &mut Vec<Completion>) {
        let mut batch = std::mem::take(&mut reaper.batch);
        for Queued { transfer, file } in batch.drain(..) {
            let tag = transfer.tag;
            // The ring takes offsets beyond `i64` for "where the file stands", so look first.
            let refusal = refusal.or((transfer.offset > i64::MAX as u64).then_some(Errno::INVAL));
            match (file, refusal) {
                (Err(errno), _) => out.push(Completion { tag, result: Err(errno) }),
                (Ok(file), Some(errno)) => {
                    self.files.release(file);
                    out.push(Completion { tag, result: Err(errno) });
                }
                (Ok(file), None) => reaper.start(&transfer, file),
            }
        }
        reaper.batch = batch;
    }

    /// Submits, and lets the kernel post what has completed; does not wait. With DEFER_TASKRUN only
    /// such a call posts completions, so it is made for an empty submission ring too, unless the
    /// caller has found some already.
    fn enter(&self, reaper: &mut Reaper, found: bool, out: &mut Vec<Completion>) {
        let nothing_to_post = found || reaper.in_flight_count() == 0;
        let Some(owned) = &mut reaper.ring else { return };
        let submitted = if owned.broken { 0 } else { owned.ring.submission().len() };
        if submitted == 0 && nothing_to_post {
            return;
        }
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: `entries` entries are in the ring, good ones as `push` says; the call has no
        // argument that it could read memory by.
        let entered = unsafe {
            owned.ring.submitter().enter::<libc::sigset_t>(submitted as u32, 0, flags, None)
        };
        // A caller that does not wait comes again, so what passes needs no pause here.
        let _ = self.settle(reaper, entered, out);
    }

    /// Submits, and waits for a completion, the bell or the deadline.
    fn enter_and_wait(&self, reaper: &mut Reaper, deadline: Deadline, out: &mut Vec<Completion>) {
        if reaper.is_broken() {
            self.enter(reaper, false, out);
            return self.pause(deadline);
        }
        let in_flight = reaper.in_flight_count();
        let Reaper { ring: Some(owned), unsubmitted, .. } = reaper else { return };
        if let Ok(bell) = &self.bell
            && !owned.bell_armed
        {
            let entry = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32)
                .build()
                .user_data(BELL);
            push(&mut owned.ring, &entry);
            unsubmitted.push_back(BELL);
            owned.bell_armed = true;
        }
        let timeout = deadline.timestamp().map(|at| Timespec::from(at.since(Timestamp::now())));
        let mut args = match &timeout {
            Some(timeout) => SubmitArgs::new().timespec(timeout),
            None => SubmitArgs::new(),
        };
        let mut wanted = 1;
        if owned.waits_for_several && in_flight >= 2 * SHARE_OF_IN_FLIGHT {
            wanted = (in_flight / SHARE_OF_IN_FLIGHT).min(SEVERAL_MAX);
            args = args.min_wait_usec(SEVERAL_WAIT_US);
        }
        let entered = owned.ring.submitter().submit_with_args(wanted, &args);
        if self.settle(reaper, entered, out) == Settled::Short {
            self.pause(deadline);
        }
    }

    /// Notes what the kernel took, and what became of the rest.
    fn settle(
        &self,
        reaper: &mut Reaper,
        entered: std::io::Result<usize>,
        out: &mut Vec<Completion>,
    ) -> Settled {
        let Reaper { ring: Some(owned), in_flight, free_marks, unsubmitted, .. } = reaper else {
            return Settled::Well;
        };
        if !owned.broken {
            let taken = unsubmitted.len().saturating_sub(owned.ring.submission().len());
            unsubmitted.drain(..taken);
        }
        let Err(error) = entered else { return Settled::Well };
        match error.raw_os_error() {
            // A failed call leaves its entries in the ring for the next one.
            Some(libc::EINTR | libc::ETIME) => Settled::Well,
            Some(libc::EAGAIN | libc::ENOMEM | libc::EBUSY) => Settled::Short,
            _ => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                owned.broken = true;
                for mark in unsubmitted.drain(..).filter(|mark| *mark != BELL) {
                    let refused = in_flight.get_mut(mark as usize).and_then(Option::take);
                    if let Some(InFlight { tag, file }) = refused {
                        free_marks.push(mark as u32);
                        self.files.release(file);
                        out.push(Completion { tag, result: Err(errno) });
                    }
                }
                Settled::Well
            }
        }
    }

    /// Waits for the kernel to get what it lacked, the bell or the deadline.
    fn pause(&self, deadline: Deadline) {
        let end = Timestamp::now().after(PAUSE);
        let end = deadline.timestamp().map_or(end, |at| at.min(end));
        self.sleep_on_bell(Deadline::at(end));
    }

    /// Takes what has completed out of the ring. No system call but the bell's, if it rang.
    fn harvest(&self, reaper: &mut Reaper, out: &mut Vec<Completion>) {
        let Reaper { ring: Some(owned), in_flight, free_marks, .. } = reaper else {
            return;
        };
        for entry in owned.ring.completion() {
            if entry.user_data() == BELL {
                owned.bell_armed = false;
                if let Ok(bell) = &self.bell {
                    silence(bell);
                }
                continue;
            }
            let mark = entry.user_data() as u32;
            let Some(done) = in_flight.get_mut(mark as usize).and_then(Option::take) else {
                debug_assert!(false, "a completion of no transfer: {mark}");
                continue;
            };
            free_marks.push(mark);
            self.files.release(done.file);
            let result = match entry.result() {
                bytes @ 0.. => Ok(bytes as usize),
                negative => Err(Errno::from_raw_os_error(-negative)),
            };
            out.push(Completion { tag: done.tag, result });
        }
    }

    /// Sleeps without a ring until the bell or the deadline.
    fn sleep_on_bell(&self, deadline: Deadline) {
        match &self.bell {
            Ok(bell) => {
                let mut ready = [PollFd::new(bell, PollFlags::IN)];
                if poll_until(&mut ready, deadline).is_ok_and(|ready| ready > 0) {
                    silence(bell);
                }
            }
            // No bell for want of descriptors: only the deadline ends this.
            Err(_) => drop(poll_until(&mut [], deadline)),
        }
    }

    /// The reaper if the ring is the calling thread's, else `None`, and never a long wait: an owner
    /// sleeps with the lock. A thread that has it while the ring is still this thread's is about to
    /// find that it came too early, or to take the ring over, which shows in `owner`.
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

    /// Waits for all that this thread's ring has in flight, and gives the ring up.
    fn drain(&self) {
        let Some(mut reaper) = self.lock_own() else { return };
        let mut done = Vec::new();
        self.harvest(&mut reaper, &mut done);
        while reaper.in_flight_count() > 0 {
            self.enter_and_wait(&mut reaper, Deadline::NEVER, &mut done);
            self.harvest(&mut reaper, &mut done);
        }
        self.give_up_ring(&mut reaper);
        let was_asleep = {
            let mut pending = self.pending.lock();
            pending.done.append(&mut done);
            std::mem::take(&mut pending.asleep)
        };
        if was_asleep {
            self.ring_bell();
        }
    }

    /// Ends the queue of a device that is dropped. What another thread's ring still has in flight
    /// is waited for by that thread when it ends; its memory stays promised until then.
    pub(crate) fn shut_down(&self) {
        self.drain();
        let mut reaper = self.reaper.lock();
        if reaper.in_flight_count() == 0 {
            self.give_up_ring(&mut reaper);
        }
        for queued in self.pending.lock().queue.drain(..) {
            if let Ok(file) = queued.file {
                self.files.release(file);
            }
        }
        self.files.close_all();
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
        self.ring.as_ref().is_some_and(|ring| ring.broken)
    }

    fn start(&mut self, transfer: &Transfer, file: KeptUse) {
        let Some(owned) = &mut self.ring else { return };
        let mark = self.free_marks.pop().unwrap_or(self.in_flight.len() as u32);
        push(&mut owned.ring, &entry_of(transfer, Fd(file.fd)).user_data(u64::from(mark)));
        self.unsubmitted.push_back(u64::from(mark));
        let in_flight = Some(InFlight { tag: transfer.tag, file });
        match self.in_flight.get_mut(mark as usize) {
            Some(place) => *place = in_flight,
            None => self.in_flight.push(in_flight),
        }
    }
}

fn entry_of(transfer: &Transfer, fd: Fd) -> squeue::Entry {
    let Transfer { direction, offset, bufs, .. } = *transfer;
    match bufs {
        IoBufs::One(IoBuf { start, len }) => {
            let (start, len) = (start.as_ptr(), len.min(TRANSFER_BYTES_MAX) as u32);
            match direction {
                Direction::Read => opcode::Read::new(fd, start, len).offset(offset).build(),
                Direction::Write => opcode::Write::new(fd, start, len).offset(offset).build(),
            }
        }
        // An `IoBuf` is laid out as an `iovec`.
        IoBufs::List(first, count) => {
            let (first, count) = (first.as_ptr().cast(), count as u32);
            match direction {
                Direction::Read => opcode::Readv::new(fd, first, count).offset(offset).build(),
                Direction::Write => opcode::Writev::new(fd, first, count).offset(offset).build(),
            }
        }
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: for a transfer, the caller of `Device::submit` keeps the memory until the completion
    // is reaped, and the table keeps the descriptor until then; the bell's entry has no memory.
    let pushed = unsafe { ring.submission().push(entry) };
    // In flight and bell together never exceed the entries; see `IN_FLIGHT_MAX`.
    debug_assert!(pushed.is_ok(), "the submission ring has room");
}

fn this_thread() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

/// A ring with the best flags that this kernel takes.
fn make_ring() -> Result<IoUring, Errno> {
    let with_one_driver = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(ENTRIES);
    // KERNEL: 6.1, DEFER_TASKRUN; before that EINVAL.
    let ring = match with_one_driver {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(ENTRIES),
        other => other,
    };
    let ring = ring.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // KERNEL: 5.11, EXT_ARG: a timeout for the wait.
    if ring.params().is_feature_ext_arg() { Ok(ring) } else { Err(Errno::NOSYS) }
}

/// Takes the bell back to zero.
fn silence(bell: &OwnedFd) {
    // EAGAIN: it was silent.
    let _ = rustix::io::read(bell.as_fd(), &mut [0; 8]);
}

/// The queues whose ring the thread owns or owned, drained when it ends.
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

/// Notes that the calling thread, which now owns the ring of `queue`, must drain it when it ends.
fn owe_drain(queue: &Arc<TransferQueue>) {
    // A thread that reaps while its thread-locals are being dropped cannot note it any more.
    let _ = DRAIN_AT_EXIT.try_with(|DrainAtExit(owed)| {
        let mut owed = owed.borrow_mut();
        let me = this_thread();
        // Forget the rings that were given up.
        owed.retain(|other| {
            !Arc::ptr_eq(other, queue) && other.owner.load(Ordering::Relaxed) == me
        });
        owed.push(Arc::clone(queue));
    });
}

#[cfg(test)]
mod tests;
