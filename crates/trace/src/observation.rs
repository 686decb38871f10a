//! What was seen: the counts that the eBPF programs aggregated, read once tracing is over.
//!
//! Nothing here is judged or named yet: addresses are numbers, stacks are ids. [`crate::report`]
//! makes the tables of it. All times are nanoseconds of `CLOCK_MONOTONIC`; all counts are exact
//! unless said otherwise.

use std::collections::BTreeMap;

use serde::Serialize;

/// All that one session of tracing has seen.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// When counting began and ended.
    pub began_ns: u64,
    /// See `began_ns`.
    pub ended_ns: u64,
    /// The processors of the machine.
    pub cpus: usize,
    /// Every process that was followed, those that have ended among them.
    pub processes: Vec<Process>,
    /// Where threads waited, by process, system call, object and site.
    pub waits: Vec<WaitRow>,
    /// Who woke them, by wake site and object.
    pub wakes: Vec<WakeRow>,
    /// Calls of futex(2) and its relatives.
    pub futexes: Vec<FutexRow>,
    /// Kernel locks that were not free.
    pub locks: Vec<LockRow>,
    /// Stalls in reclaim and write-back.
    pub stalls: Vec<StallRow>,
    /// The stacks that rows name, innermost frame first. An id that is absent was lost.
    pub stacks: BTreeMap<StackId, Stack>,
    /// Sums over all followed threads.
    pub totals: Totals,
    /// What they did with their time.
    pub time: TimeSpent,
    /// The same of each, as far as there was room.
    pub threads: Vec<ThreadRow>,
    /// What the maps had no room for, and what else is unknown.
    pub losses: Losses,
    /// Tracepoints that this kernel does not have, each with what is missing for that.
    pub missing: Vec<Missing>,
    /// CPU samples; `None` if sampling was not possible.
    pub samples: Option<Samples>,
    /// What programs that use unherd's library say of themselves.
    pub ledgers: Vec<LedgerRow>,
    /// The gates in their ledgers.
    pub gates: Vec<GateRow>,
    /// How many gates a process has besides, for which its ledger has no room.
    pub gates_hidden: BTreeMap<u32, u64>,
    /// The first waits one by one, where that was asked for, in the order in which they ended or
    /// were judged.
    pub episodes: Vec<Episode>,
}

/// Names a stack in [`Observation::stacks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// A stack as it was walked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Instruction addresses, the innermost first.
    pub frames: Vec<u64>,
    /// It was deeper than could be walked.
    pub truncated: bool,
}

/// A process that was followed.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Its id (the thread group's).
    pub pid: u32,
    /// Its parent's when it was first seen.
    pub parent: u32,
    /// The kernel's name for it, the last one.
    pub comm: String,
    /// CPU time of its threads while they were followed; `None` if that was not counted.
    pub cpu_ns: Option<u64>,
    /// Its executable mappings, as far as they could be read while it lived; of each program it
    /// has executed, so ranges of earlier ones may overlap: the later entry counts.
    pub maps: Vec<Mapping>,
    /// The maps could not be read: it was gone too soon.
    pub maps_lost: bool,
    /// It still ran when tracing ended, as far as is known.
    pub running: bool,
}

/// An executable mapping of a file, or of a JIT's memory (`path` empty or in brackets).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first address, and the first behind it.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file, as the process named it.
    pub path: String,
    /// A path by which this process can open it now (through `/proc/PID/root` for other mount
    /// namespaces).
    pub open_path: String,
}

/// What a wait, a wake or a call was about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// Nothing that has a name: a timer alone, a child, a signal.
    #[default]
    None,
    /// A futex word's address, rounded down to eight bytes: glibc's condition variable alternates
    /// between two words of one such pair.
    Futex(u64),
    /// A file descriptor, as the process numbers it.
    Descriptor(i32),
    /// A set of descriptors: the address of the array of poll or select.
    Set(u64),
    /// A socket of IP, told by its local port and whether it listens.
    Socket {
        /// The local port.
        port: u16,
        /// It is a listening socket.
        listening: bool,
    },
}

impl Object {
    /// What threads waited for that were woken one by one, each at a futex of its own.
    pub const SEVERAL_FUTEXES: Self = Self::Futex(0);
}

/// The waits at one site. A *sleep* is a blocking switch-out; being preempted is none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WaitRow {
    /// The process.
    pub pid: u32,
    /// The number of the system call; `None` outside of any (a page fault, say).
    pub syscall: Option<u32>,
    /// What was waited for.
    pub object: Object,
    /// What a descriptor was when it was first waited for: `socket :8080, listening`, `pipe`,
    /// `[eventpoll]`, or the last name of its path; of poll's set, its first and how many others.
    pub object_name: Option<String>,
    /// The wait was our library's: the call bore its mark.
    pub library: bool,
    /// Interruptible sleeps, which are classified.
    pub sleeps: u64,
    /// Uninterruptible ones (I/O, kernel mutexes), which are not: nothing proves them needless.
    pub uninterruptible_sleeps: u64,
    /// Time asleep, interruptible.
    pub asleep_ns: u64,
    /// Time asleep, uninterruptible.
    pub uninterruptible_ns: u64,
    /// Wakeups of interruptible sleeps: the episodes that began here.
    pub wakeups: u64,
    /// Of these, ended by the sleep's own timer.
    pub timer_wakeups: u64,
    /// Wakes aimed at a thread that was not asleep yet or not any more.
    pub redundant_wakes: u64,
    /// Episodes that ended in another sleep inside the same call, of a kind that looks again.
    pub needless_in_call: u64,
    /// Episodes whose later calls all failed with EAGAIN, and that went back to the same object.
    pub needless_again: u64,
    /// Episodes that went back to the same object without a call that made progress on it; those
    /// above are not among them.
    pub possibly_needless: u64,
    /// Of `possibly_needless`, those that were woken together with others and made no progress on
    /// anything.
    pub possibly_needless_in_herds: u64,
    /// CPU time of the episodes that are proven needless.
    pub needless_cpu_ns: u64,
    /// CPU time of those that possibly are.
    pub possibly_needless_cpu_ns: u64,
    /// CPU time of `possibly_needless_in_herds`.
    pub possibly_needless_in_herds_cpu_ns: u64,
    /// Woken by a timer and asleep again on the same, with nothing but a look in between.
    pub timer_polls: u64,
    /// CPU time from one such sleep to the next.
    pub timer_poll_cpu_ns: u64,
    /// The sum of the times from one such wakeup to the next; over `timer_polls` it is the period.
    pub timer_poll_ns: u64,
    /// Sleeps that were shorter than a switch there and back takes on this machine.
    pub short_sleeps: u64,
    /// Sleeps that their timer ended, before a file lock was had that had been refused before, and
    /// that somebody had given back meanwhile.
    pub overslept: u64,
    /// The time from when it was given back to the end of these sleeps.
    pub overslept_ns: u64,
    /// Stacks that were sampled at this site: the kernel's, the user's, how often.
    pub stacks: Vec<SampledStack>,
    /// How many samples that stand for the same number of sleeps say as much as these.
    pub stack_samples: u64,
    /// Stacks that were sampled where a timer poll was seen: it went back to sleep there.
    pub poll_stacks: Vec<SampledStack>,
    /// See `stack_samples`.
    pub poll_stack_samples: u64,
}

/// A pair of stacks, and for how many sleeps or wakes its samples stand: they are taken by chance,
/// and each stands for the number that it is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledStack {
    /// The kernel's side.
    pub kernel: Option<StackId>,
    /// The program's side.
    pub user: Option<StackId>,
    /// What its samples stand for.
    pub count: u64,
}

/// In what context a wake came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WakeCause {
    /// A traced thread's system call.
    Call(u32),
    /// A timer.
    Timer,
    /// An interrupt or soft interrupt, in whichever thread it came.
    Interrupt,
    /// A process that is not traced, or a kernel thread.
    Other,
}

/// What became of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpisodeClass {
    /// It was not over when tracing or its thread ended, or calls were not seen.
    Unjudged,
    /// Neither proven nor possibly needless.
    NotNeedless,
    /// See [`WaitRow::possibly_needless`].
    PossiblyNeedless,
    /// See [`WaitRow::needless_in_call`] and [`WaitRow::needless_again`].
    ProvenNeedless,
    /// See [`WaitRow::timer_polls`].
    TimerPoll,
    /// Never judged.
    Uninterruptible,
}

impl EpisodeClass {
    /// All, in the order of their numbers in the kernel.
    pub(crate) const ALL: [Self; 6] = [
        Self::Unjudged,
        Self::NotNeedless,
        Self::PossiblyNeedless,
        Self::ProvenNeedless,
        Self::TimerPoll,
        Self::Uninterruptible,
    ];
}

/// One wait, and what became of the wakeup that ended it.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// See [`WaitRow::syscall`].
    pub syscall: Option<u32>,
    /// What was waited for.
    pub object: Object,
    /// What became of it.
    pub class: EpisodeClass,
    /// When the sleep began.
    pub began_ns: u64,
    /// How it ended; `None` if it had not when tracing ended.
    pub waking: Option<Waking>,
}

/// The end of a sleep.
#[derive(Debug, Clone, PartialEq)]
pub struct Waking {
    /// When the thread was woken.
    pub woken_ns: u64,
    /// When it ran again.
    pub ran_ns: u64,
    /// The waking thread, if it is traced and it was its own doing.
    pub tid: Option<u32>,
    /// See [`WakeRow::pid`].
    pub pid: Option<u32>,
    /// See [`WakeRow::cause`].
    pub cause: WakeCause,
    /// See [`WakeRow::object`].
    pub object: Object,
}

/// Wakes from one site for one object. An *event* is one call or interrupt and all it wakes there.
#[derive(Debug, Clone, PartialEq)]
pub struct WakeRow {
    /// The waking process if it is traced.
    pub pid: Option<u32>,
    /// In what context.
    pub cause: WakeCause,
    /// What the woken were waiting for, or the socket that became ready.
    pub object: Object,
    /// Events.
    pub events: u64,
    /// Threads that were woken by them.
    pub woken: u64,
    /// Events that woke two or more.
    pub herds: u64,
    /// Threads that those woke.
    pub herd_woken: u64,
    /// The most that one event woke.
    pub largest: u64,
    /// Episodes begun by these herds that are proven needless.
    pub herd_needless: u64,
    /// Episodes begun by these herds that are possibly needless, the proven not among them.
    pub herd_possibly: u64,
    /// CPU time of both.
    pub herd_needless_cpu_ns: u64,
    /// Of a futex: how long the first that each event woke had slept.
    pub waited_ns: u64,
    /// Of that, for how long at most the threads slept that had the futex, if it is a lock.
    pub holders_asleep_ns: u64,
    /// Where one of these slept longest.
    pub asleep_in: Option<AsleepIn>,
    /// See [`WaitRow::stacks`]; the waker's.
    pub stacks: Vec<SampledStack>,
}

/// Where the holder of a lock sleeps with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsleepIn {
    /// See [`WaitRow::syscall`].
    pub syscall: Option<u32>,
    /// See [`WaitRow::stacks`].
    pub stacks: Vec<SampledStack>,
}

/// What a futex call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FutexKind {
    /// FUTEX_WAIT and FUTEX_WAIT_BITSET.
    Wait,
    /// futex_waitv, by its first word.
    WaitMany,
    /// FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_WAKE_OP.
    Wake,
    /// FUTEX_REQUEUE and FUTEX_CMP_REQUEUE.
    Requeue,
    /// FUTEX_LOCK_PI and its relatives.
    LockPi,
}

/// Futex calls from one stack on one word.
#[derive(Debug, Clone, PartialEq)]
pub struct FutexRow {
    /// The process.
    pub pid: u32,
    /// What it does.
    pub kind: FutexKind,
    /// The word's address.
    pub word: u64,
    /// The caller.
    pub user_stack: Option<StackId>,
    /// The call was our library's: it bore its mark.
    pub library: bool,
    /// What became of the calls.
    pub outcomes: Outcomes,
}

/// What became of futex calls. The counts of waits are 0 for wakes, and the other way round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Calls that have returned.
    pub calls: u64,
    /// Wakes that found nobody.
    pub woke_none: u64,
    /// Wakes that woke one.
    pub woke_one: u64,
    /// Wakes that woke more.
    pub woke_many: u64,
    /// Threads that were woken, or moved to another word: the kernel returns the sum.
    pub woken: u64,
    /// Waits that slept and were woken.
    pub slept: u64,
    /// Waits that returned at once because the value had changed.
    pub refused: u64,
    /// Waits that ran out of time.
    pub timed_out: u64,
    /// Waits that a signal ended.
    pub interrupted: u64,
    /// Calls that failed otherwise.
    pub failed: u64,
}

/// What kind of kernel lock, by the flags of its tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// A spin lock.
    Spin,
    /// A read-write spin lock, read.
    SpinRead,
    /// A read-write spin lock, written.
    SpinWrite,
    /// A mutex.
    Mutex,
    /// A read-write semaphore, read.
    SemaphoreRead,
    /// A read-write semaphore, written.
    SemaphoreWrite,
    /// A mutex of the real-time kind.
    RealTime,
    /// A read-write semaphore by processor.
    PerCpu,
    /// Any other.
    Other,
}

/// Waits for kernel locks from one caller.
#[derive(Debug, Clone, PartialEq)]
pub struct LockRow {
    /// The lock.
    pub kind: LockKind,
    /// The caller.
    pub kernel_stack: Option<StackId>,
    /// How often it was not free.
    pub count: u64,
    /// Time waited in all.
    pub total_ns: u64,
    /// The longest wait.
    pub longest_ns: u64,
}

/// Where a thread was held up by memory or write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StallKind {
    /// `mm_vmscan_throttled`, with its reason's number.
    Throttled(u32),
    /// Direct reclaim, from begin to end.
    DirectReclaim,
    /// `balance_dirty_pages`.
    DirtyPages,
}

/// Stalls of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct StallRow {
    /// The kind.
    pub kind: StallKind,
    /// Times.
    pub count: u64,
    /// Time in all.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Where the first came from.
    pub kernel_stack: Option<StackId>,
}

/// What a thread does: it is always one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeClass {
    /// It runs.
    Running,
    /// It was woken, or is new, and waits for a processor.
    Woken,
    /// It could go on, and waits for a processor.
    Preempted,
    /// It sleeps until its own timer ends that.
    AsleepTimer,
    /// It sleeps at a futex.
    AsleepFutex,
    /// It sleeps until something comes out of descriptors, or goes into them.
    AsleepDescriptor,
    /// It sleeps until a child ends.
    AsleepChild,
    /// It sleeps for anything else: a signal, a timer that has not ended yet.
    AsleepOther,
    /// It sleeps uninterruptibly: for a disk, a page, a lock of the kernel.
    Uninterruptible,
}

impl TimeClass {
    /// All of them, in the order of [`TimeSpent::by_class_ns`].
    pub const ALL: [Self; 9] = [
        Self::Running,
        Self::Woken,
        Self::Preempted,
        Self::AsleepTimer,
        Self::AsleepFutex,
        Self::AsleepDescriptor,
        Self::AsleepChild,
        Self::AsleepOther,
        Self::Uninterruptible,
    ];
}

/// What was done with time, by the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// From when a thread was first followed until it began to exit, or tracing ended.
    pub wall_ns: u64,
    /// What was done in it, by [`TimeClass`].
    pub by_class_ns: [u64; 9],
}

impl TimeSpent {
    /// The time in one class.
    #[must_use]
    pub fn of(&self, class: TimeClass) -> u64 {
        self.by_class_ns[class as usize]
    }
}

/// A thread's time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadRow {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// The kernel's name for it.
    pub comm: String,
    /// What it did.
    pub time: TimeSpent,
}

/// What being traced adds to a thread's CPU time on this machine, as measured when tracing is over:
/// the eBPF programs, and the kernel's own slow way to them. Sampled stacks come on top of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AddedPrices {
    /// To a system call.
    pub call_ns: u64,
    /// To a futex call.
    pub futex_call_ns: u64,
    /// To a sleep, with the wakeup that ends it; a preemption is taken for as much.
    pub sleep_ns: u64,
}

/// Sums over all followed threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// CPU time in user mode, by the kernel's accounting.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
    /// Blocking switch-outs.
    pub sleeps: u64,
    /// Switch-outs of threads that could have gone on.
    pub preemptions: u64,
    /// Wakeups.
    pub wakeups: u64,
    /// Threads that were followed.
    pub threads: u64,
    /// System calls that were seen.
    pub calls: u64,
    /// A switch there and back on one processor of this machine, measured before tracing: the
    /// bound of [`WaitRow::short_sleeps`].
    pub switch_round_trip_ns: u64,
    /// A futex call that returns at once, measured before tracing.
    pub futex_call_ns: u64,
    /// What tracing adds; all 0 where that was not measured.
    pub added: AddedPrices,
    /// Idle time of the whole machine's processors meanwhile.
    pub machine_idle_ns: u64,
}

/// What is not in the counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Counts that found no room in a map, by map.
    pub waits: u64,
    /// See `waits`.
    pub wakes: u64,
    /// See `waits`.
    pub futexes: u64,
    /// See `waits`.
    pub locks: u64,
    /// Threads that could not be followed for want of memory.
    pub threads: u64,
    /// Notices of processes (begin, exec, end) that found no room in the ring.
    pub notices: u64,
    /// Stacks that were asked for.
    pub stacks_wanted: u64,
    /// Stacks that could not be kept or not be walked.
    pub stacks_lost: u64,
    /// User stacks that were copied to be unwound by tables, for code without frame pointers.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Copies of which unwinding made a longer stack than frame pointers did, or a whole one.
    pub copies_unwound: u64,
    /// Copies for which there was no room, or that would have been too many at a time.
    pub copies_lost: u64,
    /// Programs that the kernel skipped because they were running already on that processor.
    pub recursion_misses: u64,
    /// Ledgers of programs that use our library, for which there was no room, or of which a part
    /// could not be read.
    pub ledgers: u64,
    /// Threads of which it is not known one by one what they did with their time.
    pub lives: u64,
    /// Episodes that were to be kept one by one and came when there were as many as asked for.
    pub episodes: u64,
    /// Those that were not kept since more had ended at a time than the ring has room for.
    pub episodes_without_room: u64,
    /// Threads that ended while tracing was being ended: what they had counted last is missing.
    pub ending_threads: u64,
    /// Processes whose number an earlier one had: the counts of the two are one. Only those that
    /// have executed a program are known, so there may be more.
    pub reused_pids: u64,
    /// Records of the sampler that the kernel had no room for: samples, or mappings of code.
    pub sampler_records: u64,
    /// Samples that were dropped since there were too many different stacks.
    pub samples_without_room: u64,
    /// Episodes that were still open at the end.
    pub open_episodes: u64,
    /// Bytes of kernel memory that the maps take, which is their bound.
    pub map_bytes: u64,
}

/// A tracepoint, or a helper of eBPF, that this kernel lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub tracepoint: String,
    /// What the report lacks for it.
    pub consequence: String,
}

/// CPU samples of the followed processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// By process and stack: the innermost frames decide the function.
    pub rows: Vec<SampleRow>,
    /// Samples a second on each processor that were asked for.
    pub hertz: u32,
    /// Samples that came, of all that ran, idle among them.
    pub delivered: u64,
    /// Samples that should have come.
    pub expected: u64,
    /// Of those delivered, in the idle thread.
    pub idle: u64,
}

/// Samples with one stack.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleRow {
    /// The process.
    pub pid: u32,
    /// The stack, if it was taken in the kernel.
    pub kernel: Option<StackId>,
    /// The program's stack.
    pub user: Option<StackId>,
    /// Whether the processor was in the kernel.
    pub in_kernel: bool,
    /// Samples.
    pub count: u64,
}

/// One reason of a ledger of `unherd-sync`, as the traced process kept it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// The process.
    pub pid: u32,
    /// The reason's name.
    pub reason: String,
    /// Waits, wakeups, needless wakeups, time asleep and so on, by the name that the schema
    /// `unherd.waits/1` gives them.
    pub counts: BTreeMap<String, u64>,
    /// Whether it was read at the process's end; otherwise a little earlier.
    pub at_end: bool,
}

/// A gate of `unherd-sync`, as the ledger of the traced process had it when that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRow {
    /// The process.
    pub pid: u32,
    /// The gate's own reason.
    pub reason: String,
    /// The threads that waited, the longest waiting first; of a process that has ended the 64
    /// that have waited longest at all of its gates.
    pub waiters: Vec<GateWaiter>,
    /// How many waited, tasks among them.
    pub waiting: u64,
    /// When it was congested or cleared last; 0 if never.
    pub changed_ns: u64,
    /// When progress was made last.
    pub progressed_ns: Option<u64>,
    /// How often its signal has become untrusted.
    pub untrusted: u64,
    /// Whether it was trusted then.
    pub is_trusted: bool,
    /// How many waits ended by its bound.
    pub overdue: u64,
    /// When the ledger was read.
    pub read_ns: u64,
}

/// A thread that waits at a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateWaiter {
    /// Its number, in the process's own namespace; 0 if not known.
    pub thread: u32,
    /// For what.
    pub reason: String,
    /// Since when.
    pub since_ns: u64,
}
