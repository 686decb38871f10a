//! Table 1, the summary: the sums, and what was spent on each kind of waste.

use serde::Serialize;

use super::futexes::{Futexes, Outcomes};
use super::herds::Herd;
use super::locks::KernelLock;
use super::share::Interval;
use super::stalls::Stall;
use super::waits::WaitLine;
use crate::observation::{AddedPrices, Observation};

/// The sums. What could not be seen is `None`, never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How long was counted.
    pub duration_ns: u64,
    /// The machine's processors.
    pub cpus: usize,
    /// Processes followed.
    pub processes: usize,
    /// Threads followed.
    pub threads: u64,
    /// System calls seen.
    pub calls: Option<u64>,
    /// CPU time in user mode.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
    /// Of both, what tracing added to the program, about: its calls and context switches, each at
    /// the price that was measured on this machine. Shares are of the rest.
    pub tracing_cpu_ns: Option<u64>,
    /// These prices.
    pub tracing_prices: Option<AddedPrices>,
    /// Idle time of the machine's processors.
    pub machine_idle_ns: u64,
    /// Blocking switch-outs.
    pub sleeps: u64,
    /// Switch-outs of threads that could have gone on.
    pub preemptions: u64,
    /// Both.
    pub context_switches: u64,
    /// Wakeups.
    pub wakeups: Option<u64>,
    /// Needless wakeups.
    pub needless_wakeups: Option<Interval>,
    /// CPU time of their episodes.
    pub needless_wakeups_cpu_ns: Option<Interval>,
    /// Wake calls that found nobody.
    pub empty_wakes: Option<u64>,
    /// What those calls took, about: each as long as a call that returns at once takes on this
    /// machine, untraced and with nobody else at the word.
    pub empty_wakes_cpu_ns: Option<u64>,
    /// Wait calls that returned at once because the value had changed.
    pub refused_waits: Option<u64>,
    /// What those took, about, as for empty wakes.
    pub refused_waits_cpu_ns: Option<u64>,
    /// Wakes aimed at a thread that was not asleep.
    pub redundant_wakes: Option<u64>,
    /// Woken by a timer and asleep again on the same, nothing but a look done: needless sleeps.
    pub timer_polls: Option<u64>,
    /// CPU time of the looks, with the switches there and back: an upper bound of what is wasted,
    /// as they may have left something in memory.
    pub timer_polls_cpu_ns: Option<u64>,
    /// Sleeps that were shorter than a switch there and back.
    pub short_sleeps: Option<u64>,
    /// A switch there and back on one processor of this machine: two sleeps.
    pub switch_round_trip_ns: Option<u64>,
    /// A futex call that returns at once, on this machine.
    pub futex_call_ns: Option<u64>,
    /// Contended kernel locks: waits for one that was not free.
    pub contended_locks: Option<u64>,
    /// Time waited for them.
    pub contended_locks_ns: Option<u64>,
    /// Of that, spent spinning: CPU time, except what a hypervisor took away meanwhile.
    pub contended_locks_cpu_ns: Option<u64>,
    /// Of that, at the scheduler's own locks: a consequence of switches and wakeups.
    pub scheduler_locks_cpu_ns: Option<u64>,
    /// Events that woke two or more for the same object, some of them needlessly or possibly so.
    pub herds: Option<u64>,
    /// Stalls in reclaim and write-back.
    pub stalls: Option<u64>,
    /// Time in them.
    pub stalls_ns: Option<u64>,
}

/// The tables that the summary adds up; `None` where they could not be seen.
pub(crate) struct Seen<'a> {
    pub(crate) waits: &'a [WaitLine],
    pub(crate) judged: bool,
    pub(crate) herds: Option<&'a [Herd]>,
    pub(crate) futexes: Option<&'a Futexes>,
    pub(crate) locks: Option<&'a [KernelLock]>,
    pub(crate) stalls: Option<&'a [Stall]>,
}

pub(crate) fn sum<T>(rows: &[T], count: impl Fn(&T) -> u64) -> u64 {
    rows.iter().fold(0, |sum, row| sum.saturating_add(count(row)))
}

fn sum_intervals<T>(rows: &[T], of: impl Fn(&T) -> Interval) -> Interval {
    let mut sum = Interval::default();
    rows.iter().for_each(|row| sum.add(of(row)));
    sum
}

impl Summary {
    pub(crate) fn new(observation: &Observation, seen: &Seen<'_>) -> Self {
        let totals = &observation.totals;
        let waits = |count: fn(&WaitLine) -> u64| seen.judged.then(|| sum(seen.waits, count));
        let intervals =
            |of: fn(&WaitLine) -> Interval| seen.judged.then(|| sum_intervals(seen.waits, of));
        let locks = |count: fn(&KernelLock) -> u64| seen.locks.map(|locks| sum(locks, count));
        let futexes = |count: fn(&Outcomes) -> u64| seen.futexes.map(|table| table.sum(count));
        // An estimate may not be more than there is.
        let cpu_ns = totals.user_ns.saturating_add(totals.system_ns);
        let added = totals.added;
        let prices = (added != AddedPrices::default()).then_some(added);
        let context_switches = totals.sleeps.saturating_add(totals.preemptions);
        let futex_calls = futexes(|of| of.calls).unwrap_or_default();
        let tracing_ns = [
            totals.calls.saturating_sub(futex_calls).saturating_mul(added.call_ns),
            futex_calls.saturating_mul(added.futex_call_ns),
            context_switches.saturating_mul(added.sleep_ns),
        ];
        let tracing_ns = tracing_ns.into_iter().fold(0, u64::saturating_add).min(cpu_ns);
        let calls_ns = |count: fn(&Outcomes) -> u64| {
            futexes(count).map(|count| count.saturating_mul(totals.futex_call_ns).min(cpu_ns))
        };
        Self {
            duration_ns: observation.ended_ns.saturating_sub(observation.began_ns),
            cpus: observation.cpus,
            processes: observation.processes.len(),
            threads: totals.threads,
            calls: seen.judged.then_some(totals.calls),
            user_ns: totals.user_ns,
            system_ns: totals.system_ns,
            tracing_cpu_ns: prices.map(|_| tracing_ns),
            tracing_prices: prices,
            machine_idle_ns: totals.machine_idle_ns,
            sleeps: totals.sleeps,
            preemptions: totals.preemptions,
            context_switches,
            wakeups: seen.judged.then_some(totals.wakeups),
            needless_wakeups: intervals(|line| line.needless),
            needless_wakeups_cpu_ns: intervals(|line| line.needless_cpu_ns),
            empty_wakes: futexes(|of| of.woke_none),
            empty_wakes_cpu_ns: calls_ns(|of| of.woke_none),
            refused_waits: futexes(|of| of.refused),
            refused_waits_cpu_ns: calls_ns(|of| of.refused),
            redundant_wakes: waits(|line| line.redundant_wakes),
            timer_polls: waits(|line| line.timer_polls),
            timer_polls_cpu_ns: waits(|line| line.timer_poll_cpu_ns),
            short_sleeps: waits(|line| line.short_sleeps),
            switch_round_trip_ns: seen.judged.then_some(totals.switch_round_trip_ns),
            futex_call_ns: seen.futexes.map(|_| totals.futex_call_ns),
            contended_locks: locks(|lock| lock.count),
            contended_locks_ns: locks(|lock| lock.total_ns),
            contended_locks_cpu_ns: locks(|lock| if lock.spins { lock.total_ns } else { 0 })
                .map(|ns| ns.min(cpu_ns)),
            scheduler_locks_cpu_ns: locks(|lock| {
                if lock.of_scheduler && lock.spins { lock.total_ns } else { 0 }
            })
            .map(|ns| ns.min(cpu_ns)),
            herds: seen.herds.map(|herds| sum(herds, wasteful_herds)),
            stalls: seen.stalls.map(|stalls| sum(stalls, |stall| stall.count)),
            stalls_ns: seen.stalls.map(|stalls| sum(stalls, |stall| stall.total_ns)),
        }
    }

    /// User and system time.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    /// The same without what tracing added: what shares are of.
    #[must_use]
    pub fn own_cpu_ns(&self) -> u64 {
        self.cpu_ns().saturating_sub(self.tracing_cpu_ns.unwrap_or_default())
    }
}

/// An event that woke several with good cause is no herd.
pub(crate) fn wasteful_herds(herd: &Herd) -> u64 {
    if herd.needless.is_zero() { 0 } else { herd.herds }
}

#[cfg(test)]
mod tests {
    use crate::observation::Missing;
    use crate::report::fixture::{observation, symbols};
    use crate::{Count, Report};

    /// A command line is refused by these two, before anything is traced.
    #[test]
    fn counts_say_what_they_need() {
        let mut observation = observation();
        let unprivileged = Report::of_switches_only(&observation, &mut symbols());
        observation.missing.push(Missing {
            tracepoint: "sys_exit".into(),
            consequence: "calls are not seen".into(),
        });
        let without_calls = Report::new(&observation, &mut symbols());
        for count in Count::ALL {
            assert_eq!(unprivileged.count(count).is_none(), count.needs_privilege(), "{count:?}");
            assert_eq!(without_calls.count(count).is_none(), count.needs_calls(), "{count:?}");
        }
    }
}
