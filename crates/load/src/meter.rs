//! What a timed region costs: time, CPU and context switches, from the kernel.
//!
//! Two sources of CPU time. *The process*: getrusage(2), exact to the microsecond in its sum; the
//! kernel divides it into user and system time by sampling. *The machine*: its busy time from
//! /proc/stat, in ticks of 10 ms, which also holds what kernel threads did for the process. The
//! machine's is what it was less what it would have been had the machine been idle; as the machine
//! cannot have been less busy than the process, the process's time is its lower bound.

use unherd_host::{BusyTime, Usage};
use unherd_sys::Timestamp;

use crate::LoadError;

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
    process: Usage,
    machine: BusyTime,
}

/// What a timed region cost.
#[derive(Debug, Clone, Copy, Default)]
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

impl std::ops::Add for Span {
    type Output = Self;

    /// Two regions as if one had followed the other at once.
    fn add(self, other: Self) -> Self {
        Self {
            elapsed_s: self.elapsed_s + other.elapsed_s,
            user_s: self.user_s + other.user_s,
            process_cpu_s: self.process_cpu_s + other.process_cpu_s,
            cpu_s: self.cpu_s + other.cpu_s,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            planted_s: self.planted_s + other.planted_s,
        }
    }
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
        let machine = match basis {
            Basis::Process => BusyTime::default(),
            Basis::Machine { .. } => BusyTime::now().map_err(LoadError::BusyTime)?,
        };
        Ok(Self { at: Timestamp::now(), process: Usage::of_this_process(), machine })
    }

    fn until(&self, end: &Self, basis: Basis) -> Span {
        let elapsed_s = end.at.since(self.at).as_secs_f64();
        let process = end.process.since(self.process);
        let process_cpu_s = process.cpu().as_secs_f64();
        let cpu_s = match basis {
            Basis::Process => process_cpu_s,
            Basis::Machine { idle_busy } => {
                let busy_s = end.machine.since(self.machine).busy_ns() as f64 / 1e9;
                (busy_s - idle_busy * elapsed_s).max(process_cpu_s)
            }
        };
        Span {
            elapsed_s,
            user_s: process.user.as_secs_f64(),
            process_cpu_s,
            cpu_s,
            voluntary_switches: process.voluntary_switches,
            planted_s: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            process: Usage { user: Duration::from_millis(own_ms), ..Default::default() },
            machine: BusyTime { system_ns: busy_ms * 1_000_000, ..Default::default() },
        };
        let basis = Basis::Machine { idle_busy: 0.1 };
        let span = at(0, 0, 0).until(&at(1000, 300, 500), basis);
        assert!((span.cpu_s - 0.4).abs() < 1e-9, "{span:?}");
        let span = at(0, 0, 0).until(&at(1000, 300, 350), basis);
        assert!((span.cpu_s - 0.3).abs() < 1e-9, "{span:?}");
    }
}
