//! How busy the whole machine was: `/proc/stat`.
//!
//! The kernel counts in clock ticks, so a difference is exact to about 10 ms per processor and
//! state, whatever the unit here says. It is the measure where the work runs in kernel threads that
//! no process is charged for.

use rustix::io::Errno;

/// Time that all processors together have spent in each state since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct BusyTime {
    /// In user mode, niced or not, guests included.
    pub user_ns: u64,
    /// In the kernel, interrupts included.
    pub system_ns: u64,
    /// In interrupts: a part of `system_ns`.
    #[serde(default)]
    pub interrupts_ns: u64,
    /// With nothing to do.
    pub idle_ns: u64,
    /// With nothing to do but I/O under way. It may run backwards.
    pub iowait_ns: u64,
    /// Wanted to run, but the hypervisor ran somebody else.
    pub steal_ns: u64,
}

impl BusyTime {
    /// The time until now. Reads one file of `/proc`.
    pub fn now() -> Result<Self, Errno> {
        let text = std::fs::read_to_string("/proc/stat")
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        parse(&text, ns_per_tick).ok_or(Errno::PROTO)
    }

    /// The time since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            interrupts_ns: self.interrupts_ns.saturating_sub(earlier.interrupts_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            iowait_ns: self.iowait_ns.saturating_sub(earlier.iowait_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
        }
    }

    /// User and system time.
    pub fn busy_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// The first line, `cpu  user nice system idle iowait irq softirq steal …`, in ticks.
fn parse(text: &str, ns_per_tick: u64) -> Option<BusyTime> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut next_ns = || fields.next()?.parse::<u64>().ok()?.checked_mul(ns_per_tick);
    let (user, nice, system) = (next_ns()?, next_ns()?, next_ns()?);
    let (idle, iowait) = (next_ns()?, next_ns()?);
    let (irq, softirq, steal) = (next_ns()?, next_ns()?, next_ns()?);
    Some(BusyTime {
        user_ns: user + nice,
        system_ns: system + irq + softirq,
        interrupts_ns: irq + softirq,
        idle_ns: idle,
        iowait_ns: iowait,
        steal_ns: steal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_sum() {
        let text = "cpu  1 2 4 8 16 32 64 128 0 0\ncpu0 9 9 9 9 9 9 9 9 9 9\n";
        let busy = parse(text, 10).unwrap();
        assert_eq!(
            busy,
            BusyTime {
                user_ns: 30,
                system_ns: 1000,
                interrupts_ns: 960,
                idle_ns: 80,
                iowait_ns: 160,
                steal_ns: 1280
            }
        );
        assert_eq!(busy.busy_ns(), 1030);
        assert_eq!(parse("cpu  1 2 4\n", 10), None);
        assert_eq!(parse("intr 1\n", 10), None);
    }

    #[test]
    fn work_makes_it_grow() {
        let before = BusyTime::now().unwrap();
        loop {
            let grown = BusyTime::now().unwrap().since(before);
            if grown.busy_ns() > 20_000_000 {
                break;
            }
        }
        assert_eq!(before.since(BusyTime::now().unwrap()).user_ns, 0);
    }
}
