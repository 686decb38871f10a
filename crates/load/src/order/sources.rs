//! The implementations: the kernel's, reads under way, and the page cache of unherd.

use std::io;
use std::path::{Path, PathBuf};

use unherd::{Advice, Cache, File, OpenOptions, PageNo};

use super::plan::Plan;
use super::scene::{self, OrderedFile, Reader};
use crate::files::{
    AlignedBytes, CacheIo, KernelFile, PAGE_BYTES, QueuedReads, Way, capacity_bytes,
};
use crate::{Basis, Job, LoadError, Meter, Round, Span};

/// Whether the cache may read pages that nobody has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readahead {
    On,
    Off,
}

pub(super) fn run_kernel(job: &Job, plan: &Plan, way: Way) -> Result<Round, LoadError> {
    scene::run(job, plan, |path| {
        let file = KernelFile::open(path, way);
        let file = file.map_err(|source| LoadError::Open { path: path.into(), source })?;
        Ok((file, Span::default()))
    })
}

pub(super) fn run_queued(job: &Job, plan: &Plan) -> Result<Round, LoadError> {
    scene::run(job, plan, |path| {
        let file = Queued { path: path.into(), depth: plan.depth };
        // So that a refusal is told before the threads are there.
        file.reader()?;
        Ok((file, Span::default()))
    })
}

pub(super) fn run_cached(
    job: &Job,
    plan: &Plan,
    io: CacheIo,
    readahead: Readahead,
) -> Result<Round, LoadError> {
    scene::run(job, plan, |path| open_cached(job, plan, io, readahead, path))
}

pub(super) fn run_stream(job: &Job, plan: &Plan, io: CacheIo) -> Result<Round, LoadError> {
    scene::run(job, plan, |path| {
        let (cached, setup) = open_cached(job, plan, io, Readahead::On, path)?;
        Ok((Streamed(cached), setup))
    })
}

/// The file in a cache of its own, and what it took to make that.
fn open_cached(
    job: &Job,
    plan: &Plan,
    io: CacheIo,
    readahead: Readahead,
    path: &Path,
) -> Result<(Cached, Span), LoadError> {
    let capacity_bytes = capacity_bytes(plan.memory_bytes, plan.threads, PAGE_BYTES as usize)?;
    let setup_error = |error: &dyn std::fmt::Display| LoadError::Setup {
        name: job.with.clone(),
        message: error.to_string(),
    };
    let meter = Meter::start(Basis::WithKernel { idle_busy: job.idle_busy })?;
    let cache = io
        .builder(job)?
        .capacity(capacity_bytes)
        .page_size(PAGE_BYTES as usize)
        .build()
        .map_err(|error| setup_error(&error))?;
    let setup = meter.stop(job.plant)?;
    let file = cache.open(path, OpenOptions::new()).map_err(|error| setup_error(&error))?;
    if readahead == Readahead::Off {
        file.advise(Advice::Random);
    }
    Ok((Cached { file, cache }, setup))
}

impl OrderedFile for KernelFile {
    type Reader<'a> = PageReader<'a, Self>;

    fn reader(&self) -> Result<Self::Reader<'_>, LoadError> {
        Ok(PageReader { file: self, page: AlignedBytes::new(PAGE_BYTES as usize)? })
    }
}

pub(super) struct Cached {
    file: File,
    cache: Cache,
}

impl OrderedFile for Cached {
    type Reader<'a> = PageReader<'a, Self>;

    fn reader(&self) -> Result<Self::Reader<'_>, LoadError> {
        Ok(PageReader { file: self, page: AlignedBytes::new(PAGE_BYTES as usize)? })
    }

    /// What is there unread when the scan is over will not be used either.
    fn wasted_pages(&self) -> Option<u64> {
        let stats = self.cache.stats();
        Some(stats.read_ahead.saturating_sub(stats.read_ahead_used))
    }
}

/// A file whose pages are named before.
pub(super) struct Streamed(Cached);

impl OrderedFile for Streamed {
    type Reader<'a> = StreamReader<'a>;

    fn reader(&self) -> Result<Self::Reader<'_>, LoadError> {
        Ok(StreamReader(&self.0.file))
    }

    fn wasted_pages(&self) -> Option<u64> {
        self.0.wasted_pages()
    }
}

pub(super) struct StreamReader<'a>(&'a File);

impl Reader for StreamReader<'_> {
    fn read(
        &mut self,
        pages: &[u64],
        mut see: impl FnMut(u64, &[u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        for (page, bytes) in pages.iter().zip(self.0.stream(pages.iter().copied().map(PageNo))) {
            let bytes = bytes.map_err(|error| LoadError::file("reading", 0, &error.into()))?;
            see(*page, &bytes)?;
        }
        Ok(())
    }

    const WAITS_FOR_EACH: bool = true;
}

/// A file that is read a page at a time.
pub(super) trait PageFile: Sync {
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()>;
}

impl PageFile for KernelFile {
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()> {
        KernelFile::read_at(self, page, offset)
    }
}

impl PageFile for Cached {
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()> {
        Ok(self.file.read_exact_at(page, offset)?)
    }
}

pub(super) struct PageReader<'a, F> {
    file: &'a F,
    page: AlignedBytes,
}

impl<F: PageFile> Reader for PageReader<'_, F> {
    fn read(
        &mut self,
        pages: &[u64],
        mut see: impl FnMut(u64, &[u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        for page in pages {
            let read = self.file.read_at(&mut self.page, page * PAGE_BYTES);
            read.map_err(|error| LoadError::file("reading", 0, &error))?;
            see(*page, &self.page)?;
        }
        Ok(())
    }

    const WAITS_FOR_EACH: bool = true;
}

/// Each thread has a ring of its own.
pub(super) struct Queued {
    path: PathBuf,
    depth: usize,
}

impl OrderedFile for Queued {
    type Reader<'a> = QueuedReads;

    fn reader(&self) -> Result<QueuedReads, LoadError> {
        open_queued(&self.path, self.depth)
    }
}

fn open_queued(path: &Path, depth: usize) -> Result<QueuedReads, LoadError> {
    QueuedReads::open(path, depth).map_err(|source| LoadError::Open { path: path.into(), source })
}

impl Reader for QueuedReads {
    fn read(
        &mut self,
        pages: &[u64],
        see: impl FnMut(u64, &[u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        QueuedReads::read(self, pages.iter().copied(), see)
    }

    const WAITS_FOR_EACH: bool = false;
}
