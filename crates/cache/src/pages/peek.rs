//! A look at a page without a pin: nothing is written that others read.
//!
//! The page may be written while somebody looks. Who peeks reads it by racy loads, and then asks
//! whether it was: if so, all that was read is thrown away, and it is looked at again. After a few
//! such turns the page is pinned, and looked at in peace. How that is ordered stands in `frame.rs`.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use unherd_sys::racy;

use crate::frames::{OptimisticRead, RacyPage, Word};
use crate::page::PageKey;
use crate::pages::Pages;
use crate::stats::Count;

/// Loads after which a look asks whether it still is worth while.
const FUEL: u32 = 64;

/// The page was changed while it was looked at: what was read is torn, part old and part new.
///
/// A closure that gets this returns it, and is called again.
#[derive(Debug)]
pub struct Torn(());

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the page was changed while it was looked at")
    }
}

impl std::error::Error for Torn {}

/// A page as it is being looked at; see [`File::peek`](crate::File::peek).
///
/// Two loads may see the page before and after a change, until [`Peek::check`] or the end of the
/// look says that they did not. Numbers are little-endian on every machine, and
/// may begin at any byte of the page.
pub struct Peek<'a> {
    page: RacyPage<'a>,
    /// `None` of a page that is pinned.
    unpinned: Option<OptimisticRead<'a>>,
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
        /// [`Torn`] may be returned already here: so that a loop over torn bytes ends, each 64th
        /// load looks whether the page has changed.
        ///
        /// # Panics
        /// If it does not lie in the page, and that is not because something was torn.
        #[inline]
        #[track_caller]
        pub fn $name(&self, at: usize) -> Result<$type, Torn> {
            self.burn()?;
            match self.page.$name(at) {
                Some(number) => Ok(number),
                None => Err(self.beyond(at, size_of::<$type>())),
            }
        }
    )*};
}

impl<'a> Peek<'a> {
    /// Of a page that is pinned.
    pub(crate) fn pinned(page: RacyPage<'a>) -> Self {
        Self { page, unpinned: None, fuel: Cell::new(FUEL) }
    }
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
            Some(look) if !look.is_unchanged() => Err(Torn(())),
            _ => Ok(()),
        }
    }

    getters! {
        get_u8, u8, "byte";
        get_u16, u16, "little-endian number of 2 bytes";
        get_u32, u32, "little-endian number of 4 bytes";
        get_u64, u64, "little-endian number of 8 bytes";
    }

    /// Copies the bytes from `at` on to `to`, all of which it fills.
    ///
    /// # Errors
    /// [`Torn`] if the page was changed: the contents of `to` are then unspecified.
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
    #[track_caller]
    fn beyond(&self, at: usize, bytes: usize) -> Torn {
        let page_bytes = self.len();
        match self.check() {
            Err(torn) => torn,
            Ok(()) => panic!("{bytes} bytes at {at} are beyond the page of {page_bytes} bytes"),
        }
    }
}

/// How a look without a pin ended.
pub(crate) enum Seen<R> {
    /// The page is not there, or is being changed.
    Nothing,
    /// It was changed meanwhile.
    Torn,
    /// It was not; what the caller made of it. An error is another page's.
    Whole { seen: Result<R, Torn>, was_unread: bool },
}

/// What a copy without a pin has copied.
pub(crate) enum Copied {
    Nothing,
    Page,
    /// A page that had been brought in ahead, and that nobody had used before.
    Unread,
}

impl Pages {
    /// Looks once.
    #[inline(always)]
    pub(crate) fn try_peek<R>(
        &self,
        key: PageKey,
        look: &mut impl FnMut(&Peek<'_>) -> Result<R, Torn>,
    ) -> Seen<R> {
        let Some((page, begun)) = self.begin_look(key) else { return Seen::Nothing };
        let peek = Peek { page, unpinned: Some(begun), fuel: Cell::new(FUEL) };
        // What panics over torn bytes is not the caller's fault: it is called again.
        let seen = catch_unwind(AssertUnwindSafe(|| look(&peek)));
        if !begun.is_unchanged() {
            self.counters.tick(Count::PeekRetries, &self.fork);
            return Seen::Torn;
        }
        match seen {
            Ok(seen) => {
                let was_unread = seen.is_ok() && self.note_use(begun, false);
                if seen.is_ok() {
                    self.counters.tick(Count::Peeks, &self.fork);
                }
                Seen::Whole { seen, was_unread }
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Whether the page had been brought in ahead, and this was its first use.
    #[inline(always)]
    fn note_use(&self, look: OptimisticRead<'_>, goes_on: bool) -> bool {
        let was_unread = look.note_use(goes_on);
        if was_unread {
            self.counters.add(Count::ReadAheadUsed, 1);
        }
        was_unread
    }

    #[inline(always)]
    fn begin_look(&self, key: PageKey) -> Option<(RacyPage<'_>, OptimisticRead<'_>)> {
        let frame = self.index.lookup(key)?;
        Some((self.memory().racy(frame), self.frames().begin_peek(frame, key)?))
    }

    /// As [`Frames::peek_word`](crate::frames::Frames::peek_word), of a page in whichever frame.
    pub(crate) fn peek_word(&self, key: PageKey) -> Option<Word> {
        self.frames().peek_word(self.index.lookup(key)?, key)
    }

    /// Copies a part of the page to `to`, without a pin, if it is there and is not changed just
    /// now. That this fails means nothing, and leaves anything in `to`. What `goes_on` with the
    /// last read is no further use of the page.
    #[inline]
    pub(crate) fn copy_out(&self, key: PageKey, at: usize, to: &mut [u8], goes_on: bool) -> Copied {
        if !racy::IS_FAST {
            return Copied::Nothing;
        }
        let Some((page, begun)) = self.begin_look(key) else { return Copied::Nothing };
        // What was brought in ahead may be a scan's, which reads it once.
        let is_copied =
            if begun.is_unread() { page.copy_once_to(at, to) } else { page.copy_to(at, to) };
        if is_copied && begun.is_unchanged() {
            self.counters.tick(Count::CopiesOut, &self.fork);
            return if self.note_use(begun, goes_on) { Copied::Unread } else { Copied::Page };
        }
        self.counters.tick(Count::PeekRetries, &self.fork);
        Copied::Nothing
    }
}
