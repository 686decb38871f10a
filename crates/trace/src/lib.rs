//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
#![warn(missing_docs)]

mod maps;
pub mod observation;
mod session;
mod standin;

pub use session::{Pause, Session, SessionError, SessionOptions, Target};
pub use standin::{Follow, Notice, TraceError, TraceOptions, Tracer};
