//! A file that threads read and write, as an implementation gives it.

use std::io;

use unherd::File;

use crate::files::KernelFile;

pub(crate) trait MixedFile: Sync {
    /// Fills `bytes` from there on.
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all that was written before is durable.
    fn sync(&self) -> io::Result<()>;
}

impl MixedFile for KernelFile {
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(bytes, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        KernelFile::sync(self)
    }
}

impl MixedFile for File {
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        Ok(self.read_exact_at(bytes, offset)?)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Ok(self.write_all_at(bytes, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.sync_all()?)
    }
}
