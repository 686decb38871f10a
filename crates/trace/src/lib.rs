//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
//!
//! [`Session`] traces a command, processes or a control group and gives an [`Observation`], all
//! numbers; [`Report`] names and judges what was seen; [`Budget`]s bound it. Below a session are
//! the eBPF programs, which [`Tracer`] loads and reads. [`UnprivilegedSession`] sees what can be
//! seen without privilege.
#![warn(missing_docs)]

pub mod advice;
pub mod budget;
mod call;
mod collect;
pub mod diff;
mod ledger;
mod maps;
pub mod observation;
mod prices;
mod programs;
mod refusal;
pub mod report;
mod session;
pub mod symbols;
mod syscalls;
mod tracer;
mod unprivileged;
mod unwind;

pub use self::budget::{Budget, BudgetError, Count, Exceeded};
pub use self::observation::Observation;
#[doc(hidden)]
pub use self::programs::KernelObjects;
pub use self::report::Report;
pub use self::session::{Pause, Session, SessionError, SessionOptions, Target};
pub use self::symbols::Symbols;
pub use self::tracer::{Follow, Notice, TraceError, TraceOptions, Tracer};
pub use self::unprivileged::UnprivilegedSession;
