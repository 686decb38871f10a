//! What was found, by call site, ranked by what it costs; table 9 is its column of cures.
//!
//! Two kinds of cost are put on one scale: CPU time as a share of all CPU time of the followed
//! processes, and time held up as a share of their threads' time. Of CPU time that is only possibly
//! wasted the part counts that was woken in herds, and of polls as much as a look takes. Only the
//! CPU time of episodes is measured; where the cost is reckoned from counts or from the clock it
//! says so ([`Cost::estimated`]), and what has no such figure comes last.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::Ledger;
use super::futexes::FutexLine;
use super::herds::{Herd, Sleepers, Waker, Wakes, may_have_woken, waker_of};
use super::locks::KernelLock;
use super::share::{Interval, percent};
use super::site::{Namer, Site, StackPair};
use super::stalls::Stall;
use super::summary::{Summary, wasteful_herds};
use super::time::Time;
use super::waits::WaitLine;
use crate::advice::{Advice, BUSY_MACHINE, Primitive, Symptom, Waste, advice};
use crate::observation::{Object, Observation};

/// Below this share of the CPU or of the threads' time there is little to gain.
pub const LITTLE_PERCENT: f64 = 1.0;
/// Below this one a finding is not worth a look.
const NOTABLE_PERCENT: f64 = 0.1;
/// A thread that only looks takes some microseconds of CPU; what takes longer may have done more.
const LOOK_NS: u64 = 10_000;

/// What a cost is a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostKind {
    /// CPU time of the followed processes.
    Cpu,
    /// Time of their threads: the duration times the threads.
    Waiting,
}

impl CostKind {
    pub(crate) fn whole(self) -> &'static str {
        match self {
            Self::Cpu => "the program's CPU time",
            Self::Waiting => "the threads' time",
        }
    }
}

/// What a finding costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// CPU time or waiting.
    pub kind: CostKind,
    /// How much: the lower end.
    pub ns_low: u64,
    /// The upper end.
    pub ns_high: u64,
    /// It was not measured but reckoned, from a count or from the time by the clock: neither end is
    /// a bound.
    pub estimated: bool,
    /// The lower end in percent.
    pub percent_low: f64,
    /// The upper end in percent.
    pub percent_high: f64,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of waste.
    pub waste: Waste,
    /// The program; empty for kernel locks and stalls, which are counted over all of them.
    pub comm: String,
    /// The processes of that name that do it.
    pub processes: usize,
    /// The system call, or what woke, or the kind of lock or stall.
    pub call: String,
    /// The call site.
    pub site: Site,
    /// Where a sample of the stacks says that this is the site: the 95 % confidence interval of its
    /// share of the sleeps, in percent; where all stacks do, and there are other sites: the share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site_percent_interval: Option<[f64; 2]>,
    /// By what the program waits or signals there, where a library does it for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<Primitive>,
    /// The object, and how many others there are.
    pub object: String,
    /// How often: for all but needless wakeups and herds both ends are the exact count.
    pub count: Interval,
    /// Of how many: wakeups, calls or sleeps.
    pub of: Option<u64>,
    /// What it costs, where that is known.
    pub cost: Option<Cost>,
    /// More about it, in words: periods, sizes of herds.
    pub detail: Option<String>,
    /// What to try.
    #[serde(rename = "try")]
    pub advice: Option<Advice>,
    /// The stacks met most often.
    pub stacks: Option<StackPair>,
    /// Who wakes the threads that wait there, most often: of a lock its holder, who gives it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waker: Option<Site>,
    /// The stacks of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waker_stacks: Option<StackPair>,
    /// Of needless wakeups in the waits of unherd's library: what the programs' own ledgers count,
    /// of all the waits that they count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_needless: Option<u64>,
    /// How much of what is possible but not proven counts in the ranking, and in a comparison.
    pub likely_share: f64,
    /// Of what is only possible: for how many at most it was lost whether others were woken with
    /// them, if that decides whether they are likely.
    #[serde(skip_serializing_if = "is_zero")]
    pub sizes_lost: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Finding {
    /// The share for ranking: what is proven, and of what is only possible the part that was woken
    /// together with others, or that is as large as the part which the program's own ledger counts
    /// as needless. A thread that was woken alone, and computed, may well have had cause. Of polls
    /// it is as much as a look takes.
    pub(crate) fn weight(&self) -> f64 {
        let weight = |cost: Cost| {
            cost.percent_low + (cost.percent_high - cost.percent_low) * self.likely_share
        };
        self.cost.map_or(0.0, weight)
    }

    /// Whether it is worth a look: it costs a thousandth or more. Where nobody knows what it costs,
    /// one in a hundred, and ten, are enough.
    pub(crate) fn is_notable(&self) -> bool {
        let times = self.count.possible;
        let often = times >= 10 && times.saturating_mul(100) >= self.of.unwrap_or_default();
        self.cost.map_or(often, |cost| cost.percent_high >= NOTABLE_PERCENT)
    }

    /// Whether there is little to gain, whatever is true.
    pub(crate) fn is_little(&self) -> bool {
        self.cost.is_some_and(|cost| cost.percent_high < LITTLE_PERCENT)
    }

    /// Whether what it counts may as well have been useful: nothing is proven, and most of the
    /// woken were woken alone, or computed; or what those took that only looked is little. Such a
    /// finding does not lead, and has no cure.
    pub(crate) fn may_be_useful(&self) -> bool {
        self.is_of_wakeups() && self.count.proven == 0 && self.weight() < LITTLE_PERCENT
    }

    /// Whether it may be useful, and another account has more to say: a finding about the lock that
    /// is waited for, or the program's ledger, which counts none.
    pub(crate) fn is_explained(&self) -> bool {
        let of_lock = self.through.is_some_and(Primitive::is_lock);
        self.may_be_useful() && (of_lock || self.ledger_needless == Some(0))
    }

    pub(crate) fn is_of_wakeups(&self) -> bool {
        matches!(self.waste, Waste::NeedlessWakeups | Waste::Herd)
    }

    /// The call and where it is made: `epoll_wait from worker_loop (server.c:120), server`.
    #[must_use]
    pub fn site_text(&self) -> String {
        super::verdict::site(self)
    }

    /// The kind of waste in words: `needless wakeups`.
    #[must_use]
    pub fn waste_text(&self) -> &'static str {
        super::verdict::what(self.waste)
    }
}

/// What the costs are shares of, and what bounds them.
#[derive(Debug)]
pub(crate) struct Scale {
    cpu_ns: u64,
    threads_ns: u64,
    runnable_ns: u64,
    switches: u64,
    round_trip_ns: u64,
    futex_call_ns: u64,
    /// Wakes that found no room.
    lost_wakes: u64,
    /// There were more threads than processors, so that some may have waited for others of them.
    has_many_threads: bool,
    /// Some process has its files in the library's cache.
    has_cache: bool,
    by_process: HashMap<u32, u64>,
    /// Of processes with a ledger: needless wakeups, and all, of the library's waits.
    by_ledger: HashMap<u32, (u64, u64)>,
}

impl Scale {
    pub(crate) fn new(
        summary: &Summary,
        time: Option<&Time>,
        observation: &Observation,
        ledgers: &[Ledger],
    ) -> Self {
        let by_process = observation.processes.iter().filter_map(|of| Some((of.pid, of.cpu_ns?)));
        let of_ledger = |of: &Ledger| {
            let says = |name| of.says_in_all.get(name).copied();
            Some((of.pid, (says("needless_wakeups")?, says("wakeups")?)))
        };
        Self {
            cpu_ns: summary.own_cpu_ns(),
            threads_ns: time.map_or_else(
                || summary.duration_ns.saturating_mul(summary.threads),
                |time| time.wall_ns,
            ),
            runnable_ns: time.map_or(0, Time::runnable_ns),
            switches: summary.context_switches,
            round_trip_ns: summary.switch_round_trip_ns.unwrap_or_default(),
            futex_call_ns: summary.futex_call_ns.unwrap_or_default(),
            lost_wakes: observation.losses.wakes,
            has_cache: ledgers.iter().any(Ledger::is_of_cache),
            has_many_threads: summary.threads > summary.cpus as u64,
            by_process: by_process.collect(),
            by_ledger: ledgers.iter().filter_map(of_ledger).collect(),
        }
    }

    /// A cost that was measured.
    fn cost(&self, kind: CostKind, ns: Interval) -> Option<Cost> {
        let whole = match kind {
            CostKind::Cpu => self.cpu_ns,
            CostKind::Waiting => self.threads_ns,
        };
        let percent = |part| percent(part, whole).unwrap_or_default();
        (ns.possible > 0).then(|| Cost {
            kind,
            ns_low: ns.proven,
            ns_high: ns.possible,
            estimated: false,
            percent_low: percent(ns.proven),
            percent_high: percent(ns.possible),
        })
    }

    /// CPU time that was not counted as such: a price times a number, or the time spent spinning by
    /// the clock, which runs on while a hypervisor has the processor.
    fn estimate(&self, ns: u64) -> Option<Cost> {
        let ns = Interval::new(ns.min(self.cpu_ns), 0);
        self.cost(CostKind::Cpu, ns).map(|cost| Cost { estimated: true, ..cost })
    }

    /// Of counts by process, each for the price that it has here. No process can have spent more
    /// than all its CPU time on that.
    fn priced(&self, counts: impl Iterator<Item = (u32, u64)>, price_ns: u64) -> Option<Cost> {
        let mut by_process: BTreeMap<u32, u64> = BTreeMap::new();
        for (pid, count) in counts {
            let sum = by_process.entry(pid).or_default();
            *sum = sum.saturating_add(count);
        }
        let ns = by_process.into_iter().map(|(pid, count)| {
            let all = self.by_process.get(&pid).copied().unwrap_or(self.cpu_ns);
            count.saturating_mul(price_ns).min(all)
        });
        self.estimate(ns.fold(0, u64::saturating_add))
    }

    /// What the ledgers count, if all these waits are in ledgers.
    fn ledger_needless(&self, lines: &[&WaitLine]) -> Option<u64> {
        let of = |line: &&WaitLine| {
            let (needless, _) = self.by_ledger.get(&line.pid).filter(|_| line.library)?;
            Some((line.pid, *needless))
        };
        let by_process: Option<BTreeMap<u32, u64>> = lines.iter().map(of).collect();
        by_process.map(|by_process| by_process.into_values().fold(0, u64::saturating_add))
    }

    /// The part of what is possible in these waits that the ledgers would have needless: of each
    /// process, the part that is needless of all that its ledger counts. An estimate.
    fn ledger_share(&self, lines: &[&WaitLine]) -> f64 {
        let (mut likely, mut all) = (0.0, 0.0);
        for line in lines {
            let possible = line.needless.possible as f64;
            all += possible;
            if let Some((needless, of)) = self.by_ledger.get(&line.pid).filter(|_| line.library) {
                likely += possible * (*needless as f64 / (*of).max(1) as f64).min(1.0);
            }
        }
        if all > 0.0 { likely / all } else { 0.0 }
    }

    /// Futex calls that came to nothing. Under contention for the word's bucket each takes longer.
    fn futex_calls(&self, lines: &[&FutexLine], count: fn(&FutexLine) -> u64) -> Option<Cost> {
        self.priced(lines.iter().map(|line| (line.pid, count(line))), self.futex_call_ns)
    }

    /// Going to sleep and coming back: half a round trip, which is two sleeps.
    fn sleeps(&self, lines: &[&WaitLine], count: fn(&WaitLine) -> u64) -> Option<Cost> {
        self.priced(lines.iter().map(|line| (line.pid, count(line))), self.round_trip_ns / 2)
    }
}

/// All findings, the most costly first.
pub(crate) fn findings(
    waits: &[WaitLine],
    Wakes { herds, wakers }: Wakes<'_>,
    futexes: &[FutexLine],
    locks: &[KernelLock],
    stalls: &[Stall],
    scale: &Scale,
    namer: &Namer<'_>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let groups = wait_groups(waits);
    let mut alone = Vec::new();
    let mut of_program: BTreeMap<&str, Vec<&Herd>> = BTreeMap::new();
    let sleepers = Sleepers::new(waits);
    for herd in herds.iter().filter(|herd| wasteful_herds(herd) > 0) {
        match sleepers.program(herd) {
            // The same waste, seen from the waker: it is reported once.
            Some(program) => of_program.entry(program).or_default().push(herd),
            None => alone.push(herd),
        }
    }
    for ((comm, ..), group) in &groups {
        let herds = of_program.get(comm).into_iter().flatten().copied();
        let herds: Vec<_> = herds.filter(|herd| may_have_woken(herd, group)).collect();
        // A few do not speak for what is woken one by one.
        let in_herds = sum(&herds, |herd| herd.needless.possible);
        let needless = sum(group, |line| line.needless.possible);
        let herd = herds.first().copied().filter(|_| in_herds.saturating_mul(2) >= needless);
        found.extend(of_waits(group, herd, wakers, scale));
    }
    let polls = waits.iter().filter(|line| line.timer_polls > 0);
    let polls: Vec<WaitLine> = polls.map(WaitLine::at_polls).collect();
    found.extend(wait_groups(&polls).values().filter_map(|group| of_polls(group, scale)));
    found.extend(alone.into_iter().map(|herd| of_herd(herd, scale)));
    for group in futex_groups(futexes).values() {
        found.extend(of_futexes(group, scale));
    }
    // The scheduler's own are a consequence of switches, and no cause of their own.
    let locks = locks.iter().filter(|lock| !lock.of_scheduler);
    found.extend(locks.map(|lock| of_lock(lock, scale, namer)));
    found.extend(stalls.iter().map(|stall| of_stall(stall, scale, namer)));
    found.extend(of_processors(scale));
    // There is no cure for what is likely none.
    found.iter_mut().filter(|of| of.may_be_useful()).for_each(|of| of.advice = None);
    found.sort_by(|a, b| {
        let cost = b.weight().total_cmp(&a.weight());
        let name = |of: &Finding| (of.waste, of.comm.clone(), of.call.clone(), of.site.clone());
        cost.then_with(|| b.count.possible.cmp(&a.count.possible))
            .then_with(|| name(a).cmp(&name(b)))
            .then_with(|| a.object.cmp(&b.object))
    });
    found
}

type Groups<'a, T> = BTreeMap<(&'a str, &'a str, &'a Site, Option<Primitive>), Vec<&'a T>>;

/// Lines of one program, call, site and primitive are one finding, whatever process or descriptor
/// it was.
fn wait_groups(lines: &[WaitLine]) -> Groups<'_, WaitLine> {
    let mut groups = Groups::new();
    for line in lines {
        groups.entry((&line.comm, &line.call, &line.site, line.through)).or_default().push(line);
    }
    groups
}

fn futex_groups(lines: &[FutexLine]) -> Groups<'_, FutexLine> {
    let mut groups = Groups::new();
    for line in lines {
        groups.entry((&line.comm, line.kind, &line.site, line.through)).or_default().push(line);
    }
    groups
}

fn sum<T>(lines: &[&T], count: impl Fn(&T) -> u64) -> u64 {
    lines.iter().fold(0, |sum, line| sum.saturating_add(count(line)))
}

fn processes<T>(lines: &[&T], pid: impl Fn(&T) -> u32) -> usize {
    let mut pids: Vec<u32> = lines.iter().map(|line| pid(line)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.len()
}

/// The object of the line with the most, and the number of others that have any. What has the same
/// name in one process is one: the threads that poll a pipe have an array each.
fn object<'a>(lines: &[&'a WaitLine], count: impl Fn(&WaitLine) -> u64) -> (String, &'a WaitLine) {
    let most = lines.iter().rev().max_by_key(|line| count(line)).copied().unwrap_or(lines[0]);
    let of = |line: &&'a WaitLine| (line.pid, &*line.object);
    let objects: BTreeSet<_> = lines.iter().filter(|line| count(line) > 0).map(of).collect();
    let others = objects.len().saturating_sub(1);
    let text = match others {
        // A timer, a child, a signal: the call says as much.
        _ if most.key == Object::None => String::new(),
        0 => most.object.clone(),
        1 => format!("{} and another", most.object),
        _ => format!("{} and {others} others", most.object),
    };
    (text, most)
}

/// What is known of any kind of waste in these waits, and the wait with the most of it.
fn of_kind<'a>(
    lines: &[&'a WaitLine],
    waste: Waste,
    count: fn(&WaitLine) -> u64,
    herd: Option<Object>,
) -> Option<(Finding, &'a WaitLine)> {
    let total = sum(lines, count);
    let (object, most) = object(lines, count);
    let (comm, call, function) = (&*most.comm, &*most.call, &*most.site.function);
    let (object_key, through) = (most.key, most.through);
    let symptom = Symptom { waste, call, comm, function, object: object_key, herd, through };
    let finding = || Finding {
        waste,
        comm: most.comm.clone(),
        processes: processes(lines, |line| line.pid),
        call: most.call.clone(),
        site: most.site.clone(),
        through: most.through,
        site_percent_interval: most.site_percent_interval,
        object,
        count: Interval::new(total, 0),
        of: None,
        cost: None,
        detail: None,
        advice: advice(&symptom),
        stacks: most.stacks.first().copied(),
        waker: None,
        waker_stacks: None,
        ledger_needless: None,
        likely_share: 1.0,
        sizes_lost: 0,
    };
    (total > 0).then(|| (finding(), most))
}

/// Polls by timer, of waits at the place where they poll. Wakeups by a sleep's own timer are never
/// needless wakeups: no episode is both.
fn of_polls(lines: &[&WaitLine], scale: &Scale) -> Option<Finding> {
    let (finding, _) = of_kind(lines, Waste::TimerPolls, |line| line.timer_polls, None)?;
    let period_ns = sum(lines, |line| line.timer_poll_ns).checked_div(finding.count.possible);
    let cpu_ns = sum(lines, |line| line.timer_poll_cpu_ns);
    let looks_ns = finding.count.possible.saturating_mul(LOOK_NS);
    Some(Finding {
        of: Some(sum(lines, |line| line.wakeups)),
        // Who looks may have worked for a moment, and left what came of it in memory.
        cost: scale.cost(CostKind::Cpu, Interval::new(0, cpu_ns)),
        likely_share: percent(looks_ns, cpu_ns).unwrap_or_default() / 100.0,
        detail: period_ns.map(|ns| format!("every {}", super::quantity::duration(ns))),
        ..finding
    })
}

fn of_waits(
    lines: &[&WaitLine],
    herd: Option<&Herd>,
    wakers: &[Waker],
    scale: &Scale,
) -> Vec<Finding> {
    let finding = |waste, count: fn(&WaitLine) -> u64, of: u64, cost, detail, herd| {
        let (finding, most) = of_kind(lines, waste, count, herd)?;
        let waker = waker_of(wakers, most).filter(|_| is_of_waker(waste));
        Some(Finding {
            of: Some(of),
            cost,
            detail,
            waker: waker.map(|waker| waker.site.clone()),
            waker_stacks: waker.and_then(|waker| waker.stacks),
            ..finding
        })
    };
    let mut needless = Interval::default();
    let mut cpu_ns = Interval::default();
    for line in lines {
        needless.add(line.needless);
        cpu_ns.add(line.needless_cpu_ns);
    }
    let (wakeups, sleeps) = (sum(lines, |line| line.wakeups), sum(lines, |line| line.sleeps));
    let cpu = scale.cost(CostKind::Cpu, cpu_ns);
    let mut found = Vec::new();
    if needless.possible > 0 {
        let detail = herd.map(|herd| {
            let size = super::quantity::count(herd.largest);
            // The sleepers know what a descriptor was.
            let known = lines.iter().find(|line| line.key == herd.key);
            let object = known.map_or(&herd.object, |line| &line.object);
            let from = waker_site(&herd.site, herd.comm.is_some());
            format!("herds of up to {size}, woken by {}{from} for {object}", herd.by)
        });
        let detail = detail.or_else(|| {
            let most = lines.iter().rev().max_by_key(|line| line.needless.possible)?;
            let waker = waker_of(wakers, most)?;
            Some(format!("woken by {} from {}", waker.by, waker.site))
        });
        let count = |line: &WaitLine| line.needless.possible;
        let key = herd.map(|herd| herd.key);
        let wakes = finding(Waste::NeedlessWakeups, count, wakeups, cpu, detail, key);
        let in_herds_ns = sum(lines, |line| line.possible_in_herds_cpu_ns);
        let unproven_ns = cpu_ns.possible - cpu_ns.proven;
        let unproven = needless.possible - needless.proven;
        // Of CPU time the few that computed may have most. Of lost wakes nobody knows whether they
        // were of herds: all may have been.
        let in_herds = sum(lines, |line| line.possible_in_herds);
        let is_most = |part: u64| part.saturating_mul(2) >= unproven;
        let lost = scale.lost_wakes.min(unproven.saturating_sub(in_herds));
        let most_looked = is_most(in_herds.saturating_add(lost));
        let sizes_lost = if most_looked && !is_most(in_herds) { lost } else { 0 };
        let herd_share = percent(in_herds_ns, unproven_ns).unwrap_or_default() / 100.0;
        let herd_share = if needless.proven > 0 || most_looked { herd_share } else { 0.0 };
        let likely_share = herd_share.max(scale.ledger_share(lines));
        let ledger_needless = scale.ledger_needless(lines);
        found.extend(wakes.map(|wakes| {
            let count = needless;
            let mut wakes = Finding { count, likely_share, sizes_lost, ledger_needless, ..wakes };
            if let Some(herd) = herd.filter(|herd| !herd.stacks.is_empty()) {
                wakes.waker = Some(herd.site.clone());
                wakes.waker_stacks = herd.stacks.first().copied();
            }
            wakes
        }));
    }
    let count = |line: &WaitLine| line.short_sleeps;
    let cost = scale.sleeps(lines, count);
    found.extend(finding(Waste::ShortSleeps, count, sleeps, cost, None, None));
    let locks: Vec<_> = lines.iter().copied().filter(|line| line.is_lock_wait()).collect();
    if let Some(most) = locks.iter().rev().max_by_key(|line| line.asleep_ns) {
        let asleep_ns = sum(&locks, |line| line.asleep_ns);
        let cost = scale.cost(CostKind::Waiting, Interval::new(asleep_ns, 0));
        let detail = waker_of(wakers, most).map(held_by);
        let waits = finding(Waste::LockWaits, |line| line.sleeps, sleeps, cost, detail, None);
        found.extend(waits.map(|waits| Finding { of: None, ..waits }));
    }
    let overslept_ns = Interval::new(sum(lines, |line| line.overslept_ns), 0);
    let cost = scale.cost(CostKind::Waiting, overslept_ns);
    found.extend(finding(Waste::OverSleeps, |line| line.overslept, sleeps, cost, None, None));
    let count = |line: &WaitLine| line.redundant_wakes;
    found.extend(finding(Waste::RedundantWakes, count, wakeups, None, None, None));
    found
}

/// Whether it matters who woke.
fn is_of_waker(waste: Waste) -> bool {
    matches!(waste, Waste::NeedlessWakeups | Waste::RedundantWakes | Waste::LockWaits)
}

fn waker_site(site: &Site, is_traced: bool) -> String {
    if is_traced && *site != Site::unknown() { format!(" from {site}") } else { String::new() }
}

/// The holder of a lock, as far as who gives it back tells; and whether it slept meanwhile, and in
/// what.
fn held_by(waker: &Waker) -> String {
    let slept = percent(waker.holders_asleep_ns, waker.waited_ns);
    let slept = slept.filter(|share| *share >= LITTLE_PERCENT).map_or_else(String::new, |share| {
        let longest = waker.asleep_in.as_ref().map(|(call, site)| {
            let from = waker_site(site, true);
            format!(", longest in {call}{from}")
        });
        let share = super::quantity::percent(share);
        format!(", asleep for up to {share} % of that time{}", longest.unwrap_or_default())
    });
    format!("given back by {}{slept}", waker.site)
}

/// Threads that could run and had no processor: more often a consequence of what the program does
/// with its processors than a waste of its own, so it is only possible and does not lead.
fn of_processors(scale: &Scale) -> Option<Finding> {
    let cost = scale.cost(CostKind::Waiting, Interval::new(0, scale.runnable_ns))?;
    let symptom = Symptom {
        waste: Waste::NoProcessor,
        call: "",
        comm: "",
        function: "",
        object: Object::None,
        herd: None,
        through: None,
    };
    let cure = if scale.has_many_threads { advice(&symptom) } else { Some(BUSY_MACHINE) };
    Some(Finding {
        waste: Waste::NoProcessor,
        comm: String::new(),
        processes: 0,
        call: "all threads".into(),
        site: Site::default(),
        site_percent_interval: None,
        through: None,
        object: String::new(),
        count: Interval::new(scale.switches, 0),
        of: None,
        cost: Some(cost),
        detail: None,
        advice: cure.filter(|_| cost.percent_high >= 10.0),
        stacks: None,
        waker: None,
        waker_stacks: None,
        ledger_needless: None,
        likely_share: 0.0,
        sizes_lost: 0,
    })
}

fn of_herd(herd: &Herd, scale: &Scale) -> Finding {
    let symptom = Symptom {
        waste: Waste::Herd,
        call: &herd.by,
        comm: herd.comm.as_deref().unwrap_or_default(),
        function: &herd.site.function,
        object: herd.key,
        herd: None,
        through: None,
    };
    let cpu_ns = Interval::new(0, herd.needless_cpu_ns);
    let events = super::quantity::count(herd.herds);
    let size = super::quantity::count(herd.largest);
    Finding {
        waste: Waste::Herd,
        comm: herd.comm.clone().unwrap_or_default(),
        processes: usize::from(herd.comm.is_some()),
        call: herd.by.clone(),
        site: herd.site.clone(),
        site_percent_interval: None,
        through: None,
        object: herd.object.clone(),
        count: herd.needless,
        of: Some(herd.herd_woken),
        cost: scale.cost(CostKind::Cpu, cpu_ns),
        detail: Some(format!("{events} herds of up to {size}")),
        advice: advice(&symptom),
        stacks: herd.stacks.first().copied(),
        waker: None,
        waker_stacks: None,
        ledger_needless: None,
        likely_share: 1.0,
        sizes_lost: 0,
    }
}

fn of_futexes(lines: &[&FutexLine], scale: &Scale) -> Vec<Finding> {
    let finding = |waste, count: fn(&FutexLine) -> u64| {
        let total = sum(lines, count);
        let cost = scale.futex_calls(lines, count);
        let most = lines.iter().max_by_key(|line| count(line)).copied().unwrap_or(lines[0]);
        let words = lines.iter().filter(|line| count(line) > 0).count();
        let symptom = Symptom {
            waste,
            call: "futex",
            comm: &most.comm,
            function: &most.site.function,
            object: Object::Futex(most.word),
            herd: None,
            through: most.through,
        };
        (total > 0).then(|| Finding {
            waste,
            comm: most.comm.clone(),
            processes: processes(lines, |line| line.pid),
            call: format!("futex {}", most.kind),
            site: most.site.clone(),
            through: most.through,
            site_percent_interval: None,
            object: match words {
                1 => format!("futex {:#x}", most.word),
                2 => format!("futex {:#x} and another", most.word),
                _ => format!("futex {:#x} and {} others", most.word, words - 1),
            },
            count: Interval::new(total, 0),
            of: Some(sum(lines, |line| line.outcomes.calls)),
            cost,
            detail: None,
            advice: advice(&symptom),
            stacks: most.stack.map(|user| StackPair { kernel: None, user: Some(user), count: 1 }),
            waker: None,
            waker_stacks: None,
            ledger_needless: None,
            likely_share: 1.0,
            sizes_lost: 0,
        })
    };
    let empty = finding(Waste::EmptyWakes, |line| line.outcomes.woke_none);
    let refused = finding(Waste::RefusedWaits, |line| line.outcomes.refused);
    empty.into_iter().chain(refused).collect()
}

fn kernel_site(function: &str) -> Site {
    Site { function: function.into(), place: None, module: Some("kernel".into()) }
}

fn of_lock(lock: &KernelLock, scale: &Scale, namer: &Namer<'_>) -> Finding {
    let waited = Interval::new(lock.total_ns, 0);
    let symptom = Symptom {
        waste: Waste::KernelLocks,
        call: "",
        comm: "",
        function: &lock.caller,
        object: Object::None,
        herd: None,
        through: None,
    };
    let cure = advice(&symptom);
    let longest = super::quantity::duration(lock.longest_ns);
    Finding {
        waste: Waste::KernelLocks,
        comm: String::new(),
        processes: 0,
        call: lock.kind.into(),
        site: kernel_site(&lock.caller),
        site_percent_interval: None,
        through: None,
        object: format!(
            "a lock of the kernel's, which has no name{}",
            reached_through(lock.stack, namer, &lock.caller)
        ),
        count: Interval::new(lock.count, 0),
        of: None,
        cost: if lock.spins {
            scale.estimate(lock.total_ns)
        } else {
            scale.cost(CostKind::Waiting, waited)
        },
        detail: Some(format!("the longest {longest}")),
        advice: if scale.has_cache { cure.map(Advice::with_cache) } else { cure },
        stacks: lock.stack.map(|kernel| StackPair { kernel: Some(kernel), user: None, count: 1 }),
        waker: None,
        waker_stacks: None,
        ledger_needless: None,
        likely_share: 1.0,
        sizes_lost: 0,
    }
}

/// The function of the kernel that was entered: the outermost that is not the entry code's, unless
/// it is the caller itself.
fn reached_through(stack: Option<usize>, namer: &Namer<'_>, caller: &str) -> String {
    let is_entry = super::locks::is_entry;
    let frames = stack.and_then(|index| namer.stacks().get(index)).map(|stack| &stack.frames);
    let mut outwards = frames.into_iter().flatten().rev().filter(|frame| !is_entry(&frame.name));
    let entered = outwards.next().filter(|frame| frame.name != caller);
    entered.map_or_else(String::new, |frame| format!(", reached through {}", frame.name))
}

fn of_stall(stall: &Stall, scale: &Scale, namer: &Namer<'_>) -> Finding {
    let symptom = Symptom {
        waste: Waste::Stalls,
        call: "",
        comm: "",
        function: stall.kind,
        object: Object::None,
        herd: None,
        through: None,
    };
    let longest = super::quantity::duration(stall.longest_ns);
    let reason = stall.reason.as_ref().map_or_else(String::new, |reason| format!("{reason}, "));
    Finding {
        waste: Waste::Stalls,
        comm: String::new(),
        processes: 0,
        call: stall.kind.into(),
        site: kernel_site(stall.kind),
        site_percent_interval: None,
        through: None,
        object: format!("memory{}", reached_through(stall.stack, namer, "")),
        count: Interval::new(stall.count, 0),
        of: None,
        cost: scale.cost(CostKind::Waiting, Interval::new(stall.total_ns, 0)),
        detail: Some(format!("{reason}the longest {longest}")),
        advice: advice(&symptom),
        stacks: stall.stack.map(|kernel| StackPair { kernel: Some(kernel), user: None, count: 1 }),
        waker: None,
        waker_stacks: None,
        ledger_needless: None,
        likely_share: 1.0,
        sizes_lost: 0,
    }
}
