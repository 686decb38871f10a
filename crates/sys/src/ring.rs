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
//! is no sleep with a push that nobody told of, and one ring of the bell for each sleep at most.
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
//! completions for the next one to reap. A child of fork(2) must not use its parent's device.
#![expect(unsafe_code, reason = "submission entries carry raw memory and descriptors")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::gettid;

use crate::file_table::{FileTable, KeptUse};
use crate::primitives::{Arc, Mutex};
use crate::readiness::poll_until;
use crate::{Completion, Deadline, Direction, Timestamp, Transfer};

/// Entries of the submission ring. One is kept for the bell; the completion ring has twice as many,
/// so it cannot overflow.
const ENTRIES: u32 = 256;
const IN_FLIGHT_MAX: usize = ENTRIES as usize - 1;

/// The mark of the bell's completion; transfers are marked by their place, which is small.
const BELL: u64 = u64::MAX;

/// The most bytes that one system call moves (`MAX_RW_COUNT`), a whole number of pages.
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// The files and the queued transfers of one device.
#[derive(Debug)]
pub(crate) struct TransferQueue {
    pub(crate) files: FileTable,
    pending: Mutex<Pending>,
    reaper: Mutex<Reaper>,
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
    batch: Vec<Queued>,
}

#[derive(Debug)]
struct InFlight {
    tag: u64,
    file: KeptUse,
}

struct OwnedRing {
    ring: IoUring,
    owner: rustix::thread::Pid,
    bell_armed: bool,
}

impl std::fmt::Debug for OwnedRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedRing").field("owner", &self.owner).finish_non_exhaustive()
    }
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
                    self.enter(&mut reaper, until);
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
        let me = gettid();
        match &reaper.ring {
            Some(ring) if ring.owner == me => return Drive::Owner,
            Some(_) if reaper.in_flight_count() > 0 => return Drive::TooEarly,
            Some(_) | None => reaper.ring = None,
        }
        if let Err(errno) = &self.bell {
            return Drive::Refused(*errno);
        }
        match make_ring() {
            Ok(ring) => {
                reaper.ring = Some(OwnedRing { ring, owner: me, bell_armed: false });
                owe_drain(self);
                Drive::Owner
            }
            Err(errno) => Drive::Refused(errno),
        }
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

    /// Submits, and waits for a completion until the deadline if there is one.
    fn enter(&self, reaper: &mut Reaper, until: Option<Deadline>) {
        let Some(owned) = &mut reaper.ring else {
            return;
        };
        if let (Some(_), Ok(bell)) = (until, &self.bell)
            && !owned.bell_armed
        {
            let entry = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32)
                .build()
                .user_data(BELL);
            push(&mut owned.ring, &entry);
            owned.bell_armed = true;
        }
        if until.is_none() && owned.ring.submission().is_empty() {
            return;
        }
        let timeout = until
            .and_then(Deadline::timestamp)
            .map(|at| Timespec::from(at.since(Timestamp::now())));
        let args = match &timeout {
            Some(timeout) => SubmitArgs::new().timespec(timeout),
            None => SubmitArgs::new(),
        };
        let want = usize::from(until.is_some());
        // A failed call leaves its entries in the ring for the next one: interrupted (EINTR), the
        // deadline (ETIME), no memory or no room just now (EAGAIN, ENOMEM, EBUSY). Others would be
        // errors of this module.
        if let Err(error) = owned.ring.submitter().submit_with_args(want, &args) {
            debug_assert!(
                matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::ENOMEM | libc::EBUSY)
                ),
                "io_uring_enter: {error}"
            );
        }
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

    /// Waits for all that this thread's ring has in flight, and gives the ring up.
    fn drain(&self) {
        let mut reaper = self.reaper.lock();
        if reaper.ring.as_ref().is_none_or(|ring| ring.owner != gettid()) {
            return;
        }
        let mut done = Vec::new();
        self.harvest(&mut reaper, &mut done);
        while reaper.in_flight_count() > 0 {
            self.enter(&mut reaper, Some(Deadline::NEVER));
            self.harvest(&mut reaper, &mut done);
        }
        reaper.ring = None;
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
            reaper.ring = None;
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

    fn start(&mut self, transfer: &Transfer, file: KeptUse) {
        let Some(owned) = &mut self.ring else { return };
        let mark = self.free_marks.pop().unwrap_or(self.in_flight.len() as u32);
        let (fd, start) = (Fd(file.fd), transfer.buf.start.as_ptr());
        let len = transfer.buf.len.min(TRANSFER_BYTES_MAX) as u32;
        let entry = match transfer.direction {
            Direction::Read => opcode::Read::new(fd, start, len).offset(transfer.offset).build(),
            Direction::Write => opcode::Write::new(fd, start, len).offset(transfer.offset).build(),
        };
        push(&mut owned.ring, &entry.user_data(u64::from(mark)));
        let in_flight = Some(InFlight { tag: transfer.tag, file });
        match self.in_flight.get_mut(mark as usize) {
            Some(place) => *place = in_flight,
            None => self.in_flight.push(in_flight),
        }
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: for a transfer, whoever called `Device::submit` keeps the memory until the completion
    // is reaped, and the table keeps the descriptor until then; the bell's entry has no memory.
    let pushed = unsafe { ring.submission().push(entry) };
    // In flight and bell together never exceed the entries; see `IN_FLIGHT_MAX`.
    debug_assert!(pushed.is_ok(), "the submission ring has room");
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
        let me = gettid();
        // Forget the rings that were given up; one that is locked is in use, so keep it.
        owed.retain(|other| {
            !Arc::ptr_eq(other, queue)
                && other
                    .reaper
                    .try_lock()
                    .is_none_or(|reaper| reaper.ring.as_ref().is_some_and(|ring| ring.owner == me))
        });
        owed.push(Arc::clone(queue));
    });
}
