//! `hit`: the price of a page that is there.
//!
//! Threads go through a resident set of pages of 4 KiB, in a sequence that was drawn before, and
//! load words of each page (or copy it). Nothing is missed while it is timed: a miss fails the
//! round. With `chain`, where the sequence goes on depends on the words that were loaded, as in a
//! program that must read a page to know which it wants next; without, the processor works on
//! several look-ups at a time.

mod barrier;
mod before;
mod cached;
mod floor;
mod kernel;
mod mapped;
mod page;
mod pattern;
mod scene;

use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

use crate::files::ScratchDir;
use cached::Way;
pub use page::{Page, Places, read, value};
pub use pattern::resident_pages;
pub use scene::{HitCounts, Pages, run_with};

/// The workload `hit` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct Hit;

const FLOOR_ALONE: &str = "floor-alone";
const PIN_ALONE: &str = "unherd-pin-alone";
const PEEK_ALONE: &str = "unherd-peek-alone";
const COPY_BESIDE: &str = "unherd-copy-beside-reclaim";
const PIN_BESIDE: &str = "unherd-pin-beside-reclaim";
const COPY: &str = if UNCOUNTED { "uncounted-copy" } else { "unherd-copy" };
const PIN: &str = if UNCOUNTED { "uncounted-pin" } else { "unherd-pin" };
const PEEK: &str = if UNCOUNTED { "uncounted-peek" } else { "unherd-peek" };

/// Whether the cache does not count: a runner of the cache alone, to be compared with the other.
pub(crate) const UNCOUNTED: bool = cfg!(feature = "uncounted");

const IMPLS: &[Impl] = &[
    Impl { name: "floor", about: "the same loads from memory, with no cache at all" },
    Impl {
        name: "floor-pin",
        about: "the same loads, between two atomic additions to the page's word",
    },
    Impl { name: "floor-copy", about: "the page is copied from memory, then loaded from the copy" },
    Impl { name: "kernel", about: "pread(2) of the page, then the loads" },
    Impl { name: "mmap", about: "the same loads from a file that is mapped and present" },
    Impl { name: "before", about: "one mutex around a hash map and an LRU list: the tree lock" },
    Impl { name: COPY, about: "read_at of the page, then the loads" },
    Impl { name: PIN, about: "a pinned page, which the words are loaded from" },
    Impl { name: PEEK, about: "a look without a pin, repeated if the page was written" },
    Impl {
        name: COPY_BESIDE,
        about: "unherd-copy, while a thread more reads a file that the cache has no room for",
    },
    Impl { name: PIN_BESIDE, about: "unherd-pin, the same" },
    Impl { name: FLOOR_ALONE, about: "floor by one thread, whatever --threads says" },
    Impl { name: PIN_ALONE, about: "unherd-pin by one thread" },
    Impl { name: PEEK_ALONE, about: "unherd-peek by one thread" },
];

const PARAMS: &[Param] = &[
    Param {
        name: "set",
        about: "bytes that are resident; l2: 512K, within a core's cache; llc: 512M, beyond all",
        default: "l2",
        kind: Kind::Text,
    },
    Param {
        name: "pattern",
        about: "one (page), uniform, zipf (0.99, over shuffled pages)",
        default: "uniform",
        kind: Kind::Text,
    },
    Param {
        name: "words",
        about: "words loaded of a page: 1, 4, 8 or 16; 0: the page is copied, and one is loaded",
        default: "8",
        kind: Kind::Count,
    },
    Param {
        name: "chain",
        about: "which page comes next depends on the words loaded",
        default: "true",
        kind: Kind::Flag,
    },
    Param {
        name: "writes",
        about: "percent of the operations that write 64 bytes; not for the floors and mmap",
        default: "0",
        kind: Kind::Count,
    },
    Param {
        name: "ops",
        about: "operations of a thread; auto: as many as fit into budget-ms",
        default: "auto",
        kind: Kind::Count,
    },
    Param {
        name: "budget-ms",
        about: "how long each thread works",
        default: "300",
        kind: Kind::Count,
    },
    Param {
        name: "tail",
        about: "each operation is timed by itself, for ns_p999; that takes some 30 ns",
        default: "false",
        kind: Kind::Flag,
    },
];

impl Workload for Hit {
    fn describe(&self) -> Description {
        if UNCOUNTED {
            let cached = |known: &&Impl| [COPY, PIN, PEEK].contains(&known.name);
            return describe_with(IMPLS.iter().filter(cached).copied().collect(), Vec::new());
        }
        describe_with(IMPLS.to_vec(), vec!["floor", "before", PIN])
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let scratch = job.dir.as_deref().map(|dir| ScratchDir::create(dir, "hit")).transpose()?;
        let dir = scratch.as_ref().map(|scratch| scratch.path().to_owned());
        let job = &Job { dir, ..job.clone() };
        match job.with.as_str() {
            "floor" => run_with(job, &floor::Memory::<false>::new(job)?),
            "floor-pin" => run_with(job, &floor::Pinned::new(job)?),
            "floor-copy" => run_with(job, &floor::Memory::<true>::new(job)?),
            "kernel" => run_with(job, &kernel::Preads::new(job)?),
            "mmap" => run_with(job, &mapped::Mapped::new(job)?),
            "before" => run_with(job, &before::TreeLock::new(job)?),
            COPY => cached::run(job, Way::Copy),
            PIN => cached::run(job, Way::Pin),
            PEEK => cached::run(job, Way::Peek),
            COPY_BESIDE => cached::run_beside_reclaim(job, Way::Copy),
            PIN_BESIDE => cached::run_beside_reclaim(job, Way::Pin),
            FLOOR_ALONE => run_with(&alone(job), &floor::Memory::<false>::new(job)?),
            PIN_ALONE => cached::run(&alone(job), Way::Pin),
            PEEK_ALONE => cached::run(&alone(job), Way::Peek),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// The job for one thread: what the others are worth is the ratio of `hits_per_s`.
fn alone(job: &Job) -> Job {
    Job { threads: 1, ..job.clone() }
}

/// The description of `hit` in a runner that has these implementations.
pub fn describe_with(impls: Vec<Impl>, default_impls: Vec<&'static str>) -> Description {
    use Better::{Higher, Lower, Neither};
    let metrics = [
        ("ns_per_hit", Lower, "an operation, in each thread's time"),
        ("hits_per_s", Higher, "operations of all threads in a second"),
        ("cpu_us_per_hit", Lower, "CPU time of the process for an operation"),
        ("ns_p999", Lower, "an operation: 999 of 1,000 took less; with --tail, else 0"),
        ("evictions_per_s", Neither, "pages given up meanwhile, in a second; of unherd's alone"),
        ("copies", Neither, "pages copied because they were pinned when they were written"),
        ("peek_retries", Neither, "looks in vain, as the page was written meanwhile"),
        ("hits", Neither, "operations that were timed"),
    ];
    Description {
        name: "hit",
        about: "threads load words of pages that are all there",
        primary: vec!["ns_per_hit".to_owned()],
        impls,
        default_impls,
        params: PARAMS.to_vec(),
        metrics: metrics.map(|(name, better, about)| Metric::new(name, better, about)).to_vec(),
        uses_dir: true,
        default_threads: 1,
        ..Description::default()
    }
}
