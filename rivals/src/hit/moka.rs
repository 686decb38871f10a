//! moka: a concurrent hash table, and a log of reads that is applied to the policy now and then.

use std::sync::Arc;

use moka::sync::Cache;
use unherd_load::hit::Page;

use super::PageMap;

pub(super) struct Moka(Cache<u64, Arc<Page>>);

impl Moka {
    pub(super) fn new(room: usize) -> Self {
        Self(Cache::new(room as u64))
    }
}

impl PageMap for Moka {
    #[inline]
    fn get<R>(&self, page: u64, with: impl FnOnce(&Page) -> R) -> Option<R> {
        self.0.get(&page).map(|page| with(&page))
    }

    fn insert(&self, page: u64, bytes: Page) {
        self.0.insert(page, Arc::new(bytes));
    }
}
