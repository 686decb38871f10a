//! Samples counted by function: the profile.

use std::collections::{HashMap, HashSet};

use super::collector::{Collector, Sink};
use super::ring::{EventAttr, Record, u32_at, u64_at};
use super::{SampleKind, SampleScope, SamplerError, abi};
use crate::Side;
use crate::owners::Process;
use crate::symbols::{Function, KernelSymbols, Mapping, ProcessMaps, UserSymbols};

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
    /// Samples of programs that are not asked about; they are in no row.
    #[serde(default)]
    pub foreign_ticks: u64,
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
    collector: Collector<Samples>,
    interval: u64,
}

/// The samples, counted as they arrive.
#[derive(Debug)]
struct Samples {
    kind: SampleKind,
    kernel: KernelSymbols,
    maps: ProcessMaps,
    /// By process and address.
    kernel_counts: HashMap<(u32, u64), u64>,
    user_counts: HashMap<(u32, u64), u64>,
    /// Samples in user mode and in the kernel, by process.
    ticks: HashMap<u32, [u64; 2]>,
    /// Who made each process that has begun since.
    makers: HashMap<u32, u32>,
    totals: Profile,
}

impl Sampler {
    /// Begins to sample. Reads the kernel's symbols, opens one event on each processor and starts
    /// the collecting thread; some tens of milliseconds.
    pub fn start(kind: SampleKind, scope: &SampleScope) -> Result<Self, SamplerError> {
        let (config, interval) = kind.event()?;
        let is_switch = matches!(kind, SampleKind::ContextSwitches { .. });
        let chain = if is_switch { abi::SAMPLE_CALLCHAIN } else { 0 };
        let attr = EventAttr {
            config,
            sample_period: interval,
            sample_type: abi::SAMPLE_IP | abi::SAMPLE_TID | chain,
            flags: abi::FLAG_DISABLED
                | abi::FLAG_MMAP
                | abi::FLAG_MMAP2
                | abi::FLAG_TASK
                | abi::FLAG_WATERMARK,
            ..EventAttr::software()
        };
        let collector = Collector::start(attr, scope, Samples::new(kind))?;
        Ok(Self { collector, interval })
    }

    /// Ends sampling, names the functions (reading the programs' files) and counts.
    pub fn finish(self) -> Result<Profile, SamplerError> {
        self.finish_with(|_, _| true)
    }

    /// The same of the programs that this process has started since, with their descendants, and
    /// of the kernel's own threads. What else ran on the machine is in `foreign_ticks` alone.
    pub fn finish_without_foreign(self) -> Result<Profile, SamplerError> {
        let own = std::process::id();
        let processes = Process::all().into_iter();
        let kernel: HashSet<u32> =
            processes.filter(|it| it.is_kernel_thread).map(|it| it.pid).collect();
        self.finish_with(|pid, makers| {
            let mut ancestors = std::iter::successors(Some(pid), |pid| makers.get(pid).copied());
            // A number that is used again could close a circle.
            kernel.contains(&pid)
                || ancestors.by_ref().take(64).skip(1).any(|it| it == own || kernel.contains(&it))
        })
    }

    /// The same of the processes that this one has started, without those that they have started.
    pub fn finish_without_descendants(self) -> Result<Profile, SamplerError> {
        let own = std::process::id();
        self.finish_with(|pid, makers| makers.get(&pid).is_none_or(|maker| *maker == own))
    }

    fn finish_with(
        self,
        is_meant: impl Fn(u32, &HashMap<u32, u32>) -> bool,
    ) -> Result<Profile, SamplerError> {
        let mut collected = self.collector.finish()?;
        let counted = collected.count()?;
        collected.sink.leave_out(is_meant);
        let mut profile = collected.sink.into_profile();
        profile.expected = counted / self.interval;
        Ok(profile)
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
            ticks: HashMap::new(),
            makers: HashMap::new(),
            totals: Profile::default(),
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
        let in_user_mode = misc & abi::MISC_MODE == abi::MISC_USER;
        self.ticks.entry(pid).or_default()[usize::from(!in_user_mode)] += 1;
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
            *self.kernel_counts.entry((pid, address)).or_default() += 1;
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
                abi::CONTEXT_KERNEL => side = Side::Kernel,
                abi::CONTEXT_USER => side = Side::User,
                abi::CONTEXT_FIRST.. => {}
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

    /// Leaves out processes that are not meant. Only now, when all records are there: a process may
    /// be sampled on one processor before the record of its beginning on another was read.
    fn leave_out(&mut self, is_meant: impl Fn(u32, &HashMap<u32, u32>) -> bool) {
        let foreign: HashSet<u32> =
            self.ticks.keys().copied().filter(|&pid| !is_meant(pid, &self.makers)).collect();
        for pid in &foreign {
            self.totals.foreign_ticks +=
                self.ticks.remove(pid).map_or(0, |[user, kernel]| user + kernel);
        }
        self.kernel_counts.retain(|(pid, _), _| !foreign.contains(pid));
        self.user_counts.retain(|(pid, _), _| !foreign.contains(pid));
    }

    fn into_profile(mut self) -> Profile {
        for [user, kernel] in self.ticks.values() {
            self.totals.user_ticks += user;
            self.totals.kernel_ticks += kernel;
        }
        let mut functions: HashMap<(Side, Function), u64> = HashMap::new();
        for ((_, address), count) in self.kernel_counts {
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

impl Sink for Samples {
    fn see(&mut self, record: &Record<'_>) {
        let body = record.body;
        match record.kind {
            abi::RECORD_SAMPLE => self.see_sample(record.misc, body),
            abi::RECORD_LOST => self.totals.lost += u64_at(body, 8),
            abi::RECORD_FORK if u32_at(body, 0) != u32_at(body, 4) => {
                self.maps.add_fork(u32_at(body, 0), u32_at(body, 4));
                self.makers.insert(u32_at(body, 0), u32_at(body, 4));
            }
            abi::RECORD_MMAP2 => {
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
}

/// Whether a kernel function is the scheduler's own, so that its caller is the one to be named.
pub(super) fn is_scheduling(name: &str) -> bool {
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
