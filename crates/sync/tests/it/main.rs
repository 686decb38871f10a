//! The wait table against the real kernel and against the plainest model of a queue.
#![cfg(not(any(loom, shuttle)))]

mod allocation;
mod any;
mod async_locks;
mod futex;
mod lock_api;
mod model;
mod process;
mod requeue;
mod sleeping;
mod soak;
mod task;
