//! `wake` by other people's means.

mod parking_lot_core;

use unherd_load::{Description, Impl, Job, LoadError, Round, Workload};

/// The workload `wake` with rival implementations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wake;

const IMPLS: &[Impl] = &[Impl {
    name: "parking_lot_core",
    about: "parking_lot_core 0.10: parking by address, in its own growing table",
}];

impl Workload for Wake {
    fn describe(&self) -> Description {
        unherd_load::wake::describe_with(IMPLS.to_vec(), Vec::new())
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let keys = job.params.at_least_one("keys")?;
        let foreign = job.params.number("foreign")?.unwrap_or(0) as usize;
        match job.with.as_str() {
            "parking_lot_core" => {
                let parked = parking_lot_core::ParkedByAddress::new(keys + foreign);
                unherd_load::wake::run_with(job, &parked, foreign)
            }
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}
