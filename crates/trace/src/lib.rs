//! Finds needless wakeups, locks and sleeps of any program, by eBPF.
#![warn(missing_docs)]

mod ledger;

pub mod observation;
