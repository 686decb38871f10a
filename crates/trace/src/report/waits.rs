//! The waits, one line for each process, call and object (`unherd.waits/1`).

use serde::ser::{Error, SerializeStruct};
use serde::{Serialize, Serializer};

use super::share::Interval;
use super::site::{Namer, Site, StackPair, object_text};
use crate::advice::Primitive;
use crate::call::call_name;
use crate::observation::{Object, WaitRow};

/// The waits of one process in one call on one object.
///
/// In JSON the names are those of the library's ledger where they mean the same: `reason` is the
/// call, `waits` the sleeps, `needless_wakeups` the proven ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitLine {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// The system call; `no call` outside of any, `unknown call` where calls were not seen.
    #[serde(rename = "reason")]
    pub call: String,
    /// Where the call was made from, by most of the stacks that were taken.
    #[serde(serialize_with = "as_text")]
    pub site: Site,
    /// The share that this site has of those stacks, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site_percent: Option<f64>,
    /// Where stacks were taken of some sleeps only: the 95 % confidence interval of that share.
    /// Where of all, and it is not 100: the share, twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site_percent_interval: Option<[f64; 2]>,
    /// By what the program waits there, where a library does it for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<Primitive>,
    /// The wait was our library's.
    pub library: bool,
    /// What was waited for.
    pub object: String,
    /// Interruptible sleeps.
    #[serde(rename = "waits")]
    pub sleeps: u64,
    /// Time in them.
    pub asleep_ns: u64,
    /// Uninterruptible sleeps, which are not judged.
    pub uninterruptible_sleeps: u64,
    /// Time in those.
    pub uninterruptible_ns: u64,
    /// Wakeups out of interruptible sleeps.
    pub wakeups: u64,
    /// Of these, by the sleep's own timer.
    #[serde(rename = "timeouts")]
    pub timer_wakeups: u64,
    /// Wakes aimed at a thread that was not asleep.
    pub redundant_wakes: u64,
    /// Needless wakeups, proven and possible.
    #[serde(flatten, serialize_with = "as_needless_wakeups")]
    pub needless: Interval,
    /// Of the proven: asleep again inside the same call.
    pub needless_in_call: u64,
    /// Of the proven: every later call failed with EAGAIN, and back to the same object.
    pub needless_again: u64,
    /// CPU time of the needless episodes.
    pub needless_cpu_ns: Interval,
    /// Of those that are only possible: woken together with others, and no progress on anything.
    pub possible_in_herds: u64,
    /// CPU time of these.
    pub possible_in_herds_cpu_ns: u64,
    /// Woken by a timer and asleep again on the same, with nothing but a look in between.
    pub timer_polls: u64,
    /// CPU time of these looks, with the switches there and back.
    pub timer_poll_cpu_ns: u64,
    /// Where the polls are made, by most of the stacks that were taken of them alone: others may
    /// sleep in the same call, and more often.
    #[serde(rename = "timer_poll_site", skip_serializing_if = "Option::is_none")]
    pub poll_site: Option<PollSite>,
    /// The mean time from one such wakeup to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_poll_period_ns: Option<u64>,
    /// Sleeps that were shorter than a switch there and back.
    pub short_sleeps: u64,
    /// Sleeps that ended by their timer before a file lock was had that was free before.
    pub overslept: u64,
    /// Since it was free.
    pub overslept_ns: u64,
    /// The stacks that were taken here.
    pub stacks: Vec<StackPair>,
    /// The object as it was counted.
    #[serde(skip)]
    pub key: Object,
    /// The sum behind `timer_poll_period_ns`.
    #[serde(skip)]
    pub timer_poll_ns: u64,
}

/// Where timer polls are made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PollSite {
    /// The call site.
    #[serde(serialize_with = "as_text")]
    pub site: Site,
    /// Where stacks were taken of some polls only: the 95 % confidence interval of the share that
    /// this site has of them, in percent. Where of all, and it is not 100: the share, twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_interval: Option<[f64; 2]>,
    /// By what the program waits there, where a library does it for it.
    #[serde(skip)]
    pub(crate) through: Option<Primitive>,
    /// The stacks that were met there most often.
    #[serde(skip)]
    pub(crate) stacks: Option<StackPair>,
}

impl WaitLine {
    /// The same waits, told where the polls are made instead of where most sleep.
    pub(crate) fn at_polls(&self) -> Self {
        let mut line = self.clone();
        if let Some(at) = &self.poll_site {
            (line.site, line.through) = (at.site.clone(), at.through);
            line.site_percent_interval = at.percent_interval;
            line.stacks = at.stacks.map_or(line.stacks, |pair| vec![pair]);
        }
        line
    }

    /// Whether it waits for a lock that another thread has.
    pub(crate) fn is_lock_wait(&self) -> bool {
        self.through.is_some_and(Primitive::is_lock) && matches!(self.key, Object::Futex(_))
    }
}

fn as_text<S: Serializer>(site: &Site, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(site)
}

fn as_needless_wakeups<S: Serializer>(of: &Interval, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Interval", 2)?;
    fields.serialize_field("needless_wakeups", &of.proven)?;
    fields.serialize_field("needless_wakeups_possible", &of.possible)?;
    fields.end()
}

/// The wait account: the schema `unherd.waits/1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// The schema's name.
    pub schema: &'static str,
    /// The lines, those with the most needless CPU first.
    pub lines: Vec<WaitLine>,
    /// See [`super::Report::privileged`]. If not, only the sleeps of a line mean anything, and its
    /// other counts are `null` in JSON.
    pub privileged: bool,
    /// See [`super::Report::judged`]. If not, what hangs on wakeups is `null` in JSON.
    pub judged: bool,
}

/// The fields of a line that mean nothing without privilege.
const PRIVILEGED: [&str; 2] = ["uninterruptible_sleeps", "uninterruptible_ns"];
/// The fields of a line that mean nothing if wakeups were not judged.
const JUDGEMENTS: [&str; 15] = [
    "wakeups",
    "timeouts",
    "redundant_wakes",
    "needless_wakeups",
    "needless_wakeups_possible",
    "needless_in_call",
    "needless_again",
    "needless_cpu_ns",
    "possible_in_herds",
    "possible_in_herds_cpu_ns",
    "timer_polls",
    "timer_poll_cpu_ns",
    "short_sleeps",
    "overslept",
    "overslept_ns",
];

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let line = |line: &WaitLine| {
            let mut value = serde_json::to_value(line).map_err(S::Error::custom)?;
            let unknown = PRIVILEGED.iter().filter(|_| !self.privileged);
            for name in unknown.chain(JUDGEMENTS.iter().filter(|_| !self.judged)) {
                value[*name] = serde_json::Value::Null;
            }
            Ok(value)
        };
        let lines: Vec<_> = self.lines.iter().map(line).collect::<Result<_, S::Error>>()?;
        let mut fields = serializer.serialize_struct("Waits", 2)?;
        fields.serialize_field("schema", self.schema)?;
        fields.serialize_field("reasons", &lines)?;
        fields.end()
    }
}

impl Waits {
    pub(crate) fn new(
        rows: &[WaitRow],
        privileged: bool,
        judged: bool,
        namer: &mut Namer<'_>,
    ) -> Self {
        let mut lines: Vec<WaitLine> = rows.iter().map(|row| line(row, judged, namer)).collect();
        lines.sort_by(|a, b| {
            let cost = |line: &WaitLine| {
                (line.needless_cpu_ns.possible, line.needless.possible, line.sleeps, line.asleep_ns)
            };
            let name = |line: &WaitLine| (line.pid, line.call.clone(), line.key);
            cost(b).cmp(&cost(a)).then_with(|| name(a).cmp(&name(b)))
        });
        Self { schema: "unherd.waits/1", lines, privileged, judged }
    }
}

/// The call's name, where calls were seen.
pub(super) fn call_text(syscall: Option<u32>, judged: bool) -> String {
    match syscall {
        None if !judged => "unknown call".into(),
        call => call_name(call),
    }
}

/// The site of most of the stacks, with its share of them in percent; the pair of stacks that was
/// met there most; and the interval of that share, which where each of `all` was looked at is the
/// share itself, and nothing where that is all.
fn sampled_site(
    stacks: &[StackPair],
    samples: u64,
    all: u64,
    namer: &Namer<'_>,
) -> (Site, Option<f64>, Option<StackPair>, Option<[f64; 2]>) {
    let (site, percent) = namer.main_site(stacks);
    let there = stacks.iter().find(|pair| pair.user.is_some() && namer.site(pair.user) == site);
    // Of rows that are looked at each time no sample has more weight than another.
    let interval = percent.filter(|_| samples > 0).and_then(|percent| match samples < all {
        true => Some(super::share::sampled_percent(percent, samples)),
        false => (percent < 100.0).then_some([percent, percent]),
    });
    (site, percent, there.copied(), interval)
}

fn poll_site(row: &WaitRow, namer: &mut Namer<'_>) -> Option<PollSite> {
    let stacks = namer.pairs(Some(row.pid), &row.poll_stacks);
    let (samples, all) = (row.poll_stack_samples, row.timer_polls);
    let (site, _, stacks, percent_interval) = sampled_site(&stacks, samples, all, namer);
    let through = namer.primitive(stacks.and_then(|pair| pair.user));
    stacks.map(|_| PollSite { site, percent_interval, through, stacks })
}

fn line(row: &WaitRow, judged: bool, namer: &mut Namer<'_>) -> WaitLine {
    let stacks = namer.pairs(Some(row.pid), &row.stacks);
    let sleeps = row.sleeps.saturating_add(row.uninterruptible_sleeps);
    let (site, site_percent, there, site_percent_interval) =
        sampled_site(&stacks, row.stack_samples, sleeps, namer);
    let through = namer.primitive(there.and_then(|pair| pair.user));
    // Without what tracing added to each sleep, and to a call at least where it made one.
    let added = namer.added_prices();
    let is_futex = matches!(row.object, Object::Futex(_));
    let call_ns = if is_futex { added.futex_call_ns } else { added.call_ns };
    let own = |ns: u64, sleeps: u64, calls: u64| {
        ns.saturating_sub(sleeps.saturating_mul(added.sleep_ns))
            .saturating_sub(calls.saturating_mul(call_ns))
    };
    let own_of_each = |ns, episodes| own(ns, episodes, episodes);
    let proven = row.needless_in_call.saturating_add(row.needless_again);
    WaitLine {
        pid: row.pid,
        comm: namer.comm(row.pid),
        call: call_text(row.syscall, judged),
        site,
        site_percent,
        site_percent_interval,
        through,
        library: row.library,
        object: object_text(row.object, row.object_name.as_deref()),
        sleeps: row.sleeps,
        asleep_ns: row.asleep_ns,
        uninterruptible_sleeps: row.uninterruptible_sleeps,
        uninterruptible_ns: row.uninterruptible_ns,
        wakeups: row.wakeups,
        timer_wakeups: row.timer_wakeups,
        redundant_wakes: row.redundant_wakes,
        needless: Interval::new(proven, row.possibly_needless),
        needless_in_call: row.needless_in_call,
        needless_again: row.needless_again,
        needless_cpu_ns: Interval::new(
            own(row.needless_cpu_ns, proven, row.needless_again),
            own_of_each(row.possibly_needless_cpu_ns, row.possibly_needless),
        ),
        possible_in_herds: row.possibly_needless_in_herds,
        possible_in_herds_cpu_ns: own_of_each(
            row.possibly_needless_in_herds_cpu_ns,
            row.possibly_needless_in_herds,
        ),
        timer_polls: row.timer_polls,
        timer_poll_cpu_ns: own_of_each(row.timer_poll_cpu_ns, row.timer_polls),
        poll_site: poll_site(row, namer),
        timer_poll_period_ns: row.timer_poll_ns.checked_div(row.timer_polls),
        short_sleeps: row.short_sleeps,
        overslept: row.overslept,
        overslept_ns: row.overslept_ns,
        stacks,
        key: row.object,
        timer_poll_ns: row.timer_poll_ns,
    }
}
