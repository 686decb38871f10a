//! How much threads had to wait for the machine: pressure stall information, and the load.

use std::fs;
use std::time::Duration;

/// Time since boot in which some thread of the machine waited for a resource (the line `some` of
/// `/proc/pressure`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// For a processor.
    pub cpu: Duration,
    /// For storage.
    pub io: Duration,
    /// For memory.
    pub memory: Duration,
}

impl Pressure {
    /// The time until now; `None` where the kernel does not count it (`psi=1` on its command line).
    pub fn now() -> Option<Self> {
        let some =
            |resource: &str| parse(&fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?);
        Some(Self { cpu: some("cpu")?, io: some("io")?, memory: some("memory")? })
    }

    /// The time since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            io: self.io.saturating_sub(earlier.io),
            memory: self.memory.saturating_sub(earlier.memory),
        }
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS`
fn parse(text: &str) -> Option<Duration> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some.split(' ').find_map(|field| field.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

/// The kernel's mean number of threads that run or want to, over the last minute.
pub fn load_1min() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some_is_read() {
        let text = "some avg10=92.80 avg60=60.77 avg300=21.51 total=82096089\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse(text), Some(Duration::from_micros(82_096_089)));
        assert_eq!(parse("full avg10=0.00 total=7\n"), None);
        assert!(load_1min().is_some_and(|load| load >= 0.0));
        if let (Some(first), Some(then)) = (Pressure::now(), Pressure::now()) {
            assert!(then.since(first).cpu < Duration::from_secs(60));
        }
    }
}
