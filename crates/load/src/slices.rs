//! `slices`: threads read one large file, each a slice of its own, in order.
//!
//! This is the test of report 003: the file is five times the memory, so the cache is full of it
//! and every page that comes in takes the place of another. What the report found is that
//! bandwidth had a knee between 4 and 8 threads at every block size, as readers and reclaim fought
//! for the lock of the file's page tree. A second pass reads a part that fits in memory: there a
//! knee that reclaim causes should fade.
//!
//! A page that is read is compared with what it must be: two of its words, or all of it.

mod before;
mod cached;
mod kernel;
mod plan;
mod scene;

use unherd::Advice;

use crate::files::{CacheIo, Way};
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

use cached::{Reads, USUAL, Variant};
use kernel::{Buffers, Source};
use plan::Plan;

/// The workload `slices` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct Slices;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "pread through the kernel's page cache" },
    Impl {
        name: "kernel-dontcache",
        about: "preadv2 with RWF_DONTCACHE: the page cache keeps nothing (Linux 6.14)",
    },
    Impl { name: "kernel-direct", about: "direct reads of the block, and no cache: the ceiling" },
    Impl {
        name: "floor",
        about: "direct reads of 1 MiB, or of the block if it is larger, and one copy to blocks",
    },
    Impl {
        name: "floor-memory",
        about: "as floor, but each read goes to other memory, round through as much as a cache has",
    },
    Impl { name: "before", about: "a page table with one lock for the file, as in the report" },
    Impl { name: "unherd", about: "the page cache of unherd, its I/O by io_uring; copies out" },
    Impl { name: "unherd-aio", about: "the same without io_uring, by io_submit(2)" },
    Impl { name: "unherd-blocking", about: "the same; each thread makes its own blocking reads" },
    Impl { name: "unherd-nocopy", about: "as unherd, but pages are pinned and read in place" },
    Impl {
        name: "unherd-uncached",
        about: "as unherd, by reads that keep nothing (read_uncached_at)",
    },
    Impl { name: "unherd-noreadahead", about: "as unherd, without readahead" },
    Impl { name: "unherd-noreuse", about: "as unherd, which is told that pages are read once" },
    Impl { name: "unherd-64k", about: "as unherd, with pages of 64 KiB in place of 4 KiB" },
    Impl { name: "unherd-64k-noreuse", about: "as unherd-64k, told that pages are read once" },
    Impl { name: "unherd-aio-64k-noreuse", about: "as unherd-64k-noreuse, without io_uring" },
];

const AIO: Variant = Variant { io: CacheIo::Aio, ..USUAL };

fn read_once(variant: Variant) -> Variant {
    Variant { advice: Advice::NoReuse, ..variant }
}

fn large_pages(variant: Variant) -> Variant {
    Variant { page_bytes: 64 << 10, ..variant }
}

impl Workload for Slices {
    fn describe(&self) -> Description {
        Description {
            name: "slices",
            about: "T threads read a slice each of a file that is five times the memory",
            primary: vec!["cold_mb_per_s".to_owned(), "cold_mb_per_cpusec".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics: metrics(),
            uses_dir: true,
            uses_memory: true,
            kernel_work: true,
            default_threads: 32,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let plan = Plan::of(job)?;
        match job.with.as_str() {
            "kernel" => kernel::run(job, &plan, Source::Blocks(Way::Buffered)),
            "kernel-dontcache" => kernel::run(job, &plan, Source::Blocks(Way::DontCache)),
            "kernel-direct" => kernel::run(job, &plan, Source::Blocks(Way::Direct)),
            "floor" => kernel::run(job, &plan, Source::LargeDirect(Buffers::One)),
            "floor-memory" => kernel::run(job, &plan, Source::LargeDirect(Buffers::OfAllMemory)),
            "before" => before::run(job, &plan),
            "unherd" => cached::run(job, &plan, USUAL),
            "unherd-aio" => cached::run(job, &plan, AIO),
            "unherd-blocking" => {
                cached::run(job, &plan, Variant { io: CacheIo::Blocking, ..USUAL })
            }
            "unherd-nocopy" => cached::run(job, &plan, Variant { reads: Reads::InPlace, ..USUAL }),
            "unherd-uncached" => {
                cached::run(job, &plan, Variant { reads: Reads::Uncached, ..USUAL })
            }
            "unherd-noreadahead" => {
                cached::run(job, &plan, Variant { advice: Advice::Random, ..USUAL })
            }
            "unherd-noreuse" => cached::run(job, &plan, read_once(USUAL)),
            "unherd-64k" => cached::run(job, &plan, large_pages(USUAL)),
            "unherd-64k-noreuse" => cached::run(job, &plan, large_pages(read_once(USUAL))),
            "unherd-aio-64k-noreuse" => cached::run(job, &plan, large_pages(read_once(AIO))),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

const PARAMS: &[Param] = &[
    Param {
        name: "block",
        about: "bytes of one read, a power of two from 4K on; all threads' in a quarter of memory",
        default: "256K",
        kind: Kind::Size,
    },
    Param {
        name: "file",
        about: "bytes of the file; auto: 5 x --memory",
        default: "auto",
        kind: Kind::Size,
    },
    Param {
        name: "verify",
        about: "stamp: two words of each page are compared; full: all of it",
        default: "stamp",
        kind: Kind::Text,
    },
];

fn metrics() -> Vec<Metric> {
    use Better::{Higher, Lower, Neither};
    let phase = |phase: &&str| {
        [
            ("mb", Neither, "megabytes (2^20 bytes) read"),
            ("s", Lower, "the pass on the clock"),
            ("count", Neither, "blocks read"),
            ("av_time_s", Lower, "a thread's time for its slice, on average"),
            ("mb_per_s", Higher, "megabytes in a second"),
            ("user_pct", Lower, "the process's user time, in percent of one CPU"),
            ("sys_pct", Lower, "the rest of the CPU time that counts, in percent of one CPU"),
            ("intr_pct", Lower, "the machine's time in interrupts, in percent of one CPU"),
            ("cpu_s", Lower, "CPU time that counts: the process's and that of kernel threads"),
            ("cpu_s_per_gb", Lower, "the same for 2^30 bytes"),
            ("mb_per_cpusec", Higher, "megabytes in a second of CPU time that counts"),
            ("device_ratio", Lower, "bytes read from the device for each byte asked for"),
            ("context_switches_per_op", Lower, "voluntary ones of the process, for a block"),
            ("latency_us_max", Lower, "the longest read of a block"),
            ("planted_s", Neither, "CPU time burned on purpose"),
        ]
        .map(|(name, better, about)| Metric::new(format!("{phase}_{name}"), better, about))
    };
    let setup = [
        ("setup_s", "making the cache, which takes all its memory from the kernel; in no pass"),
        ("setup_cpu_s", "CPU time of that"),
    ];
    let setup = setup.map(|(name, about)| Metric::new(name, Lower, about));
    setup.into_iter().chain(scene::PASSES.iter().flat_map(phase)).collect()
}

#[cfg(test)]
mod tests;
