//! The library that applies a cure to programs which know nothing of it, and what it counts.
//!
//! Both are files in memory that programs open by this process's descriptors, so nothing is left
//! behind, whatever ends it.

use std::env::VarError;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::geteuid;

/// preload.c, compiled.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// What all processes with the cure have counted together, as preload.c has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Processes that have loaded the library.
    pub(super) loaded: u64,
    /// Calls that it changed.
    pub(super) acted: u64,
    /// Listeners that EPOLLEXCLUSIVE cannot be set for.
    pub(super) unfit: u64,
    /// Waits for a condition that found no place in the table of accounts.
    pub(super) full: u64,
}

/// A library for one cure; it can be loaded as long as this lives.
#[derive(Debug)]
pub(super) struct Preload {
    cure: String,
    /// What LD_PRELOAD names already, with a colon.
    others: String,
    library: File,
    counts: File,
}

impl Preload {
    /// Fails where memory is short, or where LD_PRELOAD is no text already.
    pub(super) fn new(cure: &str) -> io::Result<Self> {
        let others = match std::env::var("LD_PRELOAD") {
            Ok(others) => others + ":",
            Err(VarError::NotPresent) => String::new(),
            Err(VarError::NotUnicode(_)) => {
                return Err(io::Error::other("LD_PRELOAD is not UTF-8; set it to other names"));
            }
        };
        let file = |name| memfd_create(name, MemfdFlags::CLOEXEC).map(|fd: OwnedFd| File::from(fd));
        let (mut library, counts) = (file("unherd-cure")?, file("unherd-counts")?);
        library.write_all(LIBRARY)?;
        counts.set_len(size_of::<Counts>() as u64)?;
        Ok(Self { cure: cure.to_owned(), others, library, counts })
    }

    /// What a program needs in its environment; it loads what it loads without this first.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let libraries = self.others.clone() + &path(&self.library);
        [
            ("LD_PRELOAD", libraries),
            ("UNHERD_CURE", self.cure.clone()),
            ("UNHERD_CURE_COUNTS", path(&self.counts)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Whether programs of this user may open files of this process: not if it has more
    /// privileges, as from file capabilities.
    pub(super) fn is_readable() -> bool {
        let owner = std::fs::metadata("/proc/self/fd").map(|it| it.uid());
        owner.is_ok_and(|owner| owner == geteuid().as_raw())
    }

    pub(super) fn counts(&self) -> io::Result<Counts> {
        let mut words = [0; size_of::<Counts>()];
        self.counts.read_exact_at(&mut words, 0)?;
        let word = |at: usize| {
            let bytes = words[8 * at..][..8].try_into();
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(Counts { loaded: word(0), acted: word(1), unfit: word(2), full: word(3) })
    }
}
