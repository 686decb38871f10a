//! The number of frames, changed while the cache is in use.
//!
//! A cache is built with all the frames that it may ever have; those that it does not have now are
//! *absent*: in no pool, and without memory. Hits know nothing of it.

use std::time::Duration;

use unherd_sync::Wait;
use unherd_sys::primitives::{Arc, Ordering};
use unherd_sys::{AvailableMemory, Deadline, Timestamp};

use crate::Error;
use crate::file::{ChangingPages, Core, contiguous};
use crate::frames::Claim;
use crate::frames::room::NO_FILE;
use crate::latch::AloneGuard;
use crate::page::{ALL_PAGES, FileId, PageKey, PageNo};

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
        let capacity = self.supply().capacity();
        if frames < capacity {
            self.shrink_by(capacity - frames, frames)
        } else {
            self.grow_by(frames - capacity)
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
        self.hand_out_room(usize::MAX);
        Ok(())
    }

    /// First dirty pages are written back, while nothing is taken from anybody: most of them while
    /// others have the room that they had, the rest while no more come than `left` frames allow. So
    /// what cannot be written is known before a frame is taken.
    fn shrink_by(&self, frames: usize, capacity: usize) -> Result<(), Error> {
        let cannot = |waited| {
            let capacity_bytes = capacity * self.memory().page_bytes();
            let cause = Arc::new(self.no_frames(waited));
            Err(Error::CannotShrink { capacity_bytes, cause })
        };
        if self.supply().given_out() > contiguous::share(capacity) {
            return cannot(Duration::ZERO);
        }
        let left = self.supply().len() - frames;
        self.write_back_to(left);
        let mut given_up = GivenUp::new(self, left);
        if let Err(waited) = self.write_back_rest(left) {
            return cannot(waited);
        }
        if self.holds_too_many(left) {
            return cannot(Duration::ZERO);
        }
        self.take_shares(&mut given_up, frames);
        let mut began = Timestamp::now();
        while given_up.claims.len() < frames {
            let end = Timestamp::now().after(WAIT.min(self.frame_wait));
            let taken = self.take_before(NO_PAGE, began, end);
            if let Some(claim) = taken {
                given_up.add(vec![claim]);
                // Where one has come there may be more; but each search may look at all of a pool.
                if given_up.claims.len().is_multiple_of(BATCH) {
                    self.take_anywhere(&mut given_up, frames);
                }
                began = Timestamp::now();
                continue;
            }
            let waited = Timestamp::now().since(began);
            if self.holds_too_many(left) || waited >= self.frame_wait {
                return cannot(waited);
            }
        }
        if self.holds_too_many(left) {
            return cannot(Duration::ZERO);
        }
        given_up.set_aside();
        Ok(())
    }

    /// Takes `frames` frames, as far as they can be had at once: of each pool as large a part as of
    /// the others.
    fn take_shares(&self, given_up: &mut GivenUp<'_>, frames: usize) {
        let pools = &self.supply().pools;
        let mut present = self.supply().len();
        for pool in 0..pools.count() {
            let has = pools.lock(pool).len();
            let missing = frames - given_up.claims.len();
            let share = (missing as u128 * has as u128).div_ceil(present.max(1) as u128) as usize;
            self.take_from(given_up, pool, share.min(missing));
            present -= has.min(present);
        }
        self.take_anywhere(given_up, frames);
    }

    /// Takes what is missing of `frames` frames, as far as it can be had at once.
    fn take_anywhere(&self, given_up: &mut GivenUp<'_>, frames: usize) {
        for pool in 0..self.supply().pools.count() {
            self.take_from(given_up, pool, frames - given_up.claims.len());
        }
    }

    fn take_from(&self, given_up: &mut GivenUp<'_>, pool: usize, frames: usize) {
        let mut left = frames;
        while left > 0 {
            let taken = self.take_from_pool(pool, left.min(BATCH));
            if taken.is_empty() {
                break;
            }
            left -= taken.len();
            given_up.add(taken);
        }
    }

    /// Writes back until no more pages are newer than the device than three quarters of `left`;
    /// waits under `frame` for pages that others are changing. Gives how long it has waited if too
    /// many are held, or at the frame deadline.
    fn write_back_rest(&self, left: usize) -> Result<(), Duration> {
        let room = &self.supply().room;
        let _entered = room.enter();
        let (began, mut waited) = (Timestamp::now(), Duration::ZERO);
        loop {
            let seen = room.told();
            if self.write_back_to(left) {
                return Ok(());
            }
            if self.holds_too_many(left) || waited >= self.frame_wait {
                return Err(waited);
            }
            let end = Timestamp::now().after(WAIT.min(self.frame_wait));
            // Woken by what is told to all, and in nobody's place.
            let how = Wait::new(self.reasons().frame).deadline(Deadline::at(end)).shared();
            let _ = room.wait(self.waits(), seen, how.tag(NO_FILE));
            waited = Timestamp::now().since(began);
        }
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
                self.write_back(file, &[ALL_PAGES], ChangingPages::Skipped);
                fits()
            })
    }
}

/// Frames that the cache counts no more, and that have their memory still. They come back where the
/// cache does not shrink after all, even by a panic of the device.
struct GivenUp<'a> {
    core: &'a Core,
    /// How many frames are to be left.
    left: usize,
    claims: Vec<Claim>,
}

impl<'a> GivenUp<'a> {
    /// None yet. Until this is dropped, no more pages become newer than the device than `left`
    /// frames allow.
    fn new(core: &'a Core, left: usize) -> Self {
        core.supply().aim_at(left);
        Self { core, left, claims: Vec::new() }
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
        self.core.pages.notify_idle(count);
        // Where it did not shrink there is as much room as before.
        if self.core.supply().len() > self.left {
            self.core.hand_out_room(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests;
