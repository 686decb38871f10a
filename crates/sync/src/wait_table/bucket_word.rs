//! The word of a bucket, and the three uses of a hash.
//!
//! ```text
//!  31           18    17         16    15              0
//! +---------------+----------+--------+-----------------+
//! |     free      | SLEEPERS | LOCKED |  signature (16) |
//! +---------------+----------+--------+-----------------+
//! ```
//!
//! The signature has a bit for each class of hashes that may wait here. It is zero if and only if
//! nobody does. So zeros are an unlocked, empty bucket.
//!
//! | bits of a hash | choose |
//! |---|---|
//! | 6 to 25 | the bucket; so that they are its place in bytes already |
//! | 28 to 31 | the class, of 16, and the tree in the bucket, of 6, which has two or three classes |
//! | 63 and below, two at a time | the way down the tree: 16 steps with bits of their own |

/// Somebody holds the bucket lock.
pub(super) const LOCKED: u32 = 1 << 16;
/// A thread may sleep on the word for the lock.
pub(super) const SLEEPERS: u32 = 1 << 17;

const CLASSES: u32 = 16;
/// The signature of all classes.
pub(super) const SIGNATURE: u32 = (1 << CLASSES) - 1;
/// Trees in a bucket: as many as have room beside the word and the ticket on its cache line.
pub(super) const ROOTS: usize = 6;

/// A cache line.
pub(super) const BUCKET_BYTES: usize = 64;

/// The most buckets of a table: 64 MiB.
pub(super) const BUCKETS_MAX: usize = 1 << 20;

const CLASS_SHIFT: u32 = 28;
/// The bits of a hash that are its class.
pub(super) const CLASS_BITS: u64 = 0xf << CLASS_SHIFT;
const _: () = assert!(BUCKETS_MAX * BUCKET_BYTES <= 1 << CLASS_SHIFT);

/// Where the bucket of `hash` is among `buckets`, a power of two, in bytes.
#[inline]
pub(super) fn offset(buckets: usize, hash: u64) -> usize {
    hash as usize & ((buckets - 1) * BUCKET_BYTES)
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
    fn the_lowest_bits_choose_the_bucket() {
        assert_eq!(offset(1, !0), 0);
        assert_eq!(offset(16, 0xabcd_ef01_2345_6789), 0xe * BUCKET_BYTES);
        assert_eq!(offset(BUCKETS_MAX, !0), (BUCKETS_MAX - 1) * BUCKET_BYTES);
    }
}
