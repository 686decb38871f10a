//! `mix`: threads run transactions of reads and writes on a file beyond the memory, as sysbench's
//! test of reads and writes does on a database (M. Gorman's report of 26 August 2010).
//!
//! A transaction is ten reads of a record, one read of four pages in a row, and two updates: a
//! record is read, and its next version written. Of ten accesses eight go to a twentieth of the
//! pages, which is a quarter of the memory. A page has a record of each thread, which only that
//! thread updates; so threads share pages, and each knows what must stand in its records. There is
//! no log and no sync in a transaction (`commit` is about these); when its transactions are done,
//! each thread syncs the file. Transactions before the timing fill the memory.

mod scene;

use unherd::{Cache, OpenOptions};

use crate::congestion::Latencies;
use crate::files::{KernelFile, PAGE_BYTES, Way, capacity_bytes, check_space};
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};
use scene::{Plan, RECORDS};

/// The workload `mix`.
#[derive(Debug, Clone, Copy)]
pub struct Mix;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "pread and pwrite through the kernel's page cache" },
    Impl { name: "unherd", about: "the page cache of unherd, with the same memory" },
];

const PARAMS: &[Param] = &[
    Param {
        name: "transactions",
        about: "transactions of all threads together, after the warm-up",
        default: "8192",
        kind: Kind::Count,
    },
    Param {
        name: "file",
        about: "bytes of the file; auto: 5 x --memory",
        default: "auto",
        kind: Kind::Size,
    },
];

/// The file is this many times the memory.
const TIMES_MEMORY: u64 = 5;

/// The warm-up has a transaction for this many pages of the file: with the default one, as many as
/// fill the memory.
const PAGES_OF_WARM_UP: u64 = 20;

impl Workload for Mix {
    fn describe(&self) -> Description {
        use Better::{Higher, Lower, Neither};
        let mut metrics = vec![
            Metric::new("transactions_per_s", Higher, "transactions in a second, and the sync"),
            Metric::new(
                "cpu_us_per_transaction",
                Lower,
                "the process's and kernel threads' CPU time",
            ),
            Metric::new("user_us_per_transaction", Lower, "the process's user time of it"),
            Metric::new("switches_per_transaction", Lower, "voluntary ones of the process"),
            Metric::new("s", Lower, "all of it on the clock"),
            Metric::new("planted_s", Neither, "CPU time burned on purpose"),
        ];
        let latencies = Latencies::default().metrics("transaction").into_iter();
        metrics.extend(latencies.map(|(name, _)| Metric::new(name, Lower, "a transaction")));
        Description {
            name: "mix",
            about: "T threads run transactions of reads and writes on a file beyond the memory",
            primary: vec!["transactions_per_s".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics,
            uses_dir: true,
            uses_memory: true,
            kernel_work: true,
            default_threads: 8,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let plan = plan(job)?;
        match job.with.as_str() {
            "kernel" => scene::run(job, &plan, |path| {
                KernelFile::open_to_write(path, Way::Buffered)
                    .map_err(|source| LoadError::Open { path: path.into(), source })
            }),
            "unherd" => {
                let capacity = plan.capacity_bytes(job.memory_bytes()?)?;
                let failed = |error: &dyn std::fmt::Display| LoadError::Setup {
                    name: job.with.clone(),
                    message: error.to_string(),
                };
                let cache = Cache::builder().capacity(capacity).page_size(PAGE_BYTES as usize);
                let cache = cache.build().map_err(|error| failed(&error))?;
                scene::run(job, &plan, |path| {
                    cache.open(path, OpenOptions::new().write(true)).map_err(|error| failed(&error))
                })
            }
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// Looks at the directory and its free space, and writes nothing.
fn plan(job: &Job) -> Result<Plan, LoadError> {
    if job.threads > RECORDS {
        let threads = job.threads;
        return Err(LoadError::usage(format!("{threads} threads: there may be {RECORDS}")));
    }
    let file = job.params.number("file")?;
    let file_bytes = file
        .map_or_else(|| job.memory_bytes().map(|memory| memory.saturating_mul(TIMES_MEMORY)), Ok)?;
    let pages = file_bytes / PAGE_BYTES;
    if pages < scene::PAGES_MIN {
        let least = scene::PAGES_MIN * PAGE_BYTES;
        return Err(LoadError::usage(format!("file={file_bytes}: give at least {least}")));
    }
    check_space(job.dir()?, file_bytes)?;
    Ok(Plan {
        seed: job.seed,
        threads: job.threads,
        pages,
        transactions: job.params.at_least_one("transactions")?.div_ceil(job.threads),
        warm_up: (pages / PAGES_OF_WARM_UP).div_ceil(job.threads as u64) as usize,
    })
}

impl Plan {
    /// What a cache may hold beside what the threads need.
    fn capacity_bytes(&self, memory_bytes: u64) -> Result<usize, LoadError> {
        capacity_bytes(memory_bytes, self.threads, scene::RANGE_BYTES + self.pages as usize)
    }
}
