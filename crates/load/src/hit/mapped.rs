//! `mmap`: a file that is mapped, with all its pages present.
#![expect(unsafe_code, reason = "a mapped file is memory")]

use std::ffi::c_void;
use std::fs::File;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::kernel::make_file;
use super::page::{self, PAGE_BYTES, Page, Places, WRITTEN_BYTES};
use super::pattern::resident_pages;
use super::scene::Pages;
use crate::{Job, LoadError};

/// 1. The map has `len_bytes` bytes from `start` on until it is dropped, and nobody writes to it or
///    to its file: the round made that, and it has no writes.
pub(super) struct Mapped {
    start: NonNull<c_void>,
    len_bytes: usize,
}

// SAFETY: invariant 1: it is memory that is only read.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(super) fn new(job: &Job) -> Result<Self, LoadError> {
        let path = make_file(job)?;
        let failed = |source| LoadError::Open { path: path.clone(), source };
        let file = File::open(&path).map_err(failed)?;
        let len_bytes = resident_pages(job)? as usize * PAGE_BYTES;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a map of its own, where the kernel has room.
        let start = unsafe { mmap(ptr::null_mut(), len_bytes, ProtFlags::READ, flags, &file, 0) };
        let start = start.map_err(|errno| failed(errno.into()))?;
        let refused = || failed(std::io::ErrorKind::AddrNotAvailable.into());
        Ok(Self { start: NonNull::new(start).ok_or_else(refused)?, len_bytes })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: invariant 1; no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len_bytes) };
    }
}

impl Pages for Mapped {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let at = page as usize * PAGE_BYTES;
        debug_assert!(at < self.len_bytes);
        // SAFETY: invariant 1: the sequences have no other pages.
        let start = unsafe { self.start.cast::<u8>().add(at) };
        // SAFETY: invariant 1: nobody writes.
        let page = unsafe { start.cast::<[u8; PAGE_BYTES]>().as_ref() };
        Ok(page::read(page, places, block))
    }

    fn write(&self, _page: u32, _bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError> {
        Err(LoadError::usage("a mapped file is not written here"))
    }
}
