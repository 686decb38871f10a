//! What all parts of one cache share, and the waits for a page.

use std::fmt;
use std::time::Duration;

use unherd_sync::{Outcome, Reason, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::Arc;
use unherd_sys::{Device, Errno};

use crate::Error;
use crate::engine::Engine;
use crate::error::Operation;
use crate::files::{FileState, Files};
use crate::frame::{Frames, Pin, State, Unpinned};
use crate::index::{Entry, Index};
use crate::page::PageKey;
use crate::reclaim::Reclaim;
use crate::run::RunBuffers;
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
}

impl Reasons {
    pub(crate) fn register() -> Self {
        Self {
            page_read: Reason::register("page-read"),
            page_change: Reason::register("page-change"),
            write_back: Reason::register("write-back"),
            frame: Reason::register("frame"),
            file: Reason::register("file"),
        }
    }
}

/// One cache, without its handles.
///
/// Locks are taken in this order, and none is held across I/O or a wait:
/// the pool of frames, the table of files, a file's durability, a file's set of unclean pages, a
/// shard of the index. Latches are waited for with none of these held.
pub(crate) struct Core {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) frames: Frames,
    pub(crate) index: Index,
    pub(crate) reclaim: Reclaim,
    pub(crate) runs: RunBuffers,
    pub(crate) files: Files,
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
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("frames", &self.frames.len())
            .field("page_bytes", &self.frames.page_bytes())
            .field("queued", &self.engine.is_some())
            .field("stats", &self.counters.read())
            .finish_non_exhaustive()
    }
}

/// Who waits for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Threads that can all go on together.
    Read,
    /// Threads that can go on one at a time.
    Change,
}

impl Want {
    fn tag(self) -> Tag {
        Tag(self as u64)
    }
}

/// Why a page cannot be had at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    Reading,
    Changing,
    WriteBack,
}

impl Busy {
    pub(crate) fn of(state: State) -> Option<Self> {
        match state {
            State::Reading => Some(Self::Reading),
            State::Changing => Some(Self::Changing),
            State::WriteBack => Some(Self::WriteBack),
            _ => None,
        }
    }
}

/// What those who wait for a page are told.
///
/// | token | meaning |
/// |---|---|
/// | 0 | nothing: look again (so are those of other keys woken in a cache without filtering) |
/// | 1 | no frame could be had for it |
/// | 2^16 and up | the read failed; the rest is the kernel's number |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Look,
    NoFrames,
    ReadFailed(Errno),
}

const READ_FAILED: u64 = 1 << 16;

impl News {
    fn token(self) -> Token {
        Token(match self {
            Self::Look => 0,
            Self::NoFrames => 1,
            Self::ReadFailed(errno) => READ_FAILED | u64::from(errno.raw_os_error() as u16),
        })
    }

    fn from_token(token: Token) -> Self {
        match token.0 {
            0 => Self::Look,
            1 => Self::NoFrames,
            raw => Self::ReadFailed(Errno::from_raw_os_error(i32::from(raw as u16))),
        }
    }
}

impl Core {
    pub(crate) fn key(&self, file: &FileState, page: crate::PageNo) -> PageKey {
        PageKey { file: file.id, page }
    }

    /// Where a page begins in its file, in bytes.
    pub(crate) fn offset(&self, page: crate::PageNo) -> u64 {
        page.0 * self.frames.page_bytes() as u64
    }

    pub(crate) fn unpin(&self, pin: Pin) {
        match self.frames.unpin(pin) {
            Unpinned::Held => {}
            Unpinned::Idle => self.notify_idle(1),
            Unpinned::Freed(claim) => self.free_frame(claim),
        }
    }

    /// Why the page cannot be had now.
    fn busy(&self, key: PageKey) -> Option<Busy> {
        let shard = self.index.lock(key);
        match shard.get()? {
            Entry::Announced => Some(Busy::Reading),
            Entry::Frame(frame) => Busy::of(self.frames.word(frame).state()),
        }
    }

    /// Waits until the page is no longer `busy`. Afterwards anything may be true of it.
    ///
    /// # Errors
    /// If it was being brought in, and that failed: each that waited for it gets the error.
    pub(crate) fn wait_for_page(
        &self,
        file: &FileState,
        key: PageKey,
        busy: Busy,
        want: Want,
    ) -> Result<(), Error> {
        let reason = match busy {
            Busy::Reading => self.reasons.page_read,
            Busy::Changing => self.reasons.page_change,
            Busy::WriteBack => self.reasons.write_back,
        };
        let still = || self.busy(key) == Some(busy);
        let outcome = self.pages.wait(&key.into(), still, Wait::new(reason).tag(want.tag()));
        let Outcome::Woken(token) = outcome else {
            return Ok(());
        };
        match News::from_token(token) {
            News::Look => {
                if self.busy(key) == Some(busy) {
                    self.pages.note_needless(reason);
                }
                Ok(())
            }
            News::NoFrames => Err(self.no_frames_for_another()),
            News::ReadFailed(errno) => Err(self.read_error(file, key, errno)),
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
        self.pages.wake_where(&key.into(), choose, News::Look.token());
    }

    /// Passes on a wake that was meant for one that changes the page.
    pub(crate) fn wake_next_changer(&self, key: PageKey) {
        let choose = |tag: Tag| {
            if tag == Want::Change.tag() { Verdict::WakeAndStop } else { Verdict::Skip }
        };
        self.pages.wake_where(&key.into(), choose, News::Look.token());
    }

    /// The page could not be brought in: wakes all that wait for it.
    pub(crate) fn wake_failed(&self, key: PageKey, news: News) {
        self.pages.wake_with(&key.into(), usize::MAX, news.token());
    }

    pub(crate) fn read_error(&self, file: &FileState, key: PageKey, errno: Errno) -> Error {
        file.io_error(Operation::Read, self.offset(key.page), errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_through_the_token_as_they_were() {
        for news in [News::Look, News::NoFrames, News::ReadFailed(Errno::IO)] {
            assert_eq!(News::from_token(news.token()), news);
        }
    }
}
