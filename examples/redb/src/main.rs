//! One run of a small benchmark: a database is loaded, read at random, scanned and updated.
//!
//!     unherd-example-redb file|unherd|unherd-aio|unherd-blocking DIR MEMORY-MIB RECORDS
//!
//! The last line of its output is a JSON object with records in a second for each phase. Everything
//! that is read is compared with what was written. Memory is bounded from outside (a memory
//! cgroup): redb's own cache is 16 MiB on both sides; with `file` the rest is the kernel's page
//! cache. With `unherd` the cache has what redb and the rest of the process do not take: 20 MiB
//! while one thread reads, 34 from the four threads on (their memory is not given back), 44 while
//! transactions write, as their new pages are in memory that redb allocates; and 3 % of all for
//! what the cache keeps about its pages. So it is resized between the phases, which is not in the
//! time of any. The kernel's cache makes such room by itself.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use unherd::{Cache, DirectDevice, Io, Timestamp};
use unherd_example_redb::Storage;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("records");
const VALUE_BYTES: usize = 400;
const REDB_CACHE_BYTES: usize = 16 << 20;
/// What the cache leaves to redb and the rest of the process, while it writes, and while one thread
/// reads, or several do.
const WRITE_REST_MIB: usize = 44;
const READ_REST_MIB: usize = 20;
const READS_REST_MIB: usize = 34;
/// What the cache keeps about its pages, which is made for as many as it may ever have.
const BOOKKEEPING_PCT: usize = 3;
/// Records of one transaction.
const BATCH: u64 = 1000;
const UPDATES: u64 = 5000;
const GETS: u64 = 20_000;
const GET_THREADS: u64 = 4;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, side, dir, memory_mib, records] = &args[..] else {
        let sides = "file|unherd|unherd-aio|unherd-blocking";
        return Err(format!("usage: unherd-example-redb {sides} DIR MEMORY-MIB RECORDS").into());
    };
    let path = Path::new(dir).join(format!("redb-{side}-{}", std::process::id()));
    let (memory_mib, records): (usize, u64) = (memory_mib.parse()?, records.parse()?);
    let ran = open(side, &path, memory_mib)
        .and_then(|(database, cache)| run(&database, cache.as_ref(), memory_mib, records));
    std::fs::remove_file(&path)?;
    println!("{}", ran?);
    Ok(())
}

fn open(side: &str, path: &Path, memory_mib: usize) -> Outcome<(Database, Option<Cache>)> {
    let mut builder = Database::builder();
    builder.set_cache_size(REDB_CACHE_BYTES);
    match side {
        "file" => Ok((builder.create(path)?, None)),
        "unherd" | "unherd-aio" | "unherd-blocking" => {
            let device = match side {
                "unherd-aio" => DirectDevice::without_io_uring(),
                _ => DirectDevice::new(),
            };
            let io = if side == "unherd-blocking" { Io::Blocking } else { Io::Queued };
            let cache = Cache::builder()
                .capacity(all_but(WRITE_REST_MIB, memory_mib))
                .max_capacity(all_but(READ_REST_MIB, memory_mib))
                .device(Arc::new(device))
                .io(io)
                .build()?;
            Ok((builder.create_with_backend(Storage::open(&cache, path)?)?, Some(cache)))
        }
        other => Err(format!("{other}: give file, unherd, unherd-aio or unherd-blocking").into()),
    }
}

/// Bytes of pages, where the memory is to leave `rest_mib` to others.
fn all_but(rest_mib: usize, memory_mib: usize) -> usize {
    ((memory_mib << 20) / 100 * (100 - BOOKKEEPING_PCT)).saturating_sub(rest_mib << 20).max(1 << 20)
}

fn run(
    database: &Database,
    cache: Option<&Cache>,
    memory_mib: usize,
    records: u64,
) -> Outcome<String> {
    let resize =
        |rest_mib| cache.map_or(Ok(()), |cache| cache.resize(all_but(rest_mib, memory_mib)));
    let mut figures = Vec::new();
    let mut phase = |name: &str, count: u64, rest_mib, work: &mut dyn FnMut() -> Outcome<()>| {
        resize(rest_mib)?;
        let begin = Timestamp::now();
        work()?;
        figures.push(format!(
            "\"{name}_per_s\": {:.1}",
            count as f64 / Timestamp::now().since(begin).as_secs_f64()
        ));
        Outcome::Ok(())
    };
    phase("load", records, WRITE_REST_MIB, &mut || load(database, records))?;
    phase("get", GETS, READ_REST_MIB, &mut || gets(database, records, 0, GETS))?;
    phase("threads_get", GETS, READS_REST_MIB, &mut || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..GET_THREADS)
                .map(|one| {
                    scope.spawn(move || gets(database, records, one + 1, GETS / GET_THREADS))
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })
    })?;
    phase("scan", records, READS_REST_MIB, &mut || scan(database, records))?;
    phase("update", UPDATES, WRITE_REST_MIB, &mut || update(database, records))?;
    scan(database, records)?;
    Ok(format!("{{{}}}", figures.join(", ")))
}

fn load(database: &Database, records: u64) -> Outcome<()> {
    for first in (0..records).step_by(BATCH as usize) {
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for key in first..(first + BATCH).min(records) {
                table.insert(key, &value(key, 0)[..])?;
            }
        }
        transaction.commit()?;
    }
    Ok(())
}

fn gets(database: &Database, records: u64, thread: u64, count: u64) -> Outcome<()> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(TABLE)?;
    for at in 0..count {
        let key = mix(thread << 32 | at) % records;
        let found = table.get(key)?.ok_or("a record is missing")?;
        check(key, found.value())?;
    }
    Ok(())
}

fn scan(database: &Database, records: u64) -> Outcome<()> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(TABLE)?;
    let mut expected = 0;
    for entry in table.iter()? {
        let (key, found) = entry?;
        if key.value() != expected {
            return Err(format!("record {} where {expected} was to come", key.value()).into());
        }
        check(expected, found.value())?;
        expected += 1;
    }
    if expected == records {
        Ok(())
    } else {
        Err(format!("{expected} of {records} records").into())
    }
}

fn update(database: &Database, records: u64) -> Outcome<()> {
    for first in (0..UPDATES).step_by(BATCH as usize) {
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for at in first..first + BATCH {
                let key = mix(7 << 40 | at) % records;
                table.insert(key, &value(key, at + 1)[..])?;
            }
        }
        transaction.commit()?;
    }
    Ok(())
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
