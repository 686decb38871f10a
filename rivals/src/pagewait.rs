//! `pagewait` by other people's means.

mod event_listener;
mod parking_lot_core;

use unherd_load::{Description, Impl, Job, LoadError, Round, Workload};

/// The workload `pagewait` with rival implementations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageWait;

const IMPLS: &[Impl] = &[
    Impl {
        name: "parking_lot_core",
        about: "parking_lot_core 0.10: park and unpark_all by address, in its own growing table",
    },
    Impl {
        name: "event-listener",
        about: "event-listener 5: one Event per bucket, and each completion notifies all of it",
    },
];

impl Workload for PageWait {
    fn describe(&self) -> Description {
        unherd_load::pagewait::describe_with(IMPLS.to_vec(), Vec::new())
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        use unherd_load::pagewait::run_with;
        match job.with.as_str() {
            "parking_lot_core" => {
                let pages = job.params.at_least_one("pages")?;
                run_with(job, &parking_lot_core::ParkedByAddress::new(pages))
            }
            "event-listener" => {
                let buckets = job.params.at_least_one("buckets")?;
                run_with(job, &event_listener::BucketEvents::new(buckets))
            }
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}
