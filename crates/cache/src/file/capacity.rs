//! The number of frames, changed while the cache is in use.
//!
//! A cache is built with all the frames that it may ever have; those that it does not have now are
//! *absent*: in no pool, and without memory. Hits know nothing of it.

use std::time::Duration;

use unherd_sys::AvailableMemory;
use unherd_sys::primitives::Arc;

use crate::Error;
use crate::file::core::Core;
use crate::frames::frame::Claim;
use crate::latch::AloneGuard;
use crate::page::{FileId, PageKey, PageNo};

/// Frames that are taken under one lock.
const BATCH: usize = 64;

/// A page of no file: frames are taken in its name.
const NO_PAGE: PageKey = PageKey { file: FileId(u32::MAX), page: PageNo(0) };

impl Core {
    /// See [`Cache::resize`](crate::Cache::resize). There are as many frames.
    pub(crate) fn resize_cache(&self, frames: usize) -> Result<(), Error> {
        self.check_not_forked()?;
        let _alone = AloneGuard::new(&self.resizing, self.waits(), self.reasons().frame);
        let present = self.supply().len();
        if frames < present {
            self.shrink_by(present - frames)
        } else {
            self.grow_by(frames - present)
        }
    }

    fn grow_by(&self, frames: usize) -> Result<(), Error> {
        let bytes = frames * self.memory().page_bytes();
        if let Some(available) = AvailableMemory::lacks(bytes) {
            let AvailableMemory { bytes: available_bytes, limit } = available;
            return Err(Error::InsufficientMemory { bytes, available_bytes, limit });
        }
        self.supply().grow(frames).map_err(|errno| Error::Memory { bytes, errno })?;
        self.pages.notify_idle(frames);
        Ok(())
    }

    fn shrink_by(&self, frames: usize) -> Result<(), Error> {
        let left = self.supply().len() - frames;
        let cannot = |cause| {
            let capacity_bytes = left * self.memory().page_bytes();
            Error::CannotShrink { capacity_bytes, cause: Arc::new(cause) }
        };
        let held = self.supply().held();
        if held.pinned + held.unwritten > left / 4 * 3 {
            return Err(cannot(self.no_frames(Duration::ZERO)));
        }
        let mut given_up = GivenUp { core: self, claims: Vec::with_capacity(frames) };
        while given_up.claims.len() < frames {
            let wanted = (frames - given_up.claims.len()).min(BATCH);
            let mut taken = self.try_take_run(NO_PAGE, wanted);
            if taken.is_empty() {
                taken.push(self.take_frame(NO_PAGE, None).map_err(cannot)?);
            }
            given_up.add(taken);
        }
        given_up.set_aside();
        Ok(())
    }
}

/// Frames that the cache counts no more, and that have their memory still. They come back where the
/// cache does not shrink after all, even by a panic of the device.
struct GivenUp<'a> {
    core: &'a Core,
    claims: Vec<Claim>,
}

impl GivenUp<'_> {
    /// At once, so that no search for another looks at them again, and nobody waits for them.
    fn add(&mut self, taken: Vec<Claim>) {
        self.core.supply().give_up(&taken);
        self.claims.extend(taken);
    }

    fn set_aside(mut self) {
        self.core.supply().set_aside(std::mem::take(&mut self.claims));
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        if !claims.is_empty() {
            let count = claims.len();
            self.core.supply().put_back(claims);
            self.core.pages.notify_idle(count);
        }
    }
}
