//! `floor`, `floor-pin` and `floor-copy`: memory, and nothing else.
#![expect(unsafe_code, reason = "pages lie in a map of huge pages, as those of a cache do")]

use unherd_sys::primitives::{AtomicU64, Ordering};
use unherd_sys::{HugePages, Map, MapSlice};

use super::kernel::from_copy;
use super::page::{self, PAGE_BYTES, Page, Places, WRITTEN_BYTES};
use super::pattern::resident_pages;
use super::scene::Pages;
use crate::{Job, LoadError};

/// 1. The map has `pages` pages, and they are written before any thread has them, and never after.
pub(super) struct Memory<const COPIED: bool> {
    map: Map,
    pages: u32,
}

impl<const COPIED: bool> Memory<COPIED> {
    pub(super) fn new(job: &Job) -> Result<Self, LoadError> {
        let pages = resident_pages(job)?;
        let no_memory =
            |error| LoadError::Setup { name: job.with.clone(), message: format!("{error}") };
        let map = Map::new(pages as usize * PAGE_BYTES, HugePages::Advised).map_err(no_memory)?;
        map.populate().map_err(no_memory)?;
        for number in 0..pages {
            let page = page::value(job.seed, number);
            // SAFETY: invariant 1: the page is in the map.
            let start = unsafe { map.start().add(number as usize * PAGE_BYTES) };
            // SAFETY: so are its bytes, and nobody else has the map yet.
            unsafe { start.cast::<[u8; PAGE_BYTES]>().write(page.0) };
        }
        Ok(Self { map, pages })
    }

    #[inline]
    fn page(&self, page: u32) -> &[u8; PAGE_BYTES] {
        debug_assert!(page < self.pages);
        // SAFETY: invariant 1: the sequences have no other pages.
        let start = unsafe { self.map.start().add(page as usize * PAGE_BYTES) };
        // SAFETY: invariant 1: nobody writes.
        unsafe { start.cast::<[u8; PAGE_BYTES]>().as_ref() }
    }
}

impl<const COPIED: bool> Pages for Memory<COPIED> {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let page = self.page(page);
        if COPIED {
            block.0.copy_from_slice(page);
            return Ok(from_copy(std::hint::black_box(block), places));
        }
        Ok(page::read(page, places, block))
    }

    fn write(&self, _page: u32, _bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        Err(LoadError::usage("a floor is not written"))
    }
}

/// A word on a cache line of its own.
#[repr(align(64))]
struct Word(AtomicU64);

/// The least that a pin does, where the page is found for nothing: it counts up and down.
pub(super) struct Pinned {
    memory: Memory<false>,
    words: MapSlice<Word>,
}

impl Pinned {
    pub(super) fn new(job: &Job) -> Result<Self, LoadError> {
        let memory = Memory::new(job)?;
        let words = MapSlice::new(memory.pages as usize, |_| Word(AtomicU64::new(0)));
        let no_memory =
            |error| LoadError::Setup { name: job.with.clone(), message: format!("{error}") };
        Ok(Self { memory, words: words.map_err(no_memory)? })
    }
}

impl Pages for Pinned {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let word = &self.words[page as usize].0;
        // ORDER[FLOOR]: Acquire; pairs with the Release below, as those of a pin would with what
        // a writer does. Nobody writes here: they are there for their price.
        word.fetch_add(1, Ordering::Acquire);
        let sum = self.memory.load(page, places, block);
        // ORDER[FLOOR]: Release; pairs with the Acquire above.
        word.fetch_sub(1, Ordering::Release);
        sum
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        self.memory.write(page, bytes)
    }
}
