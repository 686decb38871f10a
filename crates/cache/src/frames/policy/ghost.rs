//! The pages that were given up last, by fingerprints of their hashes.
//!
//! A table of buckets, each a cache line. An entry is a fingerprint, and when the page was given
//! up, counted in pages that were given up since. A page goes into the bucket that its hash
//! chooses, which is a ring: in the place of the entry there that is oldest. Eight neighbouring
//! pages share a bucket, so that a run which comes or goes touches few lines. The authors of
//! S3-FIFO keep their memory of pages in such a table as well (see `s3fifo.rs`).
//!
//! | | in a queue | here |
//! |---|---|---|
//! | remembered | the last `n` | most of the last `n`: a bucket that gets more than it has room for forgets its oldest early |
//! | forgotten | all before | those before, after up to a sixteenth of `n` more |
//! | taken for another | never | once in about a million looks; a page then enters the wrong queue |

use unherd_sys::prefetch;

/// Entries of a bucket.
const ENTRIES: usize = 15;

/// Pages that share a bucket differ in this number of the lowest bits of their hashes alone.
const NEIGHBOUR_BITS: u32 = 3;

/// Bits of an entry that say when it was made: they wrap around, long after it was swept out.
const TIME_BITS: u32 = 8;

/// In how many steps a page grows too old.
const STEPS: u32 = 16;

/// Steps in which entries that are too old are swept out of all buckets, once.
const SWEEP_STEPS: usize = 128;

/// In an entry without a page.
const NONE: u32 = 0;

/// A ring of entries: a fingerprint in the upper bits, a time in the lower. The last word is not an
/// entry: it says which of them was made first, and is replaced next; no fingerprint is like it.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket([u32; ENTRIES + 1]);

impl Bucket {
    fn find(&self, fingerprint: u32) -> Option<usize> {
        self.0.iter().position(|entry| entry >> TIME_BITS == fingerprint)
    }

    /// A bit for each page that is here, of the group whose first has this fingerprint.
    fn of_group(&self, fingerprint: u32) -> u8 {
        const BITS: u32 = TIME_BITS + NEIGHBOUR_BITS;
        let is_one = |entry: &u32| entry >> BITS == fingerprint >> NEIGHBOUR_BITS;
        // Most groups are not there, and all words are compared sooner than one after the other.
        if !self.0.iter().fold(false, |is_any, entry| is_any | is_one(entry)) {
            return 0;
        }
        let bit = |entry: &u32| 1 << ((entry >> TIME_BITS) % (1 << NEIGHBOUR_BITS));
        self.0.iter().filter(|entry| is_one(entry)).fold(0, |bits, entry| bits | bit(entry))
    }

    fn push(&mut self, entry: u32) {
        let [entries @ .., oldest] = &mut self.0;
        entries[*oldest as usize] = entry;
        *oldest = (*oldest + 1) % ENTRIES as u32;
    }
}

/// How many steps ago an entry was made.
fn age(entry: u32, now: u8) -> u8 {
    now.wrapping_sub(entry as u8)
}

#[derive(Debug)]
pub(crate) struct Ghost {
    buckets: Box<[Bucket]>,
    /// The steps so far; wraps around.
    now: u8,
    /// Pages since the last step, and for each.
    in_step: u32,
    step: u32,
    /// Entries of more steps are too old.
    age_max: u8,
    /// The bucket from which on the next step sweeps.
    swept: usize,
    /// Where the last page belongs: most often the next one does, too.
    group: Group,
}

/// Neighbours, which share a bucket.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// What their hashes have in common.
    hash: u64,
    bucket: usize,
    /// The fingerprint of the first.
    fingerprint: u32,
    /// A bit for each that may be in the bucket. The others are not, except one that was there
    /// twice.
    maybe: u8,
}

impl Ghost {
    /// Remembers about this many pages, at least one.
    pub(crate) fn new(pages: u32) -> Self {
        let pages = pages.max(1);
        let buckets = (pages as usize * 5 / 2).div_ceil(ENTRIES);
        let step = pages.div_ceil(STEPS);
        Self {
            buckets: vec![Bucket([NONE; ENTRIES + 1]); buckets].into_boxed_slice(),
            now: 0,
            in_step: 0,
            step,
            age_max: pages.div_ceil(step) as u8,
            swept: 0,
            // Of no page: hashes lack the upper bits.
            group: Group { hash: u64::MAX, bucket: 0, fingerprint: 0, maybe: 0 },
        }
    }

    /// Remembers a page, and that it was given up just now. One that is remembered already is so
    /// twice: it hardly ever is, as who brings a page in takes it.
    pub(crate) fn insert(&mut self, page: u64) {
        let (fingerprint, bit) = self.turn_to(page);
        self.group.maybe |= bit;
        let entry = (fingerprint << TIME_BITS) | u32::from(self.now);
        self.buckets[self.group.bucket].push(entry);
        self.in_step += 1;
        if self.in_step == self.step {
            self.in_step = 0;
            self.now = self.now.wrapping_add(1);
            self.sweep();
        }
    }

    /// Forgets what is too old in a part of the buckets: where no page goes, nothing replaces it.
    fn sweep(&mut self) {
        let end = self.swept + self.buckets.len().div_ceil(SWEEP_STEPS);
        let end = end.min(self.buckets.len());
        let entries =
            self.buckets[self.swept..end].iter_mut().flat_map(|bucket| &mut bucket.0[..ENTRIES]);
        for entry in entries.filter(|entry| age(**entry, self.now) > self.age_max) {
            *entry = NONE;
        }
        self.swept = end % self.buckets.len();
    }

    /// Forgets a page; gives whether it was remembered.
    #[inline]
    pub(crate) fn take(&mut self, page: u64) -> bool {
        let (fingerprint, bit) = self.turn_to(page);
        self.group.maybe & bit != 0 && self.take_from_bucket(fingerprint, bit)
    }

    fn take_from_bucket(&mut self, fingerprint: u32, bit: u8) -> bool {
        self.group.maybe &= !bit;
        let bucket = &mut self.buckets[self.group.bucket];
        let entry = bucket.find(fingerprint).map(|at| std::mem::replace(&mut bucket.0[at], NONE));
        entry.is_some_and(|entry| age(entry, self.now) <= self.age_max)
    }

    /// Goes on with the group of a page. Gives the page's fingerprint, and its bit in the group.
    #[inline]
    fn turn_to(&mut self, page: u64) -> (u32, u8) {
        if self.group.hash != page >> NEIGHBOUR_BITS {
            self.group = self.find_group(page >> NEIGHBOUR_BITS);
        }
        let nth = (page % (1 << NEIGHBOUR_BITS)) as u32;
        (self.group.fingerprint | nth, 1 << nth)
    }

    /// Where neighbours are whose hashes have this in common. No fingerprint is 0.
    fn find_group(&self, hash: u64) -> Group {
        let (bucket, mixed) = self.bucket_of(hash);
        // Most likely the next neighbours follow, whose bucket is there by then.
        prefetch(&self.buckets[self.bucket_of(hash + 1).0]);
        let highest = 1 << (u32::BITS - TIME_BITS - 1);
        let name = ((mixed ^ (mixed >> 32)) << NEIGHBOUR_BITS) as u32;
        let fingerprint = (name % highest) | highest;
        Group { hash, bucket, fingerprint, maybe: self.buckets[bucket].of_group(fingerprint) }
    }

    /// The bucket that a group has, and its hash with the bits mixed.
    fn bucket_of(&self, hash: u64) -> (usize, u64) {
        // Fibonacci hashing: the hashes may be poor in their upper bits.
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((u128::from(mixed) * self.buckets.len() as u128) >> u64::BITS) as usize, mixed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    impl Ghost {
        fn knows(&self, page: u64) -> bool {
            let group = self.find_group(page >> NEIGHBOUR_BITS);
            let bucket = &self.buckets[group.bucket];
            let at = bucket.find(group.fingerprint | (page % (1 << NEIGHBOUR_BITS)) as u32);
            at.is_some_and(|at| age(bucket.0[at], self.now) <= self.age_max)
        }
    }

    #[test]
    fn what_nobody_replaces_stays_forgotten() {
        let mut ghost = Ghost::new(4096);
        let old = |page| super::super::hash(1, page);
        (0..4096).for_each(|page| ghost.insert(old(page)));
        for round in 0..40 {
            (0..8192).for_each(|page| ghost.insert(super::super::hash(2, page)));
            let known = (0..4096).filter(|&page| ghost.knows(old(page))).count();
            assert_eq!(known, 0, "round {round}");
        }
    }

    proptest! {
        // One bucket, half of which is enough.
        #[test]
        fn a_bucket_is_a_bounded_queue(
            size in 1..9_u32,
            steps in prop::collection::vec((any::<bool>(), 0..24_u64), 0..600),
        ) {
            let mut ghost = Ghost::new(size);
            // A page that was taken keeps its place until it would have been the oldest.
            let mut model: VecDeque<Option<u64>> = VecDeque::new();
            for (is_insert, page) in steps {
                let at = model.iter().position(|known| *known == Some(page));
                if let Some(at) = at {
                    model[at] = None;
                }
                // A page that comes is taken, before it can be given up again.
                if is_insert {
                    ghost.take(page);
                    if model.len() == size as usize {
                        model.pop_front();
                    }
                    model.push_back(Some(page));
                    ghost.insert(page);
                } else {
                    prop_assert_eq!(ghost.take(page), at.is_some());
                }
                for page in 0..24 {
                    prop_assert_eq!(ghost.knows(page), model.contains(&Some(page)), "{}", page);
                }
            }
        }
    }

    #[test]
    fn most_of_the_last_pages_are_remembered() {
        // Pages by themselves, and in runs; each comes once.
        for run in [1, 4, 16, 256] {
            const PAGES: u64 = 5000;
            let mut ghost = Ghost::new(PAGES as u32);
            let page = |nth: u64| (nth / run).wrapping_mul(0x5851_f42d) * run * 8 + nth % run;
            let count = 40 * PAGES;
            (0..count).for_each(|nth| ghost.insert(page(nth)));
            let known =
                |nths: std::ops::Range<u64>| nths.filter(|&nth| ghost.knows(page(nth))).count();
            let last = known(count - PAGES..count);
            assert!(last as u64 > PAGES * 85 / 100, "{last} of {PAGES}, runs of {run}");
            let old = known(0..count - PAGES * 18 / 16);
            assert!(old < 10, "{old} old ones, runs of {run}");
        }
    }
}
