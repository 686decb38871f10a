//! Tracing without privilege: what any user may ask the kernel about processes of their own.
//!
//! | known | from |
//! |---|---|
//! | sleeps, preemptions and their time, exactly, by process | perf events' records of switches |
//! | CPU in user mode by function | perf events, the program's side |
//! | user and system time | the kernel's accounts |
//! | where threads sleep, sampled stacks | perf events, if `kernel.perf_event_paranoid` ≤ 1 |
//! | where threads sleep, one frame | else a look at `/proc/PID/task/TID/syscall` now and then |
//!
//! Who woke whom, and what for, is in none of these. So needless wakeups, herds, wake calls, kernel
//! locks and stalls are unknown here: make the report by
//! [`Report::of_switches_only`](crate::Report::of_switches_only), which says so instead of counting
//! none.

mod asleep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::BorrowedFd;
use std::process::ExitStatus;

use rustix::io::Errno;
use unherd_host::{
    BusyTime, ChainOptions, ChainSampler, Chains, SampleKind, SampleScope, SamplerError,
};
use unherd_sys::primitives::thread;
use unherd_sys::{Deadline, Timestamp};

use self::asleep::Looks;
use crate::maps::CodeMaps;
use crate::observation::{
    Missing, Observation, Process, SampledStack, Stack, StackId, Totals, WaitRow,
};
use crate::session::{Pause, Running, SessionError, Target, Woken, samples, spawn};

/// One switch in this many gives its stack. A prime, off the beat of threads that take turns.
const EVERY_SWITCH: u32 = 7;

/// A session without privilege. Dropped, it ends; its command is killed.
///
/// It is used as a [`Session`](crate::Session) is, and gives an [`Observation`] that holds context
/// switches and samples of user mode, and nothing else.
#[derive(Debug)]
pub struct UnprivilegedSession {
    running: Running,
    hertz: u32,
    cpu: Option<ChainSampler>,
    switches: Option<ChainSampler>,
    looks: Looks,
    maps: CodeMaps,
    missing: Vec<Missing>,
    began: Timestamp,
    idle: BusyTime,
}

impl UnprivilegedSession {
    /// Starts to look, then the command if there is one.
    ///
    /// # Errors
    ///
    /// [`SessionError`]: the command cannot be started, a process is not there or another user's,
    /// or the kernel grants no perf events at all (`kernel.perf_event_paranoid` above 2).
    pub fn start(target: Target, hertz: u32) -> Result<Self, SessionError> {
        if matches!(target, Target::Cgroup(_)) {
            return Err(SessionError::GroupUnprivileged);
        }
        let mut running = Running::find(&target)?;
        let mut maps = CodeMaps::new();
        for pid in running.pids() {
            if std::fs::read_link(format!("/proc/{pid}/exe")).is_err() {
                return Err(SessionError::Foreign { pid });
            }
            maps.attach(pid);
        }
        let (began, idle) = (Timestamp::now(), BusyTime::now()?);
        let scope = match &target {
            Target::Command(_) => SampleScope::NextChild,
            Target::Processes(_) | Target::Cgroup(_) => SampleScope::Processes(running.pids()),
        };
        let every_seventh = SampleKind::ContextSwitches { every: EVERY_SWITCH };
        let switches = ChainOptions::new(every_seventh, scope.clone());
        let clock = ChainOptions {
            user_only: true,
            switches: true,
            ..ChainOptions::new(SampleKind::CpuClock { hertz: hertz.max(1) }, scope)
        };
        let mut missing = Vec::new();
        // A switch happens in the kernel, so its samples are for those only who may look there.
        let switches = ChainSampler::start(&switches).map_err(|error| {
            missing.push(Missing {
                tracepoint: "context-switch stacks for this user".to_owned(),
                consequence: format!("stacks of sleeps have one frame, and are samples: {error}"),
            });
        });
        let cpu = match ChainSampler::start(&clock) {
            Ok(sampler) => Some(sampler),
            Err(SamplerError::NoProcess(pid)) => return Err(SessionError::NoProcess { pid }),
            Err(error) => return Err(error.into()),
        };
        let switches = switches.ok();
        if let Target::Command(command) = target {
            running = Running::Command(spawn(command)?);
        }
        let mut looks = Looks::default();
        looks.look(&running.roots());
        Ok(Self { running, hertz, cpu, switches, looks, maps, missing, began, idle })
    }

    /// As [`Session::signal`](crate::Session::signal).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.running.signal(signal)
    }

    /// As [`Session::is_in_own_group`](crate::Session::is_in_own_group).
    #[must_use]
    pub fn is_in_own_group(&self) -> bool {
        self.running.is_in_own_group()
    }

    /// As [`Session::kill`](crate::Session::kill).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn kill(&mut self) -> Result<Option<ExitStatus>, Errno> {
        self.running.kill()
    }

    /// As [`Session::run`](crate::Session::run).
    ///
    /// # Errors
    ///
    /// Where the kernel fails.
    pub fn run(
        &mut self,
        deadline: Deadline,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Pause, SessionError> {
        loop {
            if let Some(ended) = self.running.ended()? {
                return Ok(Pause::Ended(ended));
            }
            let now = Timestamp::now();
            if deadline.has_passed(now) {
                return Ok(Pause::Deadline);
            }
            match self.running.wait(deadline, now, Some(self.looks.pause()), stop, &[])? {
                Woken::Stop => return Ok(Pause::Ready),
                Woken::Other => continue,
                Woken::Time => {}
            }
            for (pid, parent) in self.looks.look(&self.running.roots()) {
                self.maps.began(pid, parent);
            }
        }
    }

    /// Ends looking and puts together what was seen. The command runs on if it has not ended; the
    /// session must live for as long as files are opened by their mappings.
    ///
    /// # Errors
    ///
    /// Where the samples cannot be had.
    pub fn finish(&mut self) -> Result<Observation, SessionError> {
        let chains = self.cpu.take().map(ChainSampler::finish).transpose()?;
        let switches = self.switches.take().map(ChainSampler::finish).transpose()?;
        let looks = std::mem::take(&mut self.looks);
        let (user_ns, system_ns) = match self.running.usage() {
            Some(usage) => (usage.user.as_nanos() as u64, usage.system.as_nanos() as u64),
            None => looks.cpu_ns(),
        };
        let idle = BusyTime::now()?.since(self.idle);
        let machine_idle_ns = idle.idle_ns + idle.iowait_ns;
        let mut seen = Observation {
            began_ns: self.began.as_ns(),
            ended_ns: Timestamp::now().as_ns(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            totals: Totals { user_ns, system_ns, machine_idle_ns, ..Totals::default() },
            missing: std::mem::take(&mut self.missing),
            ..Observation::default()
        };
        seen.processes = processes(&looks, &chains, &switches);
        self.maps.give(&mut seen.processes, chains.as_ref().or(switches.as_ref()));
        let mut waits = chains.as_ref().map(|chains| waits(&mut seen, chains)).unwrap_or_default();
        stacks(&mut seen, &mut waits, &looks, switches.as_ref());
        seen.waits = waits.into_values().collect();
        if let Some(mut chains) = chains {
            seen.losses.waits = chains.lost;
            // The events tell how long a process ran, not how long of that in user mode.
            chains.expected = user_ns / (1_000_000_000 / u64::from(self.hertz.max(1)));
            if self.hertz > 0 {
                samples(&mut seen, &chains, self.hertz);
            }
        }
        Ok(seen)
    }
}

/// All who were seen, by whatever means.
fn processes(looks: &Looks, cpu: &Option<Chains>, switches: &Option<Chains>) -> Vec<Process> {
    let mut pids: BTreeSet<u32> = looks.processes.keys().copied().collect();
    let mut parents: BTreeMap<u32, u32> = BTreeMap::new();
    for chains in cpu.iter().chain(switches) {
        pids.extend(chains.rows.iter().map(|row| row.pid));
        pids.extend(chains.threads.iter().map(|thread| thread.pid));
        parents.extend(&chains.parents);
    }
    let process = |pid| {
        let looked = looks.processes.get(&pid);
        let parent = parents.get(&pid).copied();
        Process {
            pid,
            parent: parent.or(looked.map(|looked| looked.parent)).unwrap_or_default(),
            comm: looked.map(|looked| looked.comm.clone()).unwrap_or_default(),
            ..Process::default()
        }
    };
    pids.into_iter().map(process).collect()
}

/// A row for each process: what is known of its sleeps does not tell the call.
fn waits(seen: &mut Observation, chains: &Chains) -> BTreeMap<u32, WaitRow> {
    let mut waits: BTreeMap<u32, WaitRow> = BTreeMap::new();
    for thread in &chains.threads {
        let row = waits
            .entry(thread.pid)
            .or_insert_with(|| WaitRow { pid: thread.pid, ..WaitRow::default() });
        row.sleeps += thread.sleeps;
        row.asleep_ns += thread.asleep_ns;
        seen.totals.sleeps += thread.sleeps;
        seen.totals.preemptions += thread.preemptions;
        seen.totals.threads += 1;
    }
    waits
}

/// Gives the rows their stacks: those of the switches, and for a process that has none, because
/// nobody may look there or it switched too rarely, what was seen in `/proc`: a frame each.
fn stacks(
    seen: &mut Observation,
    waits: &mut BTreeMap<u32, WaitRow>,
    looks: &Looks,
    switches: Option<&Chains>,
) {
    let mut counts: BTreeMap<(u32, Vec<u64>), u64> = BTreeMap::new();
    let mut sampled = BTreeSet::new();
    if let Some(chains) = switches {
        for row in &chains.rows {
            if let Some(user) = row.user {
                let frames = chains.chains[user].to_vec();
                *counts.entry((row.pid, frames)).or_default() += row.count;
                sampled.insert(row.pid);
            }
        }
    }
    counts.extend(looks.frames().filter(|((pid, _), _)| !sampled.contains(pid)));
    let mut ids: HashMap<Vec<u64>, StackId> = HashMap::new();
    for ((pid, frames), count) in counts {
        let Some(row) = waits.get_mut(&pid) else { continue };
        let free = StackId(ids.len() as u32);
        let id = *ids.entry(frames.clone()).or_insert(free);
        let truncated = !sampled.contains(&pid);
        seen.stacks.entry(id).or_insert(Stack { frames, truncated });
        row.stacks.push(SampledStack { kernel: None, user: Some(id), count });
    }
}
