//! A file whose pages each bear contents of their own, and what reading it took from the device.

use std::path::Path;

use super::{AlignedBytes, Content, KernelFile, PAGE_BYTES, Way};
use crate::LoadError;

/// Bytes of one write.
const WRITE_BYTES: u64 = 1 << 20;

/// Makes a file of `len_bytes`, whole pages; page n is `Content::new(seed, 0, n, 1)`. It is on the
/// device then, and in no cache of the kernel's.
pub(crate) fn write_numbered_pages(
    path: &Path,
    seed: u64,
    len_bytes: u64,
) -> Result<(), LoadError> {
    write_pages(path, len_bytes, |number, page| Content::new(seed, 0, number, 1).fill(page))
}

/// The same, with pages that `fill` makes.
pub(crate) fn write_pages(
    path: &Path,
    len_bytes: u64,
    fill: impl Fn(u64, &mut [u8]),
) -> Result<(), LoadError> {
    let opening = |source| LoadError::Open { path: path.into(), source };
    let file = KernelFile::create(path, Way::Direct).map_err(opening)?;
    let mut bytes = AlignedBytes::on_huge_pages(WRITE_BYTES as usize)?;
    let writing = |error| LoadError::file("writing", 0, &error);
    for offset in (0..len_bytes).step_by(WRITE_BYTES as usize) {
        let part = &mut bytes[..WRITE_BYTES.min(len_bytes - offset) as usize];
        for (number, page) in part.chunks_mut(PAGE_BYTES as usize).enumerate() {
            fill(offset / PAGE_BYTES + number as u64, page);
        }
        file.write_at(part, offset).map_err(writing)?;
    }
    file.sync().and_then(|()| file.forget()).map_err(writing)
}

/// What this process has had read from devices so far, by `/proc/self/io`; `None` where that is
/// missing.
pub(crate) fn device_read_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}
