//! Whose is it: a process named so that it cannot be taken for a later one.
//!
//! Process numbers are used again. What must outlive a process and be cleared away after it (a
//! cgroup, a temporary directory) carries its number *and* the time it started. Numbers also mean
//! something in one PID namespace only, and what is marked may be seen from others (a directory
//! that containers share), so the mark carries the namespace as well.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

/// A process, by number, start time and PID namespace; prints and parses as `PID-START-NAMESPACE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessMark {
    pid: u32,
    /// Clock ticks from boot to the start of the process.
    start_ticks: u64,
    /// The inode of the namespace that the number is of; 0 where `/proc` does not tell.
    namespace: u64,
}

impl ProcessMark {
    /// The calling process. Reads `/proc`; where that is not there the mark is taken for alive for
    /// good.
    pub fn current() -> Self {
        let pid = std::process::id();
        let start_ticks = stat_of(pid).map_or(0, |stat| stat.start_ticks);
        Self { pid, start_ticks, namespace: own_namespace().unwrap_or(0) }
    }

    /// The process number, which is of the process's own PID namespace.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Whether the process still runs. A zombie does not. A process of another PID namespace is
    /// taken to run, because nothing can be known about it from here.
    pub fn is_alive(self) -> bool {
        if own_namespace().is_none_or(|namespace| namespace != self.namespace) {
            return true;
        }
        match stat_of(self.pid) {
            Some(stat) => {
                !matches!(stat.state, 'Z' | 'X')
                    && (self.start_ticks == 0 || stat.start_ticks == self.start_ticks)
            }
            None => false,
        }
    }
}

impl fmt::Display for ProcessMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.pid, self.start_ticks, self.namespace)
    }
}

/// The text is no `PID-START-NAMESPACE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a process mark of the form PID-START-NAMESPACE")]
pub struct NotAProcessMark;

impl FromStr for ProcessMark {
    type Err = NotAProcessMark;

    fn from_str(text: &str) -> Result<Self, NotAProcessMark> {
        fn number<T: FromStr>(field: Option<&str>) -> Result<T, NotAProcessMark> {
            field.and_then(|field| field.parse().ok()).ok_or(NotAProcessMark)
        }
        let mut fields = text.split('-');
        let mark = Self {
            pid: number(fields.next())?,
            start_ticks: number(fields.next())?,
            namespace: number(fields.next())?,
        };
        if fields.next().is_some() { Err(NotAProcessMark) } else { Ok(mark) }
    }
}

fn own_namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

struct Stat {
    state: char,
    start_ticks: u64,
}

fn stat_of(pid: u32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 3 and 22 of `/proc/PID/stat`; the name in field 2 may hold blanks and parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start_ticks = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, start_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_confuse() {
        let text = "7 (a) Z (b)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 5";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.start_ticks), ('S', 4711));
    }

    #[test]
    fn marks_tell_the_living_from_the_dead() {
        let me = ProcessMark::current();
        assert!(me.is_alive());
        assert_eq!(me.to_string().parse(), Ok(me));
        let earlier = ProcessMark { start_ticks: me.start_ticks + 1, ..me };
        assert!(!earlier.is_alive(), "another process had the number");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let ended = ProcessMark { pid, start_ticks: 0, ..me };
        assert!(!ended.is_alive());
        assert!(ProcessMark { namespace: me.namespace + 1, ..ended }.is_alive(), "who knows");
        for other in ["12", "12-34", "12-34-", "12-34-56-78", "x-34-56"] {
            assert_eq!(other.parse::<ProcessMark>(), Err(NotAProcessMark), "{other}");
        }
    }
}
