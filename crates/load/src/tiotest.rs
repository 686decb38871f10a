//! `tiotest`: many threads, each with a file of its own, write and read it in four phases.
//!
//! This is the benchmark of report 000: sequential write, random write, sequential read and random
//! read in blocks of 4 KiB, and writing ends with a sync inside the timing. It differs from tiotest
//! in what a result needs to be believed: contents are pseudo-random and verified while they are
//! read, starting the threads and opening the files is not timed, and CPU time is the process's and
//! the kernel threads', as the kernel writes back in threads of its own. Making a cache is timed by
//! itself, and in no phase: its memory is taken once, however long the phases are.
//!
//! Between the phases nothing is dropped from any cache. The file set is five times the memory, so
//! what is left of one phase is at most a fifth of the next one's work, and it is left for all
//! implementations alike.

mod cached;
mod direct;
mod kernel;
mod phases;
mod plan;

use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

use crate::files::{CacheIo, QueuedWrites, Way};
use cached::Filter;
use plan::Plan;

/// The workload `tiotest` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct TioTest;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "pread, pwrite and fdatasync through the kernel's page cache" },
    Impl {
        name: "kernel-dontcache",
        about: "the same calls with RWF_DONTCACHE: its page cache keeps nothing (Linux 6.14)",
    },
    Impl {
        name: "kernel-direct",
        about: "direct I/O, no cache: the floor of sequential phases, a transfer a block in others",
    },
    Impl {
        name: "floor",
        about: "the same; random writes are kept until the sync, and go sorted through one ring",
    },
    Impl { name: "unherd", about: "the page cache of unherd, direct I/O below" },
    Impl { name: "unherd-aio", about: "the same without io_uring, by io_submit(2)" },
    Impl {
        name: "unherd-nofilter",
        about: "the same cache, but the end of a page's read or write wakes all of its queue",
    },
];

impl Workload for TioTest {
    fn describe(&self) -> Description {
        Description {
            name: "tiotest",
            about: "T threads write, rewrite at random, read and read at random a file each",
            primary: phases::NAMES.iter().map(|phase| format!("{phase}_mb_per_cpusec")).collect(),
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics: metrics(),
            uses_dir: true,
            uses_memory: true,
            kernel_work: true,
            default_threads: 512,
            counts_as_exercised: Some("wakeups"),
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let plan = Plan::of(job)?;
        let setup = |error: std::io::Error| LoadError::Setup {
            name: job.with.clone(),
            message: error.to_string(),
        };
        match job.with.as_str() {
            "kernel" => kernel::run(job, &plan, Way::Buffered),
            "kernel-dontcache" => kernel::run(job, &plan, Way::DontCache),
            "kernel-direct" => direct::run(job, &plan, None),
            "floor" => direct::run(job, &plan, Some(&QueuedWrites::new().map_err(setup)?)),
            "unherd" => cached::run(job, &plan, Filter::ByKey, CacheIo::IoUring),
            "unherd-aio" => cached::run(job, &plan, Filter::ByKey, CacheIo::Aio),
            "unherd-nofilter" => cached::run(job, &plan, Filter::Nothing, CacheIo::IoUring),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

const PARAMS: &[Param] = &[
    Param {
        name: "scale",
        about: "memory: the file set is 5 x --memory; report: 16384 MB and 2000 MB, as report 000",
        default: "memory",
        kind: Kind::Text,
    },
    Param {
        name: "total",
        about: "bytes of all files together; auto: as scale says",
        default: "auto",
        kind: Kind::Size,
    },
    Param {
        name: "random",
        about: "bytes of each random phase; auto: 2000/16384 of the total, as in report 000",
        default: "auto",
        kind: Kind::Size,
    },
    Param {
        name: "block",
        about: "bytes of one read or write, a power of two; all threads' in a quarter of memory",
        default: "4096",
        kind: Kind::Size,
    },
    Param {
        name: "page",
        about: "bytes of a page of the cache",
        default: "4096",
        kind: Kind::Size,
    },
    Param {
        name: "wait-queues",
        about: "queues of the cache's wait table; auto: one per 256 pages of memory, 4 to 4096",
        default: "auto",
        kind: Kind::Count,
    },
];

fn metrics() -> Vec<Metric> {
    use Better::{Higher, Lower, Neither};
    let phase = |phase: &&str| {
        [
            ("mb", Neither, "megabytes (2^20 bytes) moved"),
            ("s", Lower, "the phase on the clock, with its sync"),
            ("mb_per_s", Higher, "megabytes in a second"),
            ("user_pct", Lower, "the process's user time, in percent of one CPU"),
            ("sys_pct", Lower, "the rest of the CPU time that counts, in percent of one CPU"),
            ("cpu_s", Lower, "CPU time that counts: the process's and that of kernel threads"),
            ("mb_per_cpusec", Higher, "megabytes in a second of CPU time that counts"),
            ("process_cpu_s", Lower, "CPU time of the process alone"),
            ("context_switches", Lower, "voluntary ones of the process, less the workload's own"),
            ("context_switches_per_op", Lower, "the same for one read or write"),
            ("wakeups_per_op", Lower, "returns from sleep in the wait table; not for kernel"),
            ("needless_wakeups", Lower, "returns from sleep that found nothing; not for kernel"),
            ("latency_us_max", Lower, "the longest read or write"),
            ("planted_s", Neither, "CPU time burned on purpose"),
        ]
        .map(|(name, better, about)| Metric::new(format!("{phase}_{name}"), better, about))
    };
    let setup = [
        ("setup_s", "making the cache, which takes all its memory from the kernel; in no phase"),
        ("setup_cpu_s", "CPU time of that"),
    ];
    let setup = setup.map(|(name, about)| Metric::new(name, Lower, about));
    setup.into_iter().chain(phases::NAMES.iter().flat_map(phase)).collect()
}

#[cfg(test)]
mod tests;
