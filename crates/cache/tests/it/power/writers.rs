//! Threads that write files through one cache until their process is killed, and note each step.
//!
//! Each file has one thread, except the log, to which several append. All but the log is in units
//! of sectors: each names its file, its place, and its *version*, which grows with each write of
//! the thread; version 0 are zeros.

use std::fs::File as LogFile;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use unherd_cache::{Cache, Error, File, Io};
use unherd_sys::DirectDevice;
use unherd_sys::primitives::{Arc, Mutex, thread};
use unherd_testkit::Seed;

use crate::scene::writable;

pub(super) const SECTOR_BYTES: usize = 512;

/// Threads that write files of their own, and how many each has.
const THREADS: u64 = 4;
const FILES_EACH: u64 = 3;
pub(super) const FILES: u64 = THREADS * FILES_EACH;
const APPENDERS: u64 = 3;
/// The number of the log.
pub(super) const LOG: u64 = FILES;

/// Where a write or a change of the length begins, in sectors, and how long it is.
const PLACES: u64 = 400;
const LENGTHS: u64 = 120;
const APPENDED_AT_MOST: u64 = 800;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Open,
    Write,
    /// Of a range that reaches to `u64::MAX`: of the whole file.
    Sync,
    SetLen,
    PunchHole,
    Allocate,
    Close,
}

impl Act {
    const ALL: [Self; 7] = [
        Self::Open,
        Self::Write,
        Self::Sync,
        Self::SetLen,
        Self::PunchHole,
        Self::Allocate,
        Self::Close,
    ];
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Begun,
    Done,
    Failed,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Begun, Self::Done, Self::Failed];
}

/// One line of the log of steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) file: u64,
    pub(super) act: Act,
    pub(super) stage: Stage,
    /// In sectors; of the log, in bytes.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) version: u64,
}

impl Record {
    pub(super) const BYTES: usize = 48;

    fn words(self) -> [u64; 6] {
        [self.file, self.act as u64, self.stage as u64, self.from, self.to, self.version]
    }

    pub(super) fn all(log: &[u8]) -> Vec<Self> {
        let word = |record: &[u8], nth: usize| {
            u64::from_le_bytes(record[8 * nth..8 * nth + 8].try_into().unwrap())
        };
        let record = |record: &[u8]| Self {
            file: word(record, 0),
            act: Act::ALL[word(record, 1) as usize],
            stage: Stage::ALL[word(record, 2) as usize],
            from: word(record, 3),
            to: word(record, 4),
            version: word(record, 5),
        };
        log.chunks_exact(Self::BYTES).map(record).collect()
    }
}

/// The cache that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) page_bytes: usize,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Blocking,
    IoUring,
    Aio,
}

/// This program. In another mount namespace, below a chroot(2), nobody can tell its path.
pub(super) static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| std::env::current_exe().unwrap());

impl Setup {
    pub(super) const ALL: [Self; 5] = [
        Self { page_bytes: 4096, way: Way::IoUring },
        Self { page_bytes: 1024, way: Way::IoUring },
        Self { page_bytes: 4096, way: Way::Blocking },
        Self { page_bytes: 65536, way: Way::IoUring },
        Self { page_bytes: 4096, way: Way::Aio },
    ];

    /// The process that writes files in `dir`, and its steps to `log`.
    pub(super) fn command(self, dir: &Path, log: &Path, seed: u64) -> Command {
        let nth = Self::ALL.iter().position(|setup| *setup == self).unwrap();
        let mut command = Command::new(&*PROGRAM);
        command
            .args(["--exact", "power::child_that_writes_until_it_is_killed", "--nocapture"])
            .env("UNHERD_POWER_DIR", dir)
            .env("UNHERD_POWER_LOG", log)
            .env("UNHERD_POWER_SETUP", nth.to_string())
            .env("UNHERD_POWER_SEED", seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        command
    }

    fn cache(self) -> Cache {
        let builder = Cache::builder()
            .capacity(128 * self.page_bytes)
            .page_size(self.page_bytes)
            .dirty_expire(std::time::Duration::from_millis(50));
        let builder = match self.way {
            Way::Blocking => builder.io(Io::Blocking),
            Way::IoUring => builder,
            Way::Aio => builder.device(Arc::new(DirectDevice::without_io_uring())),
        };
        builder.build().unwrap()
    }
}

/// The bytes of a sector.
pub(super) fn sector(file: u64, place: u64, version: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    if version > 0 {
        let words = [file + 1, place, version, mark(file + 1, place, version)];
        for (at, word) in words.into_iter().cycle().take(SECTOR_BYTES / 8).enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

fn mark(file: u64, place: u64, version: u64) -> u64 {
    Seed::new(file ^ place << 16 ^ version << 32).next_u64()
}

fn word(sector: &[u8], nth: usize) -> u64 {
    u64::from_le_bytes(sector[8 * nth..8 * nth + 8].try_into().unwrap())
}

/// Whether it is a sector that some writer has written.
pub(super) fn is_data(sector: &[u8]) -> bool {
    let [file, place, version, found] = [0, 1, 2, 3].map(|nth| word(sector, nth));
    version > 0 && found == mark(file, place, version)
}

/// Its version, as far as the sector can be told.
pub(super) fn version(sector: &[u8]) -> u64 {
    word(sector, 2)
}

/// The byte of the log at a place.
pub(super) fn log_byte(at: u64) -> u8 {
    Seed::new(at / 8).next_u64().to_le_bytes()[at as usize % 8] | 1
}

struct Steps {
    log: LogFile,
    dir: PathBuf,
}

impl Steps {
    fn note(&self, record: Record) {
        // One write: it is there as a whole, in the order of the calls.
        (&self.log).write_all(&record.words().map(u64::to_le_bytes).concat()).unwrap();
    }

    /// Runs a step and notes it.
    fn run<T>(&self, record: Record, step: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.note(Record { stage: Stage::Begun, ..record });
        let done = step();
        let stage = if done.is_ok() { Stage::Done } else { Stage::Failed };
        self.note(Record { stage, ..record });
        done
    }

    fn open(&self, cache: &Cache, file: u64) -> Result<File, Error> {
        let step = Record { file, act: Act::Open, stage: Stage::Begun, from: 0, to: 0, version: 0 };
        self.run(step, || cache.open(self.dir.join(file.to_string()), writable()))
    }
}

/// Writes to files of its own for ever.
fn write_own_files(cache: &Cache, steps: &Steps, thread: u64, mut seed: Seed) {
    let mut files: Vec<Option<File>> = (0..FILES_EACH).map(|_| None).collect();
    let mut version = 0;
    loop {
        let nth = seed.below(FILES_EACH) as usize;
        let number = thread * FILES_EACH + nth as u64;
        if files[nth].is_none() {
            files[nth] = steps.open(cache, number).ok();
        }
        let Some(file) = &files[nth] else { continue };
        let bytes = |sectors: u64| sectors * SECTOR_BYTES as u64;
        let from = seed.below(PLACES);
        let to = from + 1 + seed.below(LENGTHS);
        let step =
            |act, from, to| Record { file: number, act, stage: Stage::Begun, from, to, version: 0 };
        match seed.below(100) {
            kind @ 0..55 => {
                let len = if kind < 14 { to - from } else { 1 + (to - from) / 10 };
                let end = (file.len() / SECTOR_BYTES as u64).min(APPENDED_AT_MOST);
                let from = if kind % 3 == 0 { end } else { from };
                version += 1;
                let step = Record { version, ..step(Act::Write, from, from + len) };
                let data: Vec<u8> =
                    (from..from + len).flat_map(|at| sector(number, at, version)).collect();
                let _ = steps.run(step, || file.write_all_at(&data, bytes(from)));
            }
            55..73 => {
                let _ = steps.run(step(Act::Sync, 0, u64::MAX), || file.sync_all());
            }
            73..81 => {
                let range = bytes(from)..bytes(to);
                let _ = steps.run(step(Act::Sync, from, to), || file.sync_range(range));
            }
            81..87 => {
                let _ = steps.run(step(Act::SetLen, to, to), || file.set_len(bytes(to)));
            }
            87..90 => {
                let range = bytes(from)..bytes(to);
                let _ = steps.run(step(Act::PunchHole, from, to), || file.punch_hole(range));
            }
            90..92 => {
                let range = bytes(from)..bytes(to);
                let _ = steps.run(step(Act::Allocate, from, to), || file.allocate(range));
            }
            92..95 => {
                let open: Vec<&File> = files.iter().flatten().collect();
                if cache.sync_many(&open).is_ok() {
                    for (nth, _) in files.iter().enumerate().filter(|(_, file)| file.is_some()) {
                        let file = thread * FILES_EACH + nth as u64;
                        let stage = Stage::Done;
                        steps.note(Record { file, stage, ..step(Act::Sync, 0, u64::MAX) });
                    }
                }
            }
            95..97 => _ = file.write_back(),
            _ => {
                let _ = steps.run(step(Act::Close, 0, 0), || file.close());
                files[nth] = None;
            }
        }
    }
}

/// Appends to the log for ever, as the example of `File::sync_range` does, until that fails.
fn append(steps: &Steps, log: &File, end: &Mutex<u64>, mut seed: Seed) {
    loop {
        let len = 1 + seed.below(3000);
        let to = {
            let mut end = end.lock();
            let record: Vec<u8> = (*end..*end + len).map(log_byte).collect();
            if log.write_all_at(&record, *end).is_err() {
                return;
            }
            *end += len;
            *end
        };
        if log.sync_range(0..to).is_err() {
            return;
        }
        let (act, stage) = (Act::Sync, Stage::Done);
        steps.note(Record { file: LOG, act, stage, from: 0, to, version: 0 });
    }
}

/// Writes for ever, if this is the process that a test has started for that.
pub(super) fn run_if_asked() {
    let Ok(dir) = std::env::var("UNHERD_POWER_DIR") else { return };
    // The pipe ends with the test, be it killed.
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let told = |name: &str| std::env::var(name).unwrap();
    let log = LogFile::options().append(true).open(told("UNHERD_POWER_LOG")).unwrap();
    let steps = Steps { log, dir: PathBuf::from(dir) };
    let mut seed = Seed::new(told("UNHERD_POWER_SEED").parse().unwrap());
    let setup: usize = told("UNHERD_POWER_SETUP").parse().unwrap();
    let cache = Setup::ALL[setup].cache();
    let log = steps.open(&cache, LOG).unwrap();
    let end = Mutex::new(0);
    thread::scope(|scope| {
        let (cache, steps, log, end) = (&cache, &steps, &log, &end);
        for thread in 0..THREADS {
            let seed = Seed::new(seed.next_u64());
            scope.spawn(move || write_own_files(cache, steps, thread, seed));
        }
        for _ in 0..APPENDERS {
            let seed = Seed::new(seed.next_u64());
            scope.spawn(move || append(steps, log, end, seed));
        }
    });
}
