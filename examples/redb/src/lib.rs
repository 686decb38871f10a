//! redb with unherd's page cache as its storage.
//!
//! redb keeps pages in a cache of its own; what misses there is a read of the storage, and what a
//! commit writes goes to the storage before its sync. [`Storage`] takes both to a cache that many
//! databases of a process can share.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = unherd::Cache::builder().capacity(256 << 20).build()?;
//! let storage = unherd_example_redb::Storage::open(&cache, "data.redb")?;
//! let database = redb::Database::builder()
//!     .set_cache_size(16 << 20)
//!     .create_with_backend(storage)?;
//! # drop(database);
//! # Ok(())
//! # }
//! ```

use std::io;
use std::path::Path;

use redb::StorageBackend;
use unherd::{Cache, File, OpenOptions};

/// A database's file in a [`Cache`]. It is locked against other processes while it is open.
#[derive(Debug)]
pub struct Storage {
    file: File,
}

impl Storage {
    /// Opens the file, or makes it.
    pub fn open(cache: &Cache, path: impl AsRef<Path>) -> io::Result<Self> {
        let file = cache.open(path, OpenOptions::new().write(true).create(true))?;
        Ok(Self { file })
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Ok(self.file.read_exact_at(out, offset)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(self.file.set_len(len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(self.file.sync_all()?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.file.write_all_at(data, offset)?)
    }

    fn close(&self) -> io::Result<()> {
        Ok(self.file.close()?)
    }
}

#[cfg(test)]
mod tests {
    use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

    use super::*;

    const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("records");

    fn value(key: u64) -> Vec<u8> {
        key.to_le_bytes().repeat(1 + key as usize % 50)
    }

    fn compare(database: &Database) {
        let transaction = database.begin_read().unwrap();
        let table = transaction.open_table(TABLE).unwrap();
        let found = table.iter().unwrap().map(|entry| {
            let (key, found) = entry.unwrap();
            assert_eq!(found.value(), value(key.value()));
            key.value()
        });
        assert!(found.eq(0..3000));
    }

    /// In a cache of 1 MiB, which is less than the database.
    #[test]
    fn plain_redb_finds_what_was_committed() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("data.redb");
        let cache = Cache::builder().capacity(1 << 20).build().unwrap();
        let storage = Storage::open(&cache, &path).unwrap();
        let database =
            Database::builder().set_cache_size(256 << 10).create_with_backend(storage).unwrap();
        for first in (0..3000).step_by(500) {
            let transaction = database.begin_write().unwrap();
            {
                let mut table = transaction.open_table(TABLE).unwrap();
                for key in first..first + 500 {
                    table.insert(key, &value(key)[..]).unwrap();
                }
            }
            transaction.commit().unwrap();
        }
        compare(&database);
        drop((database, cache));
        let mut database = Database::open(&path).unwrap();
        assert!(database.check_integrity().unwrap());
        compare(&database);
    }

    #[test]
    fn reads_beyond_the_end_are_errors() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let cache = Cache::builder().capacity(1 << 20).build().unwrap();
        let storage = Storage::open(&cache, dir.path().join("data")).unwrap();
        storage.write(0, b"12345678").unwrap();
        let error = storage.read(4, &mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        storage.set_len(12).unwrap();
        let mut bytes = [1; 8];
        storage.read(4, &mut bytes).unwrap();
        assert_eq!(&bytes, b"5678\0\0\0\0");
    }
}
