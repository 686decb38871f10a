//! The waits one by one, as far as they were kept, with what is known of the place of each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::herds::cause_text;
use super::site::Namer;
use super::waits::{WaitLine, call_text};
use crate::observation::{Episode, EpisodeClass, Object, Observation, WakeCause, WakeRow, Waking};
use crate::symbols::printable;

/// What timelines are drawn of. Times are those of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Timeline {
    pub(super) began_ns: u64,
    /// Those that waited or woke others, and the first of each process; by process.
    pub(super) threads: Vec<TimelineThread>,
    /// By when they began. Those of one thread do not overlap.
    pub(super) waits: Vec<TimelineWait>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimelineThread {
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) tid: u32,
    pub(super) name: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimelineWait {
    /// By its place among the threads.
    pub(super) thread: usize,
    pub(super) class: EpisodeClass,
    pub(super) call: String,
    /// Where such waits are counted, by its place among the lines.
    pub(super) line: Option<usize>,
    pub(super) began_ns: u64,
    /// The end of tracing, if it was not woken up to then.
    pub(super) woken_ns: u64,
    pub(super) ran_ns: u64,
    pub(super) woken_by: Option<String>,
    /// The waking thread, as `thread`.
    pub(super) waker: Option<usize>,
}

impl EpisodeClass {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Unjudged => "not judged",
            Self::NotNeedless => "not needless",
            Self::PossiblyNeedless => "possibly needless",
            Self::ProvenNeedless => "needless",
            Self::TimerPoll => "timer poll",
            Self::Uninterruptible => "uninterruptible",
        }
    }
}

impl TimelineWait {
    /// What it waits for, and where such waits mostly are: a single wait has no stack of its own.
    pub(super) fn name(&self, lines: &[WaitLine]) -> String {
        match self.line.map(|index| &lines[index]) {
            None => self.call.clone(),
            Some(line) if line.key == Object::None => format!("{} at {}", self.call, line.site),
            Some(line) => format!("{} at {}", line.object, line.site),
        }
    }
}

impl Timeline {
    pub(super) fn new(
        seen: &Observation,
        lines: &[WaitLine],
        judged: bool,
        namer: &mut Namer<'_>,
    ) -> Self {
        let began_ns = seen.began_ns;
        let sleepers = seen.episodes.iter().map(|of| (of.pid, of.tid));
        let waking = seen.episodes.iter().filter_map(|of| of.waking.as_ref());
        let ids = sleepers.chain(waking.filter_map(|of| of.pid.zip(of.tid)));
        let ids = ids.chain(seen.processes.iter().map(|of| (of.pid, of.pid)));
        let ids: BTreeSet<_> = ids.collect();
        let ids: BTreeMap<_, _> = ids.into_iter().zip(0..).collect();
        let comms: HashMap<_, _> =
            seen.threads.iter().map(|of| ((of.pid, of.tid), &of.comm)).collect();
        let thread = |(pid, tid): &(u32, u32)| {
            let comm = namer.comm(*pid);
            let name = comms.get(&(*pid, *tid)).map_or_else(|| comm.clone(), |of| printable(of));
            TimelineThread { pid: *pid, comm, tid: *tid, name }
        };
        let threads = ids.keys().map(thread).collect();
        if seen.episodes.is_empty() {
            return Self { began_ns, threads, waits: Vec::new() };
        }
        let waker = |row: &WakeRow| {
            let stacks = namer.pairs(row.pid, &row.stacks);
            ((row.pid, row.cause, row.object), namer.main_site(&stacks).0)
        };
        let wakers: HashMap<_, _> = seen.wakes.iter().map(waker).collect();
        let woken_by = |of: &Waking| {
            let site = |object| wakers.get(&(of.pid, of.cause, object));
            // Who was woken with others, each at a futex of its own, is counted at that row.
            let site = site(of.object).or_else(|| site(Object::SEVERAL_FUTEXES));
            let site = site.filter(|site| of.cause != WakeCause::Timer && site.function != "?");
            let at = site.map_or_else(String::new, |site| format!(" at {site}"));
            format!("{}{at}", cause_text(of.cause))
        };
        let places = lines.iter().enumerate();
        let places: HashMap<_, _> =
            places.map(|(index, line)| ((line.pid, &*line.call, line.key), index)).collect();
        let wait = |of: &Episode| {
            let call = call_text(of.syscall, judged);
            let waking = of.waking.as_ref();
            // A wake may come before the sleep that it ends was seen to begin.
            let woken_ns = waking.map_or(seen.ended_ns, |of| of.woken_ns).max(of.began_ns);
            TimelineWait {
                thread: ids[&(of.pid, of.tid)],
                class: of.class,
                line: places.get(&(of.pid, &*call, of.object)).copied(),
                call,
                began_ns: of.began_ns,
                woken_ns,
                ran_ns: waking.map_or(woken_ns, |of| of.ran_ns).max(woken_ns),
                woken_by: waking.map(woken_by),
                waker: waking.and_then(|of| ids.get(&(of.pid?, of.tid?)).copied()),
            }
        };
        let mut waits: Vec<_> = seen.episodes.iter().map(wait).collect();
        waits.sort_by_key(|of| of.began_ns);
        Self { began_ns, threads, waits }
    }
}
