//! `before`: the cache that everybody writes first, and report 003's: one lock around a map of
//! pages and a list of them in the order of their last use, which each hit changes.

use std::collections::HashMap;

use unherd_sys::primitives::{Arc, Mutex};

use super::page::{self, Page, Places, WRITTEN_AT, WRITTEN_BYTES};
use super::pattern::resident_pages;
use super::scene::Pages;
use crate::{Job, LoadError};

const NONE: u32 = u32::MAX;

pub(super) struct TreeLock(Mutex<Lru>);

struct Lru {
    places: HashMap<u64, u32>,
    entries: Vec<Entry>,
    newest: u32,
}

struct Entry {
    page: Arc<Page>,
    newer: u32,
    older: u32,
}

impl TreeLock {
    pub(super) fn new(job: &Job) -> Result<Self, LoadError> {
        let mut lru = Lru { places: HashMap::new(), entries: Vec::new(), newest: NONE };
        for number in 0..resident_pages(job)? {
            lru.places.insert(u64::from(number), number);
            let page = Arc::new(page::value(job.seed, number));
            lru.entries.push(Entry { page, newer: NONE, older: NONE });
            lru.push(number);
        }
        Ok(Self(Mutex::new(lru)))
    }
}

impl Lru {
    /// Finds a page and makes it the one that was used last.
    fn used(&mut self, page: u32) -> Result<&mut Entry, LoadError> {
        let at = *self.places.get(&u64::from(page)).ok_or(LoadError::Missed { misses: 1 })?;
        if self.newest != at {
            self.unlink(at);
            self.push(at);
        }
        Ok(&mut self.entries[at as usize])
    }

    /// Takes an entry that is not the newest out of the list.
    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        self.entries[newer as usize].older = older;
        if older != NONE {
            self.entries[older as usize].newer = newer;
        }
    }

    fn push(&mut self, at: u32) {
        let newest = std::mem::replace(&mut self.newest, at);
        (self.entries[at as usize].newer, self.entries[at as usize].older) = (NONE, newest);
        if newest != NONE {
            self.entries[newest as usize].newer = at;
        }
    }
}

impl Pages for TreeLock {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        // The lock is not kept while the page is used.
        let page = self.0.lock().used(page)?.page.clone();
        Ok(page::read(&page.0, places, block))
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        let mut lru = self.0.lock();
        // A reader that has the page keeps it as it was.
        let page = Arc::make_mut(&mut lru.used(page)?.page);
        page.0[WRITTEN_AT..].copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_use() {
        let mut job = Job::new(&super::super::describe_with(Vec::new(), Vec::new()), "before", 1);
        job.params.set("set", "20K").unwrap();
        let TreeLock(lru) = TreeLock::new(&job).unwrap();
        let mut lru = lru.lock();
        for page in [1, 4, 1, 0] {
            lru.used(page).unwrap();
        }
        let older = |at: &u32| Some(lru.entries[*at as usize].older).filter(|at| *at != NONE);
        let order: Vec<_> = std::iter::successors(Some(lru.newest), older).collect();
        assert_eq!(order, [0, 1, 4, 3, 2]);
        assert!(lru.used(9).is_err());
    }
}
