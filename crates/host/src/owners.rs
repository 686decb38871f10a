//! Whose CPU time it was: kernel threads', and that of programs which have nothing to do with us.
//!
//! `/proc/PID/stat` counts in ticks of 10 ms for each process, but truncates exact sums, so that a
//! difference over a whole round is exact enough to say whether others were running
//! ([`ForeignCpu`]). What kernel threads do for a process is part of a measurement, and read in
//! nanoseconds from `/proc/PID/schedstat` ([`KernelWork`]). Both look through all of `/proc`: some
//! 20 µs for each process of the machine.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::getpid;

use crate::BusyTime;

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The mother of kernel threads.
const KTHREADD: u32 = 2;

/// The processors that are online, whichever this process may use; at least one.
pub fn processors() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(is_one).count().max(1)
}

/// What one line of `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) is_kernel_thread: bool,
    /// Its own CPU time and that of the children that it has waited for, in ticks.
    ticks: u64,
}

impl Process {
    /// All processes that can be seen. One that ends meanwhile may be among them or not.
    pub(crate) fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::of).collect()
    }

    fn of(pid: u32) -> Option<Self> {
        parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// `PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS MINFLT CMINFLT MAJFLT CMAJFLT UTIME STIME
/// CUTIME CSTIME …`; the name may hold blanks and brackets.
fn parse(pid: u32, text: &str) -> Option<Process> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some(Process {
        pid,
        parent: number(1)? as u32,
        group: number(2)? as u32,
        is_kernel_thread: number(6)? & KERNEL_THREAD != 0,
        ticks,
    })
}

/// CPU time that programs other than this one and its descendants have used since they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignCpu {
    time: Duration,
}

impl ForeignCpu {
    /// The time until now, or `None` where other programs cannot be seen: in a PID namespace, or
    /// where `/proc` hides them (`hidepid`).
    pub fn now() -> Option<Self> {
        Self::seen_by(getpid().as_raw_pid() as u32)
    }

    fn seen_by(own: u32) -> Option<Self> {
        let ticks = foreign_ticks(&Process::all(), own)?;
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        Some(Self { time: Duration::from_nanos(ticks * ns_per_tick) })
    }

    /// The time since `earlier`. That of a program which nobody has waited for is lost.
    pub fn since(self, earlier: Self) -> Duration {
        self.time.saturating_sub(earlier.time)
    }
}

/// A process that ends passes its time on to the one that waits for it, so the sum stays.
fn foreign_ticks(processes: &[Process], own: u32) -> Option<u64> {
    processes.iter().find(|process| process.pid == KTHREADD && process.is_kernel_thread)?;
    let parent = |pid: u32| processes.iter().find(|it| it.pid == pid).map_or(0, |it| it.parent);
    let is_own = |pid: u32| {
        let mut ancestors = std::iter::successors(Some(pid), |&pid| Some(parent(pid)));
        // The list is no snapshot: what would be a circle ends somewhere.
        ancestors.by_ref().take(64).take_while(|&pid| pid != 0).any(|pid| pid == own)
    };
    let foreign = processes.iter().filter(|it| !it.is_kernel_thread && !is_own(it.pid));
    Some(foreign.map(|process| process.ticks).sum())
}

/// What the kernel has done in its own threads, for whomever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelWork {
    /// The time of each kernel thread, exact to the nanosecond.
    Threads(Vec<(u32, u64)>),
    /// Kernel threads cannot be seen: the busy time of the whole machine, in ticks of 10 ms. It
    /// holds this process's own time, and everybody's.
    Machine(BusyTime),
}

impl KernelWork {
    /// The work until now.
    pub fn now() -> Result<Self, Errno> {
        let threads: Vec<_> = Process::all().iter().filter_map(kernel_thread_ns).collect();
        if threads.iter().any(|&(pid, _)| pid == KTHREADD) {
            Ok(Self::Threads(threads))
        } else {
            BusyTime::now().map(Self::Machine)
        }
    }

    /// The time since `earlier`, which must be of the same kind. That of a thread that has ended
    /// meanwhile is lost; kernel workers end after minutes without work.
    pub fn since(&self, earlier: &Self) -> Duration {
        match (self, earlier) {
            (Self::Threads(now), Self::Threads(earlier)) => {
                let before = |pid| earlier.iter().find(|it| it.0 == pid).map_or(0, |it| it.1);
                // One with less than before is another thread with an old number.
                let grown = now.iter().map(|&(pid, ns)| ns.checked_sub(before(pid)).unwrap_or(ns));
                Duration::from_nanos(grown.sum())
            }
            (Self::Machine(now), Self::Machine(earlier)) => {
                Duration::from_nanos(now.since(*earlier).busy_ns())
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether it is the kernel's threads alone.
    pub const fn is_exact(&self) -> bool {
        matches!(self, Self::Threads(_))
    }
}

/// The first number of schedstat is the time on a processor; a kernel without it has no exact time.
fn kernel_thread_ns(process: &Process) -> Option<(u32, u64)> {
    let text = process
        .is_kernel_thread
        .then(|| fs::read_to_string(format!("/proc/{}/schedstat", process.pid)).ok())??;
    Some((process.pid, text.split_ascii_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use unherd_sys::Deadline;

    use super::*;
    use crate::{ChildProcess, SpawnHow};

    fn process(pid: u32, parent: u32, ticks: u64) -> Process {
        Process { pid, parent, group: pid, is_kernel_thread: parent == KTHREADD, ticks }
    }

    #[test]
    fn a_line_of_stat_is_read_from_its_last_bracket() {
        let text = "7 (a) (b) R 3 5 1 0 -1 2097216 10 11 12 13 100 20 3 4 20 0 1 0 99";
        let expected = Process { pid: 7, parent: 3, group: 5, is_kernel_thread: true, ticks: 127 };
        assert_eq!(parse(7, text), Some(expected));
        assert_eq!(parse(7, "7 (a) R 3"), None);
    }

    #[test]
    fn foreign_is_neither_ours_nor_the_kernels() {
        let kthreadd = Process { is_kernel_thread: true, ..process(KTHREADD, 0, 1_000) };
        let all = [
            process(1, 0, 1),
            kthreadd,
            process(3, KTHREADD, 500),
            process(10, 1, 20),
            process(20, 10, 300),
            process(21, 20, 4_000),
            process(30, 10, 50_000),
        ];
        assert_eq!(foreign_ticks(&all, 20), Some(1 + 20 + 50_000));
        assert_eq!(foreign_ticks(&all[..1], 20), None, "kernel threads are hidden");
        let circle = [kthreadd, process(40, 41, 7), process(41, 40, 0)];
        assert_eq!(foreign_ticks(&circle, 20), Some(7));
    }

    #[test]
    fn a_sibling_is_foreign_also_after_its_end() {
        let spawn = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            ChildProcess::spawn(command, SpawnHow::default()).unwrap()
        };
        let idle = spawn("exec sleep 4321");
        let Some(before) = ForeignCpu::seen_by(idle.pid()) else {
            println!("skipped: other programs are hidden");
            return;
        };
        let mut hungry = spawn("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
        let used = hungry.wait(Deadline::NEVER).unwrap().unwrap().usage.cpu();
        let foreign = ForeignCpu::seen_by(idle.pid()).unwrap().since(before);
        // Each of the four sums that hold it is cut off at a tick of 10 ms.
        assert!(foreign + Duration::from_millis(40) >= used, "{foreign:?} of {used:?}");
    }

    #[test]
    fn kernel_threads_are_counted_each_from_its_own_beginning() {
        let at = |threads: &[(u32, u64)]| KernelWork::Threads(threads.to_vec());
        let before = at(&[(2, 5), (10, 1_000), (11, 70)]);
        let after = at(&[(2, 5), (10, 1_500), (11, 30), (12, 4)]);
        assert_eq!(after.since(&before), Duration::from_nanos(500 + 30 + 4));
        let machine =
            |busy| KernelWork::Machine(BusyTime { system_ns: busy, ..BusyTime::default() });
        assert_eq!(machine(90).since(&machine(50)), Duration::from_nanos(40));
        let (first, then) = (KernelWork::now().unwrap(), KernelWork::now().unwrap());
        assert_eq!(first.is_exact(), then.is_exact());
        assert!(then.since(&first) < Duration::from_secs(60));
    }
}
