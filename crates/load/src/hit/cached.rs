//! `unherd-copy`, `unherd-pin`, `unherd-peek`: the page cache of unherd.

use std::path::Path;

use unherd::{Cache, File, Io, OpenOptions, PageNo, Peek, Torn};
use unherd_sys::primitives::{AtomicBool, Ordering, thread};

use super::kernel::{file_error, from_copy, make_file};
use super::page::{self, PAGE_BYTES, Page, Places, WRITTEN_AT, WRITTEN_BYTES};
use super::pattern::resident_pages;
use super::scene::{HitCounts, Pages, run_with};
use crate::{Job, LoadError, Round};

/// Frames beside those of the set: for copies of pages that are pinned when they are written.
const SPARE_FRAMES: usize = 64;

/// And for the pages of the other file.
const SCANNED_FRAMES: usize = 4096;

/// Four times what there are frames for.
const SCANNED_BYTES: u64 = 4 * (SCANNED_FRAMES * PAGE_BYTES) as u64;

/// What is read of it at a time.
const SCANNED_BLOCK: usize = 1 << 18;

/// How a page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Copy,
    Pin,
    Peek,
}

pub(super) fn run(job: &Job, way: Way) -> Result<Round, LoadError> {
    let (cache, file) = open(job, SPARE_FRAMES)?;
    run_on(job, way, &Cached { cache: &cache, file, is_alone: true })
}

/// As [`run`], while another thread reads a file for which there are not enough frames, again and
/// again: so pages are given up all the time. It is a hole, and costs the device nothing.
pub(super) fn run_beside_reclaim(job: &Job, way: Way) -> Result<Round, LoadError> {
    let (cache, file) = open(job, SPARE_FRAMES + SCANNED_FRAMES)?;
    let path = job.dir()?.join("scanned");
    let failed = |source| LoadError::Open { path: path.clone(), source };
    let hole = std::fs::File::create_new(&path).map_err(failed)?;
    hole.set_len(SCANNED_BYTES).map_err(failed)?;
    let scanned = open_file(&cache, &path, OpenOptions::new())?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let scanner = scope.spawn(|| scan(&scanned, &is_over));
        let round = run_on(job, way, &Cached { cache: &cache, file, is_alone: false });
        is_over.store(true, Ordering::Relaxed);
        scanner.join().map_err(|panic| LoadError::panicked(job.threads, &*panic))??;
        round
    })
}

fn scan(file: &File, is_over: &AtomicBool) -> Result<(), LoadError> {
    let (mut block, mut offset) = (vec![0; SCANNED_BLOCK], 0);
    while !is_over.load(Ordering::Relaxed) {
        let read = file.read_at(&mut block, offset).map_err(|error| file_error("scanning", error));
        offset = (offset + read? as u64) % SCANNED_BYTES;
    }
    Ok(())
}

fn open(job: &Job, spare_frames: usize) -> Result<(Cache, File), LoadError> {
    let path = make_file(job)?;
    let frames = resident_pages(job)? as usize + spare_frames;
    let cache = Cache::builder()
        .io(Io::Blocking)
        .capacity(frames * PAGE_BYTES)
        .page_size(PAGE_BYTES)
        .build();
    let cache = cache
        .map_err(|error| LoadError::Setup { name: job.with.clone(), message: error.to_string() })?;
    let file = open_file(&cache, &path, OpenOptions::new().write(true))?;
    Ok((cache, file))
}

fn open_file(cache: &Cache, path: &Path, options: OpenOptions) -> Result<File, LoadError> {
    let failed =
        |error| LoadError::Open { path: path.into(), source: std::io::Error::other(error) };
    cache.open(path, options).map_err(failed)
}

fn run_on(job: &Job, way: Way, cached: &Cached<'_>) -> Result<Round, LoadError> {
    match way {
        Way::Copy => run_with(job, &Copied(cached)),
        Way::Pin => run_with(job, &Pinned(cached)),
        Way::Peek => run_with(job, &Peeked(cached)),
    }
}

struct Cached<'a> {
    cache: &'a Cache,
    file: File,
    /// Nobody else misses pages.
    is_alone: bool,
}

impl Cached<'_> {
    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        let offset = u64::from(page) * PAGE_BYTES as u64 + WRITTEN_AT as u64;
        let written = self.file.write_at(bytes, offset);
        let written = written.map_err(|error| file_error("writing", error))?;
        if written == bytes.len() { Ok(()) } else { Err(file_error("writing", "a short write")) }
    }

    fn counts(&self) -> HitCounts {
        let stats = self.cache.stats();
        HitCounts {
            misses: if self.is_alone { stats.misses + stats.deduplicated_misses } else { 0 },
            copies: stats.copies,
            peek_retries: stats.peek_retries,
            evictions: stats.evictions,
        }
    }
}

struct Copied<'a>(&'a Cached<'a>);

impl Pages for Copied<'_> {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let read = self.0.file.read_at(&mut block.0, u64::from(page) * PAGE_BYTES as u64);
        match read {
            Ok(PAGE_BYTES) => Ok(from_copy(block, places)),
            Ok(bytes) => Err(file_error("reading", format!("{bytes} bytes of a page"))),
            Err(error) => Err(file_error("reading", error)),
        }
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        self.0.write(page, bytes)
    }

    fn counts(&self) -> HitCounts {
        self.0.counts()
    }
}

struct Pinned<'a>(&'a Cached<'a>);

impl Pages for Pinned<'_> {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let guard = self.0.file.page(PageNo(u64::from(page)));
        let guard = guard.map_err(|error| file_error("pinning", error))?;
        let bytes: &[u8; PAGE_BYTES] =
            guard[..].try_into().map_err(|error| file_error("pinning", error))?;
        Ok(page::read(bytes, places, block))
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        self.0.write(page, bytes)
    }

    fn counts(&self) -> HitCounts {
        self.0.counts()
    }
}

struct Peeked<'a>(&'a Cached<'a>);

impl Pages for Peeked<'_> {
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
        let seen = self.0.file.peek(PageNo(u64::from(page)), look);
        seen.map_err(|error| file_error("looking", error))
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        self.0.write(page, bytes)
    }

    fn counts(&self) -> HitCounts {
        self.0.counts()
    }
}
