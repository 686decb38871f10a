//! The `unherd` command from outside, with runners that do nothing but behave: well, or badly.
#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene has failed")]

mod bad_input;
mod bench;
mod blocks;
mod claims;
mod compare;
mod compare_interrupts;
mod endings;
mod herd;
mod place;
mod prove;
mod report_page;
mod reproduce;
mod trace;
mod trace_kernels;
mod trace_signals;
