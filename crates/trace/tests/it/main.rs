//! The tracer against programs whose needless waits are known (`tests/truth`).
//!
//! The programs count by means of their own, so the two accounts are independent. Tests that load
//! eBPF need root, say so where they are not, and run one after the other: the machine is one.

mod agreement;
mod coverage;
mod crowds;
mod episodes;
mod futexes;
mod leaks;
mod ledgers;
mod prices;
mod recorded;
mod session;
mod stacks;
mod waits;
