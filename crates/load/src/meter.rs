//! What a timed region costs: time, CPU and context switches, from the kernel.
//!
//! Two sources of CPU time. *The process*: getrusage(2), exact to the microsecond in its sum; the
//! kernel divides it into user and system time by sampling. *Kernel threads*, where these do part
//! of the work, such as writing back: their time by /proc, exact to the nanosecond, less what they
//! use on the idle machine. No other program's time is in either, whatever else runs.
//!
//! Where kernel threads cannot be seen (in a container), the machine's busy time stands for both:
//! in ticks of 10 ms, with whatever else runs, and never less than the process's own.

use unherd_host::{KernelWork, Usage};
use unherd_sys::Timestamp;

use crate::LoadError;

/// Whose CPU time a workload is judged by, and a planted slowdown is a share of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Basis {
    /// The process's.
    Process,
    /// The process's and that of kernel threads.
    WithKernel {
        /// How many CPUs the latter keep busy when the machine is idle.
        idle_busy: f64,
    },
}

/// A timed region that has begun.
#[derive(Debug)]
pub struct Meter {
    basis: Basis,
    begin: Reading,
}

#[derive(Debug, Clone)]
struct Reading {
    at: Timestamp,
    process: Usage,
    kernel: Option<KernelWork>,
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

impl Meter {
    /// Begins a region.
    pub fn start(basis: Basis) -> Result<Self, LoadError> {
        let kernel = kernel_work(basis)?;
        Ok(Self { basis, begin: Reading::with(kernel) })
    }

    /// Burns `share` of the CPU time that the region has used so far, in this thread, so that a
    /// comparison has a slowdown of known size to find. The process's other threads should be
    /// asleep: what they use meanwhile counts as burned. Gives the seconds burned.
    pub fn plant(&self, share: f64) -> Result<f64, LoadError> {
        if share <= 0.0 {
            return Ok(0.0);
        }
        let before = Reading::end(self.basis)?;
        let target_s = share * self.begin.until(&before, self.basis).cpu_s;
        loop {
            let mut word = 1_u64;
            for _ in 0..10_000 {
                word = std::hint::black_box(word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            let burned_s = before.until(&Reading::with(None), Basis::Process).cpu_s;
            if burned_s >= target_s {
                return Ok(burned_s);
            }
        }
    }

    /// Ends the region.
    pub fn stop(self, plant: f64) -> Result<Span, LoadError> {
        let planted_s = self.plant(plant)?;
        let end = Reading::end(self.basis)?;
        Ok(Span { planted_s, ..self.begin.until(&end, self.basis) })
    }
}

/// Reading it takes milliseconds, which stand outside of the region.
fn kernel_work(basis: Basis) -> Result<Option<KernelWork>, LoadError> {
    match basis {
        Basis::Process => Ok(None),
        Basis::WithKernel { .. } => KernelWork::now().map(Some).map_err(LoadError::BusyTime),
    }
}

impl Reading {
    fn with(kernel: Option<KernelWork>) -> Self {
        Self { at: Timestamp::now(), process: Usage::of_this_process(), kernel }
    }

    fn end(basis: Basis) -> Result<Self, LoadError> {
        let end = Self::with(None);
        Ok(Self { kernel: kernel_work(basis)?, ..end })
    }

    fn until(&self, end: &Self, basis: Basis) -> Span {
        let elapsed_s = end.at.since(self.at).as_secs_f64();
        let process = end.process.since(self.process);
        let process_cpu_s = process.cpu().as_secs_f64();
        let cpu_s = match (basis, &self.kernel, &end.kernel) {
            (Basis::WithKernel { idle_busy }, Some(before), Some(after)) => {
                let busy_s = after.since(before).as_secs_f64() - idle_busy * elapsed_s;
                if after.is_exact() {
                    process_cpu_s + busy_s.max(0.0)
                } else {
                    busy_s.max(process_cpu_s)
                }
            }
            _ => process_cpu_s,
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

    use unherd_host::BusyTime;

    use super::*;

    fn burn(meter: &Meter) -> f64 {
        let used = |basis| meter.begin.until(&Reading::end(basis).unwrap(), basis).cpu_s;
        // A region that used some CPU of its own.
        while used(Basis::Process) < 0.02 {}
        used(meter.basis)
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
        let meter = Meter::start(Basis::WithKernel { idle_busy: 0.0 }).unwrap();
        assert_eq!(meter.stop(0.0).unwrap().planted_s, 0.0);
    }

    fn span(own_ms: u64, kernel: impl Fn(u64) -> KernelWork) -> Span {
        let at = |ms: u64, own_ms: u64, kernel| Reading {
            at: Timestamp::from_ns(ms * 1_000_000),
            process: Usage { user: Duration::from_millis(own_ms), ..Default::default() },
            kernel: Some(kernel),
        };
        let basis = Basis::WithKernel { idle_busy: 0.1 };
        at(0, 0, kernel(0)).until(&at(1000, own_ms, kernel(1)), basis)
    }

    #[test]
    fn kernel_threads_are_added_and_neighbours_are_not() {
        let threads = |ms| move |n| KernelWork::Threads(vec![(2, 0), (7, n * ms * 1_000_000)]);
        let cpu_s = |own, ms| span(own, threads(ms)).cpu_s;
        assert!((cpu_s(300, 150) - 0.35).abs() < 1e-9, "{}", cpu_s(300, 150));
        assert!((cpu_s(300, 50) - 0.3).abs() < 1e-9, "less than when idle is nothing");
    }

    #[test]
    fn machine_time_is_at_least_the_processs() {
        let machine = |ms| {
            move |n| {
                let system_ns = n * ms * 1_000_000;
                KernelWork::Machine(BusyTime { system_ns, ..Default::default() })
            }
        };
        let cpu_s = |busy| span(300, machine(busy)).cpu_s;
        assert!((cpu_s(500) - 0.4).abs() < 1e-9, "{}", cpu_s(500));
        assert!((cpu_s(350) - 0.3).abs() < 1e-9, "{}", cpu_s(350));
    }
}
