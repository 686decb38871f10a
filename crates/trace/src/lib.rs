//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
#![warn(missing_docs)]

mod maps;
pub mod observation;
mod session;
mod standin;
pub mod symbols;
mod unprivileged;

pub use observation::Observation;
pub use session::{Pause, Session, SessionError, SessionOptions, Target};
pub use standin::{Budget, Follow, Notice, Report, TraceError, TraceOptions, Tracer};
pub use unprivileged::UnprivilegedSession;
