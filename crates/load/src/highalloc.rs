//! `highalloc`: a thread asks for memory in one piece, again and again, from a cache that others
//! fill and dirty (stress-highalloc in M. Gorman's report of 26 August 2010).
//!
//! Three passes of the same number of attempts: under load, under load again, and at rest, when
//! the load has ended and the cache is as it left it. The load is a writer and readers on a file
//! beyond the memory. Pieces are filled when they come, and compared when they go; a few are kept
//! at a time.

mod pieces;
mod scene;

use std::io;
use std::path::Path;

use unherd::{Cache, File, OpenOptions, PageNo};

use crate::congestion::Latencies;
use crate::files::{KernelFile, MixedFile, PAGE_BYTES, Way, capacity_bytes, check_space};
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};
use pieces::{HUGE_BYTES, HugePages};
use scene::{PASSES, Plan};

/// The workload `highalloc`.
#[derive(Debug, Clone, Copy)]
pub struct HighAlloc;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "huge pages, beside a file in the kernel's page cache" },
    Impl { name: "unherd", about: "frames of the cache that the file is in" },
    Impl { name: "unherd-pin", about: "the same, where readers pin each page while they copy it" },
];

const PARAMS: &[Param] = &[
    Param { name: "piece", about: "bytes of a piece", default: "2M", kind: Kind::Size },
    Param { name: "attempts", about: "attempts of a pass", default: "100", kind: Kind::Count },
    Param {
        name: "kept",
        about: "bytes that are kept at a time; auto: a sixteenth of --memory",
        default: "auto",
        kind: Kind::Size,
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

/// The thread that asks, the writer and a reader.
const THREADS_MIN: usize = 3;

impl Workload for HighAlloc {
    fn describe(&self) -> Description {
        use Better::{Higher, Lower, Neither};
        let mut metrics = Vec::new();
        for pass in PASSES {
            metrics.push(Metric::new(
                format!("{pass}_success_pct"),
                Higher,
                "attempts that gave a piece",
            ));
            let latencies = Latencies::default().metrics(pass).into_iter();
            metrics.extend(latencies.map(|(name, _)| Metric::new(name, Lower, "an attempt")));
        }
        metrics.extend([
            Metric::new("evictions_per_piece", Lower, "pages given up for a piece"),
            Metric::new("write_backs_per_piece", Lower, "dirty pages written back for a piece"),
            Metric::new("reads_per_s", Higher, "pages of the file, under load"),
            Metric::new("writes_per_s", Higher, "pages of the file, under load"),
            Metric::new("cpu_s", Lower, "the process's and kernel threads' CPU time, under load"),
            Metric::new("s", Lower, "the passes under load on the clock"),
            Metric::new("planted_s", Neither, "CPU time burned on purpose"),
        ]);
        Description {
            name: "highalloc",
            about: "one of T threads asks for memory in one piece while others fill the cache",
            primary: PASSES.map(|pass| format!("{pass}_success_pct")).to_vec(),
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics,
            uses_dir: true,
            uses_memory: true,
            kernel_work: true,
            default_threads: 4,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let plan = plan(job)?;
        let failed = |error: &dyn std::fmt::Display| LoadError::Setup {
            name: job.with.clone(),
            message: error.to_string(),
        };
        match job.with.as_str() {
            "kernel" => {
                if plan.piece_bytes != HUGE_BYTES {
                    let piece = plan.piece_bytes;
                    return Err(LoadError::usage(format!("piece={piece}: the kernel has 2M")));
                }
                let memory = HugePages::new().ok_or_else(|| {
                    failed(&"no transparent huge pages: see /sys/kernel/mm/transparent_hugepage")
                })?;
                scene::run(job, &plan, &memory, |path| {
                    KernelFile::open_to_write(path, Way::Buffered)
                        .map_err(|source| LoadError::Open { path: path.into(), source })
                })
            }
            "unherd" | "unherd-pin" => {
                // The asker's buffer, and what the writer knows of its pages.
                let own_bytes = plan.piece_bytes + plan.pages as usize / 2;
                let own_bytes = own_bytes / job.threads + PAGE_BYTES as usize;
                let capacity = capacity_bytes(job.memory_bytes()?, job.threads, own_bytes)?;
                let cache = Cache::builder().capacity(capacity).page_size(PAGE_BYTES as usize);
                let cache = cache.build().map_err(|error| failed(&error))?;
                let open = |path: &Path| {
                    cache.open(path, OpenOptions::new().write(true)).map_err(|error| failed(&error))
                };
                if job.with == "unherd" {
                    scene::run(job, &plan, &cache, open)
                } else {
                    scene::run(job, &plan, &cache, |path| open(path).map(PinnedReads))
                }
            }
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// A file whose pages are pinned while they are copied.
struct PinnedReads(File);

impl MixedFile for PinnedReads {
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        bytes.copy_from_slice(&self.0.page(PageNo(offset / PAGE_BYTES))?);
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        MixedFile::write(&self.0, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        MixedFile::sync(&self.0)
    }
}

/// Looks at the directory and its free space, and writes nothing.
fn plan(job: &Job) -> Result<Plan, LoadError> {
    if job.threads < THREADS_MIN {
        let threads = job.threads;
        return Err(LoadError::usage(format!("{threads} threads: give at least {THREADS_MIN}")));
    }
    let memory_bytes = job.memory_bytes()?;
    let bytes = |name, auto| Ok(job.params.number(name)?.unwrap_or(auto));
    let piece_bytes = job.params.at_least_one("piece")?;
    if !piece_bytes.is_power_of_two() || piece_bytes < PAGE_BYTES as usize {
        return Err(LoadError::usage(format!(
            "piece={piece_bytes}: give a power of two, and at least {PAGE_BYTES}"
        )));
    }
    let file_bytes = bytes("file", memory_bytes.saturating_mul(TIMES_MEMORY))?;
    let pages = file_bytes / PAGE_BYTES;
    if pages < scene::PAGES_MIN {
        let least = scene::PAGES_MIN * PAGE_BYTES;
        return Err(LoadError::usage(format!("file={file_bytes}: give at least {least}")));
    }
    check_space(job.dir()?, file_bytes)?;
    let kept_bytes = bytes("kept", memory_bytes / 16)?;
    Ok(Plan {
        seed: job.seed,
        pages,
        warm_up: pages.min(memory_bytes / PAGE_BYTES),
        piece_bytes,
        kept: (kept_bytes as usize / piece_bytes).max(1),
        attempts: job.params.at_least_one("attempts")?,
    })
}
