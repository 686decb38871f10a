//! Memory for direct I/O.
#![expect(unsafe_code, reason = "memory that is aligned, or on huge pages, comes from a map")]

use std::ops::{Deref, DerefMut};

use unherd_sys::{HugePages, Map};

use crate::LoadError;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes in a map of their own, so at a multiple of the kernel's page size, which every device
/// takes.
///
/// 1. The first `len` bytes of the map are this value's alone.
#[derive(Debug)]
pub(crate) struct AlignedBytes {
    map: Map,
    len: usize,
}

impl AlignedBytes {
    /// That many bytes, all zero, at least one.
    pub(crate) fn new(len: usize) -> Result<Self, LoadError> {
        Self::map(len, len, HugePages::AsConfigured)
    }

    /// The same on huge pages where there are such: a large direct transfer costs a third of what
    /// it does with single pages, and the caches have theirs on huge pages too. Takes the memory
    /// now.
    pub(crate) fn on_huge_pages(len: usize) -> Result<Self, LoadError> {
        Self::map(len, Self::huge_bytes(len), HugePages::Advised)
    }

    /// What that many bytes take there: a map that is shorter than a huge page gets none.
    pub(crate) fn huge_bytes(len: usize) -> usize {
        len.next_multiple_of(HUGE_PAGE_BYTES)
    }

    /// How many of `len` bytes are in whole huge pages.
    pub(crate) fn in_huge_pages(len: usize) -> usize {
        len / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    }

    fn map(len: usize, map_bytes: usize, huge_pages: HugePages) -> Result<Self, LoadError> {
        let no_memory = |errno: unherd_sys::Errno| LoadError::Setup {
            name: format!("a buffer of {len} bytes"),
            message: errno.to_string(),
        };
        let map = Map::new(map_bytes, huge_pages).map_err(no_memory)?;
        map.populate().map_err(no_memory)?;
        Ok(Self { map, len })
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: invariant 1; the map reads as zeros where nothing was written.
        unsafe { std::slice::from_raw_parts(self.map.start().as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: invariant 1, and this borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.map.start().as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_all_there() {
        for len in [1, 512, 4096, 10_000] {
            for make in [AlignedBytes::new, AlignedBytes::on_huge_pages] {
                let mut bytes = make(len).unwrap();
                assert_eq!(bytes.len(), len);
                assert_eq!(bytes.as_ptr().addr() % 4096, 0);
                bytes.fill(7);
                assert!(bytes.iter().all(|byte| *byte == 7));
            }
        }
    }
}
