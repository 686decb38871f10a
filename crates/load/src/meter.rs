//! What a timed region costs: time, CPU and context switches, from the kernel.
//!
//! Two sources of CPU time. *The process*: getrusage(2), exact to the microsecond in its sum; the
//! kernel divides it into user and system time by sampling. *The machine*: its busy time from
//! /proc/stat, in ticks of 10 ms, which also holds what kernel threads did for the process. The
//! machine's is what it was less what it would have been had the machine been idle; as the machine
//! cannot have been less busy than the process, the process's time is its lower bound.

use unherd_sys::Timestamp;

use crate::{LoadError, usage};

/// Whose CPU time a workload is judged by, and a planted slowdown is a share of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Basis {
    /// The process's.
    Process,
    /// The machine's, less `idle_busy` CPUs.
    Machine {
        /// How many CPUs are busy when the machine is idle.
        idle_busy: f64,
    },
}

/// A timed region that has begun.
#[derive(Debug)]
pub struct Meter {
    basis: Basis,
    begin: Reading,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Timestamp,
    process: usage::Usage,
    machine_busy_ns: u64,
}

/// What a timed region cost.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Seconds on the clock.
    pub elapsed_s: f64,
    /// The process's user time.
    pub user_s: f64,
    /// The process's user and system time.
    pub process_cpu_s: f64,
    /// The CPU time that counts, by the meter's [`Basis`].
    pub cpu_s: f64,
    /// How often a thread of the process gave up its CPU because it had to wait.
    pub voluntary_switches: u64,
    /// The CPU time of `cpu_s` that was burned by [`Meter::plant`].
    pub planted_s: f64,
}

impl Meter {
    /// Begins a region.
    pub fn start(basis: Basis) -> Result<Self, LoadError> {
        Ok(Self { basis, begin: Reading::take(basis)? })
    }

    /// Burns `share` of the CPU time that the region has used so far, in this thread, so that a
    /// comparison has a slowdown of known size to find. The process's other threads should be
    /// asleep: what they use meanwhile counts as burned. Gives the seconds burned.
    pub fn plant(&self, share: f64) -> Result<f64, LoadError> {
        if share <= 0.0 {
            return Ok(0.0);
        }
        let before = Reading::take(self.basis)?;
        let target_s = share * self.begin.until(&before, self.basis).cpu_s;
        loop {
            let mut word = 1_u64;
            for _ in 0..10_000 {
                word = std::hint::black_box(word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            let burned_s = before.until(&Reading::take(Basis::Process)?, Basis::Process).cpu_s;
            if burned_s >= target_s {
                return Ok(burned_s);
            }
        }
    }

    /// Ends the region.
    pub fn stop(self, plant: f64) -> Result<Span, LoadError> {
        let planted_s = self.plant(plant)?;
        let end = Reading::take(self.basis)?;
        Ok(Span { planted_s, ..self.begin.until(&end, self.basis) })
    }
}

impl Reading {
    fn take(basis: Basis) -> Result<Self, LoadError> {
        let machine_busy_ns = match basis {
            Basis::Process => 0,
            Basis::Machine { .. } => usage::machine_busy_ns()
                .map_err(|source| LoadError::Meter { what: "the machine's busy time", source })?,
        };
        let process = usage::own()
            .map_err(|source| LoadError::Meter { what: "the process's CPU time", source })?;
        Ok(Self { at: Timestamp::now(), process, machine_busy_ns })
    }

    fn until(&self, end: &Self, basis: Basis) -> Span {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        let elapsed_s = end.at.since(self.at).as_secs_f64();
        let user_s = seconds(self.process.user_ns, end.process.user_ns);
        let process_cpu_s = seconds(
            self.process.user_ns + self.process.system_ns,
            end.process.user_ns + end.process.system_ns,
        );
        let cpu_s = match basis {
            Basis::Process => process_cpu_s,
            Basis::Machine { idle_busy } => {
                let busy_s = seconds(self.machine_busy_ns, end.machine_busy_ns);
                (busy_s - idle_busy * elapsed_s).max(process_cpu_s)
            }
        };
        let switches = |usage: &usage::Usage| usage.voluntary_switches;
        let voluntary_switches = switches(&end.process).saturating_sub(switches(&self.process));
        Span { elapsed_s, user_s, process_cpu_s, cpu_s, voluntary_switches, planted_s: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(meter: &Meter) -> f64 {
        // A region that used some CPU of its own.
        while meter.begin.until(&Reading::take(meter.basis).unwrap(), Basis::Process).cpu_s < 0.02 {
        }
        meter.begin.until(&Reading::take(meter.basis).unwrap(), meter.basis).cpu_s
    }

    #[test]
    fn a_plant_burns_its_share() {
        let meter = Meter::start(Basis::Process).unwrap();
        let used_s = burn(&meter);
        let span = meter.stop(0.5).unwrap();
        assert!(span.planted_s >= 0.5 * used_s, "{span:?} after {used_s}");
        assert!(span.cpu_s >= 1.5 * used_s, "{span:?} after {used_s}");
    }

    #[test]
    fn no_plant_burns_nothing() {
        let meter = Meter::start(Basis::Machine { idle_busy: 0.0 }).unwrap();
        assert_eq!(meter.stop(0.0).unwrap().planted_s, 0.0);
    }

    #[test]
    fn the_machine_is_never_less_busy_than_the_process() {
        let at = |ms: u64, own_ms: u64, busy_ms: u64| Reading {
            at: Timestamp::from_ns(ms * 1_000_000),
            process: usage::Usage { user_ns: own_ms * 1_000_000, ..Default::default() },
            machine_busy_ns: busy_ms * 1_000_000,
        };
        let basis = Basis::Machine { idle_busy: 0.1 };
        let span = at(0, 0, 0).until(&at(1000, 300, 500), basis);
        assert!((span.cpu_s - 0.4).abs() < 1e-9, "{span:?}");
        let span = at(0, 0, 0).until(&at(1000, 300, 350), basis);
        assert!((span.cpu_s - 0.3).abs() < 1e-9, "{span:?}");
    }
}
