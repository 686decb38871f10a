//! What all parts of one cache share, and the waits for a page.

use std::fmt;
use std::time::Duration;

use unherd_sync::{Outcome, Reason, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, AtomicUsize};
use unherd_sys::{Device, Errno, ForkMark, Timestamp};

use crate::Error;
use crate::error::Operation;
use crate::file::files::{FileState, Files};
use crate::file::reclaim::Reclaim;
use crate::foreign_wakers::run_foreign_wakers;
use crate::frames::frame::{Frames, Word};
use crate::frames::memory::FrameMemory;
use crate::io::engine::Engine;
use crate::io::run::RunBuffers;
use crate::page::{BusyGeneration, FrameId, PageKey};
use crate::pages::index::{Index, ShardGuard};
pub(crate) use crate::pages::resident::{Busy, Work};
use crate::stats::Counters;

/// The names of the cache's waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reasons {
    /// For a page that is being read.
    pub(crate) page_read: Reason,
    /// For a page that another thread changes.
    pub(crate) page_change: Reason,
    /// For a page in write-back, or a buffer to write back with.
    pub(crate) write_back: Reason,
    /// For a free frame.
    pub(crate) frame: Reason,
    /// For a file whose length is being changed, or that is being opened, closed or synced.
    pub(crate) file: Reason,
    /// For the next look at a file's lock that another cache or process holds.
    pub(crate) file_lock: Reason,
}

impl Reasons {
    pub(crate) fn register() -> Self {
        Self {
            page_read: Reason::register("page-read"),
            page_change: Reason::register("page-change"),
            write_back: Reason::register("write-back"),
            frame: Reason::register("frame"),
            file: Reason::register("file"),
            file_lock: Reason::register("file-lock"),
        }
    }
}

/// One cache, without its handles.
///
/// Locks are taken in this order, and none is held across I/O or a wait: a bucket of a wait table
/// (whose waiters look at their condition under it), a file's streams, the pool of frames, the
/// table of files, a file's durability, a file's set of unclean pages, a shard of the index, the
/// pages given up, the pool of run buffers. So nobody is woken with any of these held; the engine's
/// slots and the two locks of the frame usage are locked with no other. Latches are waited for with
/// none of these held.
pub(crate) struct Core {
    /// No other cache of the process has or had it.
    pub(crate) number: u64,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) frames: Frames,
    pub(crate) memory: FrameMemory,
    pub(crate) index: Index,
    pub(crate) reclaim: Reclaim,
    pub(crate) runs: RunBuffers,
    pub(crate) files: Files,
    /// Pages of all files that are newer than the device. Relaxed: a count.
    pub(crate) unwritten: AtomicUsize,
    /// Waits for a page, by file and number. Its wakes may be told not to filter.
    pub(crate) pages: WaitTable<WaitKey>,
    /// Waits for everything else, by its address. Its wakes always filter, so that what is handed
    /// to one thread reaches it.
    pub(crate) waits: WaitTable<WaitKey>,
    pub(crate) reasons: Reasons,
    pub(crate) counters: Counters,
    /// Queued I/O; without it each thread does its own.
    pub(crate) engine: Option<Engine>,
    pub(crate) frame_wait: Duration,
    /// Of the process that built the cache. A child of it has the memory, but neither the threads
    /// nor what they were about to do; locks that they held stay locked there.
    pub(crate) fork: ForkMark,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("frames", &self.frames.len())
            .field("page_bytes", &self.memory.page_bytes())
            .field("queued", &self.engine.is_some())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Waiters for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Threads that can all go on together.
    Read,
    /// Threads that can go on one at a time.
    Change,
}

impl Want {
    pub(crate) fn tag(self) -> Tag {
        Tag(self as u64)
    }
}

/// What the waiters for a page are told.
///
/// | token | meaning |
/// |---|---|
/// | 0 | nothing: look again (so are those of other keys woken in a cache without filtering) |
/// | 1 | no frame could be had for it |
/// | 2^16 and up | the read failed; the lowest 16 bits are the kernel's number |
///
/// The upper 32 bits of the last two are the generation that they are about: the page may have been
/// announced again meanwhile, and then a thread that waits for that has nothing to do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeMessage {
    Look,
    NoFrames(BusyGeneration),
    ReadFailed(BusyGeneration, Errno),
}

const READ_FAILED: u64 = 1 << 16;

/// The part of the frame deadline that a waiter does without, to give up together with others.
const LAST_PART: u32 = 16;

/// What stands for [`Error::Truncated`] where a read's failure is a number. The kernel has no error
/// of that number: it keeps numbers up to this one, and has used a few hundred.
pub(crate) const TRUNCATED: Errno = Errno::from_raw_os_error(4095);

impl WakeMessage {
    fn token(self) -> Token {
        Token(match self {
            Self::Look => 0,
            Self::NoFrames(generation) => u64::from(generation.0) << 32 | 1,
            Self::ReadFailed(generation, errno) => {
                u64::from(generation.0) << 32 | READ_FAILED | u64::from(errno.raw_os_error() as u16)
            }
        })
    }

    fn from_token(token: Token) -> Self {
        let generation = BusyGeneration((token.0 >> 32) as u32);
        match token.0 as u32 {
            0 => Self::Look,
            1 => Self::NoFrames(generation),
            raw => Self::ReadFailed(generation, Errno::from_raw_os_error(i32::from(raw as u16))),
        }
    }
}

impl Core {
    #[inline]
    pub(crate) fn key(&self, file: &FileState, page: crate::PageNo) -> PageKey {
        PageKey { file: file.id, page }
    }

    /// Refuses what a child of fork(2) may not do with its parent's cache: all that takes a lock,
    /// waits, or reaches the device. Comes before the first lock of every call; hits take none.
    pub(crate) fn check_not_forked(&self) -> Result<(), Error> {
        if self.fork.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Locks the index's shard of a page.
    pub(crate) fn shard(&self, key: PageKey) -> ShardGuard<'_> {
        self.index.lock(key, |frame| self.frames.key(frame))
    }

    /// As [`Core::shard`], by one that has just used the shard of another page, or the same.
    pub(crate) fn next_shard<'a>(
        &'a self,
        locked: Option<ShardGuard<'a>>,
        key: PageKey,
    ) -> ShardGuard<'a> {
        match locked {
            Some(locked) => self.index.lock_next(locked, key, |frame| self.frames.key(frame)),
            None => self.shard(key),
        }
    }

    /// Where a page begins in its file, in bytes.
    pub(crate) fn offset(&self, page: crate::PageNo) -> u64 {
        page.0 * self.memory.page_bytes() as u64
    }

    /// How many pages `len` bytes reach over that begin at `at` in a page.
    pub(crate) fn pages_of(&self, at: usize, len: usize) -> u64 {
        (at + len).div_ceil(self.memory.page_bytes()) as u64
    }

    /// Why the page cannot be had now.
    pub(crate) fn busy(&self, key: PageKey) -> Option<Busy> {
        self.shard(key).busy(&self.frames)
    }

    /// As [`Core::busy`] of a page in a frame whose word says that it is not at rest. The caller
    /// holds the shard lock.
    pub(crate) fn busy_frame(&self, frame: FrameId, word: Word) -> Busy {
        Busy::in_frame(&self.frames, frame, word)
    }

    /// What one waits for that would write the page back, if it is behind an older version.
    pub(crate) fn busy_awaiting_older_writeback(&self, key: PageKey) -> Option<Busy> {
        let shard = self.shard(key);
        let frame = shard.frame()?;
        let busy = Busy { work: Work::OlderWriteBack, generation: self.frames.generation(frame) };
        self.frames.word(frame).is_awaiting_older_writeback().then_some(busy)
    }

    pub(crate) fn is_still(&self, key: PageKey, busy: Busy) -> bool {
        let now = match busy.work {
            Work::OlderWriteBack => self.busy_awaiting_older_writeback(key),
            Work::Reading | Work::Changing | Work::WriteBack => self.busy(key),
        };
        now == Some(busy)
    }

    /// Blocks until this busy period ends. Re-check the page afterwards.
    ///
    /// If there was no frame for the page, but this call may wait on, gives when it `began` to wait
    /// for one. Pass that to the next wait.
    ///
    /// # Errors
    /// If it was being brought in, and that failed: each that waited for it gets the error. If the
    /// caller itself holds the page.
    pub(crate) fn wait_for_page(
        &self,
        file: &FileState,
        key: PageKey,
        busy: Busy,
        want: Want,
        began: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Error> {
        self.check_not_held(file, key)?;
        let (how, began) = (self.how_to_wait(busy, want), began.unwrap_or_else(Timestamp::now));
        let outcome = self.pages.wait(&key.into(), || self.is_still(key, busy), how);
        self.handle_wake(file, key, busy, outcome, began)
    }

    /// As [`Core::wait_for_page`], where it is known that the caller holds no page of the file; if
    /// it has forgotten a guard, it waits for ever. Whether the page could be brought in does not
    /// matter to the caller.
    pub(crate) fn wait_for_page_unchecked(
        &self,
        file: &FileState,
        key: PageKey,
        busy: Busy,
        want: Want,
    ) {
        let (how, began) = (self.how_to_wait(busy, want), Timestamp::now());
        let outcome = self.pages.wait(&key.into(), || self.is_still(key, busy), how);
        let _ = self.handle_wake(file, key, busy, outcome, began);
    }

    fn reason_of(&self, work: Work) -> Reason {
        match work {
            Work::Reading => self.reasons.page_read,
            Work::Changing => self.reasons.page_change,
            Work::WriteBack | Work::OlderWriteBack => self.reasons.write_back,
        }
    }

    pub(crate) fn how_to_wait(&self, busy: Busy, want: Want) -> Wait {
        Wait::new(self.reason_of(busy.work)).tag(want.tag())
    }

    /// What follows for one that has waited for a page since `began`, by what it was told: see
    /// [`Core::wait_for_page`].
    ///
    /// The frame deadline is that of the caller, not that of the thread that looked for a frame.
    /// One that has waited for [`LAST_PART`] less gives up with that thread: so however many wait,
    /// they look again [`LAST_PART`] times at most, and not each when the one before gives up.
    pub(crate) fn handle_wake(
        &self,
        file: &FileState,
        key: PageKey,
        busy: Busy,
        outcome: Outcome,
        began: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let Outcome::Woken(token) = outcome else {
            return Ok(None);
        };
        match WakeMessage::from_token(token) {
            WakeMessage::NoFrames(generation) if generation == busy.generation => {
                let waited = Timestamp::now().since(began);
                if waited < self.frame_wait - self.frame_wait / LAST_PART {
                    return Ok(Some(began));
                }
                Err(self.no_frames_as_told(waited))
            }
            WakeMessage::ReadFailed(generation, errno) if generation == busy.generation => {
                Err(self.read_error(file, key, errno))
            }
            _ => {
                if self.is_still(key, busy) {
                    self.pages.note_needless(self.reason_of(busy.work));
                }
                Ok(None)
            }
        }
    }

    /// The page has come to rest: wakes all that want to read it, and the first that wants to
    /// change it. That one wakes the next when it is done with the page, or gives up.
    pub(crate) fn wake_page(&self, key: PageKey) {
        let mut changer_woken = false;
        let choose = |tag: Tag| {
            if tag == Want::Change.tag() {
                if changer_woken {
                    return Verdict::Skip;
                }
                changer_woken = true;
            }
            Verdict::Wake
        };
        run_foreign_wakers(|| {
            self.pages.wake_where(&key.into(), choose, WakeMessage::Look.token())
        });
    }

    /// Passes on a wake that was meant for one that changes the page.
    pub(crate) fn wake_next_changer(&self, key: PageKey) {
        let choose = |tag: Tag| {
            if tag == Want::Change.tag() { Verdict::WakeAndStop } else { Verdict::Skip }
        };
        run_foreign_wakers(|| {
            self.pages.wake_where(&key.into(), choose, WakeMessage::Look.token())
        });
    }

    /// The page could not be brought in: wakes all that wait for it.
    pub(crate) fn wake_failed(&self, key: PageKey, message: WakeMessage) {
        run_foreign_wakers(|| self.pages.wake_with(&key.into(), usize::MAX, message.token()));
    }

    pub(crate) fn read_error(&self, file: &FileState, key: PageKey, errno: Errno) -> Error {
        let offset = self.offset(key.page);
        if errno == TRUNCATED {
            let len = file.durability.lock().device_len.data();
            return Error::Truncated { file: file.path.clone(), offset, len };
        }
        file.io_error(Operation::Read, offset, errno)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unherd_sys::primitives::thread;
    use unherd_testkit::{Seed, SimDevice};

    use super::*;
    use crate::file::files::{Access, Source};
    use crate::pages::index::FillReservation;
    use crate::{Cache, PageNo};

    const GENERATION: BusyGeneration = BusyGeneration(u32::MAX);

    #[test]
    fn messages_survive_their_token() {
        for message in [
            WakeMessage::Look,
            WakeMessage::NoFrames(GENERATION),
            WakeMessage::ReadFailed(GENERATION, Errno::IO),
        ] {
            assert_eq!(WakeMessage::from_token(message.token()), message);
        }
    }

    /// The failure of one read must not reach the waiters for the next read of the page.
    #[test]
    fn an_earlier_read_fails_no_later_waiter() {
        let device = Arc::new(SimDevice::new(Seed::new(1)));
        device.put("f", &[0; 4096]);
        let cache = Cache::builder().device(device).build().unwrap();
        let core = &cache.owner.core;
        let access = Access {
            write: false,
            create: false,
            create_new: false,
            lock: false,
            lock_wait: Duration::ZERO,
            buffered_fallback: false,
        };
        let file = core.open_file(Source::Path(Path::new("f")), access).unwrap();
        let key = core.key(&file, PageNo(0));
        let wait = |announced: FillReservation| {
            let busy = Busy { work: Work::Reading, generation: announced.generation };
            core.wait_for_page(&file, key, busy, Want::Read, None)
        };
        let late = core.shard(key).announce();
        core.shard(key).remove();
        let next = core.shard(key).announce();
        // Who saw the earlier one has no need to wait.
        wait(late).unwrap();
        for (told, fails) in [(late, false), (next, true)] {
            let outcome = thread::scope(|scope| {
                let waiter = scope.spawn(|| wait(next));
                while !waiter.is_finished() {
                    core.wake_failed(key, WakeMessage::ReadFailed(told.generation, Errno::IO));
                    thread::yield_now();
                }
                waiter.join().unwrap()
            });
            assert_eq!(outcome.is_err(), fails, "{outcome:?}");
        }
    }
}
