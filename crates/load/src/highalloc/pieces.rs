//! Where pieces of memory come from.

use std::fs;

use unherd::{Cache, ContiguousFrames, Error};

use crate::LoadError;
use crate::files::AlignedBytes;

/// What the kernel's huge pages have.
pub(super) const HUGE_BYTES: usize = 2 << 20;

pub(super) trait Memory: Sync {
    type Piece: Piece;

    /// A piece; `None` if there is none.
    fn allocate(&self, bytes: usize) -> Result<Option<Self::Piece>, LoadError>;

    /// Bytes in one piece that the process has, if `allocate` does not see to that.
    fn whole_bytes(&self) -> Result<Option<usize>, LoadError>;

    /// Pages given up and written back for pieces so far, as far as that is known.
    fn pages_moved(&self) -> [u64; 2];
}

pub(super) trait Piece {
    fn fill(&mut self, bytes: &[u8]);

    fn bytes(&self) -> &[u8];
}

impl Memory for Cache {
    type Piece = ContiguousFrames;

    fn allocate(&self, bytes: usize) -> Result<Option<ContiguousFrames>, LoadError> {
        match self.alloc_contiguous((bytes / self.page_bytes()).ilog2()) {
            Ok(piece) => Ok(Some(piece)),
            Err(Error::NoContiguousFrames { .. }) => Ok(None),
            Err(error) => {
                let (name, message) = ("unherd".to_owned(), error.to_string());
                Err(LoadError::Setup { name, message })
            }
        }
    }

    fn whole_bytes(&self) -> Result<Option<usize>, LoadError> {
        Ok(None)
    }

    fn pages_moved(&self) -> [u64; 2] {
        let stats = self.stats();
        [stats.contiguous_evictions, stats.contiguous_write_backs]
    }
}

impl Piece for ContiguousFrames {
    fn fill(&mut self, bytes: &[u8]) {
        self.write(0, bytes);
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Maps that the kernel is advised to back by huge pages.
pub(super) struct HugePages;

impl HugePages {
    /// `None` where there are no transparent huge pages.
    pub(super) fn new() -> Option<Self> {
        let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
        (!enabled.contains("[never]")).then_some(Self)
    }
}

impl Memory for HugePages {
    type Piece = AlignedBytes;

    fn allocate(&self, bytes: usize) -> Result<Option<AlignedBytes>, LoadError> {
        Ok(AlignedBytes::on_huge_pages(bytes).ok())
    }

    fn whole_bytes(&self) -> Result<Option<usize>, LoadError> {
        let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let huge = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        let kib = huge.and_then(|huge| huge.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        let kib = kib.ok_or_else(|| LoadError::Setup {
            name: "kernel".to_owned(),
            message: "/proc/self/smaps_rollup does not tell its huge pages".to_owned(),
        })?;
        Ok(Some(kib << 10))
    }

    fn pages_moved(&self) -> [u64; 2] {
        [0; 2]
    }
}

impl Piece for AlignedBytes {
    fn fill(&mut self, bytes: &[u8]) {
        self.copy_from_slice(bytes);
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}
