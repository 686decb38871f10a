//! The cures that can be applied to a program from outside.

use std::fmt;
use std::num::NonZeroU64;

use clap::ValueEnum;

/// How late timers may be by `timer-slack`, in place of Linux's 50 µs.
const TIMER_SLACK_NS: u64 = 5_000_000;

/// A cure. Its help says when it helps and what can go wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cure {
    /// A connection wakes one of the threads that wait for a listener, each by an epoll set of its
    /// own. Not for a listener that is added with EPOLLONESHOT or before listen(2).
    EpollExclusive,
    /// A broadcast to a condition of the C library wakes one waiter, and that one the next, until
    /// one finds nothing. Loses events where the waiters wait for different things.
    WakeOne,
    /// A broadcast wakes all waiters, one after the other: each when the last has unlocked the
    /// mutex, so that they do not contend for it. Loses no event, except with robust mutexes or
    /// calls past the library.
    WakeInTurn,
    /// pthread_cond_wait and sem_wait spin for up to 50 µs before they sleep.
    SpinThenSleep,
    /// Timers may be 5 ms late: a program that polls by a timer wakes up less often, and finds what
    /// it waits for up to 5 ms later.
    TimerSlack,
}

impl Cure {
    /// The cure for a pattern that the tracer has advice for.
    pub(super) fn of_pattern(pattern: &str) -> Option<Self> {
        match pattern {
            "accept herd in epoll" | "accept herd of nginx" => Some(Self::EpollExclusive),
            "broadcast" => Some(Self::WakeOne),
            "short sleeps" | "frequent hand-over" => Some(Self::SpinThenSleep),
            "event loop with a tick" | "condition with a tick" | "sleep and look" => {
                Some(Self::TimerSlack)
            }
            _ => None,
        }
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// All names, for a person.
    pub(super) fn names() -> String {
        Self::value_variants().iter().map(|cure| cure.name()).collect::<Vec<_>>().join(", ")
    }

    /// How late timers may be by it, if it is the kernel that applies it; else a library that is
    /// preloaded does.
    pub(super) fn timer_slack_ns(self) -> Option<NonZeroU64> {
        (self == Self::TimerSlack).then(|| NonZeroU64::new(TIMER_SLACK_NS)).flatten()
    }

    /// What it acts on, for the line that says that it did not.
    pub(super) fn acts_on(self) -> &'static str {
        match self {
            Self::EpollExclusive => "no listener was added to an epoll set by epoll_ctl(3)",
            Self::WakeOne | Self::WakeInTurn => {
                "no pthread_cond_broadcast(3) had two waiters; the runtimes of Rust and Go have \
                 conditions of their own"
            }
            Self::SpinThenSleep => {
                "no pthread_cond_wait(3) or sem_wait(3) ended while it spun; the runtimes of Rust \
                 and Go do not call them"
            }
            Self::TimerSlack => "",
        }
    }
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use unherd_trace::advice::{Primitive, Symptom, Waste, advice};
    use unherd_trace::observation::Object;

    use super::*;

    #[test]
    fn cures_follow_from_advice() {
        let listener = Object::Socket { port: 80, listening: true };
        let word = Object::Futex(0x1000);
        let condition = Some(Primitive::Condition);
        for (waste, call, object, through, cure) in [
            (Waste::Herd, "epoll_wait", listener, None, Some(Cure::EpollExclusive)),
            (Waste::Herd, "futex", word, condition, Some(Cure::WakeOne)),
            (Waste::ShortSleeps, "futex", word, None, Some(Cure::SpinThenSleep)),
            (Waste::ShortSleeps, "futex", word, condition, Some(Cure::SpinThenSleep)),
            (Waste::TimerPolls, "clock_nanosleep", Object::None, None, Some(Cure::TimerSlack)),
            (Waste::TimerPolls, "poll", Object::Set(1), None, Some(Cure::TimerSlack)),
            (Waste::TimerPolls, "futex", word, condition, Some(Cure::TimerSlack)),
            (Waste::LockWaits, "futex", word, None, None),
        ] {
            let (comm, function, herd) = ("server", "serve", None);
            let symptom = Symptom { waste, call, comm, function, object, herd, through };
            let pattern = advice(&symptom).unwrap().pattern;
            assert_eq!(Cure::of_pattern(pattern), cure, "{pattern}");
        }
    }
}
