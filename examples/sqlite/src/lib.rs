//! A SQLite VFS whose main database file lies in an [`unherd::Cache`]. Journals, WAL and temporary
//! files are the unix VFS's. There is no shared memory, so WAL needs `locking_mode=EXCLUSIVE`.
//!
//! Locks hold among the connections of this process; the cache's flock(2) keeps other caches out,
//! not the unix VFS of another process.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rusqlite::ffi;
use unherd::{Cache, File, OpenOptions};

/// What the cache transfers at least: a page of its default size.
const PAGE_BYTES: usize = 4096;

/// The locks of all connections on one file: how many read, and how far the one writer is.
#[derive(Default)]
struct Locks {
    readers: u32,
    /// `SQLITE_LOCK_NONE`, or the level of the one connection above SHARED.
    writer: c_int,
}

struct Vfs {
    cache: Cache,
    unix: *mut ffi::sqlite3_vfs,
    locks: Mutex<HashMap<PathBuf, Weak<Mutex<Locks>>>>,
}

struct Database {
    file: File,
    locks: Arc<Mutex<Locks>>,
    level: c_int,
}

/// What SQLite allocates for a database: its own header first, as the VFS interface demands.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    database: *mut Database,
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Database {
    fn lock(&mut self, want: c_int) -> c_int {
        if self.level >= want {
            return ffi::SQLITE_OK;
        }
        let mut locks = guard(&self.locks);
        match want {
            ffi::SQLITE_LOCK_SHARED if locks.writer < ffi::SQLITE_LOCK_PENDING => {
                locks.readers += 1;
            }
            ffi::SQLITE_LOCK_RESERVED if locks.writer == 0 => locks.writer = want,
            ffi::SQLITE_LOCK_EXCLUSIVE
                if locks.writer == 0 || self.level >= ffi::SQLITE_LOCK_RESERVED =>
            {
                // PENDING keeps new readers out, also where it must wait for the old ones.
                locks.writer = ffi::SQLITE_LOCK_PENDING;
                self.level = ffi::SQLITE_LOCK_PENDING;
                if locks.readers > 1 {
                    return ffi::SQLITE_BUSY;
                }
                locks.writer = want;
            }
            _ => return ffi::SQLITE_BUSY,
        }
        self.level = want;
        ffi::SQLITE_OK
    }

    fn unlock(&mut self, to: c_int) {
        let mut locks = guard(&self.locks);
        if self.level >= ffi::SQLITE_LOCK_RESERVED && to < ffi::SQLITE_LOCK_RESERVED {
            locks.writer = 0;
        }
        if self.level >= ffi::SQLITE_LOCK_SHARED && to == ffi::SQLITE_LOCK_NONE {
            locks.readers -= 1;
        }
        self.level = self.level.min(to);
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

/// Registers a VFS of this name for the rest of the process. `cache` must have pages of 4 KiB.
pub fn register(name: &str, cache: Cache) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the name is a C string that lives as long as the program.
    let unix = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
    if unix.is_null() {
        return Err(io::Error::other("SQLite has no unix VFS"));
    }
    // SAFETY: a registered VFS is valid, and is not changed but for its link.
    let mut vfs = unsafe { *unix };
    vfs.szOsFile = vfs.szOsFile.max(size_of::<Handle>() as c_int);
    vfs.pNext = std::ptr::null_mut();
    vfs.zName = name.into_raw();
    let state = Vfs { cache, unix, locks: Mutex::default() };
    vfs.pAppData = Box::into_raw(Box::new(state)).cast();
    vfs.xOpen = Some(open);
    // SAFETY: the VFS, its name and its state are never freed.
    match unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0) } {
        ffi::SQLITE_OK => Ok(()),
        failed => Err(io::Error::other(format!("sqlite3_vfs_register: {failed}"))),
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    out: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the VFS of `register`, whose state is never freed.
    let state = unsafe { &*(*vfs).pAppData.cast::<Vfs>() };
    if flags & ffi::SQLITE_OPEN_MAIN_DB == 0 || name.is_null() {
        // SAFETY: `unix` is registered and has an xOpen; `out` has at least its szOsFile bytes.
        return unsafe {
            ((*state.unix).xOpen)
                .map_or(ffi::SQLITE_CANTOPEN, |open| open(state.unix, name, out, flags, out_flags))
        };
    }
    // SAFETY: `out` has szOsFile bytes, and no methods means that SQLite will not close it.
    unsafe { (*out).pMethods = std::ptr::null() };
    // SAFETY: not null, so a C string.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let options = OpenOptions::new()
        .write(flags & ffi::SQLITE_OPEN_READWRITE != 0)
        .create(flags & ffi::SQLITE_OPEN_CREATE != 0);
    let Ok(file) = state.cache.open(path, options) else { return ffi::SQLITE_CANTOPEN };
    let mut all = guard(&state.locks);
    all.retain(|_, locks| locks.strong_count() > 0);
    let locks = all.get(path).and_then(Weak::upgrade).unwrap_or_default();
    all.insert(path.to_owned(), Arc::downgrade(&locks));
    let database = Box::into_raw(Box::new(Database { file, locks, level: 0 }));
    // SAFETY: `out` has szOsFile bytes, at least those of a Handle, aligned by SQLite to 8.
    unsafe {
        out.cast::<Handle>()
            .write(Handle { base: ffi::sqlite3_file { pMethods: &METHODS }, database })
    };
    if !out_flags.is_null() {
        // SAFETY: not null, so a place for the flags.
        unsafe { *out_flags = flags };
    }
    ffi::SQLITE_OK
}

/// # Safety
/// `file` was opened by `open` with [`METHODS`], is not closed, and no other thread uses it now.
unsafe fn database<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Database {
    // SAFETY: by the contract it is a Handle whose database lives until `close`.
    unsafe { &mut *(*file.cast::<Handle>()).database }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes once a file that `open` made; the box is that of `open`.
    let mut database = unsafe { Box::from_raw((*file.cast::<Handle>()).database) };
    database.unlock(ffi::SQLITE_LOCK_NONE);
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite passes `count` bytes of its own.
    let buf = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), count as usize) };
    // SAFETY: a file of `open`.
    match unsafe { database(file) }.file.read_at(buf, offset as u64) {
        Ok(found) if found == buf.len() => ffi::SQLITE_OK,
        Ok(found) => {
            buf[found..].fill(0);
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Err(error) => code(error, ffi::SQLITE_IOERR_READ),
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite passes `count` bytes of its own.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), count as usize) };
    // SAFETY: a file of `open`.
    let written = unsafe { database(file) }.file.write_all_at(bytes, offset as u64);
    done(written, ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: a file of `open`.
    done(unsafe { database(file) }.file.set_len(len as u64), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: a file of `open`.
    done(unsafe { database(file) }.file.sync_all(), ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: a file of `open`, and a place for the length.
    unsafe { *out = database(file).file.len() as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.lock(level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.unlock(level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: a file of `open`, and a place for the answer.
    unsafe { *out = c_int::from(guard(&database(file).locks).writer != 0) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

/// A power cut may damage the whole page that the cache was writing.
unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.file.write_unit().max(PAGE_BYTES) as c_int
}

/// None: no powersafe overwrite, no atomic write, no order.
unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, OpenFlags};

    use super::*;

    fn round_trip(vfs: &str, setup: &str, connections: bool) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("data.db");
        register(vfs, Cache::builder().capacity(1 << 20).build().unwrap()).unwrap();
        let open =
            || Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), vfs).unwrap();
        let count = |connection: &Connection| -> i64 {
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
        };
        let mut first = open();
        first.execute_batch(setup).unwrap();
        first.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)").unwrap();
        let transaction = first.transaction().unwrap();
        for key in 0..5000 {
            transaction.execute("INSERT INTO t VALUES(?, randomblob(400))", [key]).unwrap();
        }
        transaction.commit().unwrap();
        first.execute_batch("BEGIN; DELETE FROM t WHERE a % 3 = 0; ROLLBACK").unwrap();
        assert_eq!(count(&first), 5000);
        if connections {
            let second = open();
            second.busy_timeout(std::time::Duration::ZERO).unwrap();
            first.execute_batch("BEGIN IMMEDIATE; DELETE FROM t WHERE a = 1").unwrap();
            assert_eq!(count(&second), 5000);
            let refused = second.execute_batch("DELETE FROM t WHERE a = 2").unwrap_err();
            assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
            first.execute_batch("ROLLBACK").unwrap();
        }
        first.execute_batch("DELETE FROM t WHERE a >= 2500; VACUUM").unwrap();
        drop(first);
        let plain = Connection::open(&path).unwrap();
        assert_eq!(count(&plain), 2500);
        let ok: String = plain.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(ok, "ok");
    }

    #[test]
    fn unix_reads_what_delete_mode_committed() {
        round_trip("unherd-delete", "PRAGMA journal_mode=DELETE", true);
    }

    #[test]
    fn unix_reads_what_exclusive_wal_committed() {
        round_trip("unherd-wal", "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL", false);
    }
}
