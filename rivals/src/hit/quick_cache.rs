//! quick_cache: shards of a hash table, each behind a lock that a hit takes for reading.

use std::sync::Arc;

use quick_cache::sync::Cache;
use unherd_load::hit::Page;

use super::PageMap;

pub(super) struct QuickCache(Cache<u64, Arc<Page>>);

impl QuickCache {
    pub(super) fn new(room: usize) -> Self {
        Self(Cache::new(room))
    }
}

impl PageMap for QuickCache {
    #[inline]
    fn get<R>(&self, page: u64, with: impl FnOnce(&Page) -> R) -> Option<R> {
        self.0.get(&page).map(|page| with(&page))
    }

    fn insert(&self, page: u64, bytes: Page) {
        self.0.insert(page, Arc::new(bytes));
    }
}
