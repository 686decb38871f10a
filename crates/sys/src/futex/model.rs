//! The futex word under loom and shuttle: what the kernel promises, and nothing that it does not.
//!
//! Two models, because each hides something. The first keeps a queue of sleepers per address under
//! one mutex; its mutex is also an ordering that the real protocol must not lean on. The second
//! (`--cfg model_yield`) has no queue: a sleep is a yield that returns spuriously, so a protocol
//! that needs order from the sleep itself fails there, and one that is never notified spins until
//! the checker gives up.
//!
//! A wait with a deadline times out at once, after other threads had the chance to run: that is
//! the race between a timeout and a wake in all its interleavings. The last deadline that can be
//! told does not pass.
#![expect(unsafe_code, reason = "the same unsafe signature as the kernel's")]

use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;

use super::FutexWait;
use crate::primitives::{AtomicU32, Condvar, Mutex, Ordering, lazy_static, thread};
use crate::{Deadline, Timestamp};

/// A 32-bit word that modelled threads can sleep on. See the kernel's version for the contract.
#[derive(Debug)]
pub struct Futex(AtomicU32);

#[derive(Default)]
struct Sleepers {
    next_ticket: u64,
    by_address: HashMap<usize, VecDeque<u64>>,
}

struct Kernel {
    sleepers: Mutex<Sleepers>,
    changed: Condvar,
}

lazy_static! {
    static ref KERNEL: Kernel =
        Kernel { sleepers: Mutex::new(Sleepers::default()), changed: Condvar::new() };
}

impl Futex {
    /// A word that holds `value`.
    pub fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// The word itself.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word holds `expected`.
    pub fn wait_until(&self, expected: u32, deadline: Deadline) -> FutexWait {
        let passes = deadline.timestamp().is_some_and(|at| at < Timestamp::from_ns(u64::MAX));
        if cfg!(model_yield) || passes {
            if self.0.load(Ordering::Relaxed) != expected {
                return FutexWait::Mismatch;
            }
            thread::yield_now();
            return if passes { FutexWait::TimedOut } else { FutexWait::Woken };
        }
        let address = std::ptr::from_ref(self).addr();
        let mut sleepers = KERNEL.sleepers.lock();
        if self.0.load(Ordering::Relaxed) != expected {
            return FutexWait::Mismatch;
        }
        let ticket = sleepers.next_ticket;
        sleepers.next_ticket += 1;
        sleepers.by_address.entry(address).or_default().push_back(ticket);
        while sleepers.by_address.get(&address).is_some_and(|queue| queue.contains(&ticket)) {
            sleepers = KERNEL.changed.wait(sleepers);
        }
        FutexWait::Woken
    }

    /// Wakes up to `n` sleepers, and says how many.
    pub fn wake(&self, n: u32) -> usize {
        Self::wake_at(NonNull::from(self), n)
    }

    /// As the kernel's.
    pub fn park_until(&self, expected: u32, deadline: Deadline) -> FutexWait {
        self.wait_until(expected, deadline)
    }

    /// As the kernel's.
    ///
    /// # Safety
    /// `word` was the address of a `Futex`.
    pub unsafe fn unpark_address(word: NonNull<Self>) -> usize {
        Self::wake_at(word, 1)
    }

    fn wake_at(word: NonNull<Self>, n: u32) -> usize {
        if cfg!(model_yield) {
            return 0;
        }
        let mut sleepers = KERNEL.sleepers.lock();
        let Some(queue) = sleepers.by_address.get_mut(&word.addr().get()) else {
            return 0;
        };
        let woken = queue.len().min(n as usize);
        queue.drain(..woken);
        drop(sleepers);
        if woken > 0 {
            KERNEL.changed.notify_all();
        }
        woken
    }
}
