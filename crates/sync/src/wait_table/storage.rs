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
use super::placement::{Layout, Nodes};
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
    layout: Layout,
    level_max: u32,
    owner: Owner,
    /// How many wishes for nodes' memory were refused.
    unplaced: u64,
}

impl<K> Storage<K> {
    /// 2^`level` present buckets, or one for each part if those are more, and room for absent ones
    /// up to 2^`level_max`; in memory of `nodes`, if there are several, and more than a page to
    /// divide among them. If addresses are refused, there is one part, with no more room than for
    /// those that are present.
    pub(super) fn new(level: u32, level_max: u32, nodes: Option<&Nodes>) -> Self {
        #[cfg(not(any(loom, shuttle)))]
        let nodes = nodes.filter(|it| level_max > level || it.divide(BUCKET_BYTES << level));
        #[cfg(not(any(loom, shuttle)))]
        if (level_max > level || nodes.is_some())
            && let Ok(reserved) = Self::reserved(level, level_max, nodes)
        {
            return reserved;
        }
        let level_max = if cfg!(any(loom, shuttle)) { level_max } else { level };
        let bucket = |index| {
            if index < 1 << level { Bucket::new(level) } else { Bucket::absent() }
        };
        let buckets: Box<[Bucket<K>]> = (0..1 << level_max).map(bucket).collect();
        let first = NonNull::from(Box::leak(buckets)).cast();
        let unplaced = u64::from(nodes.is_some());
        Self { first, layout: Layout::whole(level_max), level_max, owner: Owner::Heap, unplaced }
    }

    #[cfg(not(any(loom, shuttle)))]
    fn reserved(level: u32, level_max: u32, nodes: Option<&Nodes>) -> Result<Self, ReserveError> {
        let layout = nodes.map_or(Layout::whole(level_max), |nodes| nodes.layout(level_max));
        let (level, level_max) = (level.max(layout.level_min()), level_max.max(layout.level_min()));
        let reserve = Reserve::new(layout.places() * BUCKET_BYTES)?;
        // Before the first page is taken.
        let unplaced = nodes.map_or(0, |nodes| nodes.place(&reserve, layout));
        let first = reserve.start().cast();
        let storage = Self { first, layout, level_max, owner: Owner::Reserved(reserve), unplaced };
        let level_in_part = layout.level_in_part(level);
        for nth in 0..1 << level {
            let index = layout.index(level, nth);
            if layout.is_first(index) {
                storage.reserve_commit(index, index + (1 << level_in_part))?;
            }
            // SAFETY: within the reserve, which is aligned to pages.
            let place = unsafe { first.add(index) };
            // SAFETY: committed, and nobody else knows of it.
            unsafe { place.write(Bucket::new(level_in_part)) };
        }
        Ok(storage)
    }

    pub(super) fn first(&self) -> NonNull<Bucket<K>> {
        self.first
    }

    /// How many buckets have an address.
    pub(super) fn room(&self) -> usize {
        self.layout.places()
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The level that such a table may have.
    pub(super) fn level_max(&self) -> u32 {
        self.level_max
    }

    pub(super) fn unplaced(&self) -> u64 {
        self.unplaced
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
            Owner::Heap => self.room() * size_of::<Bucket<K>>(),
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
        self.room() * size_of::<Bucket<K>>()
    }
}

impl<K> Drop for Storage<K> {
    fn drop(&mut self) {
        // What is reserved holds nothing that wants to be dropped, and goes with its owner.
        if matches!(self.owner, Owner::Heap) {
            let buckets = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.room());
            // SAFETY: what `new` leaked; nobody borrows the table any more.
            drop(unsafe { Box::from_raw(buckets) });
        }
    }
}
