//! When threads were switched out and in, by the kernel's own records, which need no privilege for
//! processes of one's own.

use std::collections::HashMap;

use super::abi::{MISC_SWITCH_OUT, MISC_SWITCH_OUT_PREEMPT};
use super::ring::Record;

/// Why and for how long one thread did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadSwitches {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Times that it was switched out because it waited.
    pub sleeps: u64,
    /// From there to when it ran again: asleep, and then waiting for a processor.
    pub asleep_ns: u64,
    /// Times that it was switched out although it could have gone on.
    pub preemptions: u64,
}

/// All threads. Records of one thread come from several rings, so they are put in order first.
#[derive(Debug, Default)]
pub(super) struct Switches {
    waiting: Vec<Switch>,
    threads: HashMap<u32, Thread>,
}

#[derive(Debug)]
struct Switch {
    time_ns: u64,
    pid: u32,
    tid: u32,
    kind: SwitchKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwitchKind {
    In,
    Asleep,
    Preempted,
}

#[derive(Debug, Default)]
struct Thread {
    sums: ThreadSwitches,
    /// Since when it waits, where it was seen to begin.
    asleep_since_ns: Option<u64>,
}

impl Switches {
    pub(super) fn see(&mut self, time_ns: u64, pid: u32, tid: u32, record: &Record<'_>) {
        let kind = if record.misc & MISC_SWITCH_OUT == 0 {
            SwitchKind::In
        } else if record.misc & MISC_SWITCH_OUT_PREEMPT == 0 {
            SwitchKind::Asleep
        } else {
            SwitchKind::Preempted
        };
        self.waiting.push(Switch { time_ns, pid, tid, kind });
    }

    /// Counts what happened before `time_ns`; nothing of that time is to come any more.
    pub(super) fn count_until(&mut self, time_ns: u64) {
        self.waiting.sort_by_key(|switch| switch.time_ns);
        let ripe = self.waiting.partition_point(|switch| switch.time_ns < time_ns);
        for switch in self.waiting.drain(..ripe) {
            self.threads.entry(switch.tid).or_default().count(&switch);
        }
    }

    /// The sums by thread.
    pub(super) fn into_threads(mut self) -> Vec<ThreadSwitches> {
        self.count_until(u64::MAX);
        let mut threads: Vec<_> = self.threads.into_values().map(|thread| thread.sums).collect();
        threads.sort_by_key(|sums| (sums.pid, sums.tid));
        threads
    }
}

impl Thread {
    fn count(&mut self, switch: &Switch) {
        let sums = &mut self.sums;
        (sums.pid, sums.tid) = (switch.pid, switch.tid);
        let asleep_since_ns = self.asleep_since_ns.take();
        match switch.kind {
            SwitchKind::In => {
                let since_ns = asleep_since_ns.unwrap_or(switch.time_ns);
                sums.asleep_ns += switch.time_ns.saturating_sub(since_ns);
            }
            SwitchKind::Asleep => {
                sums.sleeps += 1;
                self.asleep_since_ns = Some(switch.time_ns);
            }
            SwitchKind::Preempted => sums.preemptions += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(misc: u16) -> Record<'static> {
        Record { kind: super::super::abi::RECORD_SWITCH, misc, body: &[] }
    }

    #[test]
    fn records_of_two_rings_are_ordered() {
        let mut switches = Switches::default();
        // The second ring's record of going in is read before the first's of going out.
        switches.see(300, 7, 8, &switch(0));
        switches.see(100, 7, 8, &switch(MISC_SWITCH_OUT));
        switches.see(900, 7, 8, &switch(0));
        switches.count_until(500);
        switches.see(600, 7, 8, &switch(MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPT));
        let expected = ThreadSwitches { pid: 7, tid: 8, sleeps: 1, asleep_ns: 200, preemptions: 1 };
        assert_eq!(switches.into_threads(), [expected]);
    }

    #[test]
    fn threads_out_at_either_end_have_no_time() {
        let mut switches = Switches::default();
        switches.see(100, 7, 8, &switch(0));
        switches.see(200, 7, 8, &switch(MISC_SWITCH_OUT));
        let sums = switches.into_threads()[0];
        assert_eq!((sums.sleeps, sums.asleep_ns), (1, 0));
    }
}
