//! Databases in the cache, and what SQLite's own VFS finds in them afterwards.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use unherd::Cache;

const EXCLUSIVE_WAL: &str = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL";

fn open(path: &Path, vfs: &str) -> rusqlite::Result<Connection> {
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

fn fill(connection: &mut Connection) {
    connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)").unwrap();
    let transaction = connection.transaction().unwrap();
    for key in 0..5000 {
        transaction.execute("INSERT INTO t VALUES(?, randomblob(400))", [key]).unwrap();
    }
    transaction.commit().unwrap();
}

/// In a cache of 1 MiB, which is less than the database.
fn round_trip(vfs: &str, setup: &str) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("data.db");
    let cache = Cache::builder().capacity(1 << 20).build().unwrap();
    unherd_example_sqlite::register(vfs, cache).unwrap();
    let mut connection = open(&path, vfs).unwrap();
    connection.execute_batch(setup).unwrap();
    fill(&mut connection);
    connection.execute_batch("BEGIN; DELETE FROM t WHERE a % 3 = 0; ROLLBACK").unwrap();
    assert_eq!(count(&connection), 5000);
    connection.execute_batch("DELETE FROM t WHERE a >= 2500; VACUUM").unwrap();
    drop(connection);
    let plain = Connection::open(&path).unwrap();
    assert_eq!(count(&plain), 2500);
    let ok: String = plain.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(ok, "ok");
}

#[test]
fn unix_reads_what_delete_mode_committed() {
    round_trip("delete", "PRAGMA journal_mode=DELETE");
}

#[test]
fn unix_reads_what_exclusive_wal_committed() {
    round_trip("wal", EXCLUSIVE_WAL);
}

#[test]
fn unix_reads_what_was_written_beside_fetched_pages() {
    round_trip("delete-fetch", "PRAGMA mmap_size=1000000000");
    round_trip("wal-fetch", &format!("PRAGMA mmap_size=1000000000; {EXCLUSIVE_WAL}"));
    round_trip("small-fetch", "PRAGMA page_size=1024; PRAGMA mmap_size=1000000000");
    round_trip("large-fetch", "PRAGMA page_size=16384; PRAGMA mmap_size=1000000000");
}

#[test]
fn connections_of_a_process_exclude_each_other() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("data.db");
    let cache = Cache::builder().capacity(1 << 20).build().unwrap();
    unherd_example_sqlite::register("two", cache).unwrap();
    let mut first = open(&path, "two").unwrap();
    fill(&mut first);
    let second = open(&path, "two").unwrap();
    second.busy_timeout(Duration::ZERO).unwrap();
    second.pragma_update(None, "mmap_size", 1_000_000_000).unwrap();

    first.execute_batch("BEGIN IMMEDIATE; DELETE FROM t WHERE a = 1").unwrap();
    assert_eq!(count(&second), 5000);
    let refused = second.execute_batch("DELETE FROM t WHERE a = 2").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));

    // A reader in the middle of its pages keeps the writer from the file, not from its journal.
    let mut select = second.prepare("SELECT a FROM t").unwrap();
    let mut rows = select.query([]).unwrap();
    rows.next().unwrap().unwrap();
    first.busy_timeout(Duration::ZERO).unwrap();
    let refused = first.execute_batch("COMMIT").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    drop(rows);
    first.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&second), 4999);
}

#[test]
fn another_cache_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("data.db");
    for vfs in ["one", "other"] {
        let cache = Cache::builder().capacity(1 << 20).build().unwrap();
        unherd_example_sqlite::register(vfs, cache).unwrap();
    }
    let mut first = open(&path, "one").unwrap();
    fill(&mut first);
    let other = open(&path, "other").unwrap_err();
    assert_eq!(other.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    drop(first);
    assert_eq!(count(&open(&path, "other").unwrap()), 5000);
}
