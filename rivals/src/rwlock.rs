//! `rwlock` by other people's means.

mod parking_lot;
mod std_lock;

use unherd_load::{Description, Impl, Job, LoadError, Round, Workload};

/// The workload `rwlock` with rival implementations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RwLocks;

const IMPLS: &[Impl] = &[
    Impl { name: "std", about: "std::sync::RwLock: a word, and one for the writers to sleep on" },
    Impl { name: "parking_lot", about: "parking_lot 0.13: a word, writers come before readers" },
];

impl Workload for RwLocks {
    fn describe(&self) -> Description {
        unherd_load::rwlock::describe_with(IMPLS.to_vec(), Vec::new())
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        match job.with.as_str() {
            "std" => unherd_load::rwlock::run_with(job, &std_lock::Std::default()),
            "parking_lot" => {
                unherd_load::rwlock::run_with(job, &parking_lot::ParkingLot::default())
            }
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}
