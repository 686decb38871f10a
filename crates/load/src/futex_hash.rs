//! `futex-hash`: threads that wait for words which hold another value, so that each wait is
//! refused: `perf bench futex hash`. It is the price of the table itself, with no sleep in it.
//!
//! Each thread goes round its own words (1,024, as there), and no two threads share one. What they
//! share is the table: its buckets, and their locks.

mod slots;

use unherd::{Deadline, FutexTable, Ledger};
use unherd_sys::primitives::AtomicU32;
use unherd_sys::{Futex, FutexWait};

use crate::random::mix_all;
use crate::timed_threads::work_for;
use crate::{Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Workload};

/// The workload `futex-hash`.
#[derive(Debug, Clone, Copy)]
pub struct FutexHash;

const IMPLS: &[Impl] = &[
    Impl { name: "kernel", about: "futex(2), with the kernel's own number of slots" },
    Impl { name: "kernel-tuned", about: "futex(2), with a number of slots by PR_FUTEX_HASH" },
    Impl { name: "unherd", about: "FutexTable" },
];

const PARAMS: &[Param] = &[
    Param { name: "words", about: "words of each thread", default: "1024", kind: Kind::Count },
    Param {
        name: "slots",
        about: "slots of the table of kernel-tuned, a power of two; 0 is the global table",
        default: "4096",
        kind: Kind::Count,
    },
    Param {
        name: "budget-ms",
        about: "how long the timed region lasts",
        default: "500",
        kind: Kind::Count,
    },
];

/// What the words hold, and what is waited for.
const HELD: u32 = 0;
const EXPECTED: u32 = 1234;

impl Workload for FutexHash {
    fn describe(&self) -> Description {
        Description {
            name: "futex-hash",
            about: "T threads wait for words that hold another value: perf bench futex hash",
            primary: vec!["waits_per_s".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics: vec![
                Metric::new("waits_per_s", Better::Higher, "refused waits of all threads"),
                Metric::new("cpu_ns_per_wait", Better::Lower, "user and system time"),
                Metric::new("elapsed_s", Better::Neither, "the timed region on the clock"),
                Metric::new("planted_s", Better::Neither, "CPU time burned on purpose"),
            ],
            default_threads: 2,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        match job.with.as_str() {
            "kernel" => run_kernel(job),
            "kernel-tuned" => {
                let slots = job.params.number("slots")?.unwrap_or(0);
                slots::set(slots).map_err(|source| LoadError::FutexSlots { slots, source })?;
                run_kernel(job)
            }
            "unherd" => {
                let table = FutexTable::new();
                run_with(
                    job,
                    || AtomicU32::new(HELD),
                    |word| table.wait(word, EXPECTED, Deadline::NEVER) == Err(unherd::Errno::AGAIN),
                )
            }
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

fn run_kernel(job: &Job) -> Result<Round, LoadError> {
    run_with(job, || Futex::new(HELD), |word| word.wait(EXPECTED) == FutexWait::Mismatch)
}

/// Runs a round. `is_refused` waits for a word, and says whether it was refused.
fn run_with<W>(
    job: &Job,
    new: impl Fn() -> W + Sync,
    is_refused: impl Fn(&W) -> bool + Sync,
) -> Result<Round, LoadError> {
    let words = job.params.at_least_one("words")?;
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let waits_before = Ledger::snapshot();
    let (done, span) = work_for(job, budget_ms, |_, region| {
        let own: Box<[W]> = (0..words).map(|_| new()).collect();
        let (mut waits, mut refused) = (0_u64, 0_u64);
        region.begin();
        while !region.is_over() {
            waits += own.len() as u64;
            refused += own.iter().filter(|word| is_refused(word)).count() as u64;
        }
        (waits, refused)
    })?;
    let waits: u64 = done.iter().map(|(waits, _)| waits).sum();
    let refused: u64 = done.iter().map(|(_, refused)| refused).sum();
    if waits != refused {
        return Err(LoadError::NotRefused { waits, refused });
    }
    let metrics = [
        ("waits_per_s", waits as f64 / span.elapsed_s),
        ("cpu_ns_per_wait", span.cpu_s * 1e9 / waits.max(1) as f64),
        ("elapsed_s", span.elapsed_s),
        ("planted_s", span.planted_s),
    ];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let waits = Ledger::snapshot().since(&waits_before);
    Ok(Round { check: mix_all(&[job.seed, words as u64]), metrics, waits })
}
