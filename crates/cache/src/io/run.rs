//! Runs: frames whose bytes are neighbours in a file, and move in one transfer.
//!
//! The memory of a run is that of its frames: neighbours in memory make one piece of the transfer.
//! (A file with a hook is written from copies.) The owner of a run knows its pages, and says what
//! becomes of them: here they are a [`Payload`]. A [`RunBuffer`] is the right to write a run back;
//! their number bounds how many transfers write pages back at a time.
#![expect(unsafe_code, reason = "the frames' memory is given to the device")]

use std::ptr::NonNull;
use std::time::Duration;

use unherd_sync::{Outcome, Reason, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::Arc;
use unherd_sys::{
    Deadline, Device, DeviceFile, Direction, Errno, IoBuf, IoBufs, Timestamp, Transfer,
};

use crate::frames::{Claim, FrameMemory, Lent, State, Word};
use crate::io::call_device;
use crate::io::page_copies::PageCopies;
use crate::io::transfer::Progress;
use crate::page::{FrameId, PageNo};
use crate::ranked::{Ranked, rank};

/// The most bytes of one run.
const RUN_BYTES_MAX: usize = 1 << 20;

/// The most pages of a run in a cache with `frames` frames.
pub(crate) fn run_pages_max(frames: usize, page_bytes: usize) -> usize {
    (frames / 16).clamp(1, (RUN_BYTES_MAX / page_bytes).clamp(1, IoBufs::PIECES_MAX))
}

/// Reads from `offset` on into memory of a caller's, aligned as the device asks for. Blocks until
/// done; gives the bytes that were moved.
pub(crate) fn read_into(
    device: &dyn Device,
    file: DeviceFile,
    offset: u64,
    to: &mut [u8],
) -> Result<usize, Errno> {
    let buf = IoBuf { start: NonNull::from(&mut *to).cast(), len: to.len() };
    // SAFETY: the memory is the caller's alone, and is borrowed until this returns.
    call_device(|| unsafe { device.read(file, offset, buf.into()) })
}

/// The right to write one run back, with the place for its pages' loans, which grows to what the
/// runs need.
#[derive(Debug, Default)]
pub(crate) struct RunBuffer {
    pub(crate) frames: Vec<Lent>,
    /// Frames of the run that could be evicted when it ended.
    pub(crate) evictable: Vec<FrameId>,
    /// Pages of the run that other frames had when it ended, and the frames that were written.
    pub(crate) superseded: Vec<(PageNo, FrameId)>,
    /// Made by the first run of a file with a hook, and kept.
    copies: Option<PageCopies>,
    /// What is written are the copies, not the frames, until these are given back.
    pub(crate) is_copied: bool,
}

impl RunBuffer {
    /// Gives the pages from `first` on back, when no device uses their memory any more. `give_back`
    /// gives the words.
    pub(crate) fn take_apart(&mut self, first: PageNo, mut give_back: impl FnMut(Lent) -> Word) {
        let Self { frames, evictable, superseded, is_copied, .. } = self;
        *is_copied = false;
        evictable.clear();
        superseded.clear();
        for (at, lent) in frames.drain(..).enumerate() {
            let frame = lent.id();
            let word = give_back(lent);
            if word.state() == State::Detached {
                superseded.push((PageNo(first.0 + at as u64), frame));
            } else if word.is_evictable() && !word.is_referenced() {
                evictable.push(frame);
            }
        }
    }

    /// Copies the pages, of which there are `pages_max` at most, and has each copy changed; the
    /// copies are what is written. An error is of the page whose copy failed.
    pub(crate) fn copy_pages(
        &mut self,
        memory: &FrameMemory,
        pages_max: usize,
        mut change: impl FnMut(usize, &mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), TransferError> {
        let page_bytes = memory.page_bytes();
        let Self { frames, copies, .. } = self;
        let failed = |at| move |errno| TransferError { errno, moved: at * page_bytes };
        if copies.is_none() {
            *copies = Some(PageCopies::new(pages_max * page_bytes).map_err(failed(0))?);
        }
        if let Some(copies) = copies {
            let copies = copies.bytes_mut().chunks_exact_mut(page_bytes);
            for (at, (lent, copy)) in frames.iter().zip(copies).enumerate() {
                copy.copy_from_slice(memory.lent_bytes(lent));
                change(at, copy).map_err(failed(at))?;
            }
        }
        self.is_copied = true;
        Ok(())
    }
}

/// The most transfers that write pages back at a time. Chosen by measurement: with 512 threads that
/// write at random beyond the memory, 128, of which one takes 16 at a time, write 0.92 times as
/// fast.
const BUFFERS_MAX: usize = 256;

/// A cache has this many frames for each of them.
const FRAMES_PER_BUFFER: usize = 32;

/// What the copies of all of them take at most, as a part of the frames.
const COPIES_PART: usize = 16;

/// The most buffers that one takes at a time.
const BATCH_MAX: usize = 64;

/// Buffers that were saved for this long go to the next waiter, though it wants more, when others
/// are put or taken.
const SAVE_MAX: Duration = Duration::from_millis(5);

/// After this time a waiter takes what is saved, in case that no others are put: the device may
/// hang. If there is nothing, it waits again, at the end of the queue.
const LOOK_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Free {
    buffers: Vec<RunBuffer>,
    /// How many of them are for waiters, never more than there are.
    reserved: usize,
    /// How many of these are for the next waiter, which wants more and was not woken yet; and since
    /// when there are some.
    saved: usize,
    saved_since: Timestamp,
    /// How often somebody took some, or looked for them: a waiter may have left then.
    takes: u64,
    /// Somebody found none, and did not wait, since the latest was notified.
    is_missed: bool,
}

impl Free {
    /// How many are not reserved.
    fn count(&self) -> usize {
        self.buffers.len() - self.reserved
    }
}

/// All buffers of a cache.
///
/// Buffers that are put are reserved for the one that has waited longest, so nobody who comes later
/// has them first. It is woken when there are as many as it wants, a batch at most: so one who
/// writes many runs sleeps once for each batch. After a time fewer will do ([`SAVE_MAX`],
/// [`LOOK_AFTER`]). A thread that takes some and leaves others passes them on.
///
/// | offers fewer than the next waiter wants | the waiter leaves |
/// |---|---|
/// | reserves them; notes `takes` | `takes` += 1; are any saved? then it offers them |
/// | shows them to the waiter | |
/// | saves them; are others saved, or `takes` changed? then it offers all again | |
///
/// Each step has the lock (the show has that of the waiters). So buffers are saved for a thread
/// that waits, or somebody is about to offer them.
#[derive(Debug)]
pub(crate) struct RunBuffers {
    free: Ranked<Free, { rank::RUN_BUFFERS }>,
    /// How many are worth taking at a time.
    pub(crate) batch: usize,
    /// The most pages of one run.
    pub(crate) pages_max: usize,
    /// The most pages of a write-back that are copied first.
    pub(crate) copied_pages_max: usize,
    waits: Arc<WaitTable<WaitKey>>,
    /// What is waited under for a buffer.
    reason: Reason,
    /// [`LOOK_AFTER`].
    look_after: Duration,
}

impl RunBuffers {
    /// For a cache of `frames` frames. A buffer is waited for in `waits`, under `reason`.
    pub(crate) fn new(
        frames: usize,
        page_bytes: usize,
        waits: Arc<WaitTable<WaitKey>>,
        reason: Reason,
    ) -> Self {
        let pages_max = run_pages_max(frames, page_bytes);
        let count = (frames / FRAMES_PER_BUFFER).clamp(1, BUFFERS_MAX);
        let buffers = (0..count).map(|_| RunBuffer::default()).collect();
        let saved_since = Timestamp::now();
        let free = Free { buffers, reserved: 0, saved: 0, saved_since, takes: 0, is_missed: false };
        let batch = (count / 4).clamp(1, BATCH_MAX);
        let copied_pages_max = (frames / COPIES_PART / count).clamp(1, pages_max);
        let (free, look_after) = (Ranked::new(free), LOOK_AFTER);
        Self { free, batch, pages_max, copied_pages_max, waits, reason, look_after }
    }

    /// Whether [`RunBuffers::try_take`] would find one.
    pub(crate) fn has_free(&self) -> bool {
        self.free.lock().count() > 0
    }

    /// As [`RunBuffers::has_free`], for others, who would take one: if there is none, it counts as
    /// missed.
    pub(crate) fn has_free_or_miss(&self) -> bool {
        let mut free = self.free.lock();
        let has_free = free.count() > 0;
        free.is_missed |= !has_free;
        has_free
    }

    pub(crate) fn try_take(&self) -> Option<RunBuffer> {
        let mut free = self.free.lock();
        let taken = if free.count() > 0 { free.buffers.pop() } else { None };
        free.is_missed |= taken.is_none();
        taken
    }

    /// Takes those that are free, up to `most`, which is a batch at most; if there is none, waits
    /// for as many. Whether it leaves some, and [`RunBuffers::try_take`] has found none meanwhile.
    #[must_use]
    pub(crate) fn take(&self, most: usize, out: &mut Vec<RunBuffer>) -> bool {
        debug_assert!((1..=self.batch).contains(&most), "no put would have that many");
        let (mut mine, mut is_missed) = (0, false);
        loop {
            let is_any_left = {
                let mut free = self.free.lock();
                free.reserved -= mine;
                free.takes += 1;
                let rest = free.buffers.len().saturating_sub(most).max(free.reserved);
                out.extend(free.buffers.drain(rest..));
                // Those that are saved may be for a thread that has left, as this one does.
                rest > free.reserved || free.saved > 0
            };
            is_missed |= is_any_left && self.offer();
            if !out.is_empty() {
                return is_missed;
            }
            let none = || !self.has_free();
            // No time passes in a simulation.
            let end =
                if cfg!(shuttle) { Deadline::NEVER } else { Deadline::after(self.look_after) };
            let wanted = Wait::new(self.reason).tag(Tag(most as u64)).deadline(end);
            mine = match self.waits.wait(&WaitKey::of(self), none, wanted) {
                Outcome::Woken(Token(reserved)) => reserved as usize,
                Outcome::TimedOut => std::mem::take(&mut self.free.lock().saved),
                _ => 0,
            };
        }
    }

    /// Gives buffers back. Whether [`RunBuffers::try_take`] has found none meanwhile.
    #[must_use]
    pub(crate) fn put(&self, buffers: impl IntoIterator<Item = RunBuffer>) -> bool {
        let empty = |buffer: &RunBuffer| {
            debug_assert!(buffer.frames.is_empty(), "loans must be given back");
        };
        self.free.lock().buffers.extend(buffers.into_iter().inspect(empty));
        self.offer()
    }

    /// Reserves free buffers for those that wait, a batch for each, and wakes those that want no
    /// more. Whether some are left, and [`RunBuffers::try_take`] has found none meanwhile.
    fn offer(&self) -> bool {
        loop {
            let (saved, since, takes, offered) = {
                let mut free = self.free.lock();
                let saved = std::mem::take(&mut free.saved);
                let more = free.count().min(self.batch.saturating_sub(saved));
                free.reserved += more;
                (saved, free.saved_since, free.takes, saved + more)
            };
            if offered == 0 {
                return false;
            }
            let mut is_any_waiting = false;
            let next = |wanted: Tag| {
                is_any_waiting = true;
                // No time passes in a simulation.
                let is_late = || cfg!(not(shuttle)) && Timestamp::now().since(since) >= SAVE_MAX;
                let is_enough = wanted.0 <= offered as u64 || saved > 0 && is_late();
                if is_enough { Verdict::WakeAndStop } else { Verdict::Stop }
            };
            if self.waits.wake_where(&WaitKey::of(self), next, Token(offered as u64)) > 0 {
                continue;
            }
            let mut free = self.free.lock();
            if is_any_waiting {
                // With those that others have saved they may be enough; or the waiter has left.
                let looks_again = free.saved > 0 || free.takes != takes;
                let since = if saved > 0 { since } else { Timestamp::now() };
                let is_first = free.saved == 0;
                free.saved_since = if is_first { since } else { free.saved_since.min(since) };
                free.saved += offered;
                if looks_again {
                    continue;
                }
                return false;
            }
            free.reserved -= offered;
            // Not before: what is reserved while it is offered is missed as well.
            let is_missed = std::mem::take(&mut free.is_missed);
            drop(free);
            // One that looked meanwhile waits now.
            self.waits.wake_with(&WaitKey::of(self), 1, Token(0));
            return is_missed;
        }
    }
}

/// Why a transfer has ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransferError {
    pub(crate) errno: Errno,
    /// Bytes moved before.
    pub(crate) moved: usize,
}

impl TransferError {
    /// Of a transfer that was not begun.
    pub(crate) const IO: Self = Self { errno: Errno::IO, moved: 0 };
}

/// How a transfer has ended: the bytes moved, or why it ended early.
pub(crate) type Moved = Result<usize, TransferError>;

/// What a run carries: frames, with what their owner notes of them. It stays the same as long as
/// the run has it.
pub(crate) trait Payload {
    /// The file, the alignment of its transfers, and the page of the first frame.
    fn place(&self) -> (DeviceFile, u32, PageNo);

    /// The frames, of neighbours in the file.
    fn frames(&mut self) -> RunFrames<'_>;
}

/// The frames of a run.
pub(crate) enum RunFrames<'a> {
    /// They are read into.
    ToRead(&'a mut [Claim]),
    /// They, or their copies, are written.
    ToWrite(&'a mut RunBuffer),
}

/// Frames in one transfer.
#[derive(Debug)]
pub(crate) struct Run<T> {
    payload: T,
    progress: Progress,
    /// The memory that was last asked for, if it is in several pieces.
    pieces: Vec<IoBuf>,
}

impl<T: Payload> Run<T> {
    pub(crate) fn new(mut payload: T, page_bytes: usize) -> Self {
        let (_, alignment, _) = payload.place();
        let pages = match payload.frames() {
            RunFrames::ToRead(claims) => claims.len(),
            RunFrames::ToWrite(buffer) => buffer.frames.len(),
        };
        let progress = Progress::new(pages * page_bytes, alignment);
        Self { payload, progress, pieces: Vec::new() }
    }

    /// What becomes of the frames is the caller's from now on. No transfer may be under way.
    pub(crate) fn into_payload(self) -> T {
        self.payload
    }

    /// As [`Run::into_payload`], where a transfer may be under way for ever: the device keeps the
    /// list of pieces, and the copies. The memory must stay as it is.
    pub(crate) fn abandon(mut self) -> T {
        std::mem::forget(std::mem::take(&mut self.pieces));
        if let RunFrames::ToWrite(buffer) = self.payload.frames() {
            std::mem::forget(buffer.copies.take());
        }
        self.payload
    }

    /// Moves it by this thread; gives the bytes moved.
    pub(crate) fn move_blocking(&mut self, device: &dyn Device, memory: &FrameMemory) -> Moved {
        loop {
            let Transfer { direction, file, offset, bufs, .. } = self.transfer(memory, 0);
            let moved = match direction {
                // SAFETY: the run keeps its frames, and the list of pieces, until this returns.
                Direction::Read => call_device(|| unsafe { device.read(file, offset, bufs) }),
                // SAFETY: as above.
                Direction::Write => call_device(|| unsafe { device.write(file, offset, bufs) }),
            };
            if let Some(moved) = self.advance(moved) {
                return moved;
            }
        }
    }

    /// What is to be moved next. The run must be kept until that transfer is complete.
    pub(crate) fn transfer(&mut self, memory: &FrameMemory, tag: u64) -> Transfer {
        let (file, _, first) = self.payload.place();
        let range = self.progress.request();
        let offset = first.0 * memory.page_bytes() as u64 + range.start as u64;
        let (direction, bufs) = match self.payload.frames() {
            RunFrames::ToRead(claims) => {
                (Direction::Read, memory.pieces_to_fill(claims, range, &mut self.pieces))
            }
            RunFrames::ToWrite(RunBuffer { frames, copies, is_copied, .. }) => {
                let bufs = match copies {
                    Some(copies) if *is_copied => copies.piece(range).into(),
                    _ => memory.pieces_to_write(frames, range, &mut self.pieces),
                };
                (Direction::Write, bufs)
            }
        };
        Transfer { direction, file, offset, bufs, tag }
    }

    /// Takes note of what became of the last [`Run::transfer`]. `None` if there is more to move:
    /// ask for that again. At the end gives the bytes moved: of a write fewer than wanted if it
    /// came no further, of a read if the file has no more.
    pub(crate) fn advance(&mut self, moved: Result<usize, Errno>) -> Option<Moved> {
        match moved {
            Err(Errno::INTR) => None,
            Err(errno) => Some(Err(TransferError { errno, moved: self.progress.moved() })),
            Ok(bytes) => self.progress.advance(bytes).then(|| Ok(self.progress.moved())),
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(not(shuttle))]
    use unherd_sync::Ledger;
    use unherd_sys::primitives::thread;

    use super::*;

    fn buffers(frames: usize, reason: Reason) -> RunBuffers {
        let waits = Arc::new(WaitTable::<WaitKey>::builder().build());
        RunBuffers::new(frames, 4096, waits, reason)
    }

    #[test]
    fn buffers_pass_through_many_hands() {
        let runs = buffers(1 << 16, Reason::OTHER);
        assert_eq!((runs.free.lock().buffers.len(), runs.batch), (BUFFERS_MAX, BATCH_MAX));
        let takes = |most: usize| {
            let mut taken = Vec::new();
            for _ in 0..500 {
                let _ = runs.take(most, &mut taken);
                assert!((1..=most).contains(&taken.len()));
                thread::yield_now();
                let _ = runs.put(taken.drain(..));
            }
        };
        thread::scope(|scope| {
            for number in 0..24 {
                let takes = &takes;
                scope.spawn(move || takes([1, 7, BATCH_MAX, BATCH_MAX][number % 4]));
            }
        });
        let free = runs.free.lock();
        assert_eq!((free.buffers.len(), free.reserved, free.saved), (BUFFERS_MAX, 0, 0));
    }

    /// One waits for `most`, while others have all; then some are `put`. How many it gets.
    #[cfg(not(shuttle))]
    fn waiter_gets(
        name: &'static str,
        most: usize,
        look_after: Duration,
        put: impl FnOnce(&RunBuffers, &mut Vec<RunBuffer>),
    ) -> usize {
        let reason = Reason::register(name);
        let runs = RunBuffers { look_after, ..buffers(1 << 16, reason) };
        let mut taken: Vec<_> = std::iter::from_fn(|| runs.try_take()).collect();
        let count = thread::scope(|scope| {
            let runs = &runs;
            let waiter = scope.spawn(move || {
                let mut own = Vec::new();
                let _ = runs.take(most, &mut own);
                let count = own.len();
                let _ = runs.put(own);
                count
            });
            while Ledger::snapshot().reason(reason).waits == 0 {
                thread::yield_now();
            }
            put(runs, &mut taken);
            waiter.join().unwrap()
        });
        let _ = runs.put(taken);
        let free = runs.free.lock();
        assert_eq!((free.buffers.len(), free.reserved, free.saved), (BUFFERS_MAX, 0, 0));
        count
    }

    #[cfg(not(shuttle))]
    #[test]
    fn the_first_waiter_gets_as_many_as_it_wants() {
        let count = waiter_gets("test-some", 3, LOOK_AFTER, |runs, taken| {
            let _ = runs.put(taken.pop());
            // They do not count as old.
            runs.free.lock().saved_since = Timestamp::from_ns(u64::MAX);
            let _ = runs.put(taken.pop());
            assert_eq!(runs.free.lock().saved, 2);
            assert!(runs.try_take().is_none(), "they are the waiter's");
            let _ = runs.put(taken.pop());
        });
        assert_eq!(count, 3, "although others are under way");
    }

    #[cfg(not(shuttle))]
    #[test]
    fn a_waiter_takes_what_is_saved_where_no_more_is_put() {
        let soon = Duration::from_millis(5);
        let count = waiter_gets("test-look", BATCH_MAX, soon, |runs, taken| {
            let _ = runs.put(taken.pop());
        });
        assert_eq!(count, 1);
    }

    #[cfg(not(shuttle))]
    #[test]
    fn a_waiter_for_whom_buffers_were_saved_for_long_gets_those() {
        let count = waiter_gets("test-late", BATCH_MAX, LOOK_AFTER, |runs, taken| {
            let _ = runs.put(taken.pop());
            runs.free.lock().saved_since = Timestamp::from_ns(0);
            let _ = runs.put(taken.pop());
        });
        assert_eq!(count, 2);
    }

    #[test]
    fn whatever_is_left_is_told_to_those_who_missed_it() {
        let runs = buffers(1 << 16, Reason::OTHER);
        let mut all: Vec<_> = std::iter::from_fn(|| runs.try_take()).collect();
        let mut own = Vec::new();
        let _ = runs.put(all.drain(..2));
        runs.free.lock().reserved = 2;
        assert!(runs.try_take().is_none());
        runs.free.lock().reserved = 0;
        assert!(runs.take(1, &mut own), "one is left, and was missed");
        assert!(!runs.take(1, &mut own), "none is left");
        assert!(runs.try_take().is_none() && runs.put(own));
        // For others.
        let own: Vec<_> = std::iter::from_fn(|| runs.try_take()).collect();
        assert!(runs.put(own), "the last try");
        assert!(runs.has_free_or_miss());
        let mut own = Vec::new();
        (0..BUFFERS_MAX / BATCH_MAX).for_each(|_| assert!(!runs.take(BATCH_MAX, &mut own)));
        assert!(!runs.has_free_or_miss() && runs.put(own));
    }

    #[test]
    fn others_do_not_take_what_is_reserved() {
        let runs = buffers(1, Reason::OTHER);
        runs.free.lock().reserved = 1;
        assert!(runs.try_take().is_none());
        runs.free.lock().reserved = 0;
        assert!(runs.try_take().is_some());
    }
}

#[cfg(all(test, shuttle))]
mod shuttle {
    use unherd_sys::primitives::thread;

    use super::*;

    const SCHEDULES: usize = 30_000;

    /// Three are put back, by one thread for each number, while one thread wants two, and another
    /// one. A third finds none, and is notified if some are left; or it puts back what it finds.
    fn scene(puts: &[usize]) {
        let waits = WaitTable::<WaitKey>::builder().buckets(1).build();
        let runs = Arc::new(RunBuffers::new(256, 4096, Arc::new(waits), Reason::OTHER));
        let mut taken: Vec<_> = std::iter::from_fn(|| runs.try_take()).take(3).collect();
        runs.free.lock().buffers.clear();
        let put = |&count: &usize| {
            let (runs, buffers) = (runs.clone(), taken.split_off(taken.len() - count));
            thread::spawn(move || runs.put(buffers))
        };
        let putters: Vec<_> = puts.iter().map(put).collect();
        let misses = {
            let runs = runs.clone();
            thread::spawn(move || runs.try_take().map(|found| runs.put([found])))
        };
        let takers = [2, 1].map(|most| {
            let runs = runs.clone();
            thread::spawn(move || {
                let mut own = Vec::new();
                let is_told = runs.take(most, &mut own);
                (own.len(), is_told)
            })
        });
        let (mut own, mut is_told) = (0, false);
        for (taken, tells) in takers.map(|taker| taker.join().unwrap()) {
            (own, is_told) = (own + taken, is_told | tells);
        }
        for putter in putters {
            is_told |= putter.join().unwrap();
        }
        let found = misses.join().unwrap();
        is_told |= found.unwrap_or(false);
        let free = runs.free.lock();
        assert_eq!((free.buffers.len() + own, free.reserved, free.saved), (3, 0, 0));
        assert!(found.is_some() || is_told || free.is_missed, "nobody tells it");
        assert!(!free.is_missed || free.buffers.is_empty(), "it sleeps beside a buffer");
    }

    #[test]
    fn what_several_put_is_enough_and_nothing_stays_saved() {
        ::shuttle::check_random(|| scene(&[1, 1, 1]), SCHEDULES);
        ::shuttle::check_random(|| scene(&[1, 2]), SCHEDULES);
    }
}
