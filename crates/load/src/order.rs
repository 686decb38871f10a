//! `order`: one or more threads read the pages of a file in an order that is not 0, 1, 2.
//!
//! The orders are those in which storage engines meet their pages: the leaves of a tree, a column
//! of each row, a scan from the end, many scans at once, and a scan half of whose pages are cached
//! already. An implementation that knows what comes next has several reads under way; one that does
//! not waits for the device at each page.

mod plan;
mod scene;
mod sources;

use crate::files::{CacheIo, Way};
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

use plan::Plan;
use sources::Readahead;

/// The workload `order` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct Order;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "pread of each page through the kernel's page cache" },
    Impl {
        name: "kernel-direct",
        about: "direct reads by io_uring, --depth of them under way in that order: the ceiling",
    },
    Impl { name: "unherd", about: "read_at of each page by the cache of unherd, with io_uring" },
    Impl { name: "unherd-aio", about: "the same without io_uring, by io_submit(2)" },
    Impl { name: "unherd-blocking", about: "the same; each thread makes its own blocking reads" },
    Impl { name: "unherd-noreadahead", about: "as unherd, without readahead" },
    Impl { name: "unherd-stream", about: "File::stream, which is told the order; in place" },
];

impl Workload for Order {
    fn describe(&self) -> Description {
        Description {
            name: "order",
            about: "T threads read pages in the order of a tree, strided, backward or mixed",
            primary: vec!["mb_per_s".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "kernel-direct", "unherd"],
            params: PARAMS.to_vec(),
            metrics: metrics(),
            uses_dir: true,
            uses_memory: true,
            kernel_work: true,
            default_threads: 1,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let plan = Plan::of(job)?;
        match job.with.as_str() {
            "kernel" => sources::run_kernel(job, &plan, Way::Buffered),
            "kernel-direct" => sources::run_queued(job, &plan),
            "unherd" => sources::run_cached(job, &plan, CacheIo::IoUring, Readahead::On),
            "unherd-aio" => sources::run_cached(job, &plan, CacheIo::Aio, Readahead::On),
            "unherd-blocking" => sources::run_cached(job, &plan, CacheIo::Blocking, Readahead::On),
            "unherd-noreadahead" => {
                sources::run_cached(job, &plan, CacheIo::IoUring, Readahead::Off)
            }
            "unherd-stream" => sources::run_stream(job, &plan, CacheIo::IoUring),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

const PARAMS: &[Param] = &[
    Param {
        name: "pattern",
        about: "tree, strided (each 4th page), backward, interleaved (16 streams) or alternating",
        default: "tree",
        kind: Kind::Text,
    },
    Param {
        name: "depth",
        about: "reads that kernel-direct has under way in each thread",
        default: "32",
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
        ("mb", Neither, "megabytes (2^20 bytes) that the threads asked for"),
        ("s", Lower, "the reads on the clock"),
        ("mb_per_s", Higher, "megabytes in a second"),
        ("cpu_us_per_page", Lower, "CPU time that counts: the process's and kernel threads'"),
        ("user_us_per_page", Lower, "the process's user time of it"),
        ("device_ratio", Lower, "bytes read from the device for each byte that was not cached"),
        ("wasted_pct", Lower, "of the pages read, those read ahead and not used; not for kernel's"),
        ("context_switches_per_page", Lower, "voluntary ones of the process"),
        ("latency_us_max", Lower, "the longest wait for a page; not for kernel-direct"),
        ("setup_s", Lower, "making the cache, which takes all its memory from the kernel"),
        ("setup_cpu_s", Lower, "CPU time of that"),
        ("planted_s", Neither, "CPU time burned on purpose"),
    ]
    .map(|(name, better, about)| Metric::new(name, better, about))
    .into()
}

#[cfg(test)]
mod tests;
