//! Pinned pages.
#![expect(unsafe_code, reason = "a pin is moved out of the guard that is dropped")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use unherd_sys::primitives::Arc;

use crate::error::Error;
use crate::file::core::Core;
use crate::file::files::FileState;
use crate::frames::frame::Pin;
use crate::frames::memory::RacyPage;
use crate::page::PageNo;

/// A pinned page: its bytes do not change while the guard lives.
pub struct PageGuard<'a> {
    core: &'a Core,
    /// Taken by the drop of the guard.
    pin: ManuallyDrop<Pin>,
}

impl Core {
    /// The page, pinned, for a caller that wants `pages` pages, from this one on.
    #[inline(always)]
    pub(crate) fn find_and_pin(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        pages: u64,
    ) -> Result<Pin, Error> {
        match self.try_hit(self.key(file, page)) {
            Some(pin) => Ok(pin),
            None => self.pin(file, page, pages),
        }
    }
}

impl<'a> PageGuard<'a> {
    /// For a caller that wants `pages` pages, from this one on. Inlined with all that a hit does,
    /// so that the guard stays in registers.
    #[inline(always)]
    pub(crate) fn new(
        core: &'a Core,
        file: &Arc<FileState>,
        page: PageNo,
        pages: u64,
    ) -> Result<Self, Error> {
        Ok(Self { core, pin: ManuallyDrop::new(core.find_and_pin(file, page, pages)?) })
    }

    #[cfg(feature = "async")]
    pub(crate) async fn new_async(
        core: &'a Core,
        file: &Arc<FileState>,
        page: PageNo,
        pages: u64,
    ) -> Result<Self, Error> {
        let pin = match core.try_hit(core.key(file, page)) {
            Some(pin) => pin,
            None => core.pin_async(file, page, pages).await?,
        };
        Ok(Self { core, pin: ManuallyDrop::new(pin) })
    }

    /// The page as those see it who peek: nobody changes it now.
    pub(crate) fn racy(&self) -> RacyPage<'_> {
        self.core.memory.racy(self.pin.id())
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
        self.core.memory.bytes(&self.pin)
    }
}

impl Drop for PageGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: nobody uses the guard after its drop, so the pin is taken once.
        let pin = unsafe { ManuallyDrop::take(&mut self.pin) };
        self.core.unpin(pin);
    }
}
