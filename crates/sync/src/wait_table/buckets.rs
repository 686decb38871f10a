//! The buckets of a table: which one a hash belongs to, and how to lock it.
//!
//! There are as many for the whole life of a table. Their memory is zero until it is touched, so a
//! generous table costs addresses; the kernel's page tables do the growing. On several NUMA nodes
//! its pages come from all of them in turn.
#![cfg_attr(
    not(any(loom, shuttle)),
    expect(unsafe_code, reason = "buckets are reached without a check of their index")
)]

use super::bucket::{Bucket, BucketGuard};
use super::bucket_word::{LOCKED, class_bit, offset};
use memory::Memory;

/// The buckets of a table: a power of two.
pub(super) struct Buckets<K>(Memory<K>);

impl<K> Buckets<K> {
    pub(super) fn new(buckets: usize) -> Self {
        Self(Memory::new(buckets))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len
    }

    /// The bucket of `hash`.
    #[inline]
    pub(super) fn at(&self, hash: u64) -> &Bucket<K> {
        self.0.at(offset(self.0.len, hash))
    }

    /// Whether nobody waits for `hash`, and nobody is about to, as far as the signature tells:
    /// others of its class, or of its tree, hide that. For a waker that has fenced.
    #[inline]
    pub(super) fn is_empty(&self, hash: u64) -> bool {
        self.at(hash).word() & (LOCKED | class_bit(hash)) == 0
    }

    /// Locks the bucket of `hash`.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> BucketGuard<'_, K> {
        self.at(hash).lock()
    }

    /// As [`Buckets::lock`]; `None` if [`Buckets::is_empty`]. For a waker that has fenced.
    pub(super) fn lock_unless_empty(&self, hash: u64) -> Option<BucketGuard<'_, K>> {
        self.at(hash).lock_unless_empty(hash)
    }

    /// Locks the buckets of two hashes; the second is `None` if it is the first. In the order of
    /// their places, so nobody waits in a circle.
    pub(super) fn lock_two(
        &self,
        [from, to]: [u64; 2],
    ) -> (BucketGuard<'_, K>, Option<BucketGuard<'_, K>>) {
        let [place, other] = [from, to].map(|hash| offset(self.len(), hash));
        if place == other {
            return (self.lock(from), None);
        }
        if place < other {
            let low = self.lock(from);
            (low, Some(self.lock(to)))
        } else {
            let low = self.lock(to);
            (self.lock(from), Some(low))
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
mod memory {
    use std::alloc::{Layout, handle_alloc_error};
    use std::marker::PhantomData;

    use unherd_sys::{HugePages, Map};

    use super::super::bucket_word::BUCKET_BYTES;
    use super::Bucket;

    /// Zeros: unlocked, empty buckets.
    pub(super) struct Memory<K> {
        map: Map,
        pub(super) len: usize,
        _buckets: PhantomData<Bucket<K>>,
    }

    impl<K> Memory<K> {
        pub(super) fn new(len: usize) -> Self {
            const { assert!(size_of::<Bucket<K>>() == BUCKET_BYTES) };
            let map = Map::new(len * BUCKET_BYTES, HugePages::AsConfigured)
                .unwrap_or_else(|_| handle_alloc_error(Layout::new::<Bucket<K>>()));
            // Where the kernel refuses, memory comes from anywhere.
            let _ = map.interleave();
            Self { map, len, _buckets: PhantomData }
        }

        /// The bucket at an offset in bytes, as [`offset`](super::offset) gives it.
        #[inline]
        pub(super) fn at(&self, offset: usize) -> &Bucket<K> {
            debug_assert!(offset < self.len * BUCKET_BYTES && offset.is_multiple_of(BUCKET_BYTES));
            // SAFETY: within the map.
            let bucket = unsafe { self.map.start().byte_add(offset) };
            // SAFETY: aligned as the map is, and zeros are a bucket until it is used as one.
            unsafe { bucket.cast().as_ref() }
        }
    }
}

/// Under the checkers, whose words are not zeros.
#[cfg(any(loom, shuttle))]
mod memory {
    use super::super::bucket_word::BUCKET_BYTES;
    use super::Bucket;

    pub(super) struct Memory<K> {
        buckets: Box<[Bucket<K>]>,
        pub(super) len: usize,
    }

    impl<K> Memory<K> {
        pub(super) fn new(len: usize) -> Self {
            Self { buckets: (0..len).map(|_| Bucket::new()).collect(), len }
        }

        pub(super) fn at(&self, offset: usize) -> &Bucket<K> {
            &self.buckets[offset / BUCKET_BYTES]
        }
    }
}
