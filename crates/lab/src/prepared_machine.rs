//! What a bench asks of the machine before and during its rounds, and gives back after them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use unherd_host::{
    BusyTime, Cgroup, CgroupError, CgroupVersion, Directory, DirtyLimits, KernelWork, Machine,
    SweptLimits, SysctlError,
};
use unherd_sys::{Deadline, Timestamp};

use crate::catalogue::Workload;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::leftovers::WorkDirectory;
use crate::size::format_size;

/// The memory of workloads that are bounded by it, unless told.
pub const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

/// Less than this is taken for a slip: the kernel kills even true(1) in a cgroup of 128 KiB.
pub const MEMORY_MIN_BYTES: u64 = 1 << 20;

/// How long the idle machine is watched.
const IDLE_WATCH: Duration = Duration::from_secs(1);

/// More busy CPUs than this before the rounds, and something else is running.
const BUSY_WHEN_IDLE_MAX: f64 = 0.1;

/// Where the journal of changed settings stands: one place, so that any later start finds it.
const STATE: &str = "/var/lib/unherd";

/// What the command line says about the machine.
#[derive(Debug, Clone, Default)]
pub struct MachineOptions {
    /// Where files are made; the current directory unless told, or none for a workload that takes
    /// one only if told.
    pub dir: Option<PathBuf>,
    /// The memory that each implementation may use.
    pub memory_bytes: Option<u64>,
    /// Run without a memory cgroup, and mark the record.
    pub without_cgroup: bool,
    /// What to do about vm.dirty_bytes and its twin.
    pub dirty: Dirty,
}

/// Whether vm.dirty_bytes and its twin are scaled with the memory while the rounds run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dirty {
    /// Where cgroups do not throttle dirtying (v1) and this user may: else the record is marked.
    #[default]
    Auto,
    /// They are, or the bench does not run.
    Set,
    /// They are not; where cgroups do not throttle dirtying, the record is marked.
    Keep,
}

/// The machine, made ready; drop gives back what was taken.
#[derive(Debug)]
pub(crate) struct PreparedMachine {
    /// The description that the record keeps.
    pub(crate) machine: Value,
    pub(crate) work: Option<WorkDirectory>,
    pub(crate) memory_bytes: Option<u64>,
    /// The limit of the cgroup that each process gets.
    cgroup_bytes: Option<u64>,
    /// CPUs that kernel threads keep busy when nothing is measured.
    pub(crate) idle_busy: Option<f64>,
    /// What a reader of the record must know.
    pub(crate) marks: Vec<String>,
    /// Drop restores them, too.
    dirty: Option<DirtyLimits>,
}

impl PreparedMachine {
    /// Clears away what killed benches have left, checks what is asked for against the machine, and
    /// makes it ready. Blocks for a second where the idle machine must be watched.
    pub(crate) fn prepare(
        workload: &Workload,
        options: &MachineOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let mut marks = Vec::new();
        sweep(&mut marks);
        let machine = Machine::describe();
        let memory_bytes = memory(workload, options, &machine)?;
        let work = directory(workload, options)?;
        let version = match memory_bytes {
            Some(bytes) => cgroup(bytes, options, &mut marks)?,
            None => None,
        };
        let dirty = dirty_limits(workload, options, memory_bytes, version, &mut marks)?;
        let idle_busy = if workload.kernel_work {
            let idle = Idle::watch(interrupt)?;
            marks.push(idle.account());
            if idle.busy_cpus > BUSY_WHEN_IDLE_MAX {
                marks.push("the machine was not idle before the rounds began".to_owned());
            }
            Some(idle.kernel_cpus)
        } else {
            None
        };
        Ok(Self {
            machine: described(&machine, work.as_ref()),
            work,
            memory_bytes,
            cgroup_bytes: version.and(memory_bytes),
            idle_busy,
            marks,
            dirty,
        })
    }

    /// Restores the settings. The error says what is to be done by hand.
    pub(crate) fn restore(&mut self) -> Result<(), SysctlError> {
        self.dirty.take().map_or(Ok(()), DirtyLimits::restore)
    }

    /// A fresh cgroup for one process, where memory is bounded.
    pub(crate) fn cgroup(&self) -> Result<Option<Cgroup>, Error> {
        self.cgroup_bytes.map(|bytes| Cgroup::create(bytes).map_err(cgroup_refused)).transpose()
    }
}

/// Clears away what killed benches have left. What cannot be cleared away by this user is told
/// where it matters to the figures.
fn sweep(marks: &mut Vec<String>) {
    // A cgroup without processes costs nothing; the next start tries again.
    let _ = Cgroup::sweep();
    match DirtyLimits::sweep(Path::new(STATE)) {
        Ok(SweptLimits::Nothing | SweptLimits::Restored) => {}
        Ok(SweptLimits::InUse { pid }) => {
            marks.push(format!("process {pid} has changed vm.dirty_bytes and still runs"));
        }
        Err(error) => {
            marks.push(format!("a killed bench has left vm.dirty_bytes changed: {error}"));
        }
    }
}

fn described(machine: &Machine, work: Option<&WorkDirectory>) -> Value {
    let mut described = json!(machine);
    let directory = work.and_then(|work| Directory::describe(work.path()).ok());
    if let (Value::Object(fields), Some(directory)) = (&mut described, directory) {
        fields.insert("directory".to_owned(), json!(directory));
    }
    described
}

fn directory(
    workload: &Workload,
    options: &MachineOptions,
) -> Result<Option<WorkDirectory>, Error> {
    let dir = match &options.dir {
        Some(_) if !workload.uses_dir && !workload.takes_dir => {
            let refused = format!("{} uses no files", workload.name);
            return Err(Error::usage(refused, "leave out --dir"));
        }
        Some(dir) => dir,
        None if workload.uses_dir => Path::new("."),
        None => return Ok(None),
    };
    WorkDirectory::create(dir).map(Some)
}

fn memory(
    workload: &Workload,
    options: &MachineOptions,
    machine: &Machine,
) -> Result<Option<u64>, Error> {
    match (options.memory_bytes, workload.uses_memory) {
        (None, false) => Ok(None),
        (None, true) => Ok(Some(DEFAULT_MEMORY_BYTES)),
        (Some(_), false) => Err(Error::usage(
            format!("{} is not bounded by memory", workload.name),
            "leave out --memory",
        )),
        (Some(bytes), true) if bytes < MEMORY_MIN_BYTES => Err(Error::usage(
            format!("--memory {} leaves nothing to run in", format_size(bytes)),
            format!("give at least {}", format_size(MEMORY_MIN_BYTES)),
        )),
        (Some(bytes), true) if bytes > machine.memory_bytes => Err(Error::usage(
            format!("--memory {} is more than this machine has", format_size(bytes)),
            format!("give at most {}", format_size(machine.memory_bytes)),
        )),
        (Some(bytes), true) => Ok(Some(bytes)),
    }
}

/// How the mark of a result begins whose memory was not bounded.
pub(crate) const NO_CGROUP: &str =
    "the kernel's page cache had all of the machine's memory, as there was no memory cgroup";

/// Whether cgroups can be made, by making one. Memory that was asked for must be bounded; a default
/// may be left unbounded where that is not allowed, and the record says so.
fn cgroup(
    bytes: u64,
    options: &MachineOptions,
    marks: &mut Vec<String>,
) -> Result<Option<CgroupVersion>, Error> {
    if options.without_cgroup {
        marks.push(format!("{NO_CGROUP} (--without-cgroup)"));
        return Ok(None);
    }
    match Cgroup::create(bytes) {
        Ok(cgroup) => Ok(Some(cgroup.version())),
        Err(error @ CgroupError::LimitRefused { .. }) => Err(cgroup_refused(error)),
        Err(error) if options.memory_bytes.is_some() => Err(cgroup_refused(error)),
        Err(error) => {
            marks.push(format!("{NO_CGROUP}: {error}"));
            Ok(None)
        }
    }
}

/// The kernel's door says what to do in its own message.
fn cgroup_refused(error: CgroupError) -> Error {
    Error::usage(
        error.to_string(),
        "or give --without-cgroup, and the result says that there was none",
    )
}

/// The kernel's own shares of memory, 20 % dirty and 10 % in the background, of the bounded memory.
///
/// Cgroup v1 does not throttle who dirties pages: left alone, some hundred buffered writers fill a
/// small cgroup with pages that are dirty or in write-back, and then stand still for minutes until
/// the kernel kills one. So there the limits are scaled unless the command line says otherwise.
fn dirty_limits(
    workload: &Workload,
    options: &MachineOptions,
    memory_bytes: Option<u64>,
    version: Option<CgroupVersion>,
    marks: &mut Vec<String>,
) -> Result<Option<DirtyLimits>, Error> {
    let unthrottled = version == Some(CgroupVersion::V1) && workload.kernel_work;
    let unscaled = "cgroup v1 does not throttle dirtying, and vm.dirty_bytes was left alone";
    match (options.dirty, memory_bytes) {
        (Dirty::Set, None) => Err(Error::usage(
            format!("{} is not bounded by memory", workload.name),
            "leave out --set-dirty",
        )),
        (Dirty::Set, Some(bytes)) => set_dirty_limits(bytes, marks).map(Some),
        (Dirty::Auto, Some(bytes)) if unthrottled => {
            let limits = set_dirty_limits(bytes, marks);
            if let Err(error) = &limits {
                marks.push(format!("{unscaled}: {error}"));
            }
            Ok(limits.ok())
        }
        (Dirty::Keep, _) if unthrottled => {
            marks.push(format!("{unscaled} (--keep-dirty)"));
            Ok(None)
        }
        (Dirty::Auto | Dirty::Keep, _) => Ok(None),
    }
}

fn set_dirty_limits(bytes: u64, marks: &mut Vec<String>) -> Result<DirtyLimits, Error> {
    let state = Path::new(STATE);
    fs::create_dir_all(state).map_err(|source| {
        let what = format!("cannot keep a journal of settings in {STATE}");
        Error::machine(what, "run as root, or give --keep-dirty", source)
    })?;
    let (dirty, background) = (bytes / 5, bytes / 10);
    let limits = DirtyLimits::set(state, dirty, background)
        .map_err(|error| Error::usage(error.to_string(), "or give --keep-dirty"))?;
    marks.push(format!(
        "vm.dirty_bytes was {} and vm.dirty_background_bytes {} while the rounds ran",
        format_size(dirty),
        format_size(background)
    ));
    Ok(limits)
}

/// The machine while the lab only waits.
struct Idle {
    /// CPUs that kernel threads keep busy, or, where these cannot be seen, that are busy at all.
    kernel_cpus: f64,
    /// CPUs that are busy.
    busy_cpus: f64,
    is_exact: bool,
}

impl Idle {
    /// Blocks for [`IDLE_WATCH`].
    fn watch(interrupt: &Interrupt) -> Result<Self, Error> {
        let unreadable = |errno: unherd_sys::Errno| {
            let source = io::Error::from(errno);
            Error::machine("cannot read the machine's busy time", "mount /proc", source)
        };
        let now = || Ok::<_, unherd_sys::Errno>((KernelWork::now()?, BusyTime::now()?));
        let (kernel, busy) = now().map_err(unreadable)?;
        let began = Timestamp::now();
        interrupt.pause(Deadline::after(IDLE_WATCH));
        // An interrupt may have ended the wait at once; nothing will be run then.
        let elapsed = Timestamp::now().since(began).as_secs_f64().max(1e-9);
        let (kernel_after, busy_after) = now().map_err(unreadable)?;
        Ok(Self {
            kernel_cpus: kernel_after.since(&kernel).as_secs_f64() / elapsed,
            busy_cpus: busy_after.since(busy).busy_ns() as f64 / 1e9 / elapsed,
            is_exact: kernel_after.is_exact(),
        })
    }

    /// What CPU time is, for the record.
    fn account(&self) -> String {
        let cpus = self.kernel_cpus;
        if self.is_exact {
            format!(
                "kernel threads do part of the work: CPU is the process's and theirs, less the \
                 {cpus:.4} CPUs that they take on the idle machine"
            )
        } else {
            format!(
                "kernel threads do part of the work and cannot be seen from here: CPU is the \
                 machine's busy time less {cpus:.3} CPUs of the idle machine, with whatever else \
                 ran, in ticks of 10 ms; phases below a CPU-second are rough"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::registry;

    fn refusal(options: &MachineOptions, change: impl FnOnce(&mut Workload)) -> String {
        let mut workload = registry().workload("wait").unwrap().workload.clone();
        change(&mut workload);
        let error =
            PreparedMachine::prepare(&workload, options, &Interrupt::new().unwrap()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    }

    #[test]
    fn memory_is_checked_against_the_machine() {
        let bounded = |workload: &mut Workload| workload.uses_memory = true;
        let of = |bytes| MachineOptions { memory_bytes: Some(bytes), ..MachineOptions::default() };
        let refused = "--memory 1023 KiB leaves nothing to run in; give at least 1 MiB";
        assert_eq!(refusal(&of(1023 << 10), bounded), refused);
        assert!(
            refusal(&of(1 << 60), bounded).contains("more than this machine has; give at most")
        );
        assert!(refusal(&of(1 << 20), |_| {}).contains("not bounded by memory"));
    }

    #[test]
    fn unused_options_are_refused() {
        let dir = MachineOptions { dir: Some("/tmp".into()), ..MachineOptions::default() };
        assert!(refusal(&dir, |_| {}).contains("uses no files"));
        let dirty = MachineOptions { dirty: Dirty::Set, ..MachineOptions::default() };
        assert!(refusal(&dirty, |_| {}).contains("leave out --set-dirty"));
    }

    #[test]
    fn taken_directory_is_made_only_if_given() {
        let mut workload = registry().workload("wait").unwrap().workload.clone();
        workload.takes_dir = true;
        let work_of = |dir| {
            let options = MachineOptions { dir, ..MachineOptions::default() };
            let interrupt = Interrupt::new().unwrap();
            PreparedMachine::prepare(&workload, &options, &interrupt).unwrap().work
        };
        assert!(work_of(None).is_none());
        let given = tempfile::tempdir().unwrap();
        let work = work_of(Some(given.path().into())).unwrap();
        assert!(work.path().starts_with(given.path()), "{work:?}");
    }

    #[test]
    fn missing_default_cgroup_is_marked() {
        let mut workload = registry().workload("wait").unwrap().workload.clone();
        workload.uses_memory = true;
        let options = MachineOptions { without_cgroup: true, ..MachineOptions::default() };
        let prepared =
            PreparedMachine::prepare(&workload, &options, &Interrupt::new().unwrap()).unwrap();
        assert_eq!(prepared.memory_bytes, Some(DEFAULT_MEMORY_BYTES));
        assert!(prepared.cgroup().unwrap().is_none());
        assert!(prepared.marks.iter().any(|mark| mark.contains("no memory cgroup")));
    }

    #[test]
    fn root_a_bound_is_a_cgroup_of_that_size() {
        let mut workload = registry().workload("wait").unwrap().workload.clone();
        workload.uses_memory = true;
        let options = MachineOptions { memory_bytes: Some(32 << 20), ..MachineOptions::default() };
        match PreparedMachine::prepare(&workload, &options, &Interrupt::new().unwrap()) {
            Ok(prepared) => assert!(prepared.cgroup().unwrap().is_some()),
            Err(error) => println!("skipped: {error}"),
        }
    }
}
