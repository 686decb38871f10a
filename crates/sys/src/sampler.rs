//! Where processors spend their time, and who puts threads to sleep: a sampling profiler.
//!
//! [`SampleKind::CpuClock`] looks at each processor at a fixed interval and counts functions.
//! [`SampleKind::ContextSwitches`] takes every n-th context switch and counts, by its call chain,
//! the *callers of the scheduling functions*: the first kernel function below the scheduler's own,
//! and the first function of the program. It needs no hardware counters.
//!
//! A thread of the sampler's empties the rings while the measurement runs. Virtual machines deliver
//! fewer samples than asked for, so a [`Profile`] tells both numbers.

mod ring;

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use self::ring::{EventAttr, EventRing, Record, u32_at, u64_at};
use crate::Side;
use crate::primitives::thread;
use crate::symbols::{Function, KernelSymbols, Mapping, ProcessMaps, UserSymbols};

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleKind {
    /// So many times a second on each processor.
    CpuClock {
        /// 1 to 10,000.
        hertz: u32,
    },
    /// Every so many context switches.
    ContextSwitches {
        /// At least 1.
        every: u32,
    },
}

/// Who is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleScope {
    /// All that runs, from now on. With the CPU clock this includes idle time.
    WholeMachine,
    /// The program that the calling thread starts next, from its exec(2), with all its threads and
    /// descendants; not this program itself. Children that the thread starts later are sampled too:
    /// finish before that, or start them from another thread.
    NextChild,
}

/// Why there are no samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The privilege is missing.
    #[error(
        "sampling is not permitted: run as root, grant CAP_PERFMON, or set \
         kernel.perf_event_paranoid to 0 (1 suffices for programs of one's own)"
    )]
    NotPermitted,
    /// This kernel has no such event.
    #[error("this kernel cannot sample ({0})")]
    NotSupported(Errno),
    /// The interval makes no sense.
    #[error("the sampling rate must be 1 to 10000 a second, or every 1st switch at least")]
    BadRate,
    /// Anything else.
    #[error("sampling failed: {0}")]
    System(#[from] Errno),
}

/// One function of a profile.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ProfileRow {
    /// Its name; `[file]` where the file does not name it.
    pub name: String,
    /// Where it is.
    #[serde(rename = "where")]
    pub side: Side,
    /// Samples.
    pub count: u64,
    /// Its size, if that is known.
    pub size_bytes: Option<u64>,
    /// Samples for each byte of its size.
    pub count_per_byte: Option<f64>,
}

/// What was sampled.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Profile {
    /// Functions by their count, the largest first. With context switches each sample counts once
    /// on each side that its call chain has.
    pub rows: Vec<ProfileRow>,
    /// Samples taken in user mode.
    pub user_ticks: u64,
    /// Samples taken in the kernel.
    pub kernel_ticks: u64,
    /// Samples taken while a processor had nothing to do; they are in no row.
    pub idle_ticks: u64,
    /// Samples that arrived.
    pub delivered: u64,
    /// Samples that should have: the time or the switches counted, by the interval.
    pub expected: u64,
    /// Records that the kernel dropped because a ring was full.
    pub lost: u64,
}

/// A measurement that runs. Dropped, it ends without a profile.
#[derive(Debug)]
pub struct Sampler {
    stop: OwnedFd,
    collector: Option<thread::JoinHandle<Collected>>,
    interval: u64,
}

#[derive(Debug)]
struct Collected {
    rings: Vec<EventRing>,
    samples: Samples,
}

/// The samples, counted as they arrive.
#[derive(Debug)]
struct Samples {
    kind: SampleKind,
    kernel: KernelSymbols,
    maps: ProcessMaps,
    kernel_counts: HashMap<u64, u64>,
    /// By process and address.
    user_counts: HashMap<(u32, u64), u64>,
    totals: Profile,
}

// From linux/perf_event.h.
const TYPE_SOFTWARE: u32 = 1;
const COUNT_CPU_CLOCK: u64 = 0;
const COUNT_CONTEXT_SWITCHES: u64 = 3;
const SAMPLE_IP: u64 = 1;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const FLAG_DISABLED: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_MMAP: u64 = 1 << 8;
const FLAG_ENABLE_ON_EXEC: u64 = 1 << 12;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_MMAP2: u64 = 1 << 23;
const RECORD_LOST: u32 = 2;
const RECORD_FORK: u32 = 7;
const RECORD_SAMPLE: u32 = 9;
const RECORD_MMAP2: u32 = 10;
const MISC_MODE: u16 = 7;
const MISC_USER: u16 = 2;
/// Values from here up mark parts of a call chain.
const CONTEXT_FIRST: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

impl Sampler {
    /// Begins to sample. Reads the kernel's symbols, opens one event on each processor and starts
    /// the collecting thread; some tens of milliseconds.
    pub fn start(kind: SampleKind, scope: SampleScope) -> Result<Self, SamplerError> {
        let (config, interval) = match kind {
            SampleKind::CpuClock { hertz: hertz @ 1..=10_000 } => {
                (COUNT_CPU_CLOCK, u64::from(1_000_000_000 / hertz))
            }
            SampleKind::ContextSwitches { every: every @ 1.. } => {
                (COUNT_CONTEXT_SWITCHES, u64::from(every))
            }
            _ => return Err(SamplerError::BadRate),
        };
        let chain = if config == COUNT_CONTEXT_SWITCHES { SAMPLE_CALLCHAIN } else { 0 };
        let (target, who) = match scope {
            SampleScope::WholeMachine => (-1, 0),
            SampleScope::NextChild => (0, FLAG_INHERIT | FLAG_ENABLE_ON_EXEC),
        };
        let attr = EventAttr {
            kind: TYPE_SOFTWARE,
            size: size_of::<EventAttr>() as u32,
            config,
            sample_period: interval,
            sample_type: SAMPLE_IP | SAMPLE_TID | chain,
            flags: FLAG_DISABLED | FLAG_MMAP | FLAG_MMAP2 | FLAG_TASK | FLAG_WATERMARK | who,
            wakeup: EventRing::watermark_bytes(),
            ..EventAttr::default()
        };
        let rings = open_on_each_cpu(&attr, target)?;
        let samples = Samples::new(kind);
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone().map_err(|_| Errno::MFILE)?;
        if scope == SampleScope::WholeMachine {
            for ring in &rings {
                ring.enable(true)?;
            }
        }
        let collected = Collected { rings, samples };
        let collector = thread::spawn(move || collected.collect(&stopped));
        Ok(Self { stop, collector: Some(collector), interval })
    }

    /// Ends sampling, names the functions (reading the programs' files) and counts.
    pub fn finish(mut self) -> Result<Profile, SamplerError> {
        let collected = self.stop_collector().ok_or(SamplerError::System(Errno::CANCELED))?;
        let mut counted = 0;
        for ring in &collected.rings {
            counted += ring.count()?;
        }
        let mut profile = collected.samples.into_profile();
        profile.expected = counted / self.interval;
        Ok(profile)
    }

    fn stop_collector(&mut self) -> Option<Collected> {
        let collector = self.collector.take()?;
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).ok()?;
        collector.join().ok()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.stop_collector());
    }
}

fn open_on_each_cpu(attr: &EventAttr, target: i32) -> Result<Vec<EventRing>, SamplerError> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    let cpus = online.ok().and_then(|list| cpus_in(list.trim())).unwrap_or_else(|| vec![0]);
    let mut rings = Vec::new();
    for cpu in cpus {
        match EventRing::open(attr, target, cpu) {
            Ok(ring) => rings.push(ring),
            // Taken offline a moment ago.
            Err(Errno::NODEV) => {}
            Err(Errno::ACCESS | Errno::PERM) => return Err(SamplerError::NotPermitted),
            Err(errno @ (Errno::NOENT | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL)) => {
                return Err(SamplerError::NotSupported(errno));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(rings)
}

/// The numbers of a list such as `0-3,8`.
fn cpus_in(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

impl Collected {
    /// Empties the rings as they fill, until told to stop.
    fn collect(mut self, stop: &OwnedFd) -> Self {
        // The rings wake us when half full. Once a second in any case, so that the mappings of a
        // process are read while it lives.
        let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut scratch = Vec::new();
        loop {
            let stopping = {
                let mut ready = vec![PollFd::new(stop, PollFlags::IN)];
                ready.extend(self.rings.iter().map(|ring| PollFd::new(ring.fd(), PollFlags::IN)));
                let woken = poll(&mut ready, Some(&second));
                let hung_up = ready.iter().any(|fd| fd.revents().contains(PollFlags::HUP));
                let mut stopping = !ready[0].revents().is_empty();
                if hung_up && !stopping && woken.is_ok() {
                    // A ring whose processes have all ended is always ready: wait without it.
                    let mut stop = [PollFd::new(stop, PollFlags::IN)];
                    stopping = poll(&mut stop, Some(&second)).is_ok_and(|ready| ready > 0);
                }
                stopping
            };
            if stopping {
                for ring in &self.rings {
                    // A processor that went away has stopped by itself.
                    let _ = ring.enable(false);
                }
            }
            for ring in &mut self.rings {
                ring.drain(&mut scratch, |record| self.samples.see(&record));
            }
            if stopping {
                return self;
            }
        }
    }
}

impl Samples {
    fn new(kind: SampleKind) -> Self {
        Self {
            kind,
            kernel: KernelSymbols::load(),
            maps: ProcessMaps::default(),
            kernel_counts: HashMap::new(),
            user_counts: HashMap::new(),
            totals: Profile::default(),
        }
    }

    fn see(&mut self, record: &Record<'_>) {
        let body = record.body;
        match record.kind {
            RECORD_SAMPLE => self.see_sample(record.misc, body),
            RECORD_LOST => self.totals.lost += u64_at(body, 8),
            RECORD_FORK if u32_at(body, 0) != u32_at(body, 4) => {
                self.maps.add_fork(u32_at(body, 0), u32_at(body, 4));
            }
            RECORD_MMAP2 => {
                let name = body.get(64..).unwrap_or_default();
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                let mapping = Mapping {
                    start: u64_at(body, 8),
                    len: u64_at(body, 16),
                    file_offset: u64_at(body, 24),
                    path: String::from_utf8_lossy(name).into_owned(),
                };
                self.maps.add(u32_at(body, 0), mapping);
            }
            _ => {}
        }
    }

    /// A sample: address, process and thread, and with context switches the call chain.
    fn see_sample(&mut self, misc: u16, body: &[u8]) {
        let (address, pid) = (u64_at(body, 0), u32_at(body, 8));
        self.totals.delivered += 1;
        if pid == 0 {
            self.totals.idle_ticks += 1;
            return;
        }
        let in_user_mode = misc & MISC_MODE == MISC_USER;
        if in_user_mode {
            self.totals.user_ticks += 1;
        } else {
            self.totals.kernel_ticks += 1;
        }
        let (kernel, user) = match self.kind {
            SampleKind::CpuClock { .. } if in_user_mode => (None, Some(address)),
            SampleKind::CpuClock { .. } => (Some(address), None),
            SampleKind::ContextSwitches { .. } => {
                let frames = (u64_at(body, 16) as usize).min(body.len() / 8);
                let chain = (0..frames).map(|frame| u64_at(body, 24 + 8 * frame));
                self.callers(chain)
            }
        };
        if let Some(address) = kernel {
            *self.kernel_counts.entry(address).or_default() += 1;
        }
        if let Some(address) = user {
            self.maps.see(pid);
            *self.user_counts.entry((pid, address)).or_default() += 1;
        }
    }

    /// The caller of the scheduling function in the kernel, and the program's own function.
    fn callers(&self, chain: impl Iterator<Item = u64>) -> (Option<u64>, Option<u64>) {
        let (mut kernel, mut user) = (None, None);
        let mut side = Side::Kernel;
        for address in chain {
            match address {
                CONTEXT_KERNEL => side = Side::Kernel,
                CONTEXT_USER => side = Side::User,
                CONTEXT_FIRST.. => {}
                _ if side == Side::User => {
                    user = user.or(Some(address));
                }
                _ if kernel.is_none() && !is_scheduling(self.kernel.name(address)) => {
                    kernel = Some(address);
                }
                _ => {}
            }
        }
        (kernel, user)
    }

    fn into_profile(self) -> Profile {
        let mut functions: HashMap<(Side, Function), u64> = HashMap::new();
        for (address, count) in self.kernel_counts {
            *functions.entry((Side::Kernel, self.kernel.function(address))).or_default() += count;
        }
        let mut symbols = UserSymbols::default();
        for ((pid, address), count) in self.user_counts {
            let function = symbols.function(&self.maps, pid, address);
            *functions.entry((Side::User, function)).or_default() += count;
        }
        let rows = functions.into_iter().map(|((side, function), count)| {
            let Function { name, size_bytes } = function;
            let count_per_byte = size_bytes.map(|size| count as f64 / size.max(1) as f64);
            ProfileRow { name, side, count, size_bytes, count_per_byte }
        });
        let mut rows: Vec<ProfileRow> = rows.collect();
        rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        Profile { rows, ..self.totals }
    }
}

/// Whether a kernel function is the scheduler's own, so that its caller is the one to be named.
fn is_scheduling(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "schedule",
        "__schedule",
        "schedule_idle",
        "schedule_preempt_disabled",
        "schedule_rtlock",
        "__cond_resched",
        "_cond_resched",
        "do_nanosleep",
        "prepare_task_switch",
    ];
    const BEGINNINGS: [&str; 9] = [
        "io_schedule",
        "schedule_timeout",
        "schedule_hrtimeout",
        "poll_schedule_timeout",
        "preempt_schedule",
        "__schedule_loop",
        "dynamic_cond_resched",
        "dynamic_preempt_schedule",
        "__perf_event_task_sched",
    ];
    // Copies that the compiler made carry a suffix, such as `.constprop.0`.
    let name = name.split('.').next().unwrap_or(name);
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests;
