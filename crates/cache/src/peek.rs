//! A look at a page without a pin: nothing is written that others read.
//!
//! The page may be written while somebody looks. Who peeks reads it by racy loads, and then asks
//! whether it was: if so, all that was read is thrown away, and it is looked at again. After a few
//! such turns the page is pinned, and looked at in peace. How that is ordered stands in `frame.rs`.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use unherd_sys::primitives::Arc;

use crate::Error;
use crate::core::Core;
use crate::file::PageGuard;
use crate::files::FileState;
use crate::frame::{Frames, Look};
use crate::frame_memory::RacyPage;
use crate::page::{FrameId, PageKey, PageNo};
use crate::stats::Tick;

/// Looks without a pin, before the page is pinned.
const TRIES: usize = 8;

/// Loads after which a look asks whether it still is worth while.
const FUEL: u32 = 64;

/// The page was changed while it was looked at: what was read means nothing.
///
/// A closure that gets this returns it, and is called again.
#[derive(Debug, thiserror::Error)]
#[error("the page was changed while it was looked at")]
pub struct Torn(());

/// A page as it is being looked at; see [`File::peek`](crate::File::peek).
///
/// Two loads may see the page before and after a change, until [`Peek::check`] or the end of the
/// look says that they did not. Numbers are little-endian, at any place in the page.
pub struct Peek<'a> {
    page: RacyPage<'a>,
    /// `None` of a page that is pinned.
    unpinned: Option<(&'a Frames, FrameId, Look)>,
    fuel: Cell<u32>,
}

impl fmt::Debug for Peek<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peek").field("len", &self.len()).finish_non_exhaustive()
    }
}

macro_rules! getters {
    ($($name:ident, $type:ty, $what:literal;)*) => {$(
        #[doc = concat!("The ", $what, " at `at`.")]
        ///
        /// # Errors
        /// [`Torn`] may be told here already: so that a loop over what was torn ends, each 64th
        /// load asks.
        ///
        /// # Panics
        /// If it does not lie in the page, and that is not because something was torn.
        #[inline]
        pub fn $name(&self, at: usize) -> Result<$type, Torn> {
            self.burn()?;
            match self.page.$name(at) {
                Some(number) => Ok(number),
                None => Err(self.beyond(at, size_of::<$type>())),
            }
        }
    )*};
}

impl Peek<'_> {
    /// The size of the page in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no page is empty")]
    pub fn len(&self) -> usize {
        self.page.len()
    }

    /// Whether all that was read so far belongs together.
    ///
    /// # Errors
    /// [`Torn`] if the page was changed since the look began.
    #[inline]
    pub fn check(&self) -> Result<(), Torn> {
        match self.unpinned {
            Some((frames, frame, look)) if !frames.is_unchanged(frame, look) => Err(Torn(())),
            _ => Ok(()),
        }
    }

    getters! {
        get_u8, u8, "byte";
        get_u16, u16, "number of 2 bytes";
        get_u32, u32, "number of 4 bytes";
        get_u64, u64, "number of 8 bytes";
    }

    /// Copies the bytes from `at` on to `to`, all of which it fills.
    ///
    /// # Errors
    /// [`Torn`] if the page was changed: then `to` holds anything.
    ///
    /// # Panics
    /// As the other loads.
    pub fn copy_to(&self, at: usize, to: &mut [u8]) -> Result<(), Torn> {
        if !self.page.copy_to(at, to) {
            return Err(self.beyond(at, to.len()));
        }
        self.check()
    }

    #[inline]
    fn burn(&self) -> Result<(), Torn> {
        let fuel = self.fuel.get();
        if fuel > 0 {
            self.fuel.set(fuel - 1);
            return Ok(());
        }
        self.fuel.set(FUEL);
        self.check()
    }

    /// Something lies beyond the page: because the place was torn, or the caller is wrong.
    #[cold]
    fn beyond(&self, at: usize, bytes: usize) -> Torn {
        let page_bytes = self.len();
        match self.check() {
            Err(torn) => torn,
            Ok(()) => panic!("{bytes} bytes at {at} are beyond the page of {page_bytes} bytes"),
        }
    }
}

/// The page itself is as it was: a version never comes back, so neither does what was torn. To look
/// again would not mend the other page, perhaps for ever.
#[cold]
fn torn_elsewhere(file: &FileState, page: PageNo) -> Error {
    Error::TornElsewhere { file: file.path.clone(), page: page.0 }
}

impl Core {
    /// As [`File::peek`](crate::File::peek).
    pub(crate) fn peek<R>(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        mut look: impl FnMut(&Peek<'_>) -> Result<R, Torn>,
    ) -> Result<R, Error> {
        let key = self.key(file, page);
        for _ in 0..TRIES {
            let Some((frame, word)) = self.begin_look(key) else { break };
            let peek = Peek {
                page: self.memory.racy(frame),
                unpinned: Some((&self.frames, frame, word)),
                fuel: Cell::new(FUEL),
            };
            // What panics over torn bytes is not the caller's fault: it is called again.
            let seen = catch_unwind(AssertUnwindSafe(|| look(&peek)));
            if self.frames.is_unchanged(frame, word) {
                match seen {
                    Ok(Ok(value)) => {
                        self.frames.note_use(frame, word);
                        self.counters.tick(Tick::Peeks);
                        return Ok(value);
                    }
                    Ok(Err(Torn(()))) => return Err(torn_elsewhere(file, page)),
                    Err(panic) => resume_unwind(panic),
                }
            }
            self.counters.tick(Tick::PeekRetries);
        }
        self.peek_slow(file, page, look)
    }

    #[inline]
    fn begin_look(&self, key: PageKey) -> Option<(FrameId, Look)> {
        let frame = self.index.lookup(key)?;
        Some((frame, self.frames.begin_peek(frame, key)?))
    }

    #[cold]
    fn peek_slow<R>(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        mut look: impl FnMut(&Peek<'_>) -> Result<R, Torn>,
    ) -> Result<R, Error> {
        let pinned = PageGuard::new(self, file, page)?;
        let peek = Peek { page: pinned.racy(), unpinned: None, fuel: Cell::new(FUEL) };
        look(&peek).map_err(|Torn(())| torn_elsewhere(file, page))
    }

    /// Copies a part of the page to `to`, without a pin, if it is there and is not changed just
    /// now. That this fails means nothing, and leaves anything in `to`.
    #[inline]
    pub(crate) fn copy_out(&self, key: PageKey, at: usize, to: &mut [u8]) -> bool {
        if !self.memory.is_racy_copy_fast() {
            return false;
        }
        let Some((frame, look)) = self.begin_look(key) else { return false };
        let copied = self.memory.racy(frame).copy_to(at, to);
        if copied && self.frames.is_unchanged(frame, look) {
            self.frames.note_use(frame, look);
            self.counters.tick(Tick::CopiesOut);
            return true;
        }
        self.counters.tick(Tick::PeekRetries);
        false
    }
}
