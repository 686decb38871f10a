//! `kernel`: pread(2) and pwrite(2), with the file in the page cache. Makes the file for others
//! too.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::page::{self, PAGE_BYTES, Page, Places, WRITTEN_AT, WRITTEN_BYTES};
use super::pattern::resident_pages;
use super::scene::Pages;
use crate::{Job, LoadError};

/// Makes the file of the round, whose pages are then in the kernel's page cache.
pub(super) fn make_file(job: &Job) -> Result<PathBuf, LoadError> {
    let path = job.dir()?.join("hit");
    let failed = |source| LoadError::Open { path: path.clone(), source };
    let mut file = BufWriter::with_capacity(1 << 20, File::create_new(&path).map_err(failed)?);
    for page in 0..resident_pages(job)? {
        file.write_all(&page::value(job.seed, page).0).map_err(failed)?;
    }
    file.flush().map_err(failed)?;
    drop(file);
    Ok(path)
}

pub(super) fn file_error(doing: &'static str, error: impl std::fmt::Display) -> LoadError {
    LoadError::File { doing, file: 0, message: error.to_string() }
}

pub(super) struct Preads(File);

impl Preads {
    pub(super) fn new(job: &Job) -> Result<Self, LoadError> {
        let path = make_file(job)?;
        let file = File::options().read(true).write(true).open(&path);
        file.map(Self).map_err(|source| LoadError::Open { path, source })
    }
}

impl Pages for Preads {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let offset = u64::from(page) * PAGE_BYTES as u64;
        let read = self.0.read_exact_at(&mut block.0, offset);
        read.map_err(|error| file_error("reading", error))?;
        Ok(from_copy(block, places))
    }

    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        let offset = u64::from(page) * PAGE_BYTES as u64 + WRITTEN_AT as u64;
        self.0.write_all_at(bytes, offset).map_err(|error| file_error("writing", error))
    }
}

/// Loads from a page that has just been copied, whether or not that was asked for.
#[inline]
pub(super) fn from_copy<const N: usize>(block: &Page, places: Places<N>) -> u64 {
    let words = block.0.as_chunks::<8>().0;
    places.fold(|index| u64::from_le_bytes(words[index]))
}
