//! A set of pages of one file: a bitmap in pieces, so that neighbours cost next to nothing.

use std::collections::BTreeMap;

use crate::page::{PageNo, PageRange};

/// Pages in ascending order.
#[derive(Debug, Default)]
pub(crate) struct PageSet {
    /// By page number divided by 64: a bit for each of those pages. None is zero.
    words: BTreeMap<u64, u64>,
    len: usize,
}

fn place(page: PageNo) -> (u64, u64) {
    (page.0 / 64, 1 << (page.0 % 64))
}

/// The words in which the pages lie, with the bits of these: once for those that follow each other.
#[inline]
fn for_each_word(pages: impl IntoIterator<Item = PageNo>, mut visit: impl FnMut(u64, u64)) {
    let (mut word, mut bits) = (0, 0);
    for page in pages {
        let (at, bit) = place(page);
        if at != word && bits != 0 {
            visit(word, std::mem::take(&mut bits));
        }
        word = at;
        bits |= bit;
    }
    if bits != 0 {
        visit(word, bits);
    }
}

impl PageSet {
    pub(crate) fn insert(&mut self, page: PageNo) {
        self.insert_all([page]);
    }

    pub(crate) fn remove(&mut self, page: PageNo) {
        self.remove_all([page]);
    }

    pub(crate) fn insert_all(&mut self, pages: impl IntoIterator<Item = PageNo>) {
        for_each_word(pages, |at, bits| {
            let word = self.words.entry(at).or_default();
            self.len += (bits & !*word).count_ones() as usize;
            *word |= bits;
        });
    }

    pub(crate) fn remove_all(&mut self, pages: impl IntoIterator<Item = PageNo>) {
        for_each_word(pages, |at, bits| {
            if let Some(word) = self.words.get_mut(&at) {
                self.len -= (bits & *word).count_ones() as usize;
                *word &= !bits;
                if *word == 0 {
                    self.words.remove(&at);
                }
            }
        });
    }

    pub(crate) fn contains(&self, page: PageNo) -> bool {
        let (at, bit) = place(page);
        self.words.get(&at).is_some_and(|word| word & bit != 0)
    }

    /// Takes out the pages of a range.
    pub(crate) fn remove_in(&mut self, pages: &PageRange) {
        let removed: Vec<PageNo> = self.iter_in(pages).collect();
        self.remove_all(removed);
    }

    /// A range in which all pages lie.
    pub(crate) fn range(&self) -> PageRange {
        let end = self.words.last_key_value().map_or(0, |(at, _)| (at + 1) * 64);
        0..end
    }

    /// How many pages there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The pages of a range.
    pub(crate) fn iter_in(&self, pages: &PageRange) -> impl Iterator<Item = PageNo> {
        let end = pages.end;
        self.iter_from(PageNo(pages.start)).take_while(move |page| page.0 < end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PageNo> {
        self.iter_from(PageNo(0))
    }

    /// The pages from `from` on.
    pub(crate) fn iter_from(&self, from: PageNo) -> impl Iterator<Item = PageNo> {
        let (first, bit) = place(from);
        self.words.range(first..).flat_map(move |(&at, &word)| {
            let mut left = if at == first { word & !(bit - 1) } else { word };
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(PageNo(at * 64 + u64::from(bit)))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_an_ordered_set(steps in prop::collection::vec((0..8_u8, 0..200_u64), 0..100)) {
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            for (step, page) in steps {
                match step {
                    0 => {
                        set.remove_in(&(page..page + 50));
                        model.retain(|it: &PageNo| !(page..page + 50).contains(&it.0));
                    }
                    1..4 => {
                        set.remove(PageNo(page));
                        model.remove(&PageNo(page));
                    }
                    _ => {
                        set.insert(PageNo(page));
                        model.insert(PageNo(page));
                    }
                }
                prop_assert_eq!(set.contains(PageNo(page)), model.contains(&PageNo(page)));
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), Vec::from_iter(model.clone()));
                let rest = Vec::from_iter(model.range(PageNo(page)..).copied());
                prop_assert_eq!(set.iter_from(PageNo(page)).collect::<Vec<_>>(), rest);
                let next = Vec::from_iter(model.range(PageNo(page)..PageNo(page + 70)).copied());
                prop_assert_eq!(set.iter_in(&(page..page + 70)).collect::<Vec<_>>(), next);
                prop_assert_eq!(set.len(), model.len());
                prop_assert!(set.words.values().all(|word| *word != 0));
            }
        }
    }
}
