//! The read path: pages brought in. Those that are there are found by `hit.rs`.
//!
//! One thread brings a missing page in; it announces this in the index before it even has a frame.
//! All others that want the page wait for it alone. If the read fails, each of them gets the error,
//! and none reads again by itself: one bad sector costs one read. The next call will try anew.
//!
//! A page at or beyond the end of the file needs no read: it is zeros.
#![expect(unsafe_code, reason = "the frame's memory is given to the device")]

use unherd_sys::primitives::Arc;
use unherd_sys::{Direction, Errno};

use crate::Error;
use crate::core::{Core, News, Want, Work};
use crate::engine::Ticket;
use crate::files::FileState;
use crate::frame::{Claim, Pin, State};
use crate::index::Announced;
use crate::page::{PageKey, PageNo};
use crate::resident::{Lookup, TooManyPins};
use crate::stats::Count;
use crate::transfer::{Progress, Step};

/// What became of a page that is brought in.
enum Begun<'a> {
    Ended(Result<Pin, Errno>),
    /// The I/O thread will end it.
    UnderWay(Ticket<'a>),
}

impl Core {
    /// The page, pinned, for a caller that has tried [`Core::try_hit`]; it is read if it is not
    /// there. Blocks under `page-read`, `page-change` and `frame`, or on the device.
    #[cold]
    pub(crate) fn pin(&self, file: &Arc<FileState>, page: PageNo) -> Result<Pin, Error> {
        self.check_not_forked()?;
        self.check_page(page)?;
        let key = self.key(file, page);
        let mut waited = false;
        loop {
            match self.look_up(file, key, waited)? {
                Lookup::Here(pin) => return Ok(pin),
                Lookup::Busy(busy) => self.wait_for_page(file, key, busy, Want::Read)?,
                Lookup::Mine(announced) => {
                    let claim = self.frame_for_announced(announced)?;
                    return self.fill(file, announced, claim);
                }
            }
            waited = true;
        }
    }

    /// Decides what is there and what is missing. A hit gets here only if its page was being moved
    /// in the index, or changed, when it looked without the lock. Who has `waited` was counted.
    pub(crate) fn look_up(
        &self,
        file: &FileState,
        key: PageKey,
        waited: bool,
    ) -> Result<Lookup, Error> {
        let found = self.shard(key).look_up(&self.frames).map_err(|TooManyPins| {
            Error::TooManyPins { file: file.path.clone(), page: key.page.0 }
        })?;
        match &found {
            _ if waited => {}
            Lookup::Here(_) => self.counters.add(Count::Hits, 1),
            Lookup::Busy(busy) if busy.work == Work::Reading => {
                self.counters.add(Count::DeduplicatedMisses, 1);
            }
            Lookup::Busy(_) | Lookup::Mine(_) => {}
        }
        Ok(found)
    }

    /// A frame for a page that the caller has announced. If there is none, the announcement is
    /// taken back, and those who wait for the page are told.
    pub(crate) fn frame_for_announced(&self, announced: Announced) -> Result<Claim, Error> {
        self.counters.add(Count::Misses, 1);
        self.take_frame(announced.key)
            .inspect_err(|_| self.take_back(announced, News::NoFrames(announced.spell)))
    }

    /// Takes an announcement back, with news for those who wait for the page.
    pub(crate) fn take_back(&self, announced: Announced, news: News) {
        self.shard(announced.key).remove();
        self.wake_failed(announced.key, news);
    }

    /// Puts a claimed frame in the place of its page's announcement.
    pub(crate) fn install(&self, announced: Announced, claim: &Claim, state: State) {
        self.shard(announced.key).install(&self.frames, announced, claim, state);
    }

    /// Brings an announced page into the frame, and wakes those who wait for it.
    pub(crate) fn fill(
        &self,
        file: &Arc<FileState>,
        announced: Announced,
        claim: Claim,
    ) -> Result<Pin, Error> {
        let filled = match self.begin_fill(file, announced, claim) {
            Begun::Ended(filled) => filled,
            Begun::UnderWay(ticket) => ticket.wait(),
        };
        filled.map_err(|errno| self.read_error(file, announced.key, errno))
    }

    /// As [`Core::fill`], in a task of a cache with queued I/O.
    pub(crate) async fn fill_async(
        &self,
        file: &Arc<FileState>,
        announced: Announced,
        claim: Claim,
    ) -> Result<Pin, Error> {
        let filled = match self.begin_fill(file, announced, claim) {
            Begun::Ended(filled) => filled,
            Begun::UnderWay(ticket) => ticket.wait_async().await,
        };
        filled.map_err(|errno| self.read_error(file, announced.key, errno))
    }

    /// Begins to bring the page in; where it needs no read, or this thread reads, that is all.
    fn begin_fill(&self, file: &Arc<FileState>, announced: Announced, claim: Claim) -> Begun<'_> {
        let key = announced.key;
        self.install(announced, &claim, State::Reading);
        let mut claim = claim;
        let read = if self.offset(key.page) >= file.len() {
            Ok(0)
        } else {
            self.counters.add(Count::Reads, 1);
            match &self.engine {
                Some(engine) => match engine.begin_fill(self, file, announced, claim) {
                    Ok(ticket) => return Begun::UnderWay(ticket),
                    Err(back) => {
                        claim = back;
                        Err(Errno::IO)
                    }
                },
                None => self.read_blocking(file, key, &mut claim),
            }
        };
        let filled = self.end_fill(key, claim, read);
        self.tell_filled(announced, read.map(|_| ()));
        Begun::Ended(filled)
    }

    /// Reads the page by this thread; gives the bytes that the file had.
    fn read_blocking(
        &self,
        file: &FileState,
        key: PageKey,
        claim: &mut Claim,
    ) -> Result<usize, Errno> {
        let page_bytes = self.memory.page_bytes();
        let mut progress = Progress::new(Direction::Read, page_bytes, file.alignment);
        loop {
            let range = progress.request();
            let offset = self.offset(key.page) + range.start as u64;
            let buf = self.memory.buf_to_fill(claim, range);
            // SAFETY: the claim gives the memory to this thread alone until the call returns.
            let moved = unsafe { self.device.read(file.device_file, offset, buf.into()) }?;
            if progress.advance(moved) != Step::More {
                return Ok(progress.moved());
            }
        }
    }

    /// The read has ended: publishes the page with a pin for the caller, or gives the frame back.
    pub(crate) fn end_fill(
        &self,
        key: PageKey,
        mut claim: Claim,
        read: Result<usize, Errno>,
    ) -> Result<Pin, Errno> {
        match read {
            Ok(bytes) => {
                // What the file has beyond its length, up to the end of a block, is zeros too.
                self.memory.zero_from(&mut claim, bytes);
                Ok(self.frames.publish_pinned(claim, State::Clean))
            }
            Err(errno) => {
                self.counters.add(Count::IoErrors, 1);
                self.shard(key).remove();
                self.free_frame(self.frames.clear(claim));
                Err(errno)
            }
        }
    }

    /// Wakes those who wait for a page after [`Core::end_fill`].
    pub(crate) fn tell_filled(&self, announced: Announced, filled: Result<(), Errno>) {
        match filled {
            Ok(()) => self.wake_page(announced.key),
            Err(errno) => {
                self.wake_failed(announced.key, News::ReadFailed(announced.spell, errno));
            }
        }
    }
}
