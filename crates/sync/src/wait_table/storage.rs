//! Where the buckets of a table lie, and what memory they take.
//!
//! - **M1** Buckets never move, and below [`Storage::room`] each can be reached: those below
//!   [`Storage::committed`] at any time, the others after a commit that succeeded.
//! - **M2** What was never written, or was given back, is an absent bucket: zeros.
#![expect(unsafe_code, reason = "buckets in memory of the kernel's")]

use std::ptr::NonNull;

#[cfg(not(any(loom, shuttle)))]
use unherd_sys::{Reserve, ReserveError};

use super::bucket::Bucket;
#[cfg(not(any(loom, shuttle)))]
use super::word::BUCKET_BYTES;

/// The memory was refused.
#[derive(Debug)]
pub(super) struct Refused;

/// Keeps the memory of the buckets.
enum Owner {
    /// Of the allocator, all of it there.
    Heap,
    /// Reserved addresses, whose memory comes with growth.
    #[cfg(not(any(loom, shuttle)))]
    Reserved(Reserve),
}

pub(super) struct Storage<K> {
    first: NonNull<Bucket<K>>,
    room: usize,
    owner: Owner,
}

impl<K> Storage<K> {
    /// 2^`level` present buckets, and room for absent ones up to 2^`level_max`. If addresses are
    /// refused, there is no more room than for those that are present.
    pub(super) fn new(level: u32, level_max: u32) -> Self {
        #[cfg(not(any(loom, shuttle)))]
        if level_max > level
            && let Ok(reserved) = Self::reserved(level, level_max)
        {
            return reserved;
        }
        let room = if cfg!(any(loom, shuttle)) { 1 << level_max } else { 1 << level };
        let bucket = |index| {
            if index < 1 << level { Bucket::new(level) } else { Bucket::absent() }
        };
        let buckets: Box<[Bucket<K>]> = (0..room).map(bucket).collect();
        Self { first: NonNull::from(Box::leak(buckets)).cast(), room, owner: Owner::Heap }
    }

    #[cfg(not(any(loom, shuttle)))]
    fn reserved(level: u32, level_max: u32) -> Result<Self, ReserveError> {
        let room = 1 << level_max;
        let reserve = Reserve::new(room * BUCKET_BYTES)?;
        let first = reserve.start().cast();
        let storage = Self { first, room, owner: Owner::Reserved(reserve) };
        storage.reserve_commit(0, 1 << level)?;
        for index in 0..1 << level {
            // SAFETY: within the reserve, which is aligned to pages.
            let place = unsafe { first.add(index) };
            // SAFETY: committed, and nobody else knows of it.
            unsafe { place.write(Bucket::new(level)) };
        }
        Ok(storage)
    }

    pub(super) fn first(&self) -> NonNull<Bucket<K>> {
        self.first
    }

    /// How many buckets there may ever be.
    pub(super) fn room(&self) -> usize {
        self.room
    }
}

#[cfg(not(any(loom, shuttle)))]
impl<K> Storage<K> {
    /// Whole pages around the buckets from `from` to `to`. Other buckets may be on the first.
    fn pages(reserve: &Reserve, from: usize, to: usize) -> std::ops::Range<usize> {
        let page = reserve.page_bytes();
        let start = from * BUCKET_BYTES / page * page;
        start..(to * BUCKET_BYTES).next_multiple_of(page)
    }

    fn reserve_commit(&self, from: usize, to: usize) -> Result<(), ReserveError> {
        match &self.owner {
            Owner::Heap => Ok(()),
            Owner::Reserved(reserve) => reserve.commit(Self::pages(reserve, from, to)),
        }
    }

    /// Makes the buckets from `from` to `to` accessible: absent ones, if they were not before.
    pub(super) fn commit(&self, from: usize, to: usize) -> Result<(), Refused> {
        self.reserve_commit(from, to).map_err(|_| Refused)
    }

    /// Takes the memory of these buckets now, so that nobody meets a page fault under a lock.
    pub(super) fn populate(&self, from: usize, to: usize) -> Result<(), Refused> {
        match &self.owner {
            Owner::Heap => Ok(()),
            Owner::Reserved(reserve) => {
                let mut pages = Self::pages(reserve, from, to);
                if pages.start < from * BUCKET_BYTES {
                    // Not a page on which buckets are in use: it is there, and not to be written.
                    pages.start += reserve.page_bytes();
                }
                if pages.is_empty() {
                    return Ok(());
                }
                reserve.populate(pages).map_err(|_| Refused)
            }
        }
    }

    /// Gives back the memory of these buckets, as far as it is whole pages. All are absent (G3).
    pub(super) fn give_back(&self, from: usize, to: usize) {
        let Owner::Reserved(reserve) = &self.owner else { return };
        let pages = Self::pages(reserve, from, to);
        if pages.start == from * BUCKET_BYTES && pages.end == to * BUCKET_BYTES {
            // If the kernel keeps it (locked memory), it is as it was: zeros.
            let _ = reserve.give_back(pages);
        }
    }

    /// Bytes of buckets that are in memory.
    pub(super) fn resident_bytes(&self) -> usize {
        match &self.owner {
            Owner::Heap => self.room * size_of::<Bucket<K>>(),
            Owner::Reserved(reserve) => reserve.resident_bytes().unwrap_or(0),
        }
    }
}

/// Under the checkers all memory is there, and giving it back writes zeros.
#[cfg(any(loom, shuttle))]
impl<K> Storage<K> {
    pub(super) fn commit(&self, _: usize, _: usize) -> Result<(), Refused> {
        Ok(())
    }

    pub(super) fn populate(&self, _: usize, _: usize) -> Result<(), Refused> {
        Ok(())
    }

    pub(super) fn give_back(&self, from: usize, to: usize) {
        for index in from..to {
            // SAFETY: M1.
            let bucket = unsafe { self.first.add(index) };
            // SAFETY: M1.
            unsafe { bucket.as_ref() }.become_zeros();
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.room * size_of::<Bucket<K>>()
    }
}

impl<K> Drop for Storage<K> {
    fn drop(&mut self) {
        // What is reserved holds nothing that wants to be dropped, and goes with its owner.
        if matches!(self.owner, Owner::Heap) {
            let buckets = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.room);
            // SAFETY: what `new` leaked; nobody borrows the table any more.
            drop(unsafe { Box::from_raw(buckets) });
        }
    }
}
