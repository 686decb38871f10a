//! The known cure of a pattern, in one line.
//!
//! Rules are tried in order and the first that applies counts: the special ones stand before the
//! general. A rule knows what was seen and not what the program is for: its line is something to
//! try, never a finding.

use serde::{Serialize, Serializer};

use crate::observation::Object;

/// What kind of waste a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waste {
    /// Threads that are woken, find nothing and sleep again.
    NeedlessWakeups,
    /// Several threads woken by one event, some of them needlessly.
    Herd,
    /// Wake calls that find nobody.
    EmptyWakes,
    /// Wait calls that return at once.
    RefusedWaits,
    /// Wakes aimed at threads that are not asleep.
    RedundantWakes,
    /// Sleeping, looking and sleeping again.
    TimerPolls,
    /// Sleeps that cost more than they last.
    ShortSleeps,
    /// Kernel locks that are not free.
    KernelLocks,
    /// Threads held up by memory or write-back.
    Stalls,
    /// Sleeping for a lock that another thread has.
    LockWaits,
    /// Sleeping on although what was waited for is there.
    OverSleeps,
    /// Threads that could run and have no processor.
    NoProcessor,
}

/// By what a program waits or signals, where a library does it for it: the futex words below are
/// the library's, and none of the program's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Primitive {
    /// A barrier: all that wait there go on together.
    Barrier,
    /// A condition variable.
    Condition,
    /// A mutex, or a lock for readers and writers.
    Lock,
    /// A semaphore.
    Semaphore,
    /// The lock of an interpreter of which one thread runs at a time.
    InterpreterLock,
}

impl Primitive {
    /// Whether one thread at a time, or only readers, get past it.
    pub(crate) fn is_lock(self) -> bool {
        matches!(self, Self::Lock | Self::InterpreterLock)
    }
}

/// What a rule can look at.
#[derive(Debug, Clone, Copy)]
pub struct Symptom<'a> {
    /// The waste.
    pub waste: Waste,
    /// The system call; empty if it has nothing to do with one.
    pub call: &'a str,
    /// The program.
    pub comm: &'a str,
    /// The site, or for kernel locks and stalls the kernel's function or kind.
    pub function: &'a str,
    /// What is waited for.
    pub object: Object,
    /// What a herd at the same place was woken for, if there was one.
    pub herd: Option<Object>,
    /// The library's primitive between the site and the call, if there is one.
    pub through: Option<Primitive>,
}

impl Symptom<'_> {
    fn wakes_needlessly(&self) -> bool {
        matches!(self.waste, Waste::NeedlessWakeups | Waste::Herd)
    }

    fn in_epoll(&self) -> bool {
        self.call.starts_with("epoll_")
    }

    fn in_poll(&self) -> bool {
        matches!(self.call, "poll" | "ppoll" | "select" | "pselect6")
    }

    fn on_futex(&self) -> bool {
        self.call.starts_with("futex") || matches!(self.object, Object::Futex(_))
    }

    fn of_listener(&self) -> bool {
        let listens = |object| matches!(object, Object::Socket { listening: true, .. });
        listens(self.object) || self.herd.is_some_and(listens)
    }

    fn is_herd(&self) -> bool {
        self.waste == Waste::Herd || self.herd.is_some()
    }

    fn is_through(&self, primitives: &[Primitive]) -> bool {
        self.through.is_some_and(|through| primitives.contains(&through))
    }

    /// A futex call or sleep that came to nothing, or hardly paid.
    fn is_brief(&self) -> bool {
        matches!(self.waste, Waste::EmptyWakes | Waste::RefusedWaits | Waste::ShortSleeps)
    }

    fn function_has(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.function.contains(part))
    }
}

/// A pattern that was recognised, and its cure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// The pattern's name.
    pub pattern: &'static str,
    /// One line: what to try.
    pub text: &'static str,
}

/// For a program that has no more threads than there are processors, and waited for one.
pub(crate) const BUSY_MACHINE: Advice = Advice {
    pattern: "busy machine",
    text: "other programs have the processors: trace it on a machine that does nothing else",
};

/// In place of [`WRITERS`]'s: the cache has O_DIRECT already, and writes that need new blocks or
/// make the file longer still take the lock alone.
const WRITERS_OF_CACHE: &str = "write-backs that make a file longer or give it blocks take its \
    inode's lock alone: reserve the space first (File::allocate), or a file for each writer";

impl Advice {
    /// What to try where the program keeps its files in the library's cache.
    pub(crate) fn with_cache(self) -> Self {
        if self.pattern == WRITERS { Self { text: WRITERS_OF_CACHE, ..self } } else { self }
    }
}

/// As the line itself.
impl Serialize for Advice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text)
    }
}

const WRITERS: &str = "writers of one file";

struct Rule {
    pattern: &'static str,
    applies: fn(&Symptom<'_>) -> bool,
    text: &'static str,
}

/// The cure of a symptom; `None` if none is known.
#[must_use]
pub fn advice(symptom: &Symptom<'_>) -> Option<Advice> {
    // All that wait at a barrier have to be woken.
    if symptom.wakes_needlessly() && symptom.is_through(&[Primitive::Barrier]) {
        return None;
    }
    let rules = LIBRARIES.iter().chain(WAKEUPS).chain(CALLS).chain(SLEEPS).chain(KERNEL);
    let mut fitting = rules.filter(|rule| (rule.applies)(symptom));
    fitting.next().map(|rule| Advice { pattern: rule.pattern, text: rule.text })
}

/// Where the word is a library's: what a program can do that only uses it.
const LIBRARIES: &[Rule] = &[
    Rule {
        pattern: "interpreter lock",
        applies: |s| s.is_through(&[Primitive::InterpreterLock]),
        text: "threads contend for the interpreter's lock: processes, or a longer \
               sys.setswitchinterval",
    },
    Rule {
        pattern: "contended lock",
        applies: |s| s.is_brief() && s.is_through(&[Primitive::Lock]),
        text: "the lock is contended for moments: hold it for a shorter time, or spin before \
               sleeping (PTHREAD_MUTEX_ADAPTIVE_NP)",
    },
    Rule {
        pattern: "frequent hand-over",
        applies: |s| s.is_brief() && s.through.is_some(),
        text: "threads hand over to each other one by one: hand over several items at a time, if \
               there are several",
    },
];

const WAKEUPS: &[Rule] = &[
    Rule {
        pattern: "accept herd of nginx",
        applies: |s| s.wakes_needlessly() && s.comm == "nginx" && s.in_epoll() && s.is_herd(),
        text: "`listen … reuseport`: a listener for each worker (or `accept_mutex on`)",
    },
    Rule {
        pattern: "accept herd in epoll",
        applies: |s| {
            s.wakes_needlessly() && (s.in_epoll() || s.waste == Waste::Herd) && s.of_listener()
        },
        text: "EPOLLEXCLUSIVE where the listener is added, or SO_REUSEPORT and a listener a thread",
    },
    Rule {
        pattern: "accept herd in poll",
        applies: |s| s.wakes_needlessly() && s.in_poll() && s.of_listener(),
        text: "poll and select wake each thread that waits: epoll with EPOLLEXCLUSIVE, \
               SO_REUSEPORT, or accept that blocks",
    },
    Rule {
        pattern: "herd in epoll",
        applies: |s| s.wakes_needlessly() && s.in_epoll() && s.is_herd(),
        text: "one epoll set for all threads (EPOLLET or EPOLLONESHOT), or EPOLLEXCLUSIVE in each",
    },
    Rule {
        pattern: "herd in poll",
        applies: |s| s.wakes_needlessly() && s.in_poll() && s.is_herd(),
        text: "poll and select wake each thread that waits: give each a descriptor of its own, or \
               use epoll with EPOLLEXCLUSIVE",
    },
    Rule {
        pattern: "broadcast",
        applies: |s| s.wakes_needlessly() && s.on_futex() && s.is_herd(),
        text: "where one of the woken is enough, signal (notify_one) instead of broadcast; where \
               they wait for different things, a queue for each",
    },
    Rule {
        pattern: "several readers",
        applies: |s| {
            s.wakes_needlessly()
                && ["read", "recv", "accept"].iter().any(|call| s.call.starts_with(call))
        },
        text: "another thread was quicker: let one thread wait on each descriptor",
    },
    Rule {
        pattern: "wakeups for another key",
        applies: |s| s.wakes_needlessly() && s.on_futex(),
        text: "wake after the change, and only its waiters: a queue for each key, signal last",
    },
    Rule {
        pattern: "events for nobody",
        applies: |s| s.wakes_needlessly() && (s.in_epoll() || s.in_poll()),
        text: "woken for what another thread took or nobody wanted: EPOLLET, or watch fewer events",
    },
    Rule {
        pattern: "children of others",
        applies: |s| s.wakes_needlessly() && matches!(s.call, "wait4" | "waitid"),
        text: "wait for the one child that is meant: waitid(P_PIDFD) or a pidfd in epoll",
    },
    Rule {
        pattern: "herd",
        applies: |s| s.waste == Waste::Herd,
        text: "wake one waiter for each unit of work, or give each waiter a queue of its own",
    },
];

const CALLS: &[Rule] = &[
    Rule {
        pattern: "wake without a waiter",
        applies: |s| s.waste == Waste::EmptyWakes,
        text: "keep a count of waiters beside the word; call FUTEX_WAKE only if it is not 0 \
               (fence before the look)",
    },
    Rule {
        pattern: "value changed before the wait",
        applies: |s| s.waste == Waste::RefusedWaits,
        text: "the word changes while waiters enter: look again a few times before FUTEX_WAIT",
    },
    Rule {
        pattern: "wake after wake",
        applies: |s| s.waste == Waste::RedundantWakes,
        text: "coalesce: wake only if the queue was empty before, not for every item",
    },
];

const SLEEPS: &[Rule] = &[
    Rule {
        pattern: "event loop with a tick",
        applies: |s| s.waste == Waste::TimerPolls && (s.in_epoll() || s.in_poll()),
        text: "no fixed timeout: an eventfd in the set for news, a timerfd for the next deadline",
    },
    Rule {
        pattern: "condition with a tick",
        applies: |s| s.waste == Waste::TimerPolls && s.on_futex(),
        text: "signal the condition when it changes, and wait without a time limit",
    },
    Rule {
        pattern: "sleep and look",
        applies: |s| s.waste == Waste::TimerPolls,
        text: "an event instead of the poll: eventfd, condition variable or futex, signalled by \
               who makes the change",
    },
    Rule {
        pattern: "lock that is waited for",
        applies: |s| s.waste == Waste::LockWaits,
        text: "hold the lock for less, and never asleep: see who gives it back; or split what it \
               protects",
    },
    Rule {
        pattern: "sleep after the lock was free",
        applies: |s| s.waste == Waste::OverSleeps,
        text: "wait for the lock itself (F_SETLKW), or sleep for shorter times: with SQLite a busy \
               handler of your own, or SQLITE_ENABLE_SETLK_TIMEOUT",
    },
    Rule {
        pattern: "more threads than processors",
        applies: |s| s.waste == Waste::NoProcessor,
        text: "more threads can run than there are processors: fewer threads, or more processors",
    },
    Rule {
        pattern: "short sleeps",
        applies: |s| s.waste == Waste::ShortSleeps,
        text: "spin, then park: look again for about one switch's time before going to sleep",
    },
];

const KERNEL: &[Rule] = &[
    Rule {
        pattern: "address space",
        applies: |s| {
            s.waste == Waste::KernelLocks
                && s.function_has(&[
                    "mmap",
                    "munmap",
                    "mprotect",
                    "madvise",
                    "brk",
                    "addr_fault",
                    "mremap",
                    "_vma",
                ])
        },
        text: "mmap_lock: fewer mmap, munmap, mprotect (keep memory, larger arenas), or processes \
               for threads",
    },
    Rule {
        pattern: "futex buckets",
        applies: |s| s.waste == Waste::KernelLocks && s.function_has(&["futex"]),
        text: "fewer futex calls (see empty wakes and refused waits); words of their own for each \
               group of threads",
    },
    Rule {
        pattern: "shared listener",
        applies: |s| s.waste == Waste::KernelLocks && s.function_has(&["inet_csk_accept"]),
        text: "threads accept from one socket: SO_REUSEPORT and a listener for each",
    },
    Rule {
        pattern: "shared epoll",
        applies: |s| {
            s.waste == Waste::KernelLocks
                && (s.function.starts_with("ep_") || s.function_has(&["epoll"]))
        },
        text: "an epoll set for each thread, or more events taken by each epoll_wait",
    },
    Rule {
        pattern: WRITERS,
        applies: |s| {
            s.waste == Waste::KernelLocks
                && s.function_has(&["ext4", "xfs", "btrfs", "inode", "generic_file"])
        },
        text: "writers share one inode's lock: a file for each, larger writes, or O_DIRECT into \
               space already there",
    },
    Rule {
        pattern: "kernel lock",
        applies: |s| s.waste == Waste::KernelLocks,
        text: "shard what the lock protects among threads, or make fewer and larger calls",
    },
    Rule {
        pattern: "dirty pages",
        applies: |s| s.waste == Waste::Stalls && s.function_has(&["write-back"]),
        text: "fewer dirty pages: write back early and steadily (sync_file_range, \
               vm.dirty_background_bytes) or O_DIRECT",
    },
    Rule {
        pattern: "short of memory",
        applies: |s| s.waste == Waste::Stalls,
        text: "more memory or less of it in use; drop streamed pages (POSIX_FADV_DONTNEED) or \
               O_DIRECT",
    },
];

#[cfg(test)]
mod tests;
