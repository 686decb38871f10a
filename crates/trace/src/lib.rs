//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
#![warn(missing_docs)]

mod ledger;

pub mod observation;

mod collect;
mod programs;
mod round_trip;
mod syscalls;
mod tracer;

#[doc(hidden)]
pub use programs::KernelObjects;
pub use tracer::{Follow, Notice, TraceError, TraceOptions, Tracer};
