//! A connection's database file, or its WAL. What goes wrong becomes SQLite's code for it.

use std::ffi::c_int;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::ffi;
use unherd::{Cache, File, OpenOptions, OwnedPageGuard, PageNo};

use crate::locks::{Identity, Lock, Shared};

/// The header of a WAL's frame: the database's length is its second word if a transaction ends with
/// the frame, else 0 (<https://sqlite.org/fileformat2.html#the_write_ahead_log>).
const FRAME_HEADER_BYTES: usize = 24;

/// Fetched pages cannot be evicted: they may be the cache's frames divided by this.
const FETCHED_DIVISOR: usize = 4;

/// The files of one VFS.
#[derive(Debug)]
pub(crate) struct Files {
    cache: Cache,
    /// How many pages are fetched. Relaxed: a count for itself.
    fetched: Arc<AtomicUsize>,
}

/// One connection's database, or its WAL, whose lock SQLite does not take.
pub(crate) struct Database {
    pub(crate) lock: Lock,
    cache: Cache,
    file: Arc<File>,
    wal: Option<Wal>,
    /// The name it was opened by, and whose it was then.
    name: PathBuf,
    identity: Identity,
    /// The pages that SQLite reads in the cache's memory now: a few for each cursor.
    fetched: Vec<Fetched>,
    /// Whether pages of a checkpoint could not be written back.
    checkpoint_failed: bool,
    fetched_of_all: Arc<AtomicUsize>,
}

/// What was written to a WAL.
#[derive(Default)]
struct Wal {
    /// Where the last header lies with which a transaction ends.
    commit: u64,
}

impl Wal {
    /// Whether what was written must be in the file before anything else is.
    ///
    /// The header of the WAL itself, by which it is begun again, is: else a killed process might
    /// leave the old one, and some frames that belong to it. So is a commit: it ends with the page
    /// behind its header, and once more if SQLite writes its headers again, with other checksums.
    fn is_due(&mut self, bytes: &[u8], offset: u64) -> bool {
        let is_commit = bytes.len() == FRAME_HEADER_BYTES && bytes[4..8] != [0; 4];
        let is_again = is_commit && offset == self.commit;
        if is_commit {
            self.commit = offset;
        }
        offset == 0 || is_again || offset == self.commit + FRAME_HEADER_BYTES as u64
    }
}

/// A page that SQLite reads in the cache's memory. It is counted until it is dropped.
struct Fetched {
    page: OwnedPageGuard,
    _counted: Counted,
}

struct Counted(Arc<AtomicUsize>);

impl Files {
    pub(crate) fn new(cache: Cache) -> Self {
        Self { cache, fetched: Arc::default() }
    }

    /// Opens a database or a WAL as `flags` say, and gives the flags that came true.
    pub(crate) fn open(&self, path: &Path, flags: c_int) -> Result<(Database, c_int), c_int> {
        let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let write = flags & ffi::SQLITE_OPEN_READWRITE != 0;
        let open = |options| self.cache.open(path, options).map_err(|e| io::Error::from(e).kind());
        let (file, flags) = match open(OpenOptions::new().write(write).create(create)) {
            // As the unix VFS: what may not be written can be read.
            Err(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) if write => {
                let flags = flags & !(ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE);
                (open(OpenOptions::new()), flags | ffi::SQLITE_OPEN_READONLY)
            }
            opened => (opened, flags),
        };
        let file = file.map_err(|kind| match kind {
            // Another cache or process has it, or this cache has it for reading only.
            io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy => ffi::SQLITE_BUSY,
            _ => ffi::SQLITE_CANTOPEN,
        })?;
        let identity = identity(path).ok_or(ffi::SQLITE_CANTOPEN)?;
        let database = Database {
            lock: Lock::new(Shared::of(identity)),
            cache: self.cache.clone(),
            file: Arc::new(file),
            wal: (flags & ffi::SQLITE_OPEN_WAL != 0).then(Wal::default),
            name: path.to_owned(),
            identity,
            fetched: Vec::new(),
            checkpoint_failed: false,
            fetched_of_all: self.fetched.clone(),
        };
        Ok((database, flags))
    }
}

impl Counted {
    /// `None` if `max` are counted.
    fn new(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let counted = Self(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

    /// What a commit has written to a WAL is given to the kernel before SQLite counts it as one:
    /// with `synchronous=FULL` it would ask for that next.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> c_int {
        let written = done(self.file.write_all_at(bytes, offset), ffi::SQLITE_IOERR_WRITE);
        let is_due = self.wal.as_mut().is_some_and(|wal| wal.is_due(bytes, offset));
        if is_due && written == ffi::SQLITE_OK { self.write_back() } else { written }
    }

    /// A checkpoint that has written all frames of the WAL ends by this call, and only if it
    /// succeeds is the WAL begun again: so it fails while pages of a checkpoint are not written.
    pub(crate) fn set_len(&mut self, len: u64) -> c_int {
        if self.checkpoint_failed {
            let written = self.end_checkpoint();
            if written != ffi::SQLITE_OK {
                return written;
            }
        }
        done(self.file.set_len(len), ffi::SQLITE_IOERR_TRUNCATE)
    }

    pub(crate) fn sync(&self) -> c_int {
        done(self.file.sync_all(), ffi::SQLITE_IOERR_FSYNC)
    }

    /// Writes back what a checkpoint has written. SQLite does not look at the answer: see
    /// [`Self::set_len`].
    pub(crate) fn end_checkpoint(&mut self) -> c_int {
        let written = self.write_back();
        self.checkpoint_failed = written != ffi::SQLITE_OK;
        written
    }

    /// Gives the kernel what is dirty, so that a killed process does not lose it. With
    /// `synchronous=OFF` SQLite asks for no more.
    pub(crate) fn write_back(&self) -> c_int {
        done(self.file.write_back(), ffi::SQLITE_IOERR_WRITE)
    }

    /// Whether the name is no file's now, or another's.
    pub(crate) fn has_moved(&self) -> bool {
        identity(&self.name) != Some(self.identity)
    }

    pub(crate) fn len(&self) -> u64 {
        self.file.len()
    }

    /// The bytes in the cache's memory, which stay there and as they are until [`Self::unfetch`].
    /// `None`: they are to be read in the usual way.
    pub(crate) fn fetch(&mut self, offset: u64, count: usize) -> Option<*const u8> {
        let page_bytes = self.cache.page_bytes() as u64;
        let (page, at) = (offset / page_bytes, (offset % page_bytes) as usize);
        if offset + count as u64 > self.file.len() {
            return None;
        }
        let frames_max = self.cache.frames() / FETCHED_DIVISOR;
        let counted = Counted::new(&self.fetched_of_all, frames_max)?;
        // An error comes again where SQLite reads, which tells it.
        let page = self.file.page_owned(PageNo(page)).ok()?;
        let bytes = page.get(at..at + count)?.as_ptr();
        self.fetched.push(Fetched { page, _counted: counted });
        Some(bytes)
    }

    /// Gives back what [`Self::fetch`] gave.
    pub(crate) fn unfetch(&mut self, bytes: *const u8) {
        let held = |fetched: &Fetched| fetched.page.as_ptr_range().contains(&bytes);
        if let Some(last) = self.fetched.iter().rposition(held) {
            self.fetched.swap_remove(last);
        }
    }

    /// What a power cut may damage beside what was being written.
    pub(crate) fn sector_bytes(&self) -> c_int {
        self.file.write_unit() as c_int
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
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
