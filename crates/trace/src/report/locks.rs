//! Table 6, contended kernel locks: those that were not free.

use std::collections::BTreeMap;

use serde::Serialize;

use super::site::Namer;
use crate::observation::{LockKind, LockRow};

/// Waits for one kind of kernel lock from one caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelLock {
    /// The kind.
    pub kind: &'static str,
    /// Whether its waiters spin, so that their time is CPU time.
    pub spins: bool,
    /// The first function that is not the lock's own. It is looked up when a lock is first met in a
    /// kind of system call, and every 64th time.
    pub caller: String,
    /// What called that, outwards.
    pub below: Vec<String>,
    /// The scheduler takes it to switch or to wake: more of it is spent the more threads sleep.
    pub of_scheduler: bool,
    /// How often it was not free.
    pub count: u64,
    /// Time waited.
    pub total_ns: u64,
    /// The longest wait.
    pub longest_ns: u64,
    /// The stack with the longest wait, by its index in the report's stacks.
    pub stack: Option<usize>,
}

fn kind_text(kind: LockKind) -> (&'static str, bool) {
    match kind {
        LockKind::Spin => ("spin lock", true),
        LockKind::SpinRead => ("rw spin lock, read", true),
        LockKind::SpinWrite => ("rw spin lock, write", true),
        LockKind::Mutex => ("mutex", false),
        LockKind::SemaphoreRead => ("rw semaphore, read", false),
        LockKind::SemaphoreWrite => ("rw semaphore, write", false),
        LockKind::RealTime => ("rt mutex", false),
        LockKind::PerCpu => ("percpu rw semaphore", false),
        LockKind::Other => ("other", false),
    }
}

/// Functions of the locks themselves.
const LOCK_FUNCTIONS: [&str; 25] = [
    "_raw_",
    "lock_sock",
    "__lock_sock",
    "raw_spin_",
    "__raw_",
    "native_queued",
    "queued_",
    "__pv_queued",
    "pv_",
    "do_raw_",
    "mutex_",
    "__mutex",
    "down_",
    "__down",
    "rwsem_",
    "rt_mutex",
    "__rt_mutex",
    "percpu_down",
    "__percpu_down",
    "ww_mutex",
    "__ww_mutex",
    "__traceiter_",
    "trace_",
    "bpf_",
    "osq_",
];

/// Functions by which a program enters the kernel: they tell nothing of why.
const ENTRY: [&str; 9] = [
    "entry_",
    "do_syscall_64",
    "x64_sys_call",
    "ret_from_fork",
    "el0",
    "asm_",
    "exc_page_fault",
    "exit_to_user_mode",
    "irqentry_exit",
];

/// Functions of the scheduler that take the locks of run queues and of sleeping threads.
const SCHEDULER: [&str; 16] = [
    "__schedule",
    "try_to_wake_up",
    "ttwu_",
    "sched_ttwu",
    "task_rq_lock",
    "__task_rq_lock",
    "wake_up_new_task",
    "select_task_rq",
    "sched_balance",
    "load_balance",
    "newidle_balance",
    "update_blocked_averages",
    "sched_tick",
    "scheduler_tick",
    "task_sched_runtime",
    "finish_task_switch",
];

pub(crate) fn is_entry(function: &str) -> bool {
    ENTRY.iter().any(|prefix| function.starts_with(prefix))
}

pub(crate) fn locks(rows: &[LockRow], namer: &mut Namer<'_>) -> Vec<KernelLock> {
    let mut found: BTreeMap<(&'static str, String), KernelLock> = BTreeMap::new();
    for row in rows {
        let (kind, spins) = kind_text(row.kind);
        let stack = namer.kernel(row.kernel_stack);
        let frames = stack.and_then(|index| namer.stacks().get(index));
        let names = frames.into_iter().flat_map(|stack| &stack.frames).map(|frame| &frame.name);
        let own = |name: &&String| LOCK_FUNCTIONS.iter().any(|prefix| name.starts_with(prefix));
        let mut callers = names.skip_while(own);
        let caller = callers.next().cloned().unwrap_or_else(|| "?".into());
        let below: Vec<String> = callers.filter(|name| !is_entry(name)).take(3).cloned().collect();
        let of_scheduler = SCHEDULER.iter().any(|prefix| caller.starts_with(prefix));
        let lock = found.entry((kind, caller.clone())).or_insert_with(|| KernelLock {
            kind,
            spins,
            caller,
            below: below.clone(),
            of_scheduler,
            count: 0,
            total_ns: 0,
            longest_ns: 0,
            stack,
        });
        lock.count = lock.count.saturating_add(row.count);
        lock.total_ns = lock.total_ns.saturating_add(row.total_ns);
        if row.longest_ns > lock.longest_ns {
            (lock.longest_ns, lock.stack, lock.below) = (row.longest_ns, stack, below);
        }
    }
    let mut locks: Vec<KernelLock> = found.into_values().filter(|lock| lock.count > 0).collect();
    locks.sort_by_key(|lock| std::cmp::Reverse((lock.total_ns, lock.count)));
    locks
}
