//! `pressure`: writers, readers, threads that ask for frames and one that must not wait, on a pool
//! of frames above a device that is slower than they are.
//!
//! The pool does what Linux did in 2010 (M. Gorman's report of 26 August 2010): a writer waits
//! while too many frames are dirty, a thread that finds no free frame *reclaims* one by itself
//! (direct), and a background thread does it for all. Reclaim looks at a few of the oldest frames,
//! which may all be dirty; after some looks in vain it naps in the hope that the device gets on.
//! The implementations are what such a nap is: the modes of a [`Gate`](unherd::Gate), which is
//! congested while too many frames are dirty. So a nap is needless where the next look could have
//! found a clean frame.
//!
//! Three devices: `fast` (simulated, 400 MB/s, stalls for 150 ms in each 600 ms), `steady`
//! (simulated, 60 MB/s), and `real`: direct I/O on a file below `--dir`.
//!
//! The writers' pages and the askers' requests are fixed, and the round ends when all are done.
//! Readers and the interactive thread go on until then.

mod device;
mod pool;
mod scene;

use crate::congestion::{self, Latencies};
use crate::{Better, Description, Job, Kind, LoadError, Metric, Param, Round, Workload};
use device::Device;

/// The most frames of one write-back: 4 MiB.
const BATCH_MAX: usize = 1024;

/// The workload `pressure`.
#[derive(Debug, Clone, Copy)]
pub struct Pressure;

const PARAMS: &[Param] = &[
    Param {
        name: "device",
        about: "fast (400 MB/s, stalls of 150 ms in 600), steady (60 MB/s), real (needs --dir)",
        default: "fast",
        kind: Kind::Text,
    },
    Param {
        name: "frames",
        about: "frames of 4 KiB in the pool",
        default: "4096",
        kind: Kind::Count,
    },
    Param {
        name: "batch",
        about: "frames of one write-back, which is one report to the gate: 1 to 1,024",
        default: "64",
        kind: Kind::Count,
    },
    Param {
        name: "pages",
        about: "pages that the writers dirty together; auto: 40,000; steady 10,000, real 160,000",
        default: "auto",
        kind: Kind::Count,
    },
    Param { name: "readers", about: "threads that read", default: "2", kind: Kind::Count },
    Param {
        name: "askers",
        about: "threads that ask for free frames",
        default: "2",
        kind: Kind::Count,
    },
    Param {
        name: "asks",
        about: "requests for 32 frames of all askers together; auto: 400; steady 150, real 1,600",
        default: "auto",
        kind: Kind::Count,
    },
];

impl Workload for Pressure {
    fn describe(&self) -> Description {
        use Better::{Lower, Neither};
        let names: [(&str, Better, &str); 24] = [
            ("elapsed_s", Lower, "until all pages were dirtied and all requests were met"),
            ("cpu_s", Lower, "user and system time"),
            ("waits", Lower, "sleeps at gates, yields that lasted among them"),
            ("needless_waits", Lower, "of these, begun while nothing was congested"),
            ("congestion_wait_ms", Lower, "asleep at gates, of all threads"),
            ("direct_waits", Lower, "naps in direct reclaim"),
            ("direct_needless_waits", Lower, "of these, needless"),
            ("direct_wait_ms", Lower, "asleep in direct reclaim"),
            ("background_waits", Lower, "naps of the background reclaimer"),
            ("background_needless_waits", Lower, "of these, needless"),
            ("background_wait_ms", Lower, "asleep in these"),
            ("throttle_waits", Lower, "sleeps of writers for too many dirty frames"),
            ("throttle_wait_ms", Lower, "asleep in these"),
            ("direct_reclaims", Lower, "threads that found no free frame"),
            ("direct_scanned", Lower, "frames that direct reclaim looked at"),
            ("direct_stall_ms", Lower, "time in direct reclaim, of all threads"),
            ("wake_requests", Neither, "requests to the background reclaimer"),
            ("background_wakeups", Neither, "how often it was woken"),
            ("background_scanned", Lower, "frames that it looked at"),
            ("background_awake_ms", Lower, "time from its wakeups to its sleeps"),
            ("written", Neither, "frames that were written to the device"),
            ("scanned_per_written_pct", Lower, "frames looked at for each that was written"),
            ("overdue", Lower, "waits that the gates' bound has ended"),
            ("planted_s", Neither, "CPU time burned on purpose"),
        ];
        let mut metrics: Vec<_> = names
            .into_iter()
            .map(|(name, better, about)| Metric::new(name, better, about))
            .collect();
        for (who, about) in [
            ("writer", "a writer's page"),
            ("reader", "a reader's page"),
            ("asker", "an asker's request"),
            ("interactive", "the interactive thread's round, from when it was due"),
        ] {
            let latencies = Latencies::default().metrics(who).into_iter();
            metrics.extend(latencies.map(|(name, _)| Metric::new(name, Lower, about)));
        }
        Description {
            name: "pressure",
            about: "T writers, readers, askers and an interactive thread on a slow device",
            primary: vec!["elapsed_s".to_owned()],
            impls: congestion::IMPLS.to_vec(),
            default_impls: vec!["fixed", "fixed-short", "skip", "event", "paced"],
            params: PARAMS.to_vec(),
            metrics,
            takes_dir: true,
            default_threads: 4,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let mode = congestion::mode(job, &self.describe())?;
        let number = |name| job.params.at_least_one(name);
        let batch = number("batch")?;
        if batch > BATCH_MAX {
            return Err(LoadError::usage(format!("batch={batch}: give at most {BATCH_MAX}")));
        }
        let (device, pages, asks) = match job.params.text("device") {
            "fast" => (Device::fast(), 40_000, 400),
            "steady" => (Device::steady(), 10_000, 150),
            "real" => (Device::real(job, batch)?, 160_000, 1_600),
            other => {
                let refused = format!("device={other}: give fast, steady or real");
                return Err(LoadError::usage(refused));
            }
        };
        let or = |name, default| Ok(job.params.number(name)?.map_or(default, |n| n as usize));
        let frames = number("frames")?;
        if frames < pool::FRAMES_MIN {
            let least = pool::FRAMES_MIN;
            return Err(LoadError::usage(format!("frames={frames}: give at least {least}")));
        }
        let plan = scene::Plan {
            frames,
            batch,
            pages: or("pages", pages)?.div_ceil(job.threads),
            readers: number("readers")?,
            askers: number("askers")?,
            asks: or("asks", asks)?.div_ceil(number("askers")?),
        };
        let threads = job.threads + plan.readers + plan.askers + 3;
        if threads > pool::THREADS_MAX {
            let most = pool::THREADS_MAX;
            return Err(LoadError::usage(format!("{threads} threads: there may be {most}")));
        }
        scene::run(job, mode, &device, &plan)
    }
}
