//! Where processors spend their time, and who puts threads to sleep: a sampling profiler.
//!
//! [`SampleKind::CpuClock`] looks at each processor at a fixed interval.
//! [`SampleKind::ContextSwitches`] takes every n-th context switch. Neither needs hardware
//! counters. What is looked at is counted in one of two ways:
//!
//! - [`Sampler`] counts *functions* and names them: with the CPU clock the one that ran, with
//!   context switches the *callers of the scheduling functions*, which are the first kernel
//!   function below the scheduler's own and the first function of the program.
//! - [`ChainSampler`] counts whole *call chains* by process, unnamed, and notes where each process
//!   has mapped code, and if asked when each thread was switched out and in.
//!
//! A thread of the sampler's empties the rings while the measurement runs. Virtual machines deliver
//! fewer samples than asked for, so both tell how many came and how many should have.

mod abi;
mod chains;
mod collector;
mod functions;
mod images;
mod ring;
mod switches;

use rustix::io::Errno;

pub use self::chains::{ChainOptions, ChainRow, ChainSampler, Chains};
pub use self::functions::{Profile, ProfileRow, Sampler};
pub use self::images::CodeMapping;
pub use self::switches::ThreadSwitches;

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleKind {
    /// `hertz` times a second on each processor.
    CpuClock {
        /// 1 to 10,000.
        hertz: u32,
    },
    /// Each n-th context switch.
    ContextSwitches {
        /// At least 1.
        every: u32,
    },
}

impl SampleKind {
    /// The event's number, and the interval that the kernel is asked for.
    fn event(self) -> Result<(u64, u64), SamplerError> {
        match self {
            Self::CpuClock { hertz: hertz @ 1..=10_000 } => {
                Ok((abi::COUNT_CPU_CLOCK, u64::from(1_000_000_000 / hertz)))
            }
            Self::ContextSwitches { every: every @ 1.. } => {
                Ok((abi::COUNT_CONTEXT_SWITCHES, u64::from(every)))
            }
            _ => Err(SamplerError::BadRate),
        }
    }
}

/// Who is sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SampleScope {
    /// All that runs, from now on. With the CPU clock this includes idle time.
    WholeMachine,
    /// The program that the calling thread starts next, from its exec(2), with all its threads and
    /// descendants; not this program itself. Children that the thread starts later are sampled too:
    /// finish before that, or start them from another thread.
    NextChild,
    /// These processes: all their threads, and whatever threads and children those make from now
    /// on. It takes a descriptor for each thread and processor.
    Processes(Vec<u32>),
}

/// Why there are no samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The privilege is missing.
    #[error(
        "sampling is not permitted: run as root, grant CAP_PERFMON, or set \
         kernel.perf_event_paranoid to 0 (1 suffices for programs of one's own, 2 for their side \
         of it)"
    )]
    NotPermitted,
    /// This kernel has no such event.
    #[error("this kernel cannot sample ({0})")]
    NotSupported(Errno),
    /// The interval makes no sense.
    #[error("the sampling rate must be 1 to 10000 a second, or every 1st switch at least")]
    BadRate,
    /// One of the processes to be sampled is not there.
    #[error("there is no process {0} to be sampled")]
    NoProcess(u32),
    /// Anything else.
    #[error("sampling failed: {0}")]
    System(#[from] Errno),
}

#[cfg(test)]
mod tests;
