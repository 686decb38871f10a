//! The machine as the bench, the tracer and the command see it.
//!
//! What the library itself never needs of Linux stands here, so that a program which uses the
//! library does not compile it: children whose CPU time is accounted for ([`ChildProcess`]), memory
//! cgroups ([`Cgroup`]), the limits of dirty memory ([`DirtyLimits`]), a sampling profiler
//! ([`Sampler`], [`ChainSampler`]), what the machine is ([`Machine`]) and does ([`BusyTime`],
//! [`Pressure`]), and for whom ([`ForeignCpu`], [`KernelWork`]).
//!
//! It promises what [`unherd_sys`] does: errors say what to do about them, and what holds a
//! resource gives it back when dropped. What a killed process leaves behind carries a
//! [`ProcessMark`], by which the next one removes it. It does not judge figures: that is the lab's
//! affair.
//!
//! ```
//! use std::process::Command;
//!
//! use unherd_host::{ChildProcess, SpawnHow};
//! use unherd_sys::Deadline;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let how = SpawnHow { die_with_parent: true, ..SpawnHow::default() };
//! let mut child = ChildProcess::spawn(Command::new("true"), how)?;
//! let ended = child.wait(Deadline::NEVER)?.expect("there is no deadline that could pass");
//! assert!(ended.status.success());
//! println!("it used {:?} of CPU time", ended.usage.cpu());
//! # Ok(())
//! # }
//! ```

mod busy;
mod cgroup;
mod machine;
mod orphans;
mod owners;
mod pressure;
mod process_mark;
mod sampler;
mod start;
mod symbols;
mod sysctl;
mod usage;

pub use busy::BusyTime;
pub use cgroup::{Cgroup, CgroupError, CgroupVersion};
pub use machine::{Directory, Machine};
pub use orphans::{adopt_orphans, end_orphans};
pub use owners::{ForeignCpu, KernelWork, processors};
pub use pressure::{Pressure, load_1min};
pub use process_mark::{NotAProcessMark, ProcessMark};
pub use sampler::{
    ChainOptions, ChainRow, ChainSampler, Chains, CodeMapping, Profile, ProfileRow, SampleKind,
    SampleScope, Sampler, SamplerError, ThreadSwitches,
};
pub use start::Program;
pub use symbols::Side;
pub use sysctl::{DirtyLimits, SweptLimits, SysctlError};
pub use usage::{ChildEnd, ChildProcess, ChildUsage, IoBytes, SpawnHow, Usage};
