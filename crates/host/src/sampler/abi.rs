//! The numbers of linux/perf_event.h that the sampler uses.

pub(super) const TYPE_SOFTWARE: u32 = 1;
pub(super) const COUNT_CPU_CLOCK: u64 = 0;
pub(super) const COUNT_CONTEXT_SWITCHES: u64 = 3;
pub(super) const SAMPLE_IP: u64 = 1;
pub(super) const SAMPLE_TID: u64 = 1 << 1;
pub(super) const SAMPLE_TIME: u64 = 1 << 2;
pub(super) const SAMPLE_CALLCHAIN: u64 = 1 << 5;
pub(super) const FLAG_DISABLED: u64 = 1;
pub(super) const FLAG_INHERIT: u64 = 1 << 1;
pub(super) const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
pub(super) const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
pub(super) const FLAG_MMAP: u64 = 1 << 8;
pub(super) const FLAG_ENABLE_ON_EXEC: u64 = 1 << 12;
pub(super) const FLAG_TASK: u64 = 1 << 13;
pub(super) const FLAG_WATERMARK: u64 = 1 << 14;
/// Records that are no samples end with the process, the thread and the time.
pub(super) const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
pub(super) const FLAG_EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
pub(super) const FLAG_MMAP2: u64 = 1 << 23;
/// Times are of the clock in `EventAttr::clock`.
pub(super) const FLAG_CLOCK: u64 = 1 << 25;
pub(super) const FLAG_CONTEXT_SWITCH: u64 = 1 << 26;
pub(super) const RECORD_LOST: u32 = 2;
pub(super) const RECORD_FORK: u32 = 7;
pub(super) const RECORD_SAMPLE: u32 = 9;
pub(super) const RECORD_MMAP2: u32 = 10;
pub(super) const RECORD_SWITCH: u32 = 14;
pub(super) const MISC_MODE: u16 = 7;
pub(super) const MISC_USER: u16 = 2;
pub(super) const MISC_SWITCH_OUT: u16 = 1 << 13;
/// It could have gone on. KERNEL: 4.17.
pub(super) const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// Values from here up mark parts of a call chain.
pub(super) const CONTEXT_FIRST: u64 = -4095_i64 as u64;
pub(super) const CONTEXT_KERNEL: u64 = -128_i64 as u64;
pub(super) const CONTEXT_USER: u64 = -512_i64 as u64;
