//! Looking at `/proc` now and then: who is asleep, and at which instruction.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use unherd_sys::Timestamp;

/// A process as it was seen last.
#[derive(Debug, Clone, Default)]
pub(super) struct Looked {
    pub(super) parent: u32,
    pub(super) comm: String,
    /// CPU time in ticks, user and system, at first sight and at the last.
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

/// All looks so far.
#[derive(Debug, Default)]
pub(super) struct Looks {
    pub(super) processes: BTreeMap<u32, Looked>,
    /// Threads seen asleep, by process and instruction.
    asleep: BTreeMap<(u32, u64), u64>,
    took: Duration,
}

impl Looks {
    /// How long to wait for the next look: looking takes at most a tenth of the time.
    pub(super) fn pause(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(20);
        LEAST.max(self.took.saturating_mul(10))
    }

    /// Looks at `roots` and their descendants. Returns those that were not seen before, each with
    /// its parent.
    pub(super) fn look(&mut self, roots: &[u32]) -> Vec<(u32, u32)> {
        let began = Timestamp::now();
        let mut new = Vec::new();
        let mut rest: Vec<u32> = roots.to_vec();
        while let Some(pid) = rest.pop() {
            let is_new = !self.processes.contains_key(&pid);
            let Some(parent) = self.look_at_process(pid) else { continue };
            if is_new {
                new.push((pid, parent));
            }
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks.map(|task| task.path()) {
                let read = |file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
                rest.extend(
                    read("children").split_whitespace().filter_map(|p| p.parse::<u32>().ok()),
                );
                if let Some(address) = asleep_at(&read("stat"), &read("syscall")) {
                    *self.asleep.entry((pid, address)).or_default() += 1;
                }
            }
        }
        self.took = Timestamp::now().since(began);
        new
    }

    /// Notes a process's CPU time and name; gives its parent.
    fn look_at_process(&mut self, pid: u32) -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (start, rest) = (stat.find('(')?, stat.rfind(')')?);
        let fields: Vec<&str> = stat.get(rest + 1..)?.split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let cpu = (number(11)?, number(12)?);
        let looked = self.processes.entry(pid).or_default();
        looked.parent = number(1)? as u32;
        looked.comm = stat.get(start + 1..rest)?.to_owned();
        looked.first.get_or_insert(cpu);
        looked.last = cpu;
        Some(looked.parent)
    }

    /// CPU time of all processes between their first and their last sight: user and system.
    pub(super) fn cpu_ns(&self) -> (u64, u64) {
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        self.processes.values().fold((0, 0), |(user, system), looked| {
            let first = looked.first.unwrap_or(looked.last);
            (
                user + looked.last.0.saturating_sub(first.0) * ns_per_tick,
                system + looked.last.1.saturating_sub(first.1) * ns_per_tick,
            )
        })
    }

    /// How often threads were seen asleep, by process and stack, which is one frame.
    pub(super) fn frames(&self) -> impl Iterator<Item = ((u32, Vec<u64>), u64)> {
        self.asleep.iter().map(|(&(pid, address), &seen)| ((pid, vec![address]), seen))
    }
}

/// The instruction of a thread that is asleep, from its `stat` and `syscall`. `None` also where
/// that may not be read.
fn asleep_at(stat: &str, syscall: &str) -> Option<u64> {
    let state = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().next()?;
    if !matches!(state, "S" | "D") || syscall.starts_with("running") {
        return None;
    }
    // `CALL ARGUMENTS… STACK INSTRUCTION`, the call -1 outside of any and without arguments.
    let address = syscall.split_whitespace().next_back()?;
    u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_tells_where_it_is() {
        let stat = "12 (a) b) S 1 12 12 0";
        let syscall = "202 0x7f10 0x189 0x0 0x0 0x0 0xffff 0x7ffd8 0x7f4a";
        assert_eq!(asleep_at(stat, syscall), Some(0x7f4a));
        assert_eq!(asleep_at(stat, "-1 0x7ffd8 0x7f4a"), Some(0x7f4a));
        assert_eq!(asleep_at(stat, ""), None);
        assert_eq!(asleep_at(stat, "running\n"), None);
        assert_eq!(asleep_at("12 (sh) R 1 12", syscall), None);
    }

    #[test]
    fn children_are_found_in_kernel_list() {
        use std::process::Command;

        use unherd_host::{ChildProcess, SpawnHow};
        use unherd_sys::Deadline;

        let mut command = Command::new("sleep");
        command.arg("1000");
        let child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
        let me = std::process::id();
        let mut looks = Looks::default();
        let new = looks.look(&[me]);
        assert!(new.contains(&(child.pid(), me)), "{new:?}");
        // Other tests of this process may have started children meanwhile.
        let newer = looks.look(&[me]);
        assert!(newer.iter().all(|&(pid, _)| pid != child.pid()), "{newer:?}");
        while looks.processes[&child.pid()].comm != "sleep" {
            looks.look(&[me]);
        }
        let is_seen = |looks: &Looks| looks.frames().any(|((pid, _), _)| pid == child.pid());
        let deadline = Deadline::after(Duration::from_secs(10));
        while !is_seen(&looks) && !deadline.has_passed(Timestamp::now()) {
            looks.look(&[me]);
        }
        assert!(is_seen(&looks), "{looks:?}");
    }
}
