//! `unherd-copy`, `unherd-pin`, `unherd-peek`: the page cache of unherd.

use unherd::{Cache, File, Io, OpenOptions, PageNo, Peek, Torn};

use super::kernel::{file_error, from_copy, make_file};
use super::page::{self, PAGE_BYTES, Page, Places, WRITTEN_AT, WRITTEN_BYTES};
use super::pattern::resident_pages;
use super::scene::{HitCounts, Pages, run_with};
use crate::{Job, LoadError, Round};

/// Frames beside those of the set: for copies of pages that are pinned when they are written.
const SPARE_FRAMES: usize = 64;

/// How a page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Copy,
    Pin,
    Peek,
}

pub(super) fn run(job: &Job, way: Way) -> Result<Round, LoadError> {
    let path = make_file(job)?;
    let frames = resident_pages(job)? as usize + SPARE_FRAMES;
    let cache = Cache::builder()
        .io(Io::Blocking)
        .capacity(frames * PAGE_BYTES)
        .page_size(PAGE_BYTES)
        .build();
    let cache = cache
        .map_err(|error| LoadError::Setup { name: job.with.clone(), message: error.to_string() })?;
    let file = cache.open(&path, OpenOptions::new().write(true));
    let file =
        file.map_err(|error| LoadError::Open { path, source: std::io::Error::other(error) })?;
    match way {
        Way::Copy => run_with(job, &Copied { cache, file }),
        Way::Pin => run_with(job, &Pinned { cache, file }),
        Way::Peek => run_with(job, &Peeked { cache, file }),
    }
}

fn write(file: &File, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
    let offset = u64::from(page) * PAGE_BYTES as u64 + WRITTEN_AT as u64;
    let written = file.write_at(bytes, offset).map_err(|error| file_error("writing", error))?;
    if written == bytes.len() { Ok(()) } else { Err(file_error("writing", "a short write")) }
}

fn counts(cache: &Cache) -> HitCounts {
    let stats = cache.stats();
    HitCounts {
        misses: stats.misses + stats.deduplicated_misses,
        copies: stats.copies,
        peek_retries: stats.peek_retries,
    }
}

struct Copied {
    cache: Cache,
    file: File,
}

impl Pages for Copied {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let read = self.file.read_at(&mut block.0, u64::from(page) * PAGE_BYTES as u64);
        match read {
            Ok(PAGE_BYTES) => Ok(from_copy(block, places)),
            Ok(bytes) => Err(file_error("reading", format!("{bytes} bytes of a page"))),
            Err(error) => Err(file_error("reading", error)),
        }
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        write(&self.file, page, bytes)
    }

    fn counts(&self) -> HitCounts {
        counts(&self.cache)
    }
}

struct Pinned {
    cache: Cache,
    file: File,
}

impl Pages for Pinned {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let guard = self.file.page(PageNo(u64::from(page)));
        let guard = guard.map_err(|error| file_error("pinning", error))?;
        let bytes: &[u8; PAGE_BYTES] =
            guard[..].try_into().map_err(|error| file_error("pinning", error))?;
        Ok(page::read(bytes, places, block))
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        write(&self.file, page, bytes)
    }

    fn counts(&self) -> HitCounts {
        counts(&self.cache)
    }
}

struct Peeked {
    cache: Cache,
    file: File,
}

impl Pages for Peeked {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let look = |page: &Peek<'_>| -> Result<u64, Torn> {
            if N == 0 {
                page.copy_to(0, &mut block.0)?;
                return Ok(from_copy(block, places));
            }
            places.try_fold(|index| page.get_u64(index * size_of::<u64>()))
        };
        let seen = self.file.peek(PageNo(u64::from(page)), look);
        seen.map_err(|error| file_error("looking", error))
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        write(&self.file, page, bytes)
    }

    fn counts(&self) -> HitCounts {
        counts(&self.cache)
    }
}
