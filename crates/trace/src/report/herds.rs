//! Table 2, herds: two or more threads woken by one event for the same object.

use serde::Serialize;

use super::share::Interval;
use super::site::{Namer, Site, StackPair, object_text};
use crate::call::call_name;
use crate::observation::{Object, WakeCause, WakeRow};

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

pub(crate) fn herds(rows: &[WakeRow], namer: &mut Namer<'_>) -> Vec<Herd> {
    let herd = |row: &WakeRow| {
        let stacks = namer.pairs(row.pid, &row.stacks);
        let (site, _) = namer.main_site(&stacks);
        Herd {
            comm: row.pid.map(|pid| namer.comm(pid)),
            by: cause_text(row.cause),
            site,
            object: object_text(row.object, None),
            events: row.events,
            woken: row.woken,
            herds: row.herds,
            herd_woken: row.herd_woken,
            woken_per_herd: row.herd_woken as f64 / row.herds as f64,
            largest: row.largest,
            needless: Interval::new(row.herd_needless, row.herd_possibly),
            needless_cpu_ns: row.herd_needless_cpu_ns,
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
