//! Samples counted by process and call chain, unnamed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::collector::{Collector, Sink};
use super::images::{CodeMapping, Images};
use super::ring::{EventAttr, Record, u32_at, u64_at};
use super::switches::{Switches, ThreadSwitches};
use super::{SampleKind, SampleScope, SamplerError, abi};
use unherd_sys::Timestamp;

/// What is sampled, of whom, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainOptions {
    /// What is sampled.
    pub kind: SampleKind,
    /// Who is.
    pub scope: SampleScope,
    /// The program's side only, which needs no privilege for processes of one's own
    /// (`kernel.perf_event_paranoid` up to 2). Context switches happen in the kernel: of them no
    /// sample comes then.
    pub user_only: bool,
    /// Also notes when threads are switched out and in.
    pub switches: bool,
    /// The most frames of a chain, both sides together; at most `kernel.perf_event_max_stack`, 127
    /// unless changed.
    pub frames_max: u16,
    /// The most different chains that are kept; samples of others are counted as
    /// [`Chains::overflowed`]. Each takes 8 bytes a frame and about 100 more.
    pub chains_max: usize,
}

impl ChainOptions {
    /// Both sides, 127 frames, a hundred thousand chains, no switches.
    pub fn new(kind: SampleKind, scope: SampleScope) -> Self {
        let (frames_max, chains_max) = (127, 100_000);
        Self { kind, scope, user_only: false, switches: false, frames_max, chains_max }
    }
}

/// What was sampled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chains {
    /// Samples by process and chain, in no order.
    pub rows: Vec<ChainRow>,
    /// The chains that rows name by index: addresses, the innermost first.
    pub chains: Vec<Box<[u64]>>,
    /// Where each process had mapped code, in the order of time; what it had from its parent comes
    /// first. What was mapped before the measurement is missing.
    pub mappings: HashMap<u32, Vec<CodeMapping>>,
    /// The parents of processes that began meanwhile.
    pub parents: HashMap<u32, u32>,
    /// Each thread's switches, if asked for.
    pub threads: Vec<ThreadSwitches>,
    /// Samples that arrived, those of idle processors among them.
    pub delivered: u64,
    /// Of these, while a processor had nothing to do; they are in no row.
    pub idle: u64,
    /// Samples that should have arrived: the time or the switches counted, by the interval.
    pub expected: u64,
    /// Records that the kernel dropped because a ring was full.
    pub lost: u64,
    /// The most frames that a chain could have, both sides together.
    pub frames_max: u16,
    /// Mappings and forks that found no room: above a million of them.
    pub mappings_lost: u64,
    /// Samples in no row because there were too many different chains.
    pub overflowed: u64,
}

/// Samples of one process with one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChainRow {
    /// The process.
    pub pid: u32,
    /// The kernel's side, by index in [`Chains::chains`].
    pub kernel: Option<usize>,
    /// The program's side.
    pub user: Option<usize>,
    /// The sample was taken in the kernel.
    pub in_kernel: bool,
    /// Samples.
    pub count: u64,
}

/// A measurement that runs. Dropped, it ends.
#[derive(Debug)]
pub struct ChainSampler {
    collector: Collector<Counts>,
    interval: u64,
}

impl ChainSampler {
    /// Begins to sample: opens the events and starts the collecting thread.
    ///
    /// # Errors
    ///
    /// Where it is not permitted, this kernel has no such event, or a process is not there.
    pub fn start(options: &ChainOptions) -> Result<Self, SamplerError> {
        let (config, interval) = options.kind.event()?;
        let sides = if options.user_only {
            abi::FLAG_EXCLUDE_KERNEL
                | abi::FLAG_EXCLUDE_HYPERVISOR
                | abi::FLAG_EXCLUDE_CALLCHAIN_KERNEL
        } else {
            0
        };
        let frames_max = options.frames_max.min(frames_allowed());
        let switches = if options.switches { abi::FLAG_CONTEXT_SWITCH } else { 0 };
        let attr = EventAttr {
            config,
            sample_period: interval,
            sample_type: abi::SAMPLE_IP
                | abi::SAMPLE_TID
                | abi::SAMPLE_TIME
                | abi::SAMPLE_CALLCHAIN,
            sample_stack_max: frames_max,
            clock: libc::CLOCK_MONOTONIC,
            flags: abi::FLAG_DISABLED
                | abi::FLAG_MMAP
                | abi::FLAG_MMAP2
                | abi::FLAG_TASK
                | abi::FLAG_WATERMARK
                | abi::FLAG_SAMPLE_ID_ALL
                | abi::FLAG_CLOCK
                | sides
                | switches,
            ..EventAttr::software()
        };
        let sums = Chains { frames_max, ..Chains::default() };
        let counts = Counts { chains_max: options.chains_max, sums, ..Counts::default() };
        let collector = Collector::start(attr, &options.scope, counts)?;
        Ok(Self { collector, interval })
    }

    /// Ends sampling.
    ///
    /// # Errors
    ///
    /// The kernel's, where it does not tell what it has counted.
    pub fn finish(self) -> Result<Chains, SamplerError> {
        let collected = self.collector.finish()?;
        let expected = collected.count()? / self.interval;
        let Counts { rows, chains, images, switches, mut sums, .. } = collected.sink;
        sums.mappings_lost = images.lost;
        let rows = rows.into_iter().map(|(row, count)| ChainRow { count, ..row });
        sums.rows = rows.collect();
        let mut in_order = vec![Box::default(); chains.len()];
        for (chain, index) in chains {
            in_order[index] = chain;
        }
        (sums.mappings, sums.parents) = images.in_order();
        Ok(Chains { chains: in_order, threads: switches.into_threads(), expected, ..sums })
    }
}

/// Beyond this the kernel refuses the event.
fn frames_allowed() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u16::MAX)
}

/// What is counted as it arrives.
#[derive(Debug, Default)]
struct Counts {
    chains_max: usize,
    /// Rows with a count of zero, and their counts.
    rows: HashMap<ChainRow, u64>,
    chains: HashMap<Box<[u64]>, usize>,
    images: Images,
    switches: Switches,
    sums: Chains,
}

impl Sink for Counts {
    fn see(&mut self, record: &Record<'_>) {
        let body = record.body;
        // Process, thread and time stand at the end of every record but samples.
        let id = body.len().saturating_sub(16);
        let (pid, tid, time_ns) = (u32_at(body, id), u32_at(body, id + 4), u64_at(body, id + 8));
        match record.kind {
            abi::RECORD_SAMPLE => self.see_sample(record.misc, body),
            abi::RECORD_LOST => self.sums.lost += u64_at(body, 8),
            abi::RECORD_FORK => self.images.see_fork(time_ns, record),
            abi::RECORD_MMAP2 => self.images.see_mapping(time_ns, record),
            abi::RECORD_SWITCH => self.switches.see(time_ns, pid, tid, record),
            _ => {}
        }
    }

    fn emptied(&mut self, since: Timestamp) {
        // A processor may have taken the time for a record and not have written it yet.
        const WRITING_NS: u64 = 1_000_000;
        self.switches.count_until(since.as_ns().saturating_sub(WRITING_NS));
    }
}

impl Counts {
    /// A sample: address, process and thread, time, call chain.
    fn see_sample(&mut self, misc: u16, body: &[u8]) {
        let pid = u32_at(body, 8);
        self.sums.delivered += 1;
        if pid == 0 {
            self.sums.idle += 1;
            return;
        }
        let in_kernel = misc & abi::MISC_MODE != abi::MISC_USER;
        let frames = (u64_at(body, 24) as usize).min(body.len() / 8);
        let (mut kernel, mut user) = (Vec::new(), Vec::new());
        let mut in_user_part = !in_kernel;
        for address in (0..frames).map(|frame| u64_at(body, 32 + 8 * frame)) {
            match address {
                abi::CONTEXT_KERNEL => in_user_part = false,
                abi::CONTEXT_USER => in_user_part = true,
                abi::CONTEXT_FIRST.. => {}
                _ if in_user_part => user.push(address),
                _ => kernel.push(address),
            }
        }
        // The kernel gives no chain for a thread that is about to end: then there is the address.
        if in_kernel && kernel.is_empty() {
            kernel.push(u64_at(body, 0));
        } else if !in_kernel && user.is_empty() {
            user.push(u64_at(body, 0));
        }
        let Some((kernel, user)) = self.keep(kernel).zip(self.keep(user)) else {
            self.sums.overflowed += 1;
            return;
        };
        let row = ChainRow { pid, kernel, user, in_kernel, count: 0 };
        *self.rows.entry(row).or_default() += 1;
    }

    /// The number of a chain, none of an empty one; `None` if there is no room for it.
    fn keep(&mut self, chain: Vec<u64>) -> Option<Option<usize>> {
        if chain.is_empty() {
            return Some(None);
        }
        let next = self.chains.len();
        match self.chains.entry(chain.into_boxed_slice()) {
            Entry::Occupied(known) => Some(Some(*known.get())),
            Entry::Vacant(room) if next < self.chains_max => Some(Some(*room.insert(next))),
            Entry::Vacant(_) => None,
        }
    }
}
