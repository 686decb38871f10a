//! `commit`: threads that each write a record and make it durable, again and again, as the
//! transactions of a database do with its log.
//!
//! All write to one file, which has its length before the timing: record k of thread t of T lies at
//! (k x T + t) x `record`, so that what is written at one time lies together, as in a log; after
//! `laps` records the thread begins again at its first. The content of each record follows from the
//! seed, its thread and its number, and when the time is over all that was written is read from the
//! file system and compared.
//!
//! How many flushes does it take? pwrite and fdatasync: one a commit. The cache's syncs: one for
//! all that overlap.

use std::io;
use std::path::Path;

use unherd::{Cache, File, Ledger, OpenOptions, Stats, Timestamp};

use crate::congestion::Latencies;
use crate::files::{Content, KernelFile, PAGE_BYTES, ScratchDir, Way, check_space};
use crate::random::mix_all;
use crate::timed_threads::work_for;
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

/// The workload `commit`.
#[derive(Debug, Clone, Copy)]
pub struct Commit;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "pwrite and fdatasync through the kernel's page cache" },
    Impl { name: "unherd", about: "the page cache of unherd: write_at and sync_all" },
    Impl { name: "unherd-range", about: "the same, with sync_range of the record" },
];

const PARAMS: &[Param] = &[
    Param { name: "ms", about: "how long they commit", default: "1000", kind: Kind::Count },
    Param {
        name: "record",
        about: "bytes of a record, a multiple of 32",
        default: "4096",
        kind: Kind::Size,
    },
    Param {
        name: "laps",
        about: "records of a thread before it overwrites its first",
        default: "64",
        kind: Kind::Count,
    },
];

/// What each thread has of the job.
struct Plan {
    seed: u64,
    threads: usize,
    record_bytes: usize,
    laps: u64,
}

impl Plan {
    fn of(job: &Job) -> Result<Self, LoadError> {
        let record_bytes = job.params.at_least_one("record")?;
        if !record_bytes.is_multiple_of(32) {
            let refused = format!("record={record_bytes}: give a multiple of 32");
            return Err(LoadError::usage(refused));
        }
        let laps = job.params.at_least_one("laps")? as u64;
        Ok(Self { seed: job.seed, threads: job.threads, record_bytes, laps })
    }

    fn file_bytes(&self) -> u64 {
        (self.laps * self.threads as u64 * self.record_bytes as u64).next_multiple_of(PAGE_BYTES)
    }

    fn offset(&self, thread: usize, number: u64) -> u64 {
        (number % self.laps * self.threads as u64 + thread as u64) * self.record_bytes as u64
    }

    fn content(&self, thread: usize, number: u64) -> Content {
        Content::new(self.seed, thread, number % self.laps, number)
    }
}

/// A file in which records become durable.
trait Log: Sync {
    /// Returns when `record` is durable.
    fn commit(&self, record: &[u8], offset: u64) -> io::Result<()>;

    /// Flushes so far, where `commits` have been made.
    fn flushes(&self, commits: u64) -> u64;
}

struct Cached {
    cache: Cache,
    file: File,
    before: Stats,
    by_range: bool,
}

impl Log for KernelFile {
    fn commit(&self, record: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(record, offset)?;
        self.sync()
    }

    fn flushes(&self, commits: u64) -> u64 {
        commits
    }
}

impl Log for Cached {
    fn commit(&self, record: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(record, offset)?;
        let end = offset + record.len() as u64;
        let synced =
            if self.by_range { self.file.sync_range(offset..end) } else { self.file.sync_all() };
        Ok(synced?)
    }

    fn flushes(&self, _commits: u64) -> u64 {
        self.cache.stats().since(&self.before).flushes
    }
}

impl Workload for Commit {
    fn describe(&self) -> Description {
        use Better::{Higher, Lower, Neither};
        let mut metrics = vec![
            Metric::new("commits_per_s", Higher, "records made durable in a second"),
            Metric::new("flushes_per_commit", Lower, "flushes of the device for one record"),
            Metric::new("cpu_us_per_commit", Lower, "the process's CPU time for one record"),
            Metric::new("planted_s", Neither, "CPU time burned on purpose"),
        ];
        let latencies = Latencies::default().metrics("commit").into_iter();
        metrics.extend(latencies.map(|(name, _)| Metric::new(name, Lower, "a write and its sync")));
        Description {
            name: "commit",
            about: "T threads write a record each and make it durable, again and again",
            primary: vec!["commits_per_s".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics,
            uses_dir: true,
            default_threads: 32,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let plan = Plan::of(job)?;
        let by_range = match job.with.as_str() {
            "kernel" => None,
            "unherd" => Some(false),
            "unherd-range" => Some(true),
            _ => return Err(job.unknown_impl(&self.describe())),
        };
        check_space(job.dir()?, plan.file_bytes())?;
        let dir = ScratchDir::create(job.dir()?, "commit")?;
        let path = dir.file(0);
        let failed = |source: io::Error| LoadError::Open { path: path.clone(), source };
        let file = KernelFile::create(&path, Way::Buffered).map_err(failed)?;
        let filled = file.write_at(&vec![0; plan.file_bytes() as usize], 0);
        filled.and_then(|()| file.sync()).map_err(failed)?;
        match by_range {
            None => commit(job, &plan, &path, file),
            Some(by_range) => {
                file.forget().map_err(failed)?;
                drop(file);
                let cached = Cached::open(&plan, &path, by_range);
                let named = |message| LoadError::Setup { name: job.with.clone(), message };
                commit(job, &plan, &path, cached.map_err(named)?)
            }
        }
    }
}

impl Cached {
    fn open(plan: &Plan, path: &Path, by_range: bool) -> Result<Self, String> {
        let capacity = (2 * plan.file_bytes()).max(16 << 20) as usize;
        let cache = Cache::builder().capacity(capacity).page_size(PAGE_BYTES as usize);
        let cache = cache.build().map_err(|error| error.to_string())?;
        let file = cache.open(path, OpenOptions::new().write(true));
        let file = file.map_err(|error| error.to_string())?;
        let before = cache.stats();
        Ok(Self { cache, file, before, by_range })
    }
}

fn failed(doing: &'static str, error: &io::Error) -> LoadError {
    LoadError::File { doing, file: 0, message: error.to_string() }
}

/// What a thread has done.
struct Done {
    commits: u64,
    latencies: Latencies,
}

fn commit(job: &Job, plan: &Plan, path: &Path, log: impl Log) -> Result<Round, LoadError> {
    let waits_before = Ledger::snapshot();
    let budget_ms = job.params.at_least_one("ms")? as u64;
    let (done, span) = work_for(job, budget_ms, |thread, region| {
        let mut record = vec![0; plan.record_bytes];
        let (mut commits, mut latencies) = (0, Latencies::default());
        region.begin();
        // One at least, so that there is something to judge.
        while commits == 0 || !region.is_over() {
            plan.content(thread, commits).fill(&mut record);
            let began = Timestamp::now();
            let offset = plan.offset(thread, commits);
            log.commit(&record, offset).map_err(|error| failed("committing to", &error))?;
            latencies.end(began);
            commits += 1;
        }
        Ok::<_, LoadError>(Done { commits, latencies })
    })?;
    let waits = Ledger::snapshot().since(&waits_before);
    let (mut latencies, mut each) = (Latencies::default(), Vec::new());
    for done in done {
        let Done { commits, latencies: own } = done?;
        latencies.append(own);
        each.push(commits);
    }
    let commits = each.iter().sum::<u64>();
    let flushes = log.flushes(commits);
    drop(log);
    verify(plan, path, &each)?;
    let mut metrics = vec![
        ("commits_per_s".to_owned(), commits as f64 / span.elapsed_s),
        ("flushes_per_commit".to_owned(), flushes as f64 / commits as f64),
        ("cpu_us_per_commit".to_owned(), span.cpu_s * 1e6 / commits as f64),
        ("planted_s".to_owned(), span.planted_s),
    ];
    metrics.extend(latencies.metrics("commit"));
    Ok(Round { check: mix_all(&[job.seed, plan.file_bytes()]), metrics, waits })
}

/// Reads the last records of each thread, which has made that many commits.
fn verify(plan: &Plan, path: &Path, commits: &[u64]) -> Result<(), LoadError> {
    let opened = KernelFile::open(path, Way::Buffered);
    let file = opened.map_err(|source| LoadError::Open { path: path.into(), source })?;
    let mut record = vec![0; plan.record_bytes];
    for (thread, &commits) in commits.iter().enumerate() {
        for number in commits.saturating_sub(plan.laps)..commits {
            let offset = plan.offset(thread, number);
            file.read_at(&mut record, offset).map_err(|error| failed("reading", &error))?;
            let content = plan.content(thread, number);
            content.verify(&record).map_err(|mismatch| mismatch.in_file(0, offset))?;
        }
    }
    Ok(())
}
