//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
#![warn(missing_docs)]

mod collect;
mod ledger;
mod maps;
pub mod observation;
mod programs;
mod round_trip;
mod session;
mod standin;
pub mod symbols;
mod syscalls;
mod tracer;
mod unprivileged;

pub use observation::Observation;
#[doc(hidden)]
pub use programs::KernelObjects;
pub use session::{Pause, Session, SessionError, SessionOptions, Target};
pub use standin::{Budget, Report};
pub use tracer::{Follow, Notice, TraceError, TraceOptions, Tracer};
pub use unprivileged::UnprivilegedSession;
