//! Pinned pages.
#![expect(unsafe_code, reason = "a pin is moved out of the guard that is dropped")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::frames::{Pin, RacyPage};
use crate::pages::Pages;

/// A pinned page, by [`File::page`](crate::File::page): a slice of [`Cache::page_bytes`] bytes,
/// also of the last page of a file. They do not change while the guard lives, which keeps a frame.
/// A guard may be sent to another thread.
///
/// [`Cache::page_bytes`]: crate::Cache::page_bytes
pub struct PageGuard<'a> {
    pages: &'a Pages,
    /// Taken by the drop of the guard.
    pin: ManuallyDrop<Pin>,
}

impl<'a> PageGuard<'a> {
    /// Inlined with all that a hit does, so that the guard stays in registers.
    #[inline(always)]
    pub(crate) fn new(pages: &'a Pages, pin: Pin) -> Self {
        Self { pages, pin: ManuallyDrop::new(pin) }
    }

    /// The page as those see it who peek: nobody changes it now.
    pub(crate) fn racy(&self) -> RacyPage<'_> {
        self.pages.memory().racy(self.pin.id())
    }
}

impl fmt::Debug for PageGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageGuard").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for PageGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.pages.memory().bytes(&self.pin)
    }
}

impl Drop for PageGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: nobody uses the guard after its drop, so the pin is taken once.
        let pin = unsafe { ManuallyDrop::take(&mut self.pin) };
        self.pages.unpin(pin);
    }
}
