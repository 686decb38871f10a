//! The kernel's door: what the rest of unherd needs from Linux, and only this crate asks it.
//!
//! It promises thin wrappers: what is asked of the kernel is what the call is named for, errors are
//! the kernel's own numbers ([`Errno`]), alone or with what to do about them, and everything that
//! holds a resource gives it back on drop. It does not cache or log. It decides and repeats only
//! where the kernel leaves no choice, each time said at the place: a call that a signal interrupted
//! is begun again, the removal of a cgroup is tried for some seconds while its last process leaves,
//! and opening a file finds out what alignment direct I/O needs there, by a read where the file
//! system does not tell. The traits [`Device`] and [`Clock`] stand here so that simulations can
//! take the kernel's place.

#[cfg(not(any(loom, shuttle)))]
pub mod ledger_layout;
pub mod primitives;
#[cfg(not(loom))]
pub mod racy;

// A model checker's build has what can be modelled: time, the traits, the futex.
#[cfg(not(any(loom, shuttle)))]
mod busy;
#[cfg(not(any(loom, shuttle)))]
mod cgroup;
mod clock;
mod device;
#[cfg(not(loom))]
mod direct;
#[cfg(not(loom))]
mod file_table;
#[cfg(not(loom))]
mod fork_mark;
mod futex;
#[cfg(not(any(loom, shuttle)))]
mod machine;
mod map;
mod map_slice;
#[cfg(not(loom))]
mod memory_policy;
#[cfg(not(any(loom, shuttle)))]
mod process_mark;
#[cfg(not(loom))]
mod readiness;
#[cfg(all(test, not(any(loom, shuttle))))]
mod refusal;
#[cfg(not(any(loom, shuttle)))]
mod reserve;
#[cfg(not(loom))]
mod ring;
#[cfg(not(any(loom, shuttle)))]
mod sampler;
#[cfg(not(any(loom, shuttle)))]
mod symbols;
#[cfg(not(any(loom, shuttle)))]
mod sysctl;
#[cfg(not(loom))]
mod topology;
#[cfg(not(any(loom, shuttle)))]
mod usage;

#[cfg(not(any(loom, shuttle)))]
pub use busy::BusyTime;
#[cfg(not(any(loom, shuttle)))]
pub use cgroup::{Cgroup, CgroupError, CgroupVersion};
pub use clock::{Clock, Deadline, SystemClock, Timestamp};
pub use device::{
    Alignment, Completion, Device, DeviceFile, Direction, Identity, IoBuf, IoBufs, OpenError,
    OpenHow, Opened, Transfer,
};
#[cfg(not(loom))]
pub use direct::DirectDevice;
#[cfg(not(loom))]
pub use fork_mark::ForkMark;
pub use futex::{Futex, FutexWait, PARK_MARK};
#[cfg(not(any(loom, shuttle)))]
pub use machine::{Directory, Machine};
pub use map::{HUGE_PAGE_BYTES, HugePages, Map};
pub use map_slice::MapSlice;
#[cfg(not(any(loom, shuttle)))]
pub use process_mark::{NotAProcessMark, ProcessMark};
#[cfg(not(any(loom, shuttle)))]
pub use reserve::{Reserve, ReserveError};
pub use rustix::io::Errno;
#[cfg(not(any(loom, shuttle)))]
pub use sampler::{
    ChainOptions, ChainRow, ChainSampler, Chains, CodeMapping, Profile, ProfileRow, SampleKind,
    SampleScope, Sampler, SamplerError, ThreadSwitches,
};
#[cfg(not(any(loom, shuttle)))]
pub use symbols::Side;
#[cfg(not(any(loom, shuttle)))]
pub use sysctl::{DirtyLimits, SweptLimits, SysctlError};
#[cfg(not(loom))]
pub use topology::{NodeId, Topology, TopologyError, current_cpu};
#[cfg(not(any(loom, shuttle)))]
pub use usage::{ChildProcess, ChildUsage, SpawnHow, Usage};
