//! The eBPF programs in the kernel: opened, fitted to this kernel, loaded, attached, detached.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Typedef};
use libbpf_rs::{
    Btf, Iter, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramMut,
};

use crate::observation::Missing;
use crate::refusal::refusal;
use crate::syscalls;
use crate::tracer::{TraceError, TraceOptions};

/// The compiled programs.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tracer.bpf.o"));

/// What libbpf is told that the object is called, and calls the maps of its variables after.
const NAME: &str = "unherd";
/// The settings.
const READ_ONLY_DATA: &str = "unherd.rodata";
/// The counts that have no row.
pub(crate) const VARIABLES: &str = "unherd.bss";

/// As `UH_EVENT_RING`: events a processor remembers.
const EVENT_RING: u32 = 4096;

/// Of an episode that nobody has read yet: `struct uh_episode`, and the ring's own head.
const EPISODE_BYTES: u32 = 96;
/// The reader is woken at 256 KiB.
const EPISODES_RING_BYTES_MIN: u32 = 1 << 20;
/// More than 40,000 of them.
const EPISODES_RING_BYTES_MAX: u32 = 1 << 22;

/// What the report lacks where a kernel lacks the tracepoint; each names a program's.
const CONSEQUENCES: [(&str, &str); 22] = [
    ("sched_switch", "no sleeps, no wakeups, nothing about waiting at all"),
    ("sched_waking", "no wakers, no herds; sleeps last until the thread runs again"),
    ("sched_process_fork", "children and new threads are not followed"),
    ("sched_process_exec", "a command is not followed from its first instruction"),
    ("sched_process_exit", "threads that end before tracing does are not counted"),
    ("sys_enter", "ledgers of processes that end are not read"),
    ("sys_exit", "no calls, no futex outcomes, no progress: no wakeup is judged"),
    ("hrtimer_expire_entry", "wakes by timers are taken for others; no timer polls"),
    ("hrtimer_expire_exit", "wakes after a timer may be taken for its own"),
    ("timer_expire_entry", "wakes by coarse timers are taken for others"),
    ("timer_expire_exit", "wakes after a coarse timer may be taken for its own"),
    ("irq_handler_entry", "wakes by interrupts are taken for the interrupted thread's"),
    ("irq_handler_exit", "wakes after an interrupt may be taken for its own"),
    ("sk_data_ready", "herds at sockets are told by the threads' own objects alone"),
    ("contention_begin", "no contended kernel locks"),
    ("contention_end", "no contended kernel locks"),
    ("mm_vmscan_throttled", "no throttling by reclaim"),
    ("mm_vmscan_direct_reclaim_begin", "no direct reclaim"),
    ("mm_vmscan_direct_reclaim_end", "no direct reclaim"),
    ("mm_vmscan_memcg_reclaim_begin", "no reclaim in memory cgroups"),
    ("mm_vmscan_memcg_reclaim_end", "no reclaim in memory cgroups"),
    ("balance_dirty_pages", "no stalls of write-back"),
];

/// The programs, loaded and attached. Dropping it detaches and frees them.
#[derive(Debug)]
pub(crate) struct Programs {
    // Before the object: a link holds its program.
    links: Vec<Link>,
    object: Object,
    pub(crate) missing: Vec<Missing>,
}

impl Programs {
    /// Loads and attaches all programs for which this kernel has the tracepoint.
    pub(crate) fn start(
        options: &TraceOptions,
        next_child: bool,
        round_trip_ns: u64,
    ) -> Result<Self, TraceError> {
        if !fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false) {
            return Err(TraceError::NoBtf);
        }
        let said = Said::begin();
        // A copy, because it comes from the allocator aligned as an ELF file must be.
        let bytes = OBJECT.to_owned();
        let mut open = ObjectBuilder::default()
            .name(NAME)
            .and_then(|builder| builder.open_memory(&bytes))
            .map_err(|error| said.error(error))?;
        set_sizes(&mut open, options)?;
        let btf = Btf::from_vmlinux().map_err(|_| TraceError::NoBtf)?;
        if has_helper(&btf, REGISTERS) == Some(false) {
            return Err(TraceError::TooOld);
        }
        let exit_has_memory = exit_has_memory(&btf, options);
        let shape = Shape {
            next_child,
            exit_has_memory,
            sees_calls: !is_left_out(options, CALLS) && tracepoint_arguments(&btf, CALLS).is_some(),
        };
        set_settings(&mut open, options, shape, round_trip_ns)?;
        let missing = leave_out_missing(&mut open, &btf, options, exit_has_memory);
        let object = open.load().map_err(|error| said.error(error))?;
        let mut programs = Self { links: Vec::new(), object, missing };
        // The iterator tells the programs which thread is the follower; so it runs before them.
        programs.adopt(0)?;
        programs.attach().map_err(|error| said.error(error))?;
        Ok(programs)
    }

    fn attach(&mut self) -> libbpf_rs::Result<()> {
        let programs = self.object.progs_mut();
        let loaded = programs.filter(|program| program.autoload() && is_on_tracepoint(program));
        self.links = loaded.map(|program| program.attach()).collect::<libbpf_rs::Result<_>>()?;
        Ok(())
    }

    /// Attaches them again once all is read, with this process followed: for its price.
    pub(crate) fn follow_ourselves(&mut self) -> Result<(), TraceError> {
        self.attach().map_err(TraceError::kernel)?;
        self.adopt(std::process::id())
    }

    /// Follows all threads of a process that lives already; 0 is none.
    pub(crate) fn adopt(&mut self, pid: u32) -> Result<(), TraceError> {
        self.map("uh_wanted")?
            .update(&0u32.to_ne_bytes(), &pid.to_ne_bytes(), MapFlags::ANY)
            .map_err(TraceError::kernel)?;
        self.iterate("uh_adopt")
    }

    /// Has the ledger that a process keeps at `root` read when it ends.
    pub(crate) fn know_ledger(&self, pid: u32, root: u64) -> Result<(), TraceError> {
        let roots = self.map("uh_ledger_roots")?;
        let root = root.to_ne_bytes();
        roots.update(&pid.to_ne_bytes(), &root, MapFlags::ANY).map_err(TraceError::kernel)
    }

    /// Whether the process is among those that are or were followed.
    pub(crate) fn follows(&self, pid: u32) -> Result<bool, TraceError> {
        let row = self.map("uh_processes")?.lookup(&pid.to_ne_bytes(), MapFlags::ANY);
        Ok(row.map_err(TraceError::kernel)?.is_some())
    }

    /// Detaches all programs, waits until none runs any more, and has the living threads' counts
    /// added to the rows.
    pub(crate) fn stop(&mut self) -> Result<(), TraceError> {
        self.links.clear();
        // A grace period of RCU, inside of which every run of a program lies. Where the kernel
        // cannot do it this way a count may be torn by a program that ends meanwhile.
        let _unsupported = wait_for_grace_period();
        self.iterate("uh_flush")
    }

    /// Runs an iterator program over all threads of the machine.
    fn iterate(&mut self, name: &str) -> Result<(), TraceError> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| TraceError::Load(format!("no program {name}")))?;
        let link = program.attach().map_err(TraceError::kernel)?;
        let mut walk = Iter::new(&link).map_err(TraceError::kernel)?;
        walk.read_to_end(&mut Vec::new()).map_err(TraceError::Io)?;
        Ok(())
    }

    /// A map by its name.
    pub(crate) fn map(&self, name: &str) -> Result<MapHandle, TraceError> {
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| TraceError::Load(format!("no map {name}")))?;
        MapHandle::try_from(&map).map_err(TraceError::kernel)
    }

    /// Bytes that the maps take, by the kernel's account, without what threads take.
    pub(crate) fn map_bytes(&self) -> u64 {
        self.object.maps().map(|map| fdinfo(map.as_fd(), "memlock").unwrap_or(0)).sum()
    }

    /// Bytes of a value of this map.
    pub(crate) fn value_bytes(&self, name: &str) -> u64 {
        self.map(name).map_or(0, |map| u64::from(map.value_size()))
    }

    /// Runs that the kernel skipped because the program was running there already.
    pub(crate) fn recursion_misses(&self) -> u64 {
        let programs = self.object.progs_mut();
        programs.filter_map(|program| fdinfo(program.as_fd(), "recursion_misses")).sum()
    }

    /// The kernel's numbers for what is loaded.
    pub(crate) fn kernel_objects(&self) -> KernelObjects {
        let programs = self.object.progs_mut();
        KernelObjects {
            programs: programs.filter_map(|p| fdinfo(p.as_fd(), "prog_id")).collect(),
            maps: self.object.maps().filter_map(|m| fdinfo(m.as_fd(), "map_id")).collect(),
            links: self.links.iter().filter_map(|l| fdinfo(l.as_fd(), "link_id")).collect(),
        }
    }
}

/// The kernel's numbers for the programs, maps and links of a tracer, so that a test can see that
/// they are gone.
#[doc(hidden)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelObjects {
    pub programs: BTreeSet<u64>,
    pub maps: BTreeSet<u64>,
    pub links: BTreeSet<u64>,
}

fn is_on_tracepoint(program: &ProgramMut<'_>) -> bool {
    program.section().to_str().is_some_and(|section| section.starts_with("tp_btf/"))
}

/// A number that the kernel tells of a descriptor.
fn fdinfo(fd: BorrowedFd<'_>, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}

/// `synchronize_rcu` by another name.
fn wait_for_grace_period() -> bool {
    rustix::thread::membarrier(rustix::thread::MembarrierCommand::Global).is_ok()
}

fn set_sizes(open: &mut OpenObject, options: &TraceOptions) -> Result<(), TraceError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(TraceError::kernel)? as u32;
    for mut map in open.maps_mut() {
        let entries = match map.name().to_str().unwrap_or_default() {
            "uh_waits" => options.waits,
            "uh_wakes" => options.wakes,
            "uh_futexes" => options.futexes,
            "uh_locks" => options.locks,
            "uh_stalls" => 64,
            "uh_pairs" => options.stack_pairs,
            "uh_processes" | "uh_lives" => options.processes,
            "uh_events" => cpus * EVENT_RING,
            "uh_episodes" if options.episodes > 0 => {
                let bytes = options.episodes.min(TraceOptions::EPISODES_MAX) * EPISODE_BYTES;
                bytes.next_power_of_two().clamp(EPISODES_RING_BYTES_MIN, EPISODES_RING_BYTES_MAX)
            }
            name @ ("uh_stacks" | "uh_more_stacks") => {
                let depth = options.stack_depth.clamp(1, 127);
                map.set_value_size(depth * 8).map_err(TraceError::kernel)?;
                if name == "uh_stacks" { options.stacks } else { options.stacks / 4 }
            }
            _ => continue,
        };
        map.set_max_entries(entries.max(1)).map_err(TraceError::kernel)?;
    }
    Ok(())
}

/// The tracepoint that says what system calls return.
const CALLS: &str = "sys_exit";

/// The tracepoint at which system calls begin.
const CALLS_BEGIN: &str = "sys_enter";

/// The helper without which there is no tracing at all: since Linux 5.15. The others that have no
/// substitute are older.
const REGISTERS: &str = "BPF_FUNC_task_pt_regs";

/// The helper that reads ledgers of processes that end: since Linux 5.17.
const LOOP: &str = "BPF_FUNC_loop";

/// What the programs are told about themselves.
#[derive(Clone, Copy)]
struct Shape {
    next_child: bool,
    exit_has_memory: bool,
    sees_calls: bool,
}

/// Whether the options ask that this tracepoint be left alone.
fn is_left_out(options: &TraceOptions, tracepoint: &str) -> bool {
    options.pretend_missing.iter().any(|name| name == tracepoint)
        || (tracepoint == CALLS && !options.calls)
}

/// Fills `uh_settings`, which is all of `.rodata`.
fn set_settings(
    open: &mut OpenObject,
    options: &TraceOptions,
    shape: Shape,
    round_trip_ns: u64,
) -> Result<(), TraceError> {
    let mut settings = syscalls::table();
    settings.extend(round_trip_ns.to_ne_bytes());
    settings.extend(options.first_stacks.to_ne_bytes());
    settings.extend(u32::from(shape.next_child).to_ne_bytes());
    settings.extend(u64::from(options.futexes / 4 * 3).to_ne_bytes());
    let episodes = options.episodes.min(TraceOptions::EPISODES_MAX);
    settings.extend(u64::from(episodes).to_ne_bytes());
    settings.extend(u32::from(shape.exit_has_memory).to_ne_bytes());
    settings.extend(u32::from(shape.sees_calls).to_ne_bytes());
    settings.extend(libc::SYS_exit_group.to_ne_bytes());
    settings.extend(u64::from(options.pretend_untold).to_ne_bytes());
    let map = open.maps_mut().find(|map| map.name() == READ_ONLY_DATA);
    let mut map = map.ok_or_else(|| TraceError::Load("no settings".into()))?;
    map.set_initial_value(&settings).map_err(TraceError::kernel)
}

/// Whether an exit is announced while the process's memory is still there: since Linux 6.16, whose
/// tracepoint says also whether it is the last thread.
fn exit_has_memory(btf: &Btf<'_>, options: &TraceOptions) -> bool {
    tracepoint_arguments(btf, "sched_process_exit") == Some(3)
        && !is_left_out(options, "exit_has_memory")
}

/// Has the programs not loaded whose tracepoint this kernel lacks, and says what that costs.
fn leave_out_missing(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    options: &TraceOptions,
    exit_has_memory: bool,
) -> Vec<Missing> {
    let mut missing = Vec::<Missing>::new();
    for mut program in open.progs_mut() {
        let section = program.section().to_str().unwrap_or_default();
        let Some(name) = section.strip_prefix("tp_btf/").map(str::to_owned) else { continue };
        if name == CALLS_BEGIN && (exit_has_memory || !options.calls) {
            program.set_autoload(false);
            continue;
        }
        let arguments = tracepoint_arguments(btf, &name);
        let of_another_kernel = match program.name().to_str().unwrap_or_default() {
            // The same tracepoint in two shapes, the first argument being the kernel's own.
            "uh_switch" => arguments == Some(4),
            "uh_switch_of_3" => arguments != Some(4),
            "uh_dirty" => arguments != Some(9),
            "uh_dirty_of_12" => arguments != Some(13),
            _ => false,
        };
        let is_of_no_known_shape =
            name == "balance_dirty_pages" && !matches!(arguments, Some(9 | 13));
        let lacking = if name == CALLS_BEGIN && has_helper(btf, LOOP) != Some(true) {
            Some("bpf_loop".to_owned())
        } else {
            let is_lacking = arguments.is_none() || is_of_no_known_shape;
            (is_lacking || is_left_out(options, &name)).then(|| name.clone())
        };
        if lacking.is_some() || of_another_kernel {
            program.set_autoload(false);
        }
        if let Some(tracepoint) = lacking
            && !missing.iter().any(|other| other.tracepoint == tracepoint)
        {
            let consequence = CONSEQUENCES.iter().find(|(tracepoint, _)| *tracepoint == name);
            let consequence = consequence.map_or("what its program counts", |(_, lost)| lost);
            let by_choice = if name == CALLS && !options.calls { "as asked; " } else { "" };
            let consequence = format!("{by_choice}{consequence}");
            missing.push(Missing { tracepoint, consequence });
        }
    }
    missing
}

/// Whether programs may call the helper of this name in the kernel's `enum bpf_func_id`; `None` if
/// the kernel does not describe that.
fn has_helper(btf: &Btf<'_>, name: &str) -> Option<bool> {
    let helpers = btf.type_by_name::<Enum<'_>>("bpf_func_id")?;
    Some(helpers.iter().any(|helper| helper.name.is_some_and(|it| it == name)))
}

/// How many arguments the tracepoint's probe takes; `None` if there is no such tracepoint.
fn tracepoint_arguments(btf: &Btf<'_>, name: &str) -> Option<usize> {
    let probe = btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}"))?;
    let pointer = Ptr::try_from(probe.next_type()?).ok()?;
    Some(FuncProto::try_from(pointer.next_type()?).ok()?.len())
}

thread_local! {
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What libbpf has said on this thread since: its errors are numbers, and this explains them.
struct Said;

impl Said {
    fn begin() -> Self {
        SAID.with_borrow_mut(Vec::clear);
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
            SAID.with_borrow_mut(|said| said.push(line.trim_end().to_owned()));
        })));
        Self
    }

    /// Makes an error of ours.
    fn error(&self, error: libbpf_rs::Error) -> TraceError {
        let said = SAID.with_borrow(|said| said.join("\n"));
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        refusal(error.kind(), &error.to_string(), &said, &lockdown)
    }
}

#[cfg(test)]
mod tests {
    use unherd_sys::ledger_layout::{FIELDS, REASONS, ROW_BYTES, SLOTS};

    use super::*;
    use crate::ledger::ROOT_BYTES;

    const LEDGER_BYTES: usize = ROOT_BYTES + REASONS * 8 * FIELDS.len() + 8 + 8 + 64 * 24;
    /// What `collect.rs` reads, by map: bytes of a key and of a value.
    const SIZES: [(&str, u32, u32); 14] = [
        ("uh_waits", 24, 24 + 20 * 8 + 48),
        ("uh_wakes", 24, 8 + 10 * 8 + 24),
        ("uh_futexes", 24, 10 * 8),
        ("uh_locks", 8, 3 * 8 + 8),
        ("uh_stalls", 8, 3 * 8 + 8),
        ("uh_pairs", 16, 3 * 8),
        ("uh_processes", 4, 8 + 16 + 8 * 8),
        ("uh_lives", 8, 16 + 8 + 9 * 8),
        ("uh_cpus", 4, 3 * (7 * 8 + 4 * 4 + 24) + 14 * 8 + 8),
        ("uh_copying", 4, 9 * 8),
        (VARIABLES, 4, 29 * 8 + 16),
        ("uh_ledgers", 4, LEDGER_BYTES as u32),
        ("uh_ledger_blocks", 4, (SLOTS * ROW_BYTES) as u32),
        (READ_ONLY_DATA, 4, (syscalls::SYSCALLS * syscalls::CLASS_BYTES) as u32 + 56),
    ];

    #[test]
    fn records_have_the_sizes_that_are_read() {
        let bytes = OBJECT.to_owned();
        let mut builder = ObjectBuilder::default();
        let open = builder.name(NAME).unwrap().open_memory(&bytes).unwrap();
        for (name, key, value) in SIZES {
            let map = open.maps().find(|map| map.name() == name).unwrap();
            assert_eq!((map.key_size(), map.value_size()), (key, value), "{name}");
        }
    }

    #[test]
    fn missing_tracepoints_have_consequences() {
        let bytes = OBJECT.to_owned();
        let mut builder = ObjectBuilder::default();
        let open = builder.name(NAME).unwrap().open_memory(&bytes).unwrap();
        for program in open.progs() {
            let section = program.section().to_str().unwrap();
            let Some(name) = section.strip_prefix("tp_btf/") else { continue };
            let known = CONSEQUENCES.iter().any(|(tracepoint, _)| *tracepoint == name);
            assert!(known, "{name}");
        }
    }
}
