//! CPUs: which ones there are, keeping to some, and how long they were idle.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use unherd_sys::Errno;

use crate::LoadError;

/// The CPUs that this process may use.
pub(super) fn allowed_cpus() -> Result<Vec<usize>, LoadError> {
    let set = sched_getaffinity(None).map_err(LoadError::BusyTime)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Keeps the calling thread to `cpus`, if there are any.
pub(super) fn pin(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    // The process was allowed to use them; if that has changed, it runs where it may.
    let _ = sched_setaffinity(None, &set);
}

/// Ticks of 10 ms in which CPUs were idle.
pub(super) struct IdleTicks(u64);

const TICK_S: f64 = 0.01;

impl IdleTicks {
    pub(super) fn now(cpus: &[usize]) -> Result<Self, LoadError> {
        let failed = |error: std::io::Error| {
            LoadError::BusyTime(Errno::from_raw_os_error(error.raw_os_error().unwrap_or(0)))
        };
        let text = std::fs::read_to_string("/proc/stat").map_err(failed)?;
        Ok(Self(cpus.iter().map(|cpu| ticks(&text, *cpu)).sum()))
    }

    /// The share of the time since, `elapsed_s`, in which `cpus` were idle.
    pub(super) fn share_until_now(self, cpus: &[usize], elapsed_s: f64) -> Result<f64, LoadError> {
        let ticks = Self::now(cpus)?.0.saturating_sub(self.0);
        Ok((ticks as f64 * TICK_S / (elapsed_s * cpus.len() as f64)).min(1.0))
    }
}

/// The fields "idle" and "iowait" of a CPU.
fn ticks(text: &str, cpu: usize) -> u64 {
    let name = format!("cpu{cpu}");
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let line = lines.find_map(|mut words| (words.next() == Some(&*name)).then_some(words));
    line.map_or(0, |words| words.skip(3).take(2).filter_map(|word| word.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_ticks_are_those_of_the_cpu() {
        let text = "cpu  9 9 9 9 9\ncpu1 1 2 3 40 5 6 7\ncpu10 1 1 1 1 1\n";
        assert_eq!([1, 10, 2].map(|cpu| ticks(text, cpu)), [45, 2, 0]);
    }
}
