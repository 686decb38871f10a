//! SQLite's interface of C: a VFS, and the methods of its databases and WALs.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::ffi;
use unherd::Cache;

use crate::database::{Database, Files};

struct Vfs {
    files: Files,
    unix: *mut ffi::sqlite3_vfs,
}

/// What SQLite allocates for a database: its own header first, as the interface demands.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    database: *mut Database,
}

/// Registers a VFS of this name, for the rest of the process: the files of all databases that are
/// opened by it lie in `cache`.
///
/// # Errors
/// If the name has a NUL, or SQLite refuses it.
pub fn register(name: &str, cache: Cache) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: a C string that lives as long as the program.
    let unix = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
    if unix.is_null() {
        return Err(io::Error::other("SQLite has no unix VFS"));
    }
    // SAFETY: a registered VFS is valid; only its link changes.
    let mut vfs = unsafe { *unix };
    vfs.szOsFile = vfs.szOsFile.max(size_of::<Handle>() as c_int);
    vfs.pNext = std::ptr::null_mut();
    vfs.zName = name.into_raw();
    vfs.pAppData = Box::into_raw(Box::new(Vfs { files: Files::new(cache), unix })).cast();
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
    let is_wal = flags & ffi::SQLITE_OPEN_WAL != 0;
    if !is_wal && flags & ffi::SQLITE_OPEN_MAIN_DB == 0 || name.is_null() {
        // SAFETY: as this function's caller promises.
        return unsafe { open_by_unix(state.unix, name, out, flags, out_flags) };
    }
    // SAFETY: `out` has szOsFile bytes, and no methods means that SQLite will not close it.
    unsafe { (*out).pMethods = std::ptr::null() };
    // SAFETY: not null, so a C string.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let flags = if is_wal {
        // SAFETY: as this function's caller promises.
        match unsafe { make_wal(state.unix, name, out, flags) } {
            Ok(flags) => flags & !ffi::SQLITE_OPEN_CREATE,
            Err(code) => return code,
        }
    } else {
        flags
    };
    let (database, flags) = match state.files.open(path, flags) {
        Ok((database, flags)) => (Box::into_raw(Box::new(database)), flags),
        Err(code) => return code,
    };
    let handle = Handle { base: ffi::sqlite3_file { pMethods: &METHODS }, database };
    // SAFETY: `out` has szOsFile bytes, at least those of a Handle, aligned by SQLite to 8.
    unsafe { out.cast::<Handle>().write(handle) };
    if !out_flags.is_null() {
        // SAFETY: not null, so a place for the flags.
        unsafe { *out_flags = flags };
    }
    ffi::SQLITE_OK
}

/// # Safety
/// As for an xOpen.
unsafe fn open_by_unix(
    unix: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    out: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: `unix` is registered; `out` has at least its szOsFile bytes.
    unsafe {
        ((*unix).xOpen).map_or(ffi::SQLITE_CANTOPEN, |open| open(unix, name, out, flags, out_flags))
    }
}

/// Makes the WAL as the unix VFS does: with the database's owner and mode, and its entry in the
/// directory on stable storage. Gives the flags that came true; `out` is closed then.
///
/// # Safety
/// As for an xOpen.
unsafe fn make_wal(
    unix: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    out: *mut ffi::sqlite3_file,
    mut flags: c_int,
) -> Result<c_int, c_int> {
    // SAFETY: as the caller promises.
    let opened = unsafe { open_by_unix(unix, name, out, flags, &raw mut flags) };
    if opened != ffi::SQLITE_OK {
        return Err(opened);
    }
    // SAFETY: it has been opened, so it has methods, which are called in turn, the last to close
    // it; `out` is as SQLite passed it then.
    let synced = unsafe {
        let methods = &*(*out).pMethods;
        let sync = methods.xSync;
        let synced = sync.map_or(ffi::SQLITE_OK, |sync| sync(out, ffi::SQLITE_SYNC_NORMAL));
        methods.xClose.map(|close| close(out));
        (*out).pMethods = std::ptr::null();
        synced
    };
    if synced == ffi::SQLITE_OK { Ok(flags) } else { Err(synced) }
}

/// # Safety
/// `file` was opened by `open` with [`METHODS`], is not closed, and no other thread uses it now.
unsafe fn database<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Database {
    // SAFETY: by the contract it is a Handle whose database lives until `close`.
    unsafe { &mut *(*file.cast::<Handle>()).database }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
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
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes once a file that `open` made; the box is that of `open`.
    drop(unsafe { Box::from_raw((*file.cast::<Handle>()).database) });
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
    unsafe { database(file) }.read(buf, offset as u64)
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
    unsafe { database(file) }.write(bytes, offset as u64)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.set_len(len as u64)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.sync()
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: a file of `open`, and a place for the length.
    unsafe { *out = database(file).len() as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.lock.raise(level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.lock.lower(level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: a file of `open`, and a place for the answer.
    unsafe { *out = c_int::from(database(file).lock.is_reserved()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    control: c_int,
    out: *mut c_void,
) -> c_int {
    // SAFETY: a file of `open`.
    let database = unsafe { database(file) };
    match control {
        // The end of a commit without a WAL, whatever `synchronous` is.
        ffi::SQLITE_FCNTL_SYNC => database.write_back(),
        ffi::SQLITE_FCNTL_CKPT_DONE => database.end_checkpoint(),
        ffi::SQLITE_FCNTL_HAS_MOVED => {
            // SAFETY: a place for the answer.
            unsafe { *out.cast::<c_int>() = c_int::from(database.has_moved()) };
            ffi::SQLITE_OK
        }
        _ => ffi::SQLITE_NOTFOUND,
    }
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.sector_bytes()
}

/// As the unix VFS. The cache writes whole pages, but the bytes of one that were not written are
/// the same before and after: a cut leaves them, wherever it comes.
unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

/// SQLite asks for pages so where `PRAGMA mmap_size` is not 0.
unsafe extern "C" fn fetch(
    file: *mut ffi::sqlite3_file,
    offset: i64,
    count: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: a file of `open`.
    let bytes = unsafe { database(file) }.fetch(offset as u64, count as usize);
    // SAFETY: a place for the pointer. SQLite reads by it, and gives it back before it closes.
    unsafe { *out = bytes.map_or(std::ptr::null_mut(), |bytes| bytes.cast_mut().cast()) };
    ffi::SQLITE_OK
}

/// With a null pointer SQLite asks for what is mapped and not used, which there is not.
unsafe extern "C" fn unfetch(
    file: *mut ffi::sqlite3_file,
    _offset: i64,
    bytes: *mut c_void,
) -> c_int {
    // SAFETY: a file of `open`.
    unsafe { database(file) }.unfetch(bytes.cast());
    ffi::SQLITE_OK
}
