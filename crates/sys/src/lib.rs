//! The kernel's door: what the rest of unherd needs from Linux, and only this crate asks it.
//!
//! It promises thin, exact wrappers: one call here is one thing asked of the kernel, errors are the
//! kernel's own numbers ([`Errno`]), and everything that holds a resource gives it back on drop. It
//! does not retry, cache, log or decide. The traits [`Device`] and [`Clock`] stand here so that
//! simulations can take the kernel's place.

pub mod primitives;

mod clock;
mod device;
mod futex;

/// All that needs a real kernel; a model checker's build has none of it.
macro_rules! with_a_kernel {
    ($($item:item)*) => { $(#[cfg(not(any(loom, shuttle)))] $item)* };
}

with_a_kernel! {
    mod busy;
    mod direct;
    mod file_table;
    mod map;
    mod process_mark;
    mod ring;
    mod usage;

    pub use busy::BusyTime;
    pub use direct::DirectDevice;
    pub use map::{HUGE_PAGE_BYTES, HugePages, Map};
    pub use process_mark::{NotAProcessMark, ProcessMark};
    pub use usage::{ChildProcess, ChildUsage, SpawnHow, Usage};
}

pub use clock::{Clock, Deadline, SystemClock, Timestamp};
pub use device::{
    Alignment, Completion, Device, DeviceFile, Direction, Identity, IoBuf, OpenError, OpenHow,
    Opened, Transfer,
};
pub use futex::{Futex, FutexWait};
pub use rustix::io::Errno;
