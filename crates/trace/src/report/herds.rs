//! Table 2, herds: two or more threads woken by one event for the same object.

use std::collections::BTreeMap;

use serde::Serialize;

use super::share::Interval;
use super::site::{Namer, Site, StackPair, object_text};
use super::waits::WaitLine;
use crate::call::call_name;
use crate::observation::{Object, WaitRow, WakeCause, WakeRow};

/// Herds from one wake site for one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Herd {
    /// The waking program; none if it is not traced.
    pub comm: Option<String>,
    /// What woke: a call's name, `timer`, `interrupt` or `other`.
    pub by: String,
    /// Where the waker called from.
    pub site: Site,
    /// What the woken were waiting for.
    pub object: String,
    /// Events of this site and object, those that woke one among them.
    pub events: u64,
    /// Threads woken by all of them.
    pub woken: u64,
    /// Events that woke two or more.
    pub herds: u64,
    /// Threads that those woke.
    pub herd_woken: u64,
    /// Threads woken by a herd, on average.
    pub woken_per_herd: f64,
    /// The most that one event woke.
    pub largest: u64,
    /// Needless wakeups among those of the herds.
    pub needless: Interval,
    /// CPU time of all that possibly are needless.
    pub needless_cpu_ns: u64,
    /// The waker's stacks.
    pub stacks: Vec<StackPair>,
    /// The object as it was counted.
    #[serde(skip)]
    pub key: Object,
    /// The cause as it was counted.
    #[serde(skip)]
    pub cause: WakeCause,
}

pub(crate) fn cause_text(cause: WakeCause) -> String {
    match cause {
        WakeCause::Call(number) => call_name(Some(number)),
        WakeCause::Timer => "timer".into(),
        WakeCause::Interrupt => "interrupt".into(),
        WakeCause::Other => "other".into(),
    }
}

/// What the sleepers at each object know it by, if they agree.
fn names(waits: &[WaitRow]) -> BTreeMap<Object, Option<&str>> {
    let mut names = BTreeMap::new();
    for row in waits {
        let name = row.object_name.as_deref();
        let known = names.entry(row.object).or_insert(name);
        *known = known.filter(|known| Some(*known) == name);
    }
    names
}

pub(crate) fn herds(rows: &[WakeRow], waits: &[WaitRow], namer: &mut Namer<'_>) -> Vec<Herd> {
    let names = names(waits);
    let herd = |row: &WakeRow| {
        let stacks = namer.pairs(row.pid, &row.stacks);
        let (site, _) = namer.main_site(&stacks);
        let needless = Interval::new(row.herd_needless, row.herd_possibly);
        Herd {
            comm: row.pid.map(|pid| namer.comm(pid)),
            by: cause_text(row.cause),
            site,
            object: object_text(row.object, names.get(&row.object).copied().flatten()),
            events: row.events,
            woken: row.woken,
            herds: row.herds,
            herd_woken: row.herd_woken,
            woken_per_herd: row.herd_woken as f64 / row.herds as f64,
            largest: row.largest,
            needless,
            needless_cpu_ns: row
                .herd_needless_cpu_ns
                .saturating_sub(needless.possible.saturating_mul(namer.added_prices().sleep_ns)),
            stacks,
            key: row.object,
            cause: row.cause,
        }
    };
    let mut herds: Vec<Herd> = rows.iter().filter(|row| row.herds > 0).map(herd).collect();
    herds.sort_by(|a, b| {
        let cost = |herd: &Herd| (herd.needless_cpu_ns, herd.needless.possible, herd.herd_woken);
        let name = |herd: &Herd| (herd.comm.clone(), herd.by.clone(), herd.key);
        cost(b).cmp(&cost(a)).then_with(|| name(a).cmp(&name(b)))
    });
    herds
}

/// Those who wake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wakes<'a> {
    pub(crate) herds: &'a [Herd],
    pub(crate) wakers: &'a [Waker],
}

/// Who wakes the threads that wait for an object.
#[derive(Debug)]
pub(crate) struct Waker {
    pid: Option<u32>,
    key: Object,
    events: u64,
    pub(crate) by: String,
    pub(crate) site: Site,
    pub(crate) stacks: Option<StackPair>,
    /// See [`WakeRow::waited_ns`] and [`WakeRow::holders_asleep_ns`].
    pub(crate) waited_ns: u64,
    pub(crate) holders_asleep_ns: u64,
    /// Where a holder slept longest: the call and its site.
    pub(crate) asleep_in: Option<(String, Site)>,
}

/// Of those who are traced and whose site is known, the busiest first.
pub(crate) fn wakers(rows: &[WakeRow], namer: &mut Namer<'_>) -> Vec<Waker> {
    let waker = |row: &WakeRow| {
        let stacks = namer.pairs(row.pid, &row.stacks);
        let (site, _) = namer.main_site(&stacks);
        let main = stacks.iter().find(|pair| pair.user.is_some() && namer.site(pair.user) == site);
        let asleep_in = row.asleep_in.as_ref().map(|of| {
            let stacks = namer.pairs(row.pid, &of.stacks);
            let (site, share) = namer.main_site(&stacks);
            // All sleeps of that kind are one row: of several sites nobody knows whose it was.
            let site = if share == Some(100.0) { site } else { Site::unknown() };
            (call_name(of.syscall), site)
        });
        Waker {
            pid: row.pid,
            key: row.object,
            events: row.events,
            by: cause_text(row.cause),
            stacks: main.copied(),
            site,
            waited_ns: row.waited_ns,
            holders_asleep_ns: row.holders_asleep_ns,
            asleep_in,
        }
    };
    let traced = rows.iter().filter(|row| row.pid.is_some() && row.cause != WakeCause::Timer);
    let mut wakers: Vec<Waker> = traced.map(waker).collect();
    wakers.retain(|waker| waker.stacks.is_some());
    wakers
        .sort_by(|a, b| (b.events, &a.site, a.key, a.pid).cmp(&(a.events, &b.site, b.key, b.pid)));
    wakers
}

/// The one who wakes for this line most often. Most futexes are of one process.
pub(crate) fn waker_of<'a>(wakers: &'a [Waker], line: &WaitLine) -> Option<&'a Waker> {
    let of = |key: Object| {
        let at = move |waker: &&Waker| {
            waker.key == key && (!is_futex(key) || waker.pid == Some(line.pid))
        };
        wakers.iter().find(at)
    };
    of(line.key).or_else(|| of(Object::SEVERAL_FUTEXES).filter(|_| is_futex(line.key)))
}

/// Needless wakeups of one program.
#[derive(Debug, Clone, Copy, Default)]
struct Needless {
    proven: u64,
    possible_in_herds: u64,
}

impl Needless {
    fn add(&mut self, line: &WaitLine) {
        self.proven = self.proven.saturating_add(line.needless.proven);
        self.possible_in_herds = self.possible_in_herds.saturating_add(line.possible_in_herds);
    }

    /// Whether those of the herd can be among these.
    fn holds(&self, herd: &Herd) -> bool {
        let possible = herd.needless.possible - herd.needless.proven;
        herd.needless.proven <= self.proven && possible <= self.possible_in_herds
    }
}

/// Who may have been woken in herds. Herds are counted by who wakes and for what; a number of a
/// descriptor or an address means another thing in another process, and a socket does not say in
/// whose sets it is. What is needless in a herd is needless at its sleepers' wait sites too, which
/// mostly leaves one program.
pub(crate) struct Sleepers<'a> {
    at: BTreeMap<Object, BTreeMap<&'a str, Needless>>,
    at_descriptors: BTreeMap<&'a str, Needless>,
    at_futexes: BTreeMap<&'a str, Needless>,
}

impl<'a> Sleepers<'a> {
    pub(crate) fn new(waits: &'a [WaitLine]) -> Self {
        let mut new = Self {
            at: BTreeMap::new(),
            at_descriptors: BTreeMap::new(),
            at_futexes: BTreeMap::new(),
        };
        for line in waits.iter().filter(|line| !line.needless.is_zero()) {
            new.at.entry(line.key).or_default().entry(&line.comm).or_default().add(line);
            if is_descriptor(line.key) {
                new.at_descriptors.entry(&line.comm).or_default().add(line);
            } else if is_futex(line.key) {
                new.at_futexes.entry(&line.comm).or_default().add(line);
            }
        }
        new
    }

    /// The program that the herd woke threads of; `None` if several can be it.
    pub(crate) fn program(&self, herd: &Herd) -> Option<&'a str> {
        let at_object = self.at.get(&herd.key).into_iter().flatten();
        let able: Vec<&'a str> = match herd.key {
            Object::None => Vec::new(),
            Object::SEVERAL_FUTEXES => {
                let holds = self.at_futexes.iter().filter(|(_, of)| of.holds(herd));
                holds.map(|(comm, _)| *comm).collect()
            }
            Object::Futex(_) => {
                at_object.filter(|(_, of)| of.holds(herd)).map(|(comm, _)| *comm).collect()
            }
            // The first that was woken waited for just this, the others perhaps for others.
            Object::Descriptor(_) | Object::Set(_) => {
                let of_all = |comm: &str| self.at_descriptors.get(comm);
                let holds = |comm: &&str| of_all(comm).is_some_and(|of| of.holds(herd));
                at_object.map(|(comm, _)| *comm).filter(holds).collect()
            }
            Object::Socket { .. } => {
                let holds = self.at_descriptors.iter().filter(|(_, of)| of.holds(herd));
                holds.map(|(comm, _)| *comm).collect()
            }
        };
        match (&*able, herd.key) {
            ([one], _) => Some(one),
            // Most futexes are private: who wakes is of the same process.
            (_, Object::Futex(_)) => {
                able.into_iter().find(|comm| Some(*comm) == herd.comm.as_deref())
            }
            _ => None,
        }
    }
}

fn is_futex(object: Object) -> bool {
    matches!(object, Object::Futex(_))
}

fn is_descriptor(object: Object) -> bool {
    !matches!(object, Object::None | Object::Futex(_))
}

/// Whether the waits of one site may be part of a herd of their program.
pub(crate) fn may_have_woken(herd: &Herd, site: &[&WaitLine]) -> bool {
    site.iter().filter(|line| !line.needless.is_zero()).any(|line| match herd.key {
        Object::SEVERAL_FUTEXES => is_futex(line.key),
        Object::Futex(_) => line.key == herd.key,
        _ => is_descriptor(line.key),
    })
}
