//! Which page to give up when a frame is needed.
//!
//! Pure: no I/O, no time, no threads. A policy sees frames as numbers, and asks what it needs to
//! know about them.

mod clock;

pub(crate) use clock::{Clock, Look, Sweep};
