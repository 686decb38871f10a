//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
#![warn(missing_docs)]

pub mod advice;
pub mod budget;
mod call;
pub mod observation;
pub mod report;
pub mod symbols;

pub use self::budget::{Budget, BudgetError, Count, Exceeded};
pub use self::observation::Observation;
pub use self::report::Report;
pub use self::symbols::Symbols;
