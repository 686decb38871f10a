//! What a thread can know of its own waiting.
#![expect(unsafe_code, reason = "getrusage(2) of one thread is in neither std nor rustix")]

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, Timespec as FileTime, Timestamps, UTIME_NOW, futimens, memfd_create};
use rustix::thread::NanosleepRelativeResult;
use rustix::time::Timespec;
use unherd_sys::{Deadline, Futex};

/// What the calling thread has used so far. The processor's time is as of the last time that the
/// thread went to sleep, or a moment later.
#[derive(Debug, Clone, Copy)]
struct Usage {
    sleeps: u64,
    processor: Duration,
}

fn usage() -> Usage {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    // SAFETY: `usage` is of the type that the kernel fills.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(done, 0, "getrusage(RUSAGE_THREAD)");
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    let processor = time(usage.ru_utime) + time(usage.ru_stime);
    Usage { sleeps: usage.ru_nvcsw as u64, processor }
}

/// How often the calling thread has gone to sleep so far.
pub(crate) fn sleeps() -> u64 {
    usage().sleeps
}

/// Counts the looks of a thread that are certain to be no more than looks.
///
/// On a busy machine the timer may come before the thread is off its processor, and then it has
/// not slept; and a processor that is taken away from the virtual machine may count as the
/// thread's, so that the look seems to have been work.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    before: Option<Usage>,
    slept: bool,
    certain: usize,
}

/// Of the processor's time; a tracer takes what is longer for work.
const LONGEST_LOOK: Duration = Duration::from_micros(80);

impl Looks {
    /// Says that the thread has come back from a pause after which it will only look.
    pub(crate) fn pause_ended(&mut self) {
        let now = usage();
        if let Some(before) = self.before {
            let slept = now.sleeps > before.sleeps;
            let short = now.processor.saturating_sub(before.processor) <= LONGEST_LOOK;
            // The look was between this pause and the one before.
            self.certain += usize::from(self.slept && slept && short);
            self.slept = slept;
        }
        self.before = Some(now);
    }

    /// How many looks there were for certain, each between two sleeps.
    pub(crate) fn certain(&self) -> usize {
        self.certain
    }
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
