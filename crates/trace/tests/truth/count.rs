//! What a thread can know of its own waiting.
#![expect(unsafe_code, reason = "getrusage(2) of one thread is in neither std nor rustix")]

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, Timespec as FileTime, Timestamps, UTIME_NOW, futimens, memfd_create};
use rustix::thread::NanosleepRelativeResult;
use rustix::time::Timespec;
use unherd_sys::{Deadline, Futex};

/// How often the calling thread has gone to sleep so far.
pub(crate) fn sleeps() -> u64 {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    // SAFETY: `usage` is of the type that the kernel fills.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(done, 0, "getrusage(RUSAGE_THREAD)");
    usage.ru_nvcsw as u64
}

/// Sleeps by nanosleep(2), whatever signals come.
pub(crate) fn pause(duration: Duration) {
    let mut left =
        Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) };
    while let NanosleepRelativeResult::Interrupted(rest) = rustix::thread::nanosleep(&left) {
        left = rest;
    }
}

/// What a thread does between two waits that has nothing to do with what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    /// Nothing.
    Nothing,
    /// It says that it lives, by the time stamp of a file.
    Heartbeat,
    /// It waits a moment for each of five other things.
    Errands,
}

impl Between {
    pub(crate) fn of(number: usize) -> Self {
        [Self::Nothing, Self::Heartbeat, Self::Errands][number]
    }
}

/// One thread's means to do that.
pub(crate) struct Chores {
    between: Between,
    file: OwnedFd,
    errands: [Futex; 5],
}

impl Chores {
    pub(crate) fn new(between: Between) -> Self {
        let file = memfd_create("heart", MemfdFlags::CLOEXEC).expect("a descriptor is left");
        Self { between, file, errands: std::array::from_fn(|_| Futex::new(0)) }
    }

    pub(crate) fn go(&self) {
        match self.between {
            Between::Nothing => {}
            Between::Heartbeat => {
                let now = FileTime { tv_sec: 0, tv_nsec: UTIME_NOW };
                let times = Timestamps { last_access: now, last_modification: now };
                futimens(&self.file, &times).expect("a memory file has times");
            }
            Between::Errands => {
                for word in &self.errands {
                    let deadline = Deadline::after(Duration::from_micros(60));
                    _ = word.wait_until(0, deadline);
                }
            }
        }
    }
}
