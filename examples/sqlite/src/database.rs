//! A connection's database file. What goes wrong becomes SQLite's code for it.

use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rusqlite::ffi;
use unherd::{Cache, File, OpenOptions, OwnedPageGuard, PageNo};

use crate::locks::{Lock, Shared};

/// The files of one VFS.
#[derive(Debug)]
pub(crate) struct Files {
    cache: Cache,
    locks: Mutex<Vec<(PathBuf, Weak<Shared>)>>,
}

/// One connection's file.
pub(crate) struct Database {
    pub(crate) lock: Lock,
    file: Arc<File>,
    page_bytes: u64,
    /// The pages that SQLite reads in the cache's memory now: a few for each cursor.
    fetched: Vec<OwnedPageGuard>,
}

impl Files {
    pub(crate) fn new(cache: Cache) -> Self {
        Self { cache, locks: Mutex::default() }
    }

    /// Opens a database as `flags` say, and gives the flags that came true.
    pub(crate) fn open(&self, path: &Path, flags: c_int) -> Result<(Database, c_int), c_int> {
        let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let write = flags & ffi::SQLITE_OPEN_READWRITE != 0;
        let opened = self.cache.open(path, OpenOptions::new().write(write).create(create));
        let (file, flags) = match opened.map_err(|error| io::Error::from(error).kind()) {
            Ok(file) => (file, flags),
            Err(io::ErrorKind::WouldBlock) => return Err(ffi::SQLITE_BUSY),
            // As the unix VFS: what may not be written can be read.
            Err(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) if write => {
                let file = self.cache.open(path, OpenOptions::new());
                let flags = flags & !(ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE);
                (file.map_err(|_| ffi::SQLITE_CANTOPEN)?, flags | ffi::SQLITE_OPEN_READONLY)
            }
            Err(_) => return Err(ffi::SQLITE_CANTOPEN),
        };
        let database = Database {
            lock: Lock::new(self.locks_of(file.path())),
            file: Arc::new(file),
            page_bytes: self.cache.page_bytes() as u64,
            fetched: Vec::new(),
        };
        Ok((database, flags))
    }

    fn locks_of(&self, path: &Path) -> Arc<Shared> {
        let mut all = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, locks)| locks.strong_count() > 0);
        let known = all.iter().find(|(known, _)| known == path);
        known.and_then(|(_, locks)| locks.upgrade()).unwrap_or_else(|| {
            let locks = Arc::default();
            all.push((path.to_owned(), Arc::downgrade(&locks)));
            locks
        })
    }
}

impl Database {
    /// Fills `buf`, what lies beyond the end with zeros.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> c_int {
        match self.file.read_at(buf, offset) {
            Ok(found) if found == buf.len() => ffi::SQLITE_OK,
            Ok(found) => {
                buf[found..].fill(0);
                ffi::SQLITE_IOERR_SHORT_READ
            }
            Err(error) => code(error, ffi::SQLITE_IOERR_READ),
        }
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> c_int {
        done(self.file.write_all_at(bytes, offset), ffi::SQLITE_IOERR_WRITE)
    }

    pub(crate) fn set_len(&self, len: u64) -> c_int {
        done(self.file.set_len(len), ffi::SQLITE_IOERR_TRUNCATE)
    }

    pub(crate) fn sync(&self) -> c_int {
        done(self.file.sync_all(), ffi::SQLITE_IOERR_FSYNC)
    }

    pub(crate) fn len(&self) -> u64 {
        self.file.len()
    }

    /// The bytes in the cache's memory, which stay there and as they are until [`Self::unfetch`].
    /// `None`: they are to be read in the usual way.
    pub(crate) fn fetch(&mut self, offset: u64, count: usize) -> Option<*const u8> {
        let (page, at) = (offset / self.page_bytes, (offset % self.page_bytes) as usize);
        if offset + count as u64 > self.file.len() {
            return None;
        }
        // An error comes again where SQLite reads, which tells it.
        let guard = self.file.page_owned(PageNo(page)).ok()?;
        let bytes = guard.get(at..at + count)?.as_ptr();
        self.fetched.push(guard);
        Some(bytes)
    }

    /// Gives back what [`Self::fetch`] gave.
    pub(crate) fn unfetch(&mut self, bytes: *const u8) {
        let held = |guard: &OwnedPageGuard| guard.as_ptr_range().contains(&bytes);
        if let Some(last) = self.fetched.iter().rposition(held) {
            self.fetched.swap_remove(last);
        }
    }

    /// What a power cut may damage beside what was being written.
    pub(crate) fn sector_bytes(&self) -> c_int {
        self.file.write_unit() as c_int
    }
}

/// SQLite's code for an error of the cache, or `other` where SQLite has no word for its cause.
fn code(error: unherd::Error, other: c_int) -> c_int {
    match io::Error::from(error).kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ffi::SQLITE_FULL,
        _ => other,
    }
}

fn done(outcome: Result<(), unherd::Error>, other: c_int) -> c_int {
    outcome.map_or_else(|error| code(error, other), |()| ffi::SQLITE_OK)
}
