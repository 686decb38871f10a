//! foyer's in-memory cache: its entries are counted references, so a page needs no `Arc`.

use foyer_memory::{Cache, CacheBuilder, S3FifoConfig};
use unherd_load::hit::Page;

use super::PageMap;

pub(super) struct Foyer(Cache<u64, Page>);

impl Foyer {
    pub(super) fn new(room: usize) -> Self {
        let builder = CacheBuilder::new(room).with_eviction_config(S3FifoConfig::default());
        Self(builder.build())
    }
}

impl PageMap for Foyer {
    #[inline]
    fn get<R>(&self, page: u64, with: impl FnOnce(&Page) -> R) -> Option<R> {
        self.0.get(&page).map(|entry| with(entry.value()))
    }

    fn insert(&self, page: u64, bytes: Page) {
        self.0.insert(page, bytes);
    }
}
