//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
#![warn(missing_docs)]

pub mod observation;
pub mod symbols;
