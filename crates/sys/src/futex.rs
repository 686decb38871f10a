//! A word to sleep on: futex(2), and its models under the checkers.

use crate::Deadline;

/// The bitset of [`Futex::park_until`] and [`Futex::unpark_address`], "UNHD".
///
/// To the kernel it is as good as any. To a tracer it says that this is a wait of the library's,
/// which has an account of it; so that costs nothing while nobody looks.
pub const PARK_MARK: std::num::NonZeroU32 = std::num::NonZeroU32::new(0x554e_4844).unwrap();

/// Why [`Futex::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FutexWait {
    /// Somebody woke this word, or the kernel did so without cause: addresses are reused, so a late
    /// wake of an earlier word at the same place can arrive here. Look at the condition again.
    Woken,
    /// The word did not hold the expected value; there was no sleep.
    Mismatch,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran. Look at the condition and wait again with the same deadline.
    Interrupted,
}

#[cfg(not(any(loom, shuttle)))]
mod kernel;
#[cfg(any(loom, shuttle))]
mod model;

#[cfg(not(any(loom, shuttle)))]
pub use kernel::Futex;
#[cfg(any(loom, shuttle))]
pub use model::Futex;

impl Futex {
    /// Sleeps while the word holds `expected`, for as long as it takes. See [`Futex::wait_until`].
    pub fn wait(&self, expected: u32) -> FutexWait {
        self.wait_until(expected, Deadline::NEVER)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
