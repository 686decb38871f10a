//! The kernel's door: what the library needs from Linux, and no other crate of it asks the kernel.
//! (What bench, tracer and command need besides stands in `unherd-host`.)
//!
//! It promises thin wrappers: what is asked of the kernel is what the call is named for, errors are
//! the kernel's own numbers ([`Errno`]), alone or with what to do about them, and everything that
//! holds a resource gives it back on drop. It does not cache or log. It decides and repeats only
//! where the kernel leaves no choice, each time said at the place: a call that a signal interrupted
//! is begun again, and opening a file finds out what alignment direct I/O needs there, by a read
//! where the file system does not tell. The traits [`Device`] and [`Clock`] stand here so that
//! simulations can take the kernel's place.
//!
//! ```
//! use std::path::Path;
//!
//! use unherd_sys::{Device, DirectDevice, OpenHow};
//!
//! let device = DirectDevice::new();
//! let how = OpenHow { buffered_fallback: true, ..OpenHow::default() };
//! let opened = device.open(Path::new("Cargo.toml"), how)?;
//! println!("transfers start at multiples of {} bytes", opened.alignment.offset);
//! device.close(opened.file);
//! # Ok::<(), unherd_sys::OpenError>(())
//! ```

#[cfg(not(any(loom, shuttle)))]
pub mod ledger_layout;
pub mod primitives;
#[cfg(not(loom))]
pub mod racy;

// A model checker's build has what can be modelled: time, the traits, the futex.
#[cfg(not(loom))]
mod available_memory;
mod clock;
mod device;
#[cfg(not(loom))]
mod direct;
mod epoll;
#[cfg(not(loom))]
mod file_table;
#[cfg(not(loom))]
mod fork_mark;
mod futex;
mod map;
mod map_slice;
#[cfg(not(loom))]
mod memory_policy;
#[cfg(not(loom))]
mod plain;
mod prefetch;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod readiness;
#[cfg(all(test, not(any(loom, shuttle))))]
mod refusal;

#[cfg(not(loom))]
pub use available_memory::AvailableMemory;
pub use clock::{Clock, Deadline, SystemClock, Timestamp};
pub use device::{
    Alignment, Completion, Device, DeviceFile, Direction, Identity, IoBuf, IoBufs, OpenError,
    OpenHow, Opened, QueueKind, Transfer,
};
#[cfg(not(loom))]
pub use direct::DirectDevice;
pub use epoll::{EPOLL_EVENTS_MAX, Epoll, Interest};
#[cfg(not(loom))]
pub use fork_mark::ForkMark;
pub use futex::{Futex, FutexWait, PARK_MARK};
pub use map::{HUGE_PAGE_BYTES, HugePages, Map};
pub use map_slice::MapSlice;
pub use prefetch::prefetch;
#[cfg(not(loom))]
pub use readiness::poll_until;
pub use rustix::io::Errno;
