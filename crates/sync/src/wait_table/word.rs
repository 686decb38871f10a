//! The word of a bucket, and the three uses of a hash.
//!
//! ```text
//!  31  23 22     18    17         16    15              0
//! +------+---------+----------+--------+-----------------+
//! | free | level+1 | SLEEPERS | LOCKED |  signature (16) |
//! +------+---------+----------+--------+-----------------+
//! ```
//!
//! - **level**: a bucket of level `l` with index `i` *covers* the hashes whose `l` lowest bits of
//!   the index are `i`. The field holds `l + 1`; 0 says that the bucket is *absent*, and that its
//!   *parent*, whose index is `i` without its highest bit, knows more. Only the all-zero word is
//!   absent. In a table with parts ([`super::placement`]) all this is so within each part.
//! - **signature**: a bit for each class of hashes that may wait here. It is zero if and only if
//!   nobody does. It stands lowest, so that the class of a hash needs no shift to be looked up.
//!
//! | bits of a hash | choose |
//! |---|---|
//! | 6 to 25 | the bucket; so that they are its place in bytes already |
//! | 28 to 31 | the class, of 16, and the tree in the bucket, of 7, which has two or three classes |
//! | 63 and below, two at a time | the way down the tree: 16 steps with bits of their own |

use unherd_sys::primitives::{AtomicU64, Ordering};

/// Somebody holds the bucket lock.
pub(super) const LOCKED: u32 = 1 << 16;
/// A thread may sleep on the word for the lock.
pub(super) const SLEEPERS: u32 = 1 << 17;

const LEVEL_SHIFT: u32 = 18;
/// The field of the level.
pub(super) const LEVEL: u32 = 0x1f << LEVEL_SHIFT;

const CLASSES: u32 = 16;
/// The signature that does not tell anybody apart.
pub(super) const SIGNATURE: u32 = (1 << CLASSES) - 1;
/// Trees in a bucket: as many as have room beside the word on its cache line.
pub(super) const ROOTS: usize = 7;

/// A cache line.
pub(super) const BUCKET_BYTES: usize = 64;

/// The lowest bit of a hash that chooses the bucket: the size of a bucket is two to this.
const INDEX_SHIFT: u32 = BUCKET_BYTES.ilog2();
const CLASS_SHIFT: u32 = 28;

/// A table has at most 2²⁰ buckets: 64 MiB.
pub(super) const LEVEL_MAX: u32 = 20;
const _: () = assert!(present(LEVEL_MAX) & !LEVEL == 0);
const _: () = assert!(SIGNATURE & (LEVEL | LOCKED | SLEEPERS) == 0);

/// The word of an unlocked, empty bucket of `level`.
pub(super) const fn present(level: u32) -> u32 {
    (level + 1) << LEVEL_SHIFT
}

/// The level in `word`, if it is one of a present bucket.
#[inline]
pub(super) fn level_of(word: u32) -> Option<u32> {
    ((word & LEVEL) >> LEVEL_SHIFT).checked_sub(1)
}

/// The index of the bucket of `level` that covers `hash`.
#[inline]
pub(super) fn index_at(level: u32, hash: u64) -> usize {
    (hash >> INDEX_SHIFT) as usize & ((1 << level) - 1)
}

/// A hash that the bucket at `index` covers at every level at which there is such a bucket.
pub(super) fn hash_of_index(index: usize) -> u64 {
    (index as u64) << INDEX_SHIFT
}

/// The index of the bucket of `level` that covers `hash`, in the part of the one at `index`.
#[inline]
pub(super) fn turned_to(level: u32, index: usize, hash: u64) -> usize {
    index ^ index_at(level, hash ^ hash_of_index(index))
}

/// Whether the bucket at `index` with this `word` covers `hash`, which belongs to its part.
#[inline]
pub(super) fn covers(index: usize, word: u32, hash: u64) -> bool {
    level_of(word).is_some_and(|level| turned_to(level, index, hash) == index)
}

/// The bucket to ask in place of an absent one: that out of which it is made. Bucket 0 is always
/// present.
pub(super) fn parent(index: usize) -> usize {
    if index == 0 { 0 } else { index & !(1 << index.ilog2()) }
}

#[inline]
fn class(hash: u64) -> u32 {
    hash as u32 >> CLASS_SHIFT
}

/// The signature of `hash`: one bit.
#[inline]
pub(super) fn class_bit(hash: u64) -> u32 {
    1 << class(hash)
}

/// The tree of `hash`: that of its class, or the signature could not be cleared by trees.
#[inline]
pub(super) fn root_of(hash: u64) -> usize {
    root_of_class(class(hash))
}

const fn root_of_class(class: u32) -> usize {
    class as usize * ROOTS / CLASSES as usize
}

/// The signature of all classes in each tree.
pub(super) const CLASSES_OF: [u32; ROOTS] = {
    let mut of = [0; ROOTS];
    let mut class = 0;
    while class < CLASSES {
        of[root_of_class(class)] |= 1 << class;
        class += 1;
    }
    of
};

/// The shape of a table, which its resizer changes: see [`Shape`].
pub(super) struct AtomicShape(AtomicU64);

impl AtomicShape {
    pub(super) fn of(shape: Shape) -> Self {
        Self(AtomicU64::new(shape.0))
    }

    #[inline]
    pub(super) fn load(&self) -> Shape {
        // ORDER[SHAPE]: Acquire; pairs with the Release in `store`. The memory of all buckets that
        // the shape points to is there; not visible to a checker, for the kernel's tables of pages
        // are what is published.
        Shape(self.0.load(Ordering::Acquire))
    }

    pub(super) fn store(&self, shape: Shape) {
        // ORDER[SHAPE]: Release; pairs with the Acquire in `load`.
        self.0.store(shape.0, Ordering::Release);
    }
}

/// How large the table is, near enough: where to look for a hash first, and what the word there
/// holds if the bucket covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape(u64);

impl Shape {
    /// That of none: it points to bucket 0 for every hash, and by it no word is quiet.
    pub(super) const NONE: Self = Self(u32::MAX as u64);

    /// Of a table whose buckets all have `level`, with the one at `last` as the last of them.
    pub(super) const fn of(level: u32, last: usize) -> Self {
        Self((last as u64) << INDEX_SHIFT << 32 | present(level) as u64)
    }

    /// How many buckets there are.
    pub(super) fn buckets(self) -> usize {
        1 << (self.0 >> 32).count_ones()
    }

    /// Where to look for `hash`, in units of 1/64 bucket.
    #[inline]
    pub(super) fn offset(self, hash: u64) -> usize {
        (hash & (self.0 >> 32)) as usize
    }

    /// Where to look for `hash`.
    #[inline]
    pub(super) fn index(self, hash: u64) -> usize {
        self.offset(hash) >> INDEX_SHIFT
    }

    /// The level field there, if the bucket has the level of the whole table.
    #[inline]
    pub(super) fn level_bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether `word`, of the bucket at [`Shape::index`], says that nobody waits for `hash`, and
    /// that nobody is about to. A word of another level never does.
    #[inline]
    pub(super) fn is_quiet(self, word: u32, hash: u64) -> bool {
        word & (LEVEL | LOCKED | class_bit(hash)) == self.level_bits()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn each_class_belongs_to_one_tree() {
        assert_eq!(CLASSES_OF.iter().sum::<u32>(), SIGNATURE);
        assert!(CLASSES_OF.iter().all(|classes| [2, 3].contains(&classes.count_ones())));
        for class in 0..16 {
            for hash in [class << 28, class << 28 | !(0xf << 28)] {
                assert_eq!(class_bit(hash), 1 << class);
                assert_ne!(class_bit(hash) & CLASSES_OF[root_of(hash)], 0);
            }
        }
    }

    #[test]
    fn levels_cover_and_parents_are_asked() {
        assert_eq!(level_of(0), None);
        assert_eq!(level_of(SIGNATURE | LOCKED | SLEEPERS), None);
        for level in 0..=LEVEL_MAX {
            let word = present(level) | SIGNATURE | LOCKED | SLEEPERS;
            assert_eq!(level_of(word), Some(level));
            let index = index_at(level, !0);
            assert_eq!(index, (1 << level) - 1);
            assert!(covers(index, word, !0));
            assert!(level == 0 || !covers(index, word, !0 << 7));
            assert!(!covers(index, 0, !0));
        }
        assert_eq!([0, 1, 2, 3, 6, 8, 13].map(parent), [0, 0, 0, 1, 2, 0, 5]);
    }

    #[test]
    fn a_shape_knows_where_to_look_and_what_quiet_is() {
        let shape = Shape::of(4, 0xf);
        let hash = 0xabcd_ef01_2345_6789;
        assert_eq!((shape.index(hash), shape.offset(hash)), (0xe, 0x380));
        assert!(shape.is_quiet(present(4), hash));
        assert!(shape.is_quiet(present(4) | SIGNATURE & !class_bit(hash) | SLEEPERS, hash));
        for word in [0, present(3), present(5), present(4) | LOCKED, present(4) | class_bit(hash)] {
            assert!(!shape.is_quiet(word, hash));
        }
        assert_eq!(Shape::of(LEVEL_MAX, (1 << LEVEL_MAX) - 1).index(!0), (1 << LEVEL_MAX) - 1);
        let mut words = [0, !0].into_iter().chain((0..=LEVEL_MAX).map(present));
        assert!(Shape::NONE.index(!0) == 0 && !words.any(|word| Shape::NONE.is_quiet(word, hash)));
    }
}
