//! A file by plain system calls, in one of the three ways that the kernel has.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2, pwritev2, retry_on_intr};

use crate::LoadError;

/// How the kernel moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through its page cache.
    Buffered,
    /// Through its page cache, which gives each page up when it was used once (`RWF_DONTCACHE`).
    DontCache,
    /// Past its page cache: memory, offsets and lengths must be aligned.
    Direct,
}

/// KERNEL: 6.14, RWF_DONTCACHE; rustix has no name for it.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// A file of the kernel's. All calls block until done and move all bytes or fail.
#[derive(Debug)]
pub(crate) struct KernelFile {
    file: File,
    way: Way,
}

impl Way {
    /// Finds out whether files in `dir` can be used this way. Leaves nothing behind.
    pub(crate) fn check(self, dir: &Path) -> Result<(), LoadError> {
        if self != Self::DontCache {
            return Ok(());
        }
        let refused = |source| LoadError::Directory { dir: dir.into(), source };
        let tmpfile = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(dir)
            .map_err(refused)?;
        // The flag is looked at before the length, so an empty file tells.
        match preadv2(&tmpfile, &mut [IoSliceMut::new(&mut [0])], 0, DONT_CACHE) {
            Ok(_) => Ok(()),
            Err(Errno::OPNOTSUPP) => Err(LoadError::NoDontCache { dir: dir.into() }),
            Err(errno) => Err(refused(errno.into())),
        }
    }
}

impl KernelFile {
    /// A new file.
    pub(crate) fn create(path: &Path, way: Way) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        Self::open_with(&mut options, path, way)
    }

    /// A file that is there, to be read.
    pub(crate) fn open(path: &Path, way: Way) -> io::Result<Self> {
        Self::open_with(File::options().read(true), path, way)
    }

    /// The same, to be written too.
    pub(crate) fn open_to_write(path: &Path, way: Way) -> io::Result<Self> {
        Self::open_with(File::options().read(true).write(true), path, way)
    }

    fn open_with(options: &mut std::fs::OpenOptions, path: &Path, way: Way) -> io::Result<Self> {
        if way == Way::Direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        Ok(Self { file: options.open(path)?, way })
    }

    pub(crate) fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        if self.way != Way::DontCache {
            return self.file.read_exact_at(block, offset);
        }
        let mut done = 0;
        while done < block.len() {
            let rest = &mut [IoSliceMut::new(&mut block[done..])];
            match preadv2(&self.file, rest, offset + done as u64, DONT_CACHE) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Fills all the pieces, by one system call.
    pub(crate) fn read_vectored_at(
        &self,
        pieces: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<()> {
        let wanted = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        match retry_on_intr(|| preadv(&self.file, pieces, offset))? {
            read if read == wanted => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(crate) fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()> {
        if self.way != Way::DontCache {
            return self.file.write_all_at(block, offset);
        }
        let mut done = 0;
        while done < block.len() {
            let rest = &[IoSlice::new(&block[done..])];
            match pwritev2(&self.file, rest, offset + done as u64, DONT_CACHE) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// fdatasync(2), by which the cache's own sync ends: neither side writes times.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Has the kernel forget what it has of the file, which must have been synced.
    pub(crate) fn forget(&self) -> io::Result<()> {
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }
}
