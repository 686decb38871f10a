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

pub use clock::{Clock, Deadline, SystemClock, Timestamp};
pub use device::{
    Alignment, Completion, Device, DeviceFile, Direction, Identity, IoBuf, OpenError, OpenHow,
    Opened, Transfer,
};
pub use futex::{Futex, FutexWait};
pub use rustix::io::Errno;
