//! The number of frames, changed while the cache is in use.
//!
//! A cache is built with all the frames that it may ever have; those that it does not have now are
//! *absent*: not in the pool, and without memory. Hits know nothing of it.

use std::time::Duration;

use unherd_sync::Wait;
use unherd_sys::primitives::{Arc, Ordering};
use unherd_sys::{AvailableMemory, Deadline, Timestamp};

use crate::Error;
use crate::file::{ChangingPages, Core, contiguous};
use crate::frames::dirty_waiters::NO_FILE;
use crate::frames::{Claim, Supply};
use crate::latch::ExclusiveGuard;
use crate::page::{ALL_PAGES, FileId, PageKey, PageNo};

/// Frames that are taken under one lock.
const BATCH: usize = 64;

/// How long the cache waits for a frame before it looks again whether it can shrink at all: while
/// it waits, nobody has the frames that it has taken.
const WAIT: Duration = Duration::from_millis(50);

/// A page of no file: frames are taken in its name.
const NO_PAGE: PageKey = PageKey { file: FileId(u32::MAX), page: PageNo(0) };

/// See [`Cache::resize`](crate::Cache::resize). There are as many frames.
pub(crate) fn resize(core: &Core, frames: usize) -> Result<(), Error> {
    core.check_not_forked()?;
    let _held = ExclusiveGuard::new(&core.resizing, core.waits(), core.reasons().frame);
    let capacity = core.supply().capacity();
    if frames < capacity {
        shrink_by(core, capacity - frames, frames)
    } else {
        grow_by(core, frames - capacity)
    }
}

fn grow_by(core: &Core, frames: usize) -> Result<(), Error> {
    let bytes = frames * core.memory().page_bytes();
    if let Some(available) = AvailableMemory::lacks(bytes) {
        let AvailableMemory { bytes: available_bytes, limit } = available;
        return Err(Error::InsufficientMemory { bytes, available_bytes, limit });
    }
    core.supply().grow(frames).map_err(|errno| Error::Memory { bytes, errno })?;
    core.pages.notify_frame_waiters(frames);
    core.files.hand_out_reservations(core.supply(), usize::MAX);
    Ok(())
}

/// First dirty pages are written back, while nothing is taken from anybody: most of them while
/// others have the room that they had, the rest while no more come than `left` frames allow. So
/// what cannot be written is known before a frame is taken.
fn shrink_by(core: &Core, frames: usize, capacity: usize) -> Result<(), Error> {
    let cannot = |waited| {
        let capacity_bytes = capacity * core.memory().page_bytes();
        let cause = Arc::new(core.no_frames(waited));
        Err(Error::CannotShrink { capacity_bytes, cause })
    };
    if core.supply().given_out() > contiguous::share(capacity) {
        return cannot(Duration::ZERO);
    }
    let left = core.supply().len() - frames;
    write_back_to(core, left);
    let mut given_up = Shrinking::new(core, left);
    if let Err(waited) = write_back_rest(core, left) {
        return cannot(waited);
    }
    if holds_too_many(core.supply(), left) {
        return cannot(Duration::ZERO);
    }
    given_up.take(frames);
    let mut began = Timestamp::now();
    while given_up.claims.len() < frames {
        let end = Timestamp::now().after(WAIT.min(core.frame_wait));
        let taken = core.take_before(NO_PAGE, began, end);
        if let Some(claim) = taken {
            given_up.add(vec![claim]);
            // Where one has come there may be more; but each search may look at all frames.
            if given_up.claims.len().is_multiple_of(BATCH) {
                given_up.take(frames);
            }
            began = Timestamp::now();
            continue;
        }
        let waited = Timestamp::now().since(began);
        if holds_too_many(core.supply(), left) || waited >= core.frame_wait {
            return cannot(waited);
        }
    }
    if holds_too_many(core.supply(), left) {
        return cannot(Duration::ZERO);
    }
    given_up.set_aside();
    Ok(())
}

/// Writes back until no more pages are newer than the device than three quarters of `left`;
/// waits under `frame` for pages that others are changing. Gives how long it has waited if too
/// many are held, or at the frame deadline.
fn write_back_rest(core: &Core, left: usize) -> Result<(), Duration> {
    let waiters = &core.supply().dirty_waiters;
    let _entered = waiters.events.enter();
    let (began, mut waited) = (Timestamp::now(), Duration::ZERO);
    loop {
        let seen = waiters.events.epoch();
        if write_back_to(core, left) {
            return Ok(());
        }
        if holds_too_many(core.supply(), left) || waited >= core.frame_wait {
            return Err(waited);
        }
        let end = Timestamp::now().after(WAIT.min(core.frame_wait));
        // Woken by what is told to all, and in nobody's place.
        let how = Wait::new(core.reasons().frame).deadline(Deadline::at(end)).shared();
        let _ = waiters.wait(core.waits(), seen, how.tag(NO_FILE));
        waited = Timestamp::now().since(began);
    }
}

/// Whether more than three quarters of `left` frames are pinned, or cannot be written back.
fn holds_too_many(supply: &Supply, left: usize) -> bool {
    let held = supply.held();
    held.pinned + held.unwritten > left * 3 / 4
}

/// Writes pages back, if more are newer than the device than three quarters of `left`. Whether
/// that many are at most, afterwards.
fn write_back_to(core: &Core, left: usize) -> bool {
    let fits = || core.files.unwritten.load(Ordering::Relaxed) <= left * 3 / 4;
    let files = if fits() { Vec::new() } else { core.files.all() };
    fits()
        || files.iter().any(|file| {
            core.write_back(file, &[ALL_PAGES], ChangingPages::Skipped);
            fits()
        })
}

/// Frames that the cache counts no more, and that have their memory still. They come back where the
/// cache does not shrink after all, even by a panic of the device.
struct Shrinking<'a> {
    core: &'a Core,
    /// How many frames are to be left.
    left: usize,
    claims: Vec<Claim>,
}

impl<'a> Shrinking<'a> {
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

    /// Takes what is missing of `frames` frames, as far as it can be had at once.
    fn take(&mut self, frames: usize) {
        while self.claims.len() < frames {
            let taken = self.core.take_from_pool((frames - self.claims.len()).min(BATCH));
            if taken.is_empty() {
                break;
            }
            self.add(taken);
        }
    }

    fn set_aside(mut self) {
        self.core.supply().set_aside(std::mem::take(&mut self.claims));
    }
}

impl Drop for Shrinking<'_> {
    fn drop(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        let count = claims.len();
        self.core.supply().put_back(claims);
        self.core.supply().aim_at(usize::MAX);
        self.core.pages.notify_frame_waiters(count);
        // Where it did not shrink there is as much room as before.
        if self.core.supply().len() > self.left {
            self.core.files.hand_out_reservations(self.core.supply(), usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests;
