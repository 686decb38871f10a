//! The workloads that unherd measures, each in a file or folder of its own behind one trait.
//!
//! One run of a runner is one round: one implementation of one [`Workload`], in a process of its
//! own, which prints one JSON object. It promises that all implementations of a workload are driven
//! by the same code from the same seed, that the work's result is verified in every round (a wrong
//! byte or a lost completion fails it), and that starting threads and opening files are outside the
//! timed regions. It does not repeat, compare or judge: that is the lab's affair.
//!
//! A runner of other implementations (`rivals/`) brings [`Workload`]s of the same names and calls
//! [`main_with`]; see [`pagewait::run_with`].

mod catalogue;
mod command;
mod congestion;
mod crew;
mod error;
mod files;
mod futexes;
mod job;
mod meter;
mod random;
mod timed_threads;
mod waits;

pub mod commit;
pub mod futex_hash;
pub mod futex_storm;
pub mod futex_wake;
pub mod highalloc;
pub mod hit;
pub mod hit_cost;
pub mod mix;
pub mod mutex;
pub mod order;
pub mod pagewait;
pub mod policy;
pub mod poll;
pub mod pressure;
pub mod randread;
pub mod rwlock;
pub mod slices;
pub mod stall;
pub mod tiotest;
pub mod traced;
pub mod wake;
pub mod web;

use std::ffi::OsString;
use std::process::ExitCode;

pub use catalogue::{Better, Catalogue, Description, Impl, Kind, Metric, Param, RIVALS};
pub use command::{main_with, run};
pub use error::LoadError;
pub use job::{Job, Params, Round};
pub use meter::{Basis, Meter, Span};
/// The waits of a timed region, as the library's ledger counts them (`unherd.waits/1`).
pub use unherd::Snapshot as Waits;

/// Something that can be measured in several implementations.
pub trait Workload: Sync {
    /// Its name, options, implementations and metrics.
    fn describe(&self) -> Description;

    /// Runs one round. Blocks until it is done; what the round started or wrote is gone by then.
    fn run(&self, job: &Job) -> Result<Round, LoadError>;
}

/// Runs `unherd load …` with the workloads of this crate; `args` is what follows the word `load`.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    if hit::UNCOUNTED {
        return main_with(&[&hit::Hit, &hit_cost::HitCost], args);
    }
    main_with(
        &[
            &pagewait::PageWait,
            &tiotest::TioTest,
            &slices::Slices,
            &randread::RandRead,
            &order::Order,
            &traced::Traced,
            &wake::Wake,
            &policy::Policy,
            &hit::Hit,
            &hit_cost::HitCost,
            &mutex::Mutexes,
            &rwlock::RwLocks,
            &futex_hash::FutexHash,
            &futex_wake::FutexWake,
            &futex_storm::FutexStorm,
            &poll::Polling,
            &web::Web,
            &stall::Stall,
            &pressure::Pressure,
            &commit::Commit,
            &mix::Mix,
            &highalloc::HighAlloc,
        ],
        args,
    )
}
