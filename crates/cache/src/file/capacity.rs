//! The number of frames, changed while the cache is in use.
//!
//! A cache is built with all the frames that it may ever have; those that it does not have now are
//! *absent*: in no pool, and without memory. Hits know nothing of it.

use std::time::Duration;

use unherd_sys::primitives::{Arc, Ordering};
use unherd_sys::{AvailableMemory, Timestamp};

use crate::Error;
use crate::file::core::Core;
use crate::file::writeback::HeldPages;
use crate::frames::frame::Claim;
use crate::latch::AloneGuard;
use crate::page::{FileId, PageKey, PageNo};

/// Frames that are taken under one lock.
const BATCH: usize = 64;

/// How long the cache waits for a frame before it looks again whether it can shrink at all: while
/// it waits, nobody has the frames that it has taken.
const WAIT: Duration = Duration::from_millis(50);

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

    /// First dirty pages are written back, while nothing is taken from anybody: what cannot be
    /// written is known then, and other files have room for dirty pages of their own.
    fn shrink_by(&self, frames: usize) -> Result<(), Error> {
        let left = self.supply().len() - frames;
        let cannot = |waited| {
            let capacity_bytes = left * self.memory().page_bytes();
            let cause = Arc::new(self.no_frames(waited));
            Err(Error::CannotShrink { capacity_bytes, cause })
        };
        let mut given_up = GivenUp::new(self, left);
        if !self.write_back_to(left) || self.holds_too_many(left) {
            return cannot(Duration::ZERO);
        }
        let mut began = Timestamp::now();
        while given_up.claims.len() < frames {
            let wanted = (frames - given_up.claims.len()).min(BATCH);
            let mut taken = self.try_take_run(NO_PAGE, wanted);
            if taken.is_empty() {
                let waited = Timestamp::now().since(began);
                if self.holds_too_many(left) || waited >= self.frame_wait {
                    return cannot(waited);
                }
                let rest = (self.frame_wait - waited).min(WAIT);
                taken.extend(self.take_before(NO_PAGE, Timestamp::now().after(rest)));
            }
            if !taken.is_empty() {
                given_up.add(taken);
                began = Timestamp::now();
            }
        }
        if self.holds_too_many(left) {
            return cannot(Duration::ZERO);
        }
        given_up.set_aside();
        Ok(())
    }

    /// Whether more than three quarters of `left` frames are pinned, or cannot be written back.
    fn holds_too_many(&self, left: usize) -> bool {
        let held = self.supply().held();
        held.pinned + held.unwritten > left * 3 / 4
    }

    /// Writes pages back, if more are newer than the device than three quarters of `left`. Whether
    /// that many are at most, afterwards.
    fn write_back_to(&self, left: usize) -> bool {
        let fits = || self.files.unwritten.load(Ordering::Relaxed) <= left * 3 / 4;
        let files = if fits() { Vec::new() } else { self.files.all() };
        fits()
            || files.iter().any(|file| {
                self.write_back_all(file, HeldPages::Skipped);
                fits()
            })
    }
}

/// Frames that the cache counts no more, and that have their memory still. They come back where the
/// cache does not shrink after all, even by a panic of the device.
struct GivenUp<'a> {
    core: &'a Core,
    claims: Vec<Claim>,
}

impl<'a> GivenUp<'a> {
    /// None yet. Until this is dropped, no more pages become newer than the device than `left`
    /// frames allow.
    fn new(core: &'a Core, left: usize) -> Self {
        core.supply().aim_at(left);
        Self { core, claims: Vec::new() }
    }

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
        let count = claims.len();
        self.core.supply().put_back(claims);
        self.core.supply().aim_at(usize::MAX);
        // Also one that waits for room for a dirty page.
        self.core.pages.notify_idle(count.max(1));
    }
}
