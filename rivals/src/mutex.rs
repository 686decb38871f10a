//! `mutex` by other people's means.

mod parking_lot;

use unherd_load::{Description, Impl, Job, LoadError, Round, Workload};

/// The workload `mutex` with rival implementations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mutexes;

const IMPLS: &[Impl] =
    &[Impl { name: "parking_lot", about: "parking_lot 0.13: one byte, others may come between" }];

impl Workload for Mutexes {
    fn describe(&self) -> Description {
        unherd_load::mutex::describe_with(IMPLS.to_vec(), Vec::new())
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        match job.with.as_str() {
            "parking_lot" => unherd_load::mutex::run_with(job, &parking_lot::ParkingLot::default()),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}
