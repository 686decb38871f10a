//! Which bucket a hash belongs to, and how to lock it.
//!
//! Every present bucket says in its word which hashes it covers. So a search needs no lock and no
//! ordering: it starts where the [`Shape`] points, asks the parent of a bucket that is absent, goes
//! to where the level of a present one points, and ends at one that covers the hash. By then that
//! may be past; but the lock is had only from a word that covers the hash, and a word is quiet
//! only if it covers it, so neither is got wrong.
//!
//! - **H1** For every hash one bucket that is not LOCKED covers it, or one that is LOCKED, whose
//!   holder decides. So a bucket that covers a hash and is not LOCKED is its *home*.
//! - **H2** An index that comes from the shape, from the level of a present bucket, or from a
//!   parent of one of these, is one of the table's.
#![expect(unsafe_code, reason = "buckets are reached without a check of their index")]

use std::ptr::NonNull;

use unherd_sys::primitives::spin_loop;

use super::bucket::{Bucket, BucketGuard, Goal, NotLocked};
use super::word::{BUCKET_BYTES, LEVEL, LOCKED, Shape, class_bit, index_at, level_of, parent};

/// The buckets of a table.
pub(super) struct Buckets<K> {
    first: NonNull<Bucket<K>>,
    shape: Shape,
    /// Whether signatures tell nobody apart.
    coarse: bool,
}

// SAFETY: as a bucket.
unsafe impl<K: Sync> Sync for Buckets<K> {}
// SAFETY: as a bucket.
unsafe impl<K: Sync> Send for Buckets<K> {}

/// A bucket, and the word by which it was found.
struct Place {
    index: usize,
    word: u32,
}

impl<K> Buckets<K> {
    /// 2^`level` of them, for ever.
    pub(super) fn new(level: u32, coarse: bool) -> Self {
        let buckets: Box<[Bucket<K>]> = (0..1 << level).map(|_| Bucket::new(level)).collect();
        let first = NonNull::from(Box::leak(buckets)).cast();
        Self { first, shape: Shape::of(level), coarse }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.shape.index(!0) + 1
    }

    /// The bucket to which the shape points for `hash`.
    #[inline]
    fn near(&self, hash: u64) -> &Bucket<K> {
        if size_of::<Bucket<K>>() != BUCKET_BYTES {
            // Under the checkers.
            return self.at(self.shape.index(hash));
        }
        // SAFETY: H2: within the allocation.
        let bucket = unsafe { self.first.byte_add(self.shape.offset(hash)) };
        // SAFETY: a bucket, which lives as long as `self`.
        unsafe { bucket.as_ref() }
    }

    /// The bucket at `index`, which is below the length.
    #[inline]
    pub(super) fn at(&self, index: usize) -> &Bucket<K> {
        debug_assert!(index < self.len(), "H2");
        // SAFETY: H2: within the allocation.
        let bucket = unsafe { self.first.add(index) };
        // SAFETY: a bucket, which lives as long as `self`.
        unsafe { bucket.as_ref() }
    }

    /// Whether a waker that has fenced may leave: nobody waits for `hash`, and nobody is about to.
    /// One look; if it says no, [`Buckets::lock_unless_quiet`] may still say yes.
    #[inline]
    pub(super) fn is_quiet(&self, hash: u64) -> bool {
        self.shape.is_quiet(self.near(hash).word(), hash)
    }

    /// The home of `hash`, locked.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> BucketGuard<'_, K> {
        loop {
            let place = self.locate(hash);
            if let Ok(guard) = self.lock_at(&place, hash, false) {
                return guard;
            }
        }
    }

    /// The home of `hash`, locked; `None` if nobody waits for it, and nobody is about to. For a
    /// waker that has fenced.
    pub(super) fn lock_unless_quiet(&self, hash: u64) -> Option<BucketGuard<'_, K>> {
        loop {
            let place = self.locate(hash);
            if place.word & (LOCKED | class_bit(hash)) == 0 {
                return None;
            }
            match self.lock_at(&place, hash, true) {
                Ok(guard) => return Some(guard),
                Err(NotLocked::Quiet) => return None,
                Err(NotLocked::Moved) => {}
            }
        }
    }

    #[inline]
    fn lock_at(
        &self,
        place: &Place,
        hash: u64,
        unless_quiet: bool,
    ) -> Result<BucketGuard<'_, K>, NotLocked> {
        let goal = Goal { index: place.index, hash, coarse: self.coarse, unless_quiet };
        self.at(place.index).lock(&goal, place.word)
    }

    /// A bucket that covers `hash`.
    #[inline]
    fn locate(&self, hash: u64) -> Place {
        let index = self.shape.index(hash);
        let word = self.near(hash).word();
        if word & LEVEL == self.shape.level_bits() {
            Place { index, word }
        } else {
            self.locate_slow(index, word, hash)
        }
    }

    #[cold]
    fn locate_slow(&self, mut index: usize, mut word: u32, hash: u64) -> Place {
        let mut hops = 0;
        loop {
            let next = level_of(word).map_or_else(|| parent(index), |level| index_at(level, hash));
            if next == index {
                return Place { index, word };
            }
            // What is read here may be old, and old words may point to each other; nothing but time
            // makes them new.
            if hops < 3 {
                hops += 1;
            } else {
                spin_loop();
            }
            index = next;
            word = self.at(index).word();
        }
    }
}

impl<K> Drop for Buckets<K> {
    fn drop(&mut self) {
        let buckets = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len());
        // SAFETY: what `new` leaked; nobody borrows the table any more.
        drop(unsafe { Box::from_raw(buckets) });
    }
}
