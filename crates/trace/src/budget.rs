//! Budgets: counts that must not be exceeded, for checks in CI. They count events and so do not
//! depend on a quiet machine.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::Report;
use crate::advice::Waste;
use crate::report::Finding;

/// A count that can have a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Count {
    /// Wakeups that are proven needless.
    NeedlessWakeupsProven,
    /// Wakeups that are proven needless or possibly so.
    NeedlessWakeupsPossible,
    /// Wake calls that found nobody.
    EmptyWakes,
    /// Wait calls that returned at once because the value had changed.
    RefusedWaits,
    /// Wakes aimed at threads that were not asleep.
    RedundantWakes,
    /// Wakeups by a timer, with another sleep on the same and nothing done in between.
    TimerPolls,
    /// Sleeps shorter than a switch there and back.
    ShortSleeps,
    /// Kernel locks that were not free.
    ContendedLocks,
    /// Events that woke two or more, some of them needlessly or possibly so.
    Herds,
    /// Stalls in reclaim and write-back.
    Stalls,
    /// Context switches.
    ContextSwitches,
    /// Blocking switch-outs.
    Sleeps,
    /// Wakeups.
    Wakeups,
    /// Events that were lost, and so are missing from all other counts.
    LostEvents,
}

impl Count {
    /// All of them, in the order in which help lists them.
    pub const ALL: [Self; 14] = [
        Self::NeedlessWakeupsProven,
        Self::NeedlessWakeupsPossible,
        Self::EmptyWakes,
        Self::RefusedWaits,
        Self::RedundantWakes,
        Self::TimerPolls,
        Self::ShortSleeps,
        Self::ContendedLocks,
        Self::Herds,
        Self::Stalls,
        Self::ContextSwitches,
        Self::Sleeps,
        Self::Wakeups,
        Self::LostEvents,
    ];

    /// Its name in a budget.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NeedlessWakeupsProven => "needless_wakeups.proven",
            Self::NeedlessWakeupsPossible => "needless_wakeups.possible",
            Self::EmptyWakes => "empty_wakes",
            Self::RefusedWaits => "refused_waits",
            Self::RedundantWakes => "redundant_wakes",
            Self::TimerPolls => "timer_polls",
            Self::ShortSleeps => "short_sleeps",
            Self::ContendedLocks => "contended_locks",
            Self::Herds => "herds",
            Self::Stalls => "stalls",
            Self::ContextSwitches => "context_switches",
            Self::Sleeps => "sleeps",
            Self::Wakeups => "wakeups",
            Self::LostEvents => "lost_events",
        }
    }

    /// Whether it is known only if system calls are looked at ([`crate::TraceOptions::calls`]).
    #[must_use]
    pub fn needs_calls(self) -> bool {
        match self {
            Self::NeedlessWakeupsProven
            | Self::NeedlessWakeupsPossible
            | Self::EmptyWakes
            | Self::RefusedWaits
            | Self::RedundantWakes
            | Self::TimerPolls
            | Self::ShortSleeps
            | Self::Herds
            | Self::Wakeups => true,
            Self::ContendedLocks
            | Self::Stalls
            | Self::ContextSwitches
            | Self::Sleeps
            | Self::LostEvents => false,
        }
    }

    /// Whether it is unknown to an [`crate::UnprivilegedSession`].
    #[must_use]
    pub fn needs_privilege(self) -> bool {
        !matches!(self, Self::ContextSwitches | Self::Sleeps)
    }

    fn named(name: &str) -> Result<Self, BudgetError> {
        let found = Self::ALL.into_iter().find(|count| count.name() == name);
        found.ok_or_else(|| {
            let lower = name.to_lowercase();
            let distance = |known: &&str| strsim::damerau_levenshtein(&lower, known);
            let is_near = |known: &&str| {
                3 * distance(known) <= name.len() || name.len() > 3 && known.starts_with(&lower)
            };
            let names = Self::ALL.iter().map(|count| count.name());
            let nearest = names.filter(is_near).min_by_key(distance);
            BudgetError::UnknownName { name: name.into(), nearest }
        })
    }

    /// Which findings are about it.
    fn waste(self) -> Option<Waste> {
        match self {
            Self::NeedlessWakeupsProven | Self::NeedlessWakeupsPossible => {
                Some(Waste::NeedlessWakeups)
            }
            Self::EmptyWakes => Some(Waste::EmptyWakes),
            Self::RefusedWaits => Some(Waste::RefusedWaits),
            Self::RedundantWakes => Some(Waste::RedundantWakes),
            Self::TimerPolls => Some(Waste::TimerPolls),
            Self::ShortSleeps => Some(Waste::ShortSleeps),
            Self::ContendedLocks => Some(Waste::KernelLocks),
            Self::Herds => Some(Waste::Herd),
            Self::Stalls => Some(Waste::Stalls),
            Self::ContextSwitches | Self::Sleeps | Self::Wakeups | Self::LostEvents => None,
        }
    }
}

/// The most that a count may be.
///
/// ```
/// use unherd_trace::{Budget, Count};
/// let budget = Budget::parse("needless_wakeups.proven=0").expect("a known name and a number");
/// assert_eq!((budget.count, budget.limit), (Count::NeedlessWakeupsProven, 0));
/// let error = Budget::parse("timer_pols=10").expect_err("no such name");
/// assert!(error.to_string().contains("timer_polls"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// What is counted.
    pub count: Count,
    /// The most that it may be.
    pub limit: u64,
}

/// A budget that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// It is not of the form `NAME=N`.
    #[error("budget `{0}` is not of the form NAME=N, such as needless_wakeups.proven=0")]
    Form(String),
    /// No count has this name.
    #[error(
        "no count is called `{name}`{}",
        nearest.map_or_else(String::new, |of| format!("; the nearest is `{of}`"))
    )]
    UnknownName {
        /// The name that was given.
        name: String,
        /// The count whose name is most like it, if one is like it at all.
        nearest: Option<&'static str>,
    },
    /// The limit is not a whole number.
    #[error("the limit `{limit}` of budget {name} is not a whole number from 0 up")]
    Limit {
        /// The count's name.
        name: &'static str,
        /// The limit that was given.
        limit: String,
    },
}

impl Budget {
    /// Reads `NAME=N`.
    ///
    /// # Errors
    ///
    /// [`BudgetError`], which names what is wrong, and for an unknown name the nearest.
    pub fn parse(text: &str) -> Result<Self, BudgetError> {
        let (name, limit) = text.split_once('=').ok_or_else(|| BudgetError::Form(text.into()))?;
        let count = Count::named(name.trim())?;
        let limit = limit.trim();
        let parsed = limit.parse();
        let error = |_| BudgetError::Limit { name: count.name(), limit: limit.into() };
        Ok(Self { count, limit: parsed.map_err(error)? })
    }
}

impl std::str::FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// A budget that was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exceeded {
    /// The count's name.
    pub name: &'static str,
    /// The most that it may be.
    pub limit: u64,
    /// What was counted; `None` if that could not be seen, which keeps no budget either.
    pub count: Option<u64>,
    /// The site that has most of it.
    pub worst_site: Option<String>,
}

/// `needless_wakeups.proven is 7,373, allowed are 0; the worst: epoll_wait from …`
impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            Some(count) => write!(f, "{} is {count}, allowed are {}", self.name, self.limit)?,
            None => write!(f, "{} could not be counted, allowed are {}", self.name, self.limit)?,
        }
        match &self.worst_site {
            Some(site) => write!(f, "; the worst: {site}"),
            None => Ok(()),
        }
    }
}

impl Report {
    /// What was counted; `None` if it could not be seen.
    #[must_use]
    pub fn count(&self, count: Count) -> Option<u64> {
        let summary = &self.summary;
        match count {
            Count::NeedlessWakeupsProven => summary.needless_wakeups.map(|of| of.proven),
            Count::NeedlessWakeupsPossible => summary.needless_wakeups.map(|of| of.possible),
            Count::EmptyWakes => summary.empty_wakes,
            Count::RefusedWaits => summary.refused_waits,
            Count::RedundantWakes => summary.redundant_wakes,
            Count::TimerPolls => summary.timer_polls,
            Count::ShortSleeps => summary.short_sleeps,
            Count::ContendedLocks => summary.contended_locks,
            Count::Herds => summary.herds,
            Count::Stalls => summary.stalls,
            Count::ContextSwitches => Some(summary.context_switches),
            Count::Sleeps => Some(summary.sleeps),
            Count::Wakeups => summary.wakeups,
            Count::LostEvents => self.privileged.then_some(self.trust.lost_events),
        }
    }

    /// The budgets that were not kept, each with the site that has most of its count.
    #[must_use]
    pub fn exceeded(&self, budgets: &[Budget]) -> Vec<Exceeded> {
        let check = |budget: &Budget| {
            let count = self.count(budget.count);
            count.is_none_or(|count| count > budget.limit).then(|| Exceeded {
                name: budget.count.name(),
                limit: budget.limit,
                count,
                worst_site: self.worst_site(budget.count),
            })
        };
        budgets.iter().filter_map(check).collect()
    }

    fn worst_site(&self, count: Count) -> Option<String> {
        if matches!(count, Count::ContextSwitches | Count::Sleeps) {
            return self.callers.user.first().map(|caller| caller.function.clone());
        }
        if let (Count::Herds, Some(herds)) = (count, &self.herds) {
            let worst = herds.iter().rev().max_by_key(|herd| herd.herds)?;
            return Some(format!("{} from {}, {}", worst.by, worst.site, worst.object));
        }
        // Needless wakeups that a timer made are reported as polling.
        let waste = count.waste()?;
        let needless = waste == Waste::NeedlessWakeups;
        let about = |finding: &&Finding| {
            finding.waste == waste || (needless && finding.waste == Waste::TimerPolls)
        };
        let number = |finding: &&Finding| match count {
            Count::NeedlessWakeupsProven if finding.waste == waste => finding.count.proven,
            Count::NeedlessWakeupsProven => 0,
            _ => finding.count.possible,
        };
        let worst = self.findings.iter().filter(about).max_by_key(number)?;
        let object = if worst.object.is_empty() { "" } else { ", " };
        Some(format!("{}{object}{}", worst.site_text(), worst.object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_understood() {
        for count in Count::ALL {
            let budget = Budget::parse(&format!("{} = 12", count.name())).expect("its own name");
            assert_eq!(budget, Budget { count, limit: 12 });
        }
    }

    #[test]
    fn bad_budgets_say_what_is_wrong() {
        let error = |text: &str| Budget::parse(text).expect_err(text).to_string();
        assert_eq!(
            error("needles_wakeups.proven=0"),
            "no count is called `needles_wakeups.proven`; the nearest is `needless_wakeups.proven`"
        );
        assert!(error("herd=1").ends_with("the nearest is `herds`"));
        assert_eq!(error("Timer=1"), "no count is called `Timer`; the nearest is `timer_polls`");
        for name in ["foo", "x", "wait", "requests"] {
            assert_eq!(error(&format!("{name}=1")), format!("no count is called `{name}`"));
        }
        assert!(error("herds").contains("NAME=N"));
        for limit in ["", "-1", "1.5", "many", "99999999999999999999"] {
            assert!(
                error(&format!("herds={limit}")).contains(&format!("`{limit}` of budget herds"))
            );
        }
    }
}
