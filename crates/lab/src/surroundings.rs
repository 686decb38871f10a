//! What else the machine did while a process ran.
//!
//! Neighbours take processors, caches and storage from whoever runs at the time. Pairs that stand
//! side by side share most of it, but a neighbour that comes between the two sides of a pair is a
//! difference that nobody made. So each process keeps what went on around it, and a group of
//! processes in which others used more than [`FOREIGN_MAX`] is run again.

use serde::{Deserialize, Serialize};

/// Other programs may use this share of the processors before a group of processes is run again.
pub const FOREIGN_MAX: f64 = 0.05;

/// What went on around one process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// The share of the processors' time that programs other than the bench used.
    pub foreign_cpu_share: Option<f64>,
    /// Runnable threads before it began, by the kernel's mean over one minute.
    pub load_1min: Option<f64>,
    /// The share of the time in which some thread of the machine waited for a processor (PSI).
    pub cpu_pressure: Option<f64>,
    /// The same for storage.
    pub io_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
}

impl Surroundings {
    /// Whether others used so much that the process should be run again.
    pub fn is_disturbed(&self) -> bool {
        self.foreign_cpu_share.is_some_and(|share| share > FOREIGN_MAX)
    }
}
