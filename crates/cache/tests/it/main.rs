//! The cache against the plainest model of a file, on simulated and on real devices.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod async_reads;
mod bad_input;
mod capacity;
mod clients;
mod contiguous;
mod crash;
mod durability;
mod expiry;
mod failing;
mod fork;
mod herd;
mod holds;
mod interrupted;
mod length;
mod locks;
mod model;
mod nodes;
mod opening;
mod outsiders;
mod page_hook;
mod page_mut;
mod page_sizes;
mod peek;
mod policy;
mod readahead;
mod room;
mod scene;
mod soak;
mod space;
mod superseded;
mod syncs;
mod threads;
mod throttle;
mod write_streams;
mod write_through;
