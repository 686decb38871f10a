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
//!   parent of one of these, is one of the table's, and its memory is there.
#![expect(unsafe_code, reason = "buckets are reached without a check of their index")]

use std::ptr::NonNull;

use unherd_sys::primitives::{AtomicU64, Ordering, fence, spin_loop};

use super::bucket::{Bucket, BucketGuard, Goal, NotLocked};
use super::growth::Growth;
use super::placement::{Homes, Nodes, NodesUnknown, Placement};
use super::storage::Storage;
use super::word::{
    AtomicShape, BUCKET_BYTES, LEVEL, LOCKED, Shape, class_bit, level_of, turned_to,
};

/// The buckets of a table.
pub(super) struct Buckets<K> {
    first: NonNull<Bucket<K>>,
    pub(super) shape: AtomicShape,
    /// The shape for wakes that do not know yet whether their key has a home (P3).
    glance: AtomicShape,
    /// Whether signatures tell nobody apart.
    coarse: bool,
    rest: Box<Rest<K>>,
}

/// What the way of a wake that finds nobody does not touch.
pub(super) struct Rest<K> {
    pub(super) storage: Storage<K>,
    /// `None` on one node, and where keys have none.
    pub(super) homes: Option<Homes<K>>,
    /// `None` in a table that keeps its size.
    pub(super) growth: Option<Growth>,
    /// How often memory was refused, or addresses. Relaxed: a count.
    pub(super) refused: AtomicU64,
    /// How often memory of a node was.
    unplaced: u64,
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
    /// 2^`floor` of them, and room for 2^`ceiling`: if there is more, the table grows. On several
    /// nodes there may be more from the first.
    pub(super) fn new(levels: [u32; 2], coarse: bool, placement: &Placement<K>) -> Self {
        Self::among(placement.nodes(), levels, coarse, placement)
    }

    /// The same, on these nodes.
    pub(super) fn among(
        nodes: Result<Option<Nodes>, NodesUnknown>,
        [floor, ceiling]: [u32; 2],
        coarse: bool,
        placement: &Placement<K>,
    ) -> Self {
        let are_unknown = nodes.is_err();
        let nodes = nodes.ok().flatten();
        let storage = Storage::new(floor, ceiling, nodes.as_ref());
        let (layout, level_max) = (storage.layout(), storage.level_max());
        let floor = floor.max(layout.level_min());
        let growth = (level_max > floor).then(|| Growth::new(floor, level_max));
        let (first, shape) = (storage.first(), layout.shape(floor));
        let glance = if layout.has_parts() { Shape::NONE } else { shape };
        let rest = Rest {
            homes: placement.homes(nodes.as_ref(), layout),
            growth,
            refused: AtomicU64::new(u64::from(level_max < ceiling)),
            unplaced: storage.unplaced() + u64::from(are_unknown),
            storage,
        };
        let [shape, glance] = [shape, glance].map(AtomicShape::of);
        Self { first, shape, glance, coarse, rest: Box::new(rest) }
    }

    /// All buckets have `level` now, or will.
    pub(super) fn reshape(&self, level: u32) {
        let layout = self.rest.storage.layout();
        let shape = layout.shape(level);
        self.shape.store(shape);
        if !layout.has_parts() {
            self.glance.store(shape);
        }
    }

    /// How many there are, near enough while that changes.
    pub(super) fn len(&self) -> usize {
        self.shape.load().buckets()
    }

    /// Which bits of a hash choose among so many.
    pub(super) fn index_bits(&self, hash: u64) -> u64 {
        self.shape.load().offset(hash) as u64
    }

    /// Bytes beside the table that are in memory.
    pub(super) fn bytes_resident(&self) -> usize {
        let growth = self.rest.growth.as_ref().map_or(0, Growth::bytes);
        let homes = self.rest.homes.as_ref().map_or(0, Homes::bytes);
        size_of::<Rest<K>>() + growth + homes + self.rest.storage.resident_bytes()
    }

    /// Bytes of addresses for buckets.
    pub(super) fn bytes_reserved(&self) -> usize {
        self.rest.storage.room() * size_of::<Bucket<K>>()
    }

    /// Waiters, if they are counted.
    pub(super) fn live(&self) -> Option<usize> {
        self.rest.growth.as_ref().map(Growth::live)
    }

    /// How often memory was refused.
    pub(super) fn refused(&self) -> u64 {
        self.rest.refused.load(Ordering::Relaxed)
    }

    /// How often memory of a node was.
    pub(super) fn unplaced(&self) -> u64 {
        self.rest.unplaced
    }

    pub(super) fn rest(&self) -> &Rest<K> {
        &self.rest
    }

    /// The bucket to which `shape` points for `hash`.
    #[inline]
    fn near(&self, shape: Shape, hash: u64) -> &Bucket<K> {
        if size_of::<Bucket<K>>() != BUCKET_BYTES {
            // Under the checkers.
            return self.at(shape.index(hash));
        }
        // SAFETY: H2: within the storage.
        let bucket = unsafe { self.first.byte_add(shape.offset(hash)) };
        // SAFETY: M1: a bucket, which lives as long as `self`.
        unsafe { bucket.as_ref() }
    }

    /// The bucket at `index`, which H2 allows.
    #[inline]
    pub(super) fn at(&self, index: usize) -> &Bucket<K> {
        debug_assert!(index < self.rest.storage.room(), "H2");
        // SAFETY: H2: within the storage.
        let bucket = unsafe { self.first.add(index) };
        // SAFETY: M1: a bucket, which lives as long as `self`.
        unsafe { bucket.as_ref() }
    }

    /// Whether a waker that has fenced may leave: nobody waits for `hash`, and nobody is about to.
    /// One look; if it says no, [`Buckets::lock_unless_quiet`] may still say yes.
    #[inline]
    pub(super) fn is_quiet(&self, hash: u64) -> bool {
        self.is_quiet_by(self.shape.load(), hash)
    }

    /// The same, by a hash that was not placed. Where keys have homes it says no.
    #[inline]
    pub(super) fn is_quiet_at_a_glance(&self, hash: u64) -> bool {
        self.is_quiet_by(self.glance.load(), hash)
    }

    #[inline]
    fn is_quiet_by(&self, shape: Shape, hash: u64) -> bool {
        shape.is_quiet(self.near(shape, hash).word(), hash)
    }

    /// The home of `hash`, locked.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> BucketGuard<'_, K> {
        let shape = self.shape.load();
        let bucket = self.near(shape, hash);
        // loom's search for races forgets that another thread looked at the word, if this one looks
        // as well before it changes it. So there it does not look, but tries.
        let word = if cfg!(loom) { shape.level_bits() } else { bucket.word() };
        if word & (LEVEL | LOCKED) == shape.level_bits()
            && let Some(guard) = bucket.try_lock(word, self.coarse)
        {
            return guard;
        }
        self.lock_slow(hash)
    }

    #[cold]
    fn lock_slow(&self, hash: u64) -> BucketGuard<'_, K> {
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

    /// The homes of two hashes, locked; the second is `None` if it is the first. In the order of
    /// their places, as the resizer locks parent and child: so nobody waits in a circle.
    pub(super) fn lock_two(
        &self,
        hashes: [u64; 2],
    ) -> (BucketGuard<'_, K>, Option<BucketGuard<'_, K>>) {
        let [from, to] = hashes;
        loop {
            let (place, other) = (self.locate(from), self.locate(to));
            if place.index == other.index {
                if let Ok(guard) = self.lock_at(&place, from, false)
                    && guard.covers(place.index, to)
                {
                    return (guard, None);
                }
                continue;
            }
            let turned = place.index > other.index;
            let (low, high) = if turned {
                ((&other, to), (&place, from))
            } else {
                ((&place, from), (&other, to))
            };
            let Ok(low) = self.lock_at(low.0, low.1, false) else { continue };
            let Ok(high) = self.lock_at(high.0, high.1, false) else { continue };
            return if turned { (high, Some(low)) } else { (low, Some(high)) };
        }
    }

    /// The bucket at `index`, locked, unless somebody else holds its lock. For the resizer, who
    /// knows that it is present.
    pub(super) fn try_lock_at(&self, index: usize) -> Option<BucketGuard<'_, K>> {
        let bucket = self.at(index);
        let word = bucket.word();
        if word & LOCKED == 0 { bucket.try_lock(word, self.coarse) } else { None }
    }

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
    fn locate(&self, hash: u64) -> Place {
        let shape = self.shape.load();
        let (index, word) = (shape.index(hash), self.near(shape, hash).word());
        if word & LEVEL == shape.level_bits() {
            Place { index, word }
        } else {
            self.locate_slow(index, hash)
        }
    }

    #[cold]
    fn locate_slow(&self, mut index: usize, hash: u64) -> Place {
        let mut hops = 0;
        loop {
            let word = self.at(index).word();
            let level = level_of(word);
            let up = || self.rest.storage.layout().parent(index);
            let next = level.map_or_else(up, |level| turned_to(level, index, hash));
            if next == index {
                return Place { index, word };
            }
            // ORDER[SHAPE]: Acquire fence; pairs with the Release of the unlock that gave a parent
            // its level: the memory of its child is there (H2).
            fence(Ordering::Acquire);
            // What is read here may be old, and old words may point to each other; nothing but time
            // makes them new.
            if hops < 3 {
                hops += 1;
            } else {
                spin_loop();
            }
            index = next;
        }
    }
}
