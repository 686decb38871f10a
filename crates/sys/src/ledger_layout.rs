//! Where a process keeps its account of waits, for those that look at it from outside.
//!
//! The library counts in its own memory, whether anybody looks or not. So that a tracer finds the
//! counts, a process puts up a *signpost* when it first counts: one page of a memory file with a
//! name, which stands in `/proc/PID/maps` and costs nothing afterwards.
//!
//! ```text
//!  signpost              root                       slabs
//!  --------              ----                       -----
//!  0  MAGIC              0   MAGIC                  0        rows[REASONS][SLOTS]
//!  16 address of root ─▶ 16  address of a slab ──▶  SLAB_NEXT  address of the next, or null
//!                        24  address of a slab      (the one at 24 is for threads that are
//!                            of its own              nearly gone; its link means nothing)
//!                        32  names[REASONS], NAME_BYTES each, zero behind the name
//!                        ROOT_GATES_HIDDEN  how many gates there are beyond
//!                        ROOT_GATES  gates[GATES], GATE_BYTES each
//! ```
//!
//! A row is [`ROW_BYTES`] long and begins with the [`FIELDS`] as 64-bit numbers. The account of a
//! reason is the sum of its rows in all slabs. The root begins at a multiple of [`GATE_BYTES`]. A
//! forked child has a copy of everything.
//!
//! A gate is its [`GATE_FIELDS`] as 64-bit numbers; a free place has an owner of 0. While a thread
//! waits at a gate, its row of the wait's reason has at [`ROW_WAITING`] since when (nanoseconds of
//! `CLOCK_MONOTONIC`; else 0), and behind that the thread's number and, in the upper half, the
//! gate's, from 1 on.

#![expect(unsafe_code, reason = "a mapping is raw by nature")]

use std::ptr;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// The name of the memory file; `/proc/PID/maps` shows it as `/memfd:unherd-ledger`.
pub const SIGNPOST: &str = "unherd-ledger";
/// What signpost and root begin with. Another layout will have another number at its end.
pub const MAGIC: [u8; 16] = *b"unherd.ledger/2\0";
/// How many reasons a process can have.
pub const REASONS: usize = 64;
/// How many threads count in one slab.
pub const SLOTS: usize = 32;
/// From one row to the next.
pub const ROW_BYTES: usize = 128;
/// Where a slab keeps the address of the next.
pub const SLAB_NEXT: usize = REASONS * SLOTS * ROW_BYTES;
/// From one name to the next.
pub const NAME_BYTES: usize = 48;
/// Where in a row a thread says that it waits at a gate.
pub const ROW_WAITING: usize = 72;
/// Where in the root the number of gates stands that have no place there.
pub const ROOT_GATES_HIDDEN: usize = 3104;
/// Where in the root the gates begin.
pub const ROOT_GATES: usize = 3136;
/// How many gates a process shows: those that found a free place when they were made.
pub const GATES: usize = 64;
/// From one gate to the next.
pub const GATE_BYTES: usize = 64;
/// The numbers of a gate: 1 and the number of its reason; when it was congested or cleared last,
/// when progress was made last, and how long a unit of it takes; how many wait; how often its
/// signal became untrusted, and when it did last; how many waits ended by its bound.
pub const GATE_FIELDS: [&str; 8] = [
    "owner",
    "last_change_ns",
    "last_progress_ns",
    "unit_ns",
    "waiting",
    "untrusted",
    "last_untrusted_ns",
    "overdue",
];
/// The numbers of a row, by their names in `unherd.waits/1`.
pub const FIELDS: [&str; 9] = [
    "waits",
    "asleep_ns",
    "wakeups",
    "needless_wakeups",
    "wakes",
    "empty_wakes",
    "timeouts",
    "locks",
    "locks_contended",
];

/// Puts up the signpost to `root`. It stays for the life of the process.
pub fn put_up_signpost<T>(root: &'static T) -> Result<(), Errno> {
    let page = rustix::param::page_size();
    let file = memfd_create(SIGNPOST, MemfdFlags::CLOEXEC)?;
    ftruncate(&file, page as u64)?;
    let mut content = [0; 24];
    content[..16].copy_from_slice(&MAGIC);
    content[16..].copy_from_slice(&(ptr::from_ref(root).addr() as u64).to_ne_bytes());
    rustix::io::pwrite(&file, &content, 0)?;
    // Populated, since an eBPF program can read only what is there without a fault.
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
    unsafe { mmap(ptr::null_mut(), page, ProtFlags::READ, flags, &file, 0) }?;
    Ok(())
}
