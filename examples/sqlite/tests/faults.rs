//! What must not go wrong where locks, pins, names and kills meet.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tempfile::TempDir;
use unherd::device::{
    Completion, DeviceFile, IoBuf, IoBufs, OpenError, OpenHow, Opened, QueueKind, Transfer,
};
use unherd::{Cache, Deadline, Device, DirectDevice, Errno, Io};

const PAGE_BYTES: usize = 4096;
const EXCLUSIVE_WAL_OFF: &str = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;
    PRAGMA wal_autocheckpoint=9; PRAGMA synchronous=OFF";

fn open(path: &Path, vfs: &str) -> rusqlite::Result<Connection> {
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)
}

fn dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

fn cache(pages: usize) -> Cache {
    let frame_wait = Duration::from_millis(100);
    Cache::builder().capacity(pages * PAGE_BYTES).frame_wait(frame_wait).build().unwrap()
}

fn integrity(connection: &Connection) -> String {
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

#[test]
fn two_names_of_a_cache_exclude_each_other() {
    for names in [["left", "right"], ["same", "same"]] {
        let (dir, cache) = (dir(), cache(256));
        let path = dir.path().join("data.db");
        let [first, second] = names.map(|name| {
            unherd_example_sqlite::register(name, cache.clone()).unwrap();
            open(&path, name).unwrap()
        });
        second.busy_timeout(Duration::ZERO).unwrap();
        first.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = second.execute_batch("BEGIN IMMEDIATE").unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    }
}

#[test]
fn cursors_leave_most_of_the_cache() {
    const CURSORS: i64 = 60;
    let dir = dir();
    let path = dir.path().join("data.db");
    unherd_example_sqlite::register("cursors", cache(48)).unwrap();
    let fill = "CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB);
        WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c WHERE x < 4999)
        INSERT INTO t SELECT x, randomblob(400) FROM c";
    open(&path, "cursors").unwrap().execute_batch(fill).unwrap();
    let connection = open(&path, "cursors").unwrap();
    connection.execute_batch("PRAGMA mmap_size=1000000000; PRAGMA cache_size=5").unwrap();
    let prepare = |_| connection.prepare("SELECT a FROM t WHERE a >= ?").unwrap();
    let mut selects: Vec<_> = (0..CURSORS).map(prepare).collect();
    let mut open_rows = Vec::new();
    for (at, select) in (0..).zip(&mut selects) {
        let mut rows = select.query([at * 80]).unwrap();
        let key: i64 = rows.next().unwrap().unwrap().get(0).unwrap();
        assert_eq!(key, at * 80);
        open_rows.push(rows);
    }
}

#[test]
fn renamed_database_is_not_written() {
    let dir = dir();
    let path = dir.path().join("data.db");
    unherd_example_sqlite::register("renamed", cache(256)).unwrap();
    let first = open(&path, "renamed").unwrap();
    first.execute_batch("CREATE TABLE t(a)").unwrap();
    let moved = |step: &str| {
        let refused = first.execute_batch("INSERT INTO t VALUES(1)").unwrap_err();
        let code = refused.sqlite_error().unwrap().extended_code;
        assert_eq!(code, rusqlite::ffi::SQLITE_READONLY_DBMOVED, "{step}");
    };
    let old = dir.path().join("old.db");
    std::fs::rename(&path, &old).unwrap();
    moved("renamed");
    std::fs::copy(&old, &path).unwrap();
    moved("replaced");
    // The file in its place is another database, with locks of its own.
    open(&path, "renamed").unwrap().execute_batch("INSERT INTO t VALUES(1)").unwrap();
    std::fs::rename(&old, &path).unwrap();
    first.execute_batch("INSERT INTO t VALUES(1)").unwrap();
}

#[test]
fn writer_beside_a_reader_is_busy() {
    let dir = dir();
    let path = dir.path().join("data.db");
    unherd_example_sqlite::register("reader", cache(256)).unwrap();
    open(&path, "reader").unwrap().execute_batch("CREATE TABLE t(a)").unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let reader = Connection::open_with_flags_and_vfs(&path, flags, "reader").unwrap();
    let refused = open(&path, "reader").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    drop(reader);
    open(&path, "reader").unwrap().execute_batch("INSERT INTO t VALUES(1)").unwrap();
}

/// The process that `kill_without_syncs_damages_nothing` starts.
#[test]
fn commits_without_syncs_and_dies() {
    let Ok(path) = std::env::var("SQLITE_KILLED_DATABASE") else { return };
    let setup = std::env::var("SQLITE_KILLED_SETUP").unwrap();
    unherd_example_sqlite::register("killed", cache(64)).unwrap();
    let connection = open(Path::new(&path), "killed").unwrap();
    connection.execute_batch(&setup).unwrap();
    let tables = "CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB); CREATE INDEX i ON t(b)";
    connection.execute_batch(tables).unwrap();
    for first in (0..1000).step_by(50) {
        connection.execute_batch("BEGIN").unwrap();
        for key in first..first + 50 {
            connection.execute("INSERT INTO t VALUES(?, randomblob(200))", [key]).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
    }
    // As kill -9: nothing is dropped.
    std::process::abort();
}

#[test]
fn kill_without_syncs_damages_nothing() {
    for setup in ["PRAGMA synchronous=OFF", EXCLUSIVE_WAL_OFF] {
        let dir = dir();
        let path = dir.path().join("data.db");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "commits_without_syncs_and_dies"]);
        child.env("SQLITE_KILLED_DATABASE", &path).env("SQLITE_KILLED_SETUP", setup);
        let ended = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(ended.code(), None, "it was to die by a signal");
        let plain = Connection::open(&path).unwrap();
        assert_eq!(integrity(&plain), "ok", "{setup}");
        let rows: i64 = plain.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1000, "{setup}");
    }
}

/// Rows of transactions: several in a WAL, and then a large one that begins it again.
const BATCHES: [u8; 4] = [1, 1, 1, 30];

/// The process that `kill_at_any_write_loses_no_commit` starts: it dies in its write of a given
/// number. It adds a byte to a file for each commit: its rows.
#[test]
fn commits_and_dies_at_a_write() {
    let Ok(path) = std::env::var("SQLITE_DYING_DATABASE") else { return };
    let left = std::env::var("SQLITE_DYING_AT").unwrap().parse().unwrap();
    let device = TestDevice::new(Fault::Death { left: AtomicU64::new(left) });
    let frames: usize = std::env::var("SQLITE_DYING_FRAMES").unwrap().parse().unwrap();
    let builder = Cache::builder().capacity(frames * PAGE_BYTES).io(Io::Blocking);
    let cache = builder.device(Arc::new(device)).build().unwrap();
    unherd_example_sqlite::register("dying", cache).unwrap();
    let connection = open(Path::new(&path), "dying").unwrap();
    connection.execute_batch(EXCLUSIVE_WAL_OFF).unwrap();
    let tables = "PRAGMA cache_size=4; CREATE TABLE t(a, b); CREATE INDEX i ON t(b)";
    connection.execute_batch(tables).unwrap();
    let mut committed = std::fs::File::create(format!("{path}.committed")).unwrap();
    for rows in BATCHES.into_iter().cycle() {
        connection.execute_batch("BEGIN").unwrap();
        for _ in 0..rows {
            connection.execute("INSERT INTO t VALUES(1, randomblob(900))", []).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        committed.write_all(&[rows]).unwrap();
    }
}

/// With few frames pages leave the cache in the middle of transactions.
#[test]
fn kill_at_any_write_loses_no_commit() {
    for (frames, at) in
        [512, 24].into_iter().flat_map(|frames| (1..120).map(move |at| (frames, at)))
    {
        let dir = dir();
        let path = dir.path().join("data.db");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "commits_and_dies_at_a_write"]);
        child.env("SQLITE_DYING_DATABASE", &path);
        child
            .env("SQLITE_DYING_AT", format!("{at}"))
            .env("SQLITE_DYING_FRAMES", format!("{frames}"));
        let ended = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(ended.code(), None, "it was to die by a signal");
        let batches = std::fs::read(dir.path().join("data.db.committed")).unwrap_or_default();
        let committed: i64 = batches.iter().copied().map(i64::from).sum();
        let next = i64::from(BATCHES[batches.len() % BATCHES.len()]);
        let plain = Connection::open(&path).unwrap();
        assert_eq!(integrity(&plain), "ok", "write {at}");
        match plain.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)) {
            Ok(rows) => assert!(
                rows == committed || rows == committed + next,
                "write {at}: {rows} rows, {committed} committed, then {next}"
            ),
            // The table is not there yet.
            Err(error) => assert_eq!(committed, 0, "write {at}: {error}"),
        }
    }
}

/// The process that the tests of a full device start. It writes to a file how many commits have
/// succeeded.
#[test]
fn commits_to_a_full_device() {
    let Ok(path) = std::env::var("SQLITE_BOUNDED_DATABASE") else { return };
    let full = std::env::var("SQLITE_BOUNDED_FILE").unwrap();
    let device = TestDevice::new(Fault::Full { name: full, files: Mutex::default() });
    let builder = Cache::builder().capacity(1024 * PAGE_BYTES).io(Io::Blocking);
    let cache = builder.device(Arc::new(device)).build().unwrap();
    unherd_example_sqlite::register("full", cache).unwrap();
    let connection = open(Path::new(&path), "full").unwrap();
    connection.execute_batch(EXCLUSIVE_WAL_OFF).unwrap();
    connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)").unwrap();
    let insert =
        |key: &i64| connection.execute("INSERT INTO t VALUES(?, randomblob(3000))", [key]).is_ok();
    let committed = (0..250).take_while(insert).count();
    let rows: usize = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, committed, "a commit that failed is not there");
    // Nor is any of it in the database afterwards.
    connection.execute_batch("PRAGMA wal_checkpoint").unwrap_or_default();
    std::fs::write(format!("{path}.committed"), committed.to_string()).unwrap();
    std::process::abort();
}

/// Commits a row at a time while files whose paths end in `full` have room for 400 KiB, and dies.
/// Gives how many commits succeeded, and how many rows the unix VFS finds then.
fn commit_beside_full(full: &str) -> (i64, i64) {
    let dir = dir();
    let path = dir.path().join("data.db");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "commits_to_a_full_device"]);
    child.env("SQLITE_BOUNDED_DATABASE", &path).env("SQLITE_BOUNDED_FILE", full);
    let ended = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(ended.code(), None, "it was to die by a signal");
    let committed = std::fs::read_to_string(dir.path().join("data.db.committed")).unwrap();
    let plain = Connection::open(&path).unwrap();
    assert_eq!(integrity(&plain), "ok");
    let rows = plain.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    (committed.parse().unwrap(), rows)
}

#[test]
fn failed_checkpoint_keeps_the_wal() {
    let (committed, rows) = commit_beside_full("data.db");
    assert!(committed == 250 && rows >= committed, "{rows} of {committed}");
}

/// The checkpoints fail for want of room in the database, so the WAL gets full as well.
#[test]
fn full_wal_fails_commits_and_loses_none() {
    let (committed, rows) = commit_beside_full("");
    // A hundred pages of the database, and then as many frames, of which a commit takes some.
    assert!((101..200).contains(&committed), "{committed}");
    assert_eq!(rows, committed);
}

struct TestDevice {
    inner: DirectDevice,
    fault: Fault,
}

enum Fault {
    /// There is room for 400 KiB of each file whose path ends in this name.
    Full { name: String, files: Mutex<Vec<DeviceFile>> },
    /// The process dies in a write, when `left` gets to 0: its last page alone is written, as
    /// pages may be in any order.
    Death { left: AtomicU64 },
}

impl TestDevice {
    fn new(fault: Fault) -> Self {
        Self { inner: DirectDevice::new(), fault }
    }
}

// SAFETY: all is done by the device inside, or refused.
unsafe impl Device for TestDevice {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Opened, OpenError> {
        let opened = self.inner.open(path, how)?;
        if let Fault::Full { name, files } = &self.fault
            && path.to_str().is_some_and(|path| path.ends_with(name))
        {
            files.lock().unwrap().push(opened.file);
        }
        Ok(opened)
    }

    fn try_lock(&self, file: DeviceFile, exclusive: bool) -> Result<bool, Errno> {
        self.inner.try_lock(file, exclusive)
    }

    fn close(&self, file: DeviceFile) {
        self.inner.close(file);
    }

    fn len(&self, file: DeviceFile) -> Result<u64, Errno> {
        self.inner.len(file)
    }

    fn set_len(&self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno> {
        self.inner.set_len(file, len_bytes)
    }

    unsafe fn read(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        // SAFETY: as the caller promises.
        unsafe { self.inner.read(file, offset, bufs) }
    }

    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        match &self.fault {
            Fault::Full { files, .. } if offset >= 400 << 10 => {
                if files.lock().unwrap().contains(&file) {
                    return Err(Errno::NOSPC);
                }
            }
            Fault::Full { .. } => {}
            Fault::Death { left } => {
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    // SAFETY: as the caller promises, for the last page alone.
                    let _ = unsafe {
                        let pieces = bufs.pieces();
                        let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
                        let last = pieces[pieces.len() - 1];
                        let start = last.start.add(last.len - PAGE_BYTES);
                        let last = IoBuf { start, len: PAGE_BYTES };
                        self.inner.write(file, offset + (bytes - PAGE_BYTES) as u64, last.into())
                    };
                    std::process::abort();
                }
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.inner.write(file, offset, bufs) }
    }

    fn sync(&self, file: DeviceFile) -> Result<(), Errno> {
        self.inner.sync(file)
    }

    fn queue(&self) -> Option<QueueKind> {
        None
    }

    fn claim_queue(&self) -> bool {
        false
    }

    fn release_queue(&self) {}

    unsafe fn submit(&self, _: Transfer) {
        unreachable!("nothing is queued");
    }

    fn reap(&self, _: &mut Vec<Completion>, _: Deadline) {}

    fn interrupt(&self) {}
}
