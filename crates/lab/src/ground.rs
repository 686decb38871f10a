//! What a bench asks of the machine before and during its rounds, and gives back after them.

use std::path::PathBuf;
use std::time::Duration;

use unherd_sys::{BusyTime, Deadline, Timestamp};

use crate::catalogue::Workload;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::leftovers::WorkDirectory;

/// The memory of workloads that are bounded by it, unless told.
pub const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

/// How long the idle machine is watched.
const IDLE_WATCH: Duration = Duration::from_secs(1);

/// What the command line says about the machine.
#[derive(Debug, Clone, Default)]
pub struct Means {
    /// Where files are made; the current directory unless told.
    pub dir: Option<PathBuf>,
    /// The memory that each implementation may use.
    pub memory_bytes: Option<u64>,
    /// Run without a memory cgroup, and mark the record.
    pub without_cgroup: bool,
    /// Scale vm.dirty_bytes and its twin with the memory, and restore them afterwards.
    pub set_dirty: bool,
}

/// The machine, made ready; drop gives back what was taken.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) work: Option<WorkDirectory>,
    pub(crate) memory_bytes: Option<u64>,
    /// CPUs that are busy when nothing is measured.
    pub(crate) idle_busy: Option<f64>,
    /// What a reader of the record must know.
    pub(crate) marks: Vec<String>,
}

impl Ground {
    /// Checks what is asked for against the machine, and makes it ready. Blocks for a second where
    /// the idle machine must be watched.
    pub(crate) fn prepare(
        workload: &Workload,
        means: &Means,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let name = &workload.name;
        let mut marks = Vec::new();
        let memory_bytes = memory(workload, means)?;
        let work = match (&means.dir, workload.uses_dir) {
            (Some(_), false) => {
                return Err(Error::usage(format!("{name} uses no files"), "leave out --dir"));
            }
            (None, false) => None,
            (dir, true) => Some(WorkDirectory::create(dir.as_deref().unwrap_or(".".as_ref()))?),
        };
        let idle_busy = if workload.kernel_work {
            let busy = idle_busy(interrupt)?;
            marks.push(format!(
                "kernel threads do part of the work: CPU is the machine's busy time less an idle \
                 baseline of {busy:.3} CPUs"
            ));
            Some(busy)
        } else {
            None
        };
        Ok(Self { work, memory_bytes, idle_busy, marks })
    }
}

fn memory(workload: &Workload, means: &Means) -> Result<Option<u64>, Error> {
    match (means.memory_bytes, workload.uses_memory) {
        (None, false) => Ok(None),
        (None, true) => Ok(Some(DEFAULT_MEMORY_BYTES)),
        (Some(_), false) => Err(Error::usage(
            format!("{} is not bounded by memory", workload.name),
            "leave out --memory",
        )),
        (Some(0), true) => {
            Err(Error::usage("--memory 0 leaves nothing to run in", "give a size such as 256M"))
        }
        (Some(bytes), true) => Ok(Some(bytes)),
    }
}

/// Busy CPUs of the machine while the lab only waits.
fn idle_busy(interrupt: &Interrupt) -> Result<f64, Error> {
    let failed = |errno| {
        Error::machine("cannot read the machine's busy time", "mount /proc", io_error(errno))
    };
    let (began, before) = (Timestamp::now(), BusyTime::now().map_err(failed)?);
    interrupt.pause(Deadline::after(IDLE_WATCH));
    let busy_ns = BusyTime::now().map_err(failed)?.since(before).busy_ns();
    let elapsed = Timestamp::now().since(began).as_secs_f64();
    // The kernel counts in ticks; a wait that was cut short by an interrupt has hardly any.
    Ok(if elapsed > 0.0 { busy_ns as f64 / 1e9 / elapsed } else { 0.0 })
}

fn io_error(errno: unherd_sys::Errno) -> std::io::Error {
    errno.into()
}
