//! A session in the kernel: whom to follow, and what was seen of them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, Mutex};

use crate::observation::{AddedPrices, Episode, Observation, Process};
use crate::prices::Prices;
use crate::programs::{KernelObjects, Programs};
use crate::unwind::StackCopies;
use crate::{collect, ledger};

/// Whom to follow. Threads and children of the followed are followed too.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Follow {
    /// The process that the calling thread forks next, from its exec on. If it never executes
    /// anything, nothing is followed.
    NextChild,
    /// These processes, all their threads, and what they fork from now on. Process ids are those
    /// of the initial namespace.
    Processes(Vec<u32>),
}

/// How much room there is. What finds none is counted in [`crate::observation::Losses`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceOptions {
    /// Rows of waits: processes × system calls × objects. About 200 bytes each.
    pub waits: u32,
    /// Rows of wakes: processes × contexts × objects. About 130 bytes each.
    pub wakes: u32,
    /// Rows of futex calls: processes × call sites × words. About 150 bytes each.
    pub futexes: u32,
    /// Rows of contended locks: kinds × call sites. About 80 bytes each.
    pub locks: u32,
    /// Processes, those that have ended among them. About 130 bytes each.
    pub processes: u32,
    /// Different stacks, and a quarter more. Eight bytes for each frame that there is room for,
    /// used or not.
    pub stacks: u32,
    /// Frames of a stack, 127 at most.
    pub stack_depth: u32,
    /// Pairs of stacks, by row. About 60 bytes each.
    pub stack_pairs: u32,
    /// The first sleeps or wakes of a row, each of which is sampled; later by chance, ever fewer.
    pub first_stacks: u32,
    /// Episodes that are kept one by one, for timelines: the first of all threads, up to
    /// [`Self::EPISODES_MAX`]. Each takes up to [`Self::EPISODE_BYTES`] in user space, about 100
    /// bytes in the kernel while it is unread (4 MiB at most), and some 20 ns of its thread's time.
    /// None unless asked for.
    pub episodes: u32,
    /// Whether to listen to what system calls return. Without it no wakeup can be judged, and
    /// futex calls and ledgers of programs that start are not seen. The kernel has every call of
    /// every program on the machine take the slow way while anybody listens, some 0.1 to 0.2 us.
    pub calls: bool,
    /// Tracepoints to take for absent, for tests.
    #[doc(hidden)]
    pub pretend_missing: Vec<String>,
    /// Of this many switches to threads one is passed over, as some kernels do; for tests.
    #[doc(hidden)]
    pub pretend_untold: u32,
}

impl TraceOptions {
    /// The most that [`Self::episodes`] may be; more are not kept.
    pub const EPISODES_MAX: u32 = 1_000_000;
    /// Memory that one takes in user space, at most, with a timeline in both formats.
    pub const EPISODE_BYTES: u32 = 700;
}

impl Default for TraceOptions {
    /// About 30 MiB, and some 2 KiB for each thread that lives.
    fn default() -> Self {
        Self {
            waits: 16384,
            wakes: 16384,
            futexes: 16384,
            locks: 4096,
            processes: 8192,
            stacks: 16384,
            stack_depth: 64,
            stack_pairs: 32768,
            first_stacks: 32,
            episodes: 0,
            calls: true,
            pretend_missing: Vec::new(),
            pretend_untold: 0,
        }
    }
}

/// Why a program cannot be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The process may not load eBPF programs.
    #[error("not permitted to load eBPF programs: grant CAP_BPF and CAP_PERFMON, or run as root")]
    NotPermitted,
    /// The kernel does not describe its types.
    #[error("this kernel has no BTF (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF")]
    NoBtf,
    /// The kernel's eBPF lacks what the programs need.
    #[error("this kernel is too old to be traced: it needs Linux 5.15 or newer")]
    TooOld,
    /// The kernel is locked down against being looked into.
    #[error("the kernel is locked down (confidentiality): eBPF may not read it, not even for root")]
    Lockdown,
    /// There is no such process, or not any more.
    #[error("no process {0}")]
    NoProcess(u32),
    /// The process is there, and yet it was not found among the kernel's.
    #[error(
        "process {0} cannot be followed: the kernel's list of tasks does not show it, or there is \
         no room for more processes"
    )]
    NotFollowed(u32),
    /// Its number here is not the kernel's own.
    #[error(
        "process {0} cannot be followed from inside a PID namespace: trace it from outside, or \
         start it by 'unherd trace -- CMD'"
    )]
    InNamespace(u32),
    /// The kernel refused the programs: what libbpf and the verifier said.
    #[error("the kernel refused the eBPF programs: {0}")]
    Load(String),
    /// A map or program could not be used.
    #[error("eBPF: {0}")]
    Kernel(String),
    /// Reading from the kernel failed.
    #[error("eBPF: {0}")]
    Io(#[source] io::Error),
}

impl TraceError {
    pub(crate) fn kernel(error: libbpf_rs::Error) -> Self {
        // The alternate form tells the whole chain in one line.
        Self::Kernel(format!("{error:#}"))
    }
}

/// Something that happened to a followed process. Rare: what switches and calls do is only counted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// It is followed from now on.
    Began {
        /// Its id.
        pid: u32,
        /// Its parent's.
        parent: u32,
    },
    /// It executes a program.
    Exec {
        /// Its id.
        pid: u32,
        /// The kernel's name for the program.
        comm: String,
    },
    /// Its last thread is about to end; its mappings are there still, or just gone.
    Ended {
        /// Its id.
        pid: u32,
    },
}

/// Whether processes have the kernel's own numbers here. KERNEL: `PROC_PID_INIT_INO`.
pub(crate) fn is_in_initial_namespace() -> bool {
    const INITIAL: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == INITIAL)
}

/// The programs at work. Dropping it ends tracing and forgets what was seen.
pub struct Tracer {
    ring: RingBuffer<'static>,
    ring_map: MapHandle,
    notices: Arc<Mutex<Vec<Notice>>>,
    copies_ring: RingBuffer<'static>,
    copies_map: MapHandle,
    copies: Arc<Mutex<StackCopies>>,
    episodes_map: MapHandle,
    episodes: Arc<Mutex<Vec<Episode>>>,
    programs: Programs,
    began: Timestamp,
    prices: Prices,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { began, prices, .. } = self;
        f.debug_struct("Tracer").field("began", began).field("prices", prices).finish()
    }
}

impl Tracer {
    /// Loads and attaches the programs; counting has begun when this returns. It takes some tens
    /// of milliseconds, in part for the measurements that come first: what a switch and a call
    /// take on this machine.
    ///
    /// # Errors
    ///
    /// Where the kernel or the caller's privileges do not allow it, and
    /// [`TraceError::NoProcess`] for a process that is not there.
    pub fn start(follow: Follow, options: &TraceOptions) -> Result<Self, TraceError> {
        let prices = Prices::measure().map_err(TraceError::Io)?;
        let next_child = follow == Follow::NextChild;
        let programs = Programs::start(options, next_child, prices.round_trip_ns)?;
        let ring_map = programs.map("uh_notices")?;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&notices);
        let mut ring = RingBufferBuilder::new();
        ring.add(&ring_map, move |bytes| {
            sink.lock().extend(collect::notice(bytes));
            0
        })
        .map_err(TraceError::kernel)?;
        let ring = ring.build().map_err(TraceError::kernel)?;
        let copies_map = programs.map("uh_copies")?;
        let copies = Arc::new(Mutex::new(StackCopies::default()));
        let sink = Arc::clone(&copies);
        let mut copies_ring = RingBufferBuilder::new();
        copies_ring
            .add(&copies_map, move |bytes| {
                sink.lock().take(bytes);
                0
            })
            .map_err(TraceError::kernel)?;
        let episodes_map = programs.map("uh_episodes")?;
        let episodes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&episodes);
        copies_ring
            .add(&episodes_map, move |bytes| {
                sink.lock().push(collect::episode(bytes));
                0
            })
            .map_err(TraceError::kernel)?;
        let copies_ring = copies_ring.build().map_err(TraceError::kernel)?;
        let began = Timestamp::now();
        let mut tracer = Self {
            ring,
            ring_map,
            notices,
            copies_ring,
            copies_map,
            copies,
            episodes_map,
            episodes,
            programs,
            began,
            prices,
        };
        if let Follow::Processes(pids) = follow {
            for pid in pids {
                tracer.follow_process(pid)?;
            }
        }
        Ok(tracer)
    }

    /// Follows one more process, its threads and what it forks from now on. Those of its threads
    /// that are followed already are left as they are.
    ///
    /// # Errors
    ///
    /// [`TraceError::NoProcess`] if it is not there, [`TraceError::NotFollowed`] or
    /// [`TraceError::InNamespace`] if it is and was not found all the same.
    pub fn follow_process(&mut self, pid: u32) -> Result<(), TraceError> {
        let absent = || TraceError::NoProcess(pid);
        let id = rustix::process::Pid::from_raw(pid as i32).ok_or_else(absent)?;
        let gone = || rustix::process::test_kill_process(id) == Err(rustix::io::Errno::SRCH);
        if gone() {
            return Err(absent());
        }
        // A thread that the first walk missed was made while it walked, by one that it had not
        // reached; those made after the second has begun have followed parents.
        self.programs.adopt(pid)?;
        self.programs.adopt(pid)?;
        match self.programs.follows(pid)? {
            true => {}
            false if gone() => return Err(absent()),
            false if is_in_initial_namespace() => return Err(TraceError::NotFollowed(pid)),
            false => return Err(TraceError::InNamespace(pid)),
        }
        ledger::find_root(pid).map_or(Ok(()), |root| self.programs.know_ledger(pid, root))
    }

    /// They become readable when there is something that [`Self::poll`] should take: notices,
    /// enough copies of stacks, enough episodes.
    pub fn rings(&self) -> [BorrowedFd<'_>; 3] {
        [self.ring_map.as_fd(), self.copies_map.as_fd(), self.episodes_map.as_fd()]
    }

    /// Waits for notices for up to `timeout`, and returns those that there are.
    ///
    /// # Errors
    ///
    /// If the ring cannot be read; being interrupted by a signal is none.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<Notice>, TraceError> {
        match self.ring.poll(timeout) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                return Err(TraceError::kernel(error));
            }
            _ => {}
        }
        // Most come without waking anybody, so they are not asked for but looked for.
        self.copies_ring.consume().map_err(TraceError::kernel)?;
        Ok(std::mem::take(&mut *self.notices.lock()))
    }

    /// Detaches the programs and returns what they have counted. Mappings of processes
    /// and samples are not theirs and left empty; user stacks are as frame pointers have them.
    ///
    /// # Errors
    ///
    /// If a map cannot be read.
    pub fn finish(self) -> Result<Observation, TraceError> {
        self.finish_with(|_processes| {})
    }

    /// The same with the mappings of the processes, which `give_maps` fills in once the programs
    /// are detached, and with user stacks that are unwound by tables.
    pub(crate) fn finish_with(
        mut self,
        give_maps: impl FnOnce(&mut [Process]),
    ) -> Result<Observation, TraceError> {
        let ended = Timestamp::now();
        self.programs.stop()?;
        self.copies_ring.consume().map_err(TraceError::kernel)?;
        let copies = std::mem::take(&mut *self.copies.lock());
        let mut observation = collect::observation(&self.programs, copies, give_maps)?;
        observation.episodes = std::mem::take(&mut *self.episodes.lock());
        let kept = observation.episodes.len() as u64 + observation.losses.episodes_without_room;
        observation.losses.episodes -= kept;
        observation.began_ns = self.began.as_ns();
        observation.ended_ns = ended.as_ns();
        observation.totals.switch_round_trip_ns = self.prices.round_trip_ns;
        observation.totals.futex_call_ns = self.prices.futex_call_ns;
        observation.totals.added = self.added_prices()?;
        Ok(observation)
    }

    /// What tracing adds to the tracer's own threads. The programs have stopped, and what they
    /// count from now on nobody reads. Inside a PID namespace there is no price.
    fn added_prices(&mut self) -> Result<AddedPrices, TraceError> {
        if !is_in_initial_namespace() {
            return Ok(AddedPrices::default());
        }
        let measure = || Prices::measure().map_err(TraceError::Io);
        let bare = self.prices.least(measure()?);
        self.programs.follow_ourselves()?;
        Ok(bare.added(measure()?.least(measure()?)))
    }

    /// What is in the kernel for this tracer.
    #[doc(hidden)]
    pub fn kernel_objects(&self) -> KernelObjects {
        self.programs.kernel_objects()
    }
}
