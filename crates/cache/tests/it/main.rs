//! The cache against the plainest model of a file, on simulated and on real devices.

mod bad_input;
mod crash;
mod durability;
mod herd;
mod model;
mod scene;
mod threads;
