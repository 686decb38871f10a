//! `kernel`: plain system calls, the kernel's page cache below.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::phases::TestFile;

pub(super) fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

impl TestFile for File {
    fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(block, offset)
    }

    fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(block, offset)
    }

    /// fdatasync(2), by which the cache's own sync ends: neither side writes times.
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    const COUNTS_WAKEUPS: bool = false;
}
