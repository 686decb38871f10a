//! What a thread can know of its own waiting.
#![expect(unsafe_code, reason = "getrusage(2) of one thread is in neither std nor rustix")]

use std::time::Duration;

use rustix::thread::NanosleepRelativeResult;
use rustix::time::Timespec;

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
