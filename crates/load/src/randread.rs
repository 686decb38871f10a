//! `randread`: threads read single pages of a file at random places, and almost all of them miss.
//!
//! What a miss costs has three parts: the *I/O* itself, a *sleep and wake*, since the thread must
//! wait for it, and what is left, which is the *cache's*. The first two are measured in each round,
//! after the reads, without any cache: one thread that has many reads under way, and as many
//! threads as the round has that wake each other in groups. Their sum is the floor.

mod plan;
mod scene;
mod sleep;
mod sources;

use crate::files::{CacheIo, Way};
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

use plan::Plan;

/// The workload `randread` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct RandRead;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "pread through the kernel's page cache" },
    Impl {
        name: "kernel-dontcache",
        about: "preadv2 with RWF_DONTCACHE: the page cache keeps nothing (Linux 6.14)",
    },
    Impl { name: "kernel-direct", about: "direct reads, and no cache" },
    Impl {
        name: "floor-memory",
        about: "direct reads round through as much memory as a cache has, and a copy of each",
    },
    Impl { name: "unherd", about: "the page cache of unherd, its I/O by io_uring" },
    Impl { name: "unherd-aio", about: "the same without io_uring, by io_submit(2)" },
    Impl { name: "unherd-blocking", about: "the same; each thread makes its own blocking reads" },
];

impl Workload for RandRead {
    fn describe(&self) -> Description {
        Description {
            name: "randread",
            about: "T threads read 4 KiB each time at random places of a file beyond the memory",
            primary: vec!["mb_per_s".to_owned(), "cpu_us_per_read".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "kernel-direct", "unherd"],
            params: PARAMS.to_vec(),
            metrics: metrics(),
            uses_dir: true,
            uses_memory: true,
            kernel_work: true,
            default_threads: 64,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let plan = Plan::of(job)?;
        match job.with.as_str() {
            "kernel" => sources::run_kernel(job, &plan, Way::Buffered),
            "kernel-dontcache" => sources::run_kernel(job, &plan, Way::DontCache),
            "kernel-direct" => sources::run_kernel(job, &plan, Way::Direct),
            "floor-memory" => sources::run_floor_memory(job, &plan),
            "unherd" => sources::run_cached(job, &plan, CacheIo::IoUring),
            "unherd-aio" => sources::run_cached(job, &plan, CacheIo::Aio),
            "unherd-blocking" => sources::run_cached(job, &plan, CacheIo::Blocking),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

const PARAMS: &[Param] = &[
    Param {
        name: "reads",
        about: "reads of all threads together",
        default: "32768",
        kind: Kind::Count,
    },
    Param {
        name: "file",
        about: "bytes of the file; auto: 5 x --memory",
        default: "auto",
        kind: Kind::Size,
    },
];

fn metrics() -> Vec<Metric> {
    use Better::{Higher, Lower, Neither};
    [
        ("reads", Neither, "reads of all threads"),
        ("s", Lower, "the reads on the clock"),
        ("mb_per_s", Higher, "megabytes (2^20 bytes) in a second"),
        ("cpu_us_per_read", Lower, "CPU time that counts: the process's and kernel threads'"),
        ("user_us_per_read", Lower, "the process's user time of it"),
        ("device_ratio", Lower, "bytes read from the device for each byte asked for"),
        ("io_us_per_read", Neither, "of the CPU time, I/O: as one thread with 64 reads under way"),
        ("sleep_wake_us_per_read", Neither, "of it, a sleep and wake: as threads that wake others"),
        ("cache_us_per_read", Lower, "of it, the rest: what the cache costs beside these two"),
        ("x_floor", Lower, "the CPU time as a multiple of I/O and a sleep and wake"),
        ("context_switches_per_read", Lower, "voluntary ones of the process"),
        ("wakeups_per_read", Lower, "returns from sleep in the wait table; not for the kernel's"),
        ("needless_wakeups", Lower, "returns from sleep that found nothing; likewise"),
        ("latency_us_p50", Lower, "a read: half of all took less"),
        ("latency_us_p99", Lower, "a read: 99 of 100 took less"),
        ("latency_us_max", Lower, "the longest read"),
        ("setup_s", Lower, "making the cache, which takes all its memory from the kernel"),
        ("setup_cpu_s", Lower, "CPU time of that"),
        ("planted_s", Neither, "CPU time burned on purpose"),
    ]
    .map(|(name, better, about)| Metric::new(name, better, about))
    .into()
}

#[cfg(test)]
mod tests;
