//! One run of a small benchmark: a database is loaded, read, scanned, updated by large and
//! by small transactions, and vacuumed.
//!
//!     unherd-example-sqlite unix|unix-mmap|unherd|unherd-mmap delete|wal DIR MEMORY-MIB RECORDS
//!
//! The last line of its output is a JSON object with records in a second for each phase. Everything
//! that is read is compared with what was written. Memory is bounded from outside (a memory
//! cgroup): SQLite's own cache is 2 MiB on all sides; with `unix` the rest is the kernel's page
//! cache. With `unherd` the cache has the rest less 6 MiB, which SQLite takes; 11 with a rollback
//! journal, which the kernel's page cache has, and 18 for VACUUM's temporary file; and 3 % of all
//! for what the cache keeps about its pages. So it is resized before each phase, which is not in
//! the time of any. The kernel's cache makes such room by itself.
//! With `-mmap` SQLite reads pages where they are, without a copy (`PRAGMA mmap_size`).
//!
//!     unherd-example-sqlite commit delete|wal DIR
//!
//! is for a test that kills it: it adds records by transactions to `DIR/data.db`, and says how far
//! it is.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use unherd::{Cache, Timestamp};

const VALUE_BYTES: usize = 400;
/// What the cache leaves: to SQLite alone, to it and a rollback journal, to it and VACUUM's files.
const REST_MIB: usize = 6;
const JOURNAL_REST_MIB: usize = 11;
const VACUUM_REST_MIB: usize = 18;
/// What the cache keeps about its pages, which is made for as many as it may ever have.
const BOOKKEEPING_PCT: usize = 3;
/// Records of one transaction.
const BATCH: u64 = 1000;
const UPDATES: u64 = 20_000;
/// Updates that are a transaction each.
const COMMITS: u64 = 500;
const POINTS: u64 = 20_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["commit", journal, dir] => commit(journal, Path::new(dir)),
        [side, journal, dir, memory_mib, records] => {
            let path = Path::new(dir).join(format!("sqlite-{side}-{}.db", std::process::id()));
            let (memory_mib, records): (usize, u64) = (memory_mib.parse()?, records.parse()?);
            let ran =
                connect(side, journal, &path, memory_mib).and_then(|(mut connection, cache)| {
                    let resize = |rest_mib| {
                        let bytes = all_but(rest_mib, memory_mib);
                        cache.as_ref().map_or(Ok(()), |cache| cache.resize(bytes))
                    };
                    run(&mut connection, journal, records, resize)
                });
            std::fs::remove_file(&path)?;
            println!("{}", ran?);
            Ok(())
        }
        _ => {
            let sides = "unix|unix-mmap|unherd|unherd-mmap";
            Err(format!("usage: unherd-example-sqlite {sides} delete|wal DIR MEMORY-MIB RECORDS")
                .into())
        }
    }
}

fn connect(
    side: &str,
    journal: &str,
    path: &Path,
    memory_mib: usize,
) -> Outcome<(Connection, Option<Cache>)> {
    let flags = OpenFlags::default();
    let (connection, cache) = match side {
        "unix" | "unix-mmap" => (Connection::open_with_flags(path, flags)?, None),
        "unherd" | "unherd-mmap" => {
            let cache = Cache::builder()
                .capacity(all_but(VACUUM_REST_MIB, memory_mib))
                .max_capacity(all_but(REST_MIB, memory_mib))
                .build()?;
            unherd_example_sqlite::register("unherd", cache.clone())?;
            (Connection::open_with_flags_and_vfs(path, flags, "unherd")?, Some(cache))
        }
        _ => return Err(format!("{side}: give unix, unix-mmap, unherd or unherd-mmap").into()),
    };
    if side.ends_with("-mmap") {
        connection.pragma_update(None, "mmap_size", i64::MAX)?;
    }
    set_journal(&connection, journal)?;
    Ok((connection, cache))
}

/// Bytes of pages, where the memory is to leave `rest_mib` to others.
fn all_but(rest_mib: usize, memory_mib: usize) -> usize {
    ((memory_mib << 20) / 100 * (100 - BOOKKEEPING_PCT)).saturating_sub(rest_mib << 20).max(1 << 20)
}

/// `wal` in exclusive mode, which needs no shared memory. Each commit is durable.
fn set_journal(connection: &Connection, journal: &str) -> Outcome<()> {
    connection.execute_batch(match journal {
        "delete" => "PRAGMA synchronous=FULL",
        "wal" => "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
        _ => return Err(format!("{journal}: give delete or wal").into()),
    })?;
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != journal {
        return Err(format!("SQLite took the journal {mode} where {journal} was asked for").into());
    }
    Ok(())
}

fn run(
    connection: &mut Connection,
    journal: &str,
    records: u64,
    resize: impl Fn(usize) -> Result<(), unherd::Error>,
) -> Outcome<String> {
    connection.execute_batch("CREATE TABLE t(key INTEGER PRIMARY KEY, value BLOB NOT NULL)")?;
    let mut figures = Vec::new();
    let mut phase = |name: &str, count: u64, rest_mib, work: &mut dyn FnMut() -> Outcome<()>| {
        resize(rest_mib)?;
        let begin = Timestamp::now();
        work()?;
        let per_s = count as f64 / Timestamp::now().since(begin).as_secs_f64();
        figures.push(format!("\"{name}_per_s\": {per_s:.1}"));
        Outcome::Ok(())
    };
    let write_rest_mib = if journal == "wal" { REST_MIB } else { JOURNAL_REST_MIB };
    phase("load", records, write_rest_mib, &mut || load(connection, records))?;
    phase("point", POINTS, REST_MIB, &mut || points(connection, records))?;
    phase("scan", records, REST_MIB, &mut || scan(connection, records))?;
    phase("update", UPDATES, write_rest_mib, &mut || update(connection, records, UPDATES, BATCH))?;
    phase("commit", COMMITS, write_rest_mib, &mut || update(connection, records, COMMITS, 1))?;
    let vacuum = &mut || Ok(connection.execute_batch("VACUUM")?);
    phase("vacuum", records, VACUUM_REST_MIB, vacuum)?;
    scan(connection, records)?;
    Ok(format!("{{{}}}", figures.join(", ")))
}

fn load(connection: &mut Connection, records: u64) -> Outcome<()> {
    for first in (0..records).step_by(BATCH as usize) {
        let transaction = connection.transaction()?;
        let mut insert = transaction.prepare_cached("INSERT INTO t VALUES(?, ?)")?;
        for key in first..(first + BATCH).min(records) {
            insert.execute((key, value(key, 0)))?;
        }
        drop(insert);
        transaction.commit()?;
    }
    Ok(())
}

fn points(connection: &Connection, records: u64) -> Outcome<()> {
    let mut select = connection.prepare("SELECT value FROM t WHERE key = ?")?;
    for at in 0..POINTS {
        let key = mix(at) % records;
        select.query_row([key], |row| Ok(check(key, row.get_ref(0)?.as_blob()?)))??;
    }
    Ok(())
}

fn scan(connection: &Connection, records: u64) -> Outcome<()> {
    let mut select = connection.prepare("SELECT key, value FROM t ORDER BY key")?;
    let mut rows = select.query([])?;
    for expected in 0..records {
        let row = rows.next()?.ok_or("the scan ends early")?;
        let key: u64 = row.get(0)?;
        if key != expected {
            return Err(format!("record {key} where {expected} was to come").into());
        }
        check(key, row.get_ref(1)?.as_blob()?)?;
    }
    Ok(())
}

fn update(connection: &mut Connection, records: u64, updates: u64, batch: u64) -> Outcome<()> {
    for first in (0..updates).step_by(batch as usize) {
        let transaction = connection.transaction()?;
        let mut update = transaction.prepare_cached("UPDATE t SET value = ? WHERE key = ?")?;
        for at in first..first + batch {
            let key = mix(batch << 40 | at) % records;
            update.execute((value(key, at + 1), key))?;
        }
        drop(update);
        transaction.commit()?;
    }
    Ok(())
}

/// Adds transactions for ever, of 1 to 400 records, in a cache that is too small for one. Prints
/// `.` for each 10 records that it has added, and for each commit the number of records.
fn commit(journal: &str, dir: &Path) -> Outcome<()> {
    unherd_example_sqlite::register("unherd", Cache::builder().capacity(512 << 10).build()?)?;
    let path = dir.join("data.db");
    let mut connection = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "unherd")?;
    set_journal(&connection, journal)?;
    // Pages go to the file in the middle of transactions.
    connection.execute_batch(
        "PRAGMA cache_size=20;
         CREATE TABLE IF NOT EXISTS t(key INTEGER PRIMARY KEY, value BLOB NOT NULL)",
    )?;
    let last = "SELECT key FROM t ORDER BY key DESC LIMIT 1";
    let last: Option<u64> = connection.query_row(last, [], |row| row.get(0)).optional()?;
    let (mut next, mut out) = (last.map_or(0, |key| key + 1), std::io::stdout().lock());
    scan(&connection, next)?;
    loop {
        let transaction = connection.transaction()?;
        for _ in 0..1 + mix(next) % 400 {
            transaction.execute("INSERT INTO t VALUES(?, ?)", (next, value(next, 0)))?;
            next += 1;
            if next.is_multiple_of(10) {
                writeln!(out, ".")?;
            }
        }
        transaction.commit()?;
        writeln!(out, "{next}")?;
    }
}

/// The version in the first word, then words that follow from it and the key.
fn value(key: u64, version: u64) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    for (at, word) in bytes[8..].chunks_mut(8).enumerate() {
        word.copy_from_slice(&mix(key ^ mix(version ^ (at as u64) << 48)).to_le_bytes());
    }
    bytes
}

fn check(key: u64, found: &[u8]) -> Outcome<()> {
    let version = found.first_chunk().ok_or("a value is too short")?;
    if *found != value(key, u64::from_le_bytes(*version)) {
        return Err(format!("the value of record {key} is damaged").into());
    }
    Ok(())
}

/// The finalizer of SplitMix64.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
