//! The number of frames, changed while the cache is in use.
//!
//! A cache is built with all the frames that it may ever have; those that it does not have now are
//! *absent*: in no pool, and without memory. Hits know nothing of it.

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
        let mut taken: Vec<Claim> = Vec::with_capacity(frames);
        while taken.len() < frames {
            let wanted = (frames - taken.len()).min(BATCH);
            taken.extend(self.try_take_run(NO_PAGE, wanted));
            if taken.len() == frames {
                break;
            }
            match self.take_frame(NO_PAGE, None) {
                Ok(claim) => taken.push(claim),
                Err(error) => {
                    taken.into_iter().for_each(|claim| self.pages.free_frame(claim));
                    let capacity_bytes = left * self.memory().page_bytes();
                    return Err(Error::CannotShrink { capacity_bytes, cause: Arc::new(error) });
                }
            }
        }
        self.supply().shrink(taken);
        Ok(())
    }
}
