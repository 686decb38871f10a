//! Two reports side by side: which findings came, went, grew or shrank.
//!
//! Reports are read as JSON (`unherd.trace/1`), so either may be of another day or machine. Counts
//! are compared for a unit of work: a run, if all processes of both reports have ended, else a
//! second. A finding has grown if its count is more than a tenth higher, and that by more than
//! chance: three times the standard deviation of counts that come at random.
//!
//! The verdict is about the whole. What changed is worse if it costs more for a unit of work, of
//! what one cost before, and is a larger part of all that the program costs: a program that became
//! faster may have more of a small kind of waste in a second, and one that does more work has more
//! of all kinds in a run. Each count has one price, the mean of both reports, as times differ on a
//! busy machine though nothing has changed; of what is only possible the part counts that is
//! likely. There is no verdict where the events that were lost could turn it, if each of them cost
//! as much as those of the findings.
//!
//! A finding is known by its kind of waste, call, site and program. If just one program of each
//! report is not in the other, the two are taken for one, as of a program and its patched copy.
//!
//! How long threads waited for a processor depends on what else the machine ran, and two reports do
//! not tell that apart from the program. So it is told in a note where it has changed, and no
//! finding that came or grew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::Value;
use thiserror::Error;

use crate::report::LITTLE_PERCENT;
use crate::report::quantity::{count, digits, percents};

/// The schema that is read.
const SCHEMA: &str = "unherd.trace/1";
/// The kind of waste that other programs make as well.
const NO_PROCESSOR: &str = "no_processor";
/// What changes by less is the same.
const TOLERANCE: f64 = 0.1;
/// Standard deviations.
const CHANCE: f64 = 3.0;

/// Why two reports cannot be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiffError {
    /// The file cannot be read.
    #[error("cannot read '{path}': {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no report, or one of another version.
    #[error("'{path}' is no report of {SCHEMA} ({found}); make one by 'unherd trace --json FILE'")]
    Foreign {
        /// The file.
        path: String,
        /// What it is.
        found: String,
    },
}

/// What became of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is in the second report alone.
    Came,
    /// Its rate is higher in the second.
    Grew,
    /// It is lower there.
    Shrank,
    /// It is in the first report alone.
    Went,
}

/// What all changes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// What changed costs less.
    Better,
    /// It costs as much, or both are little.
    Same,
    /// It costs more.
    Worse,
    /// What was lost, or not looked at, could turn it.
    Unknown,
}

/// What the findings that changed cost together, in percent of CPU time and of threads' time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Total {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// A unit of work after, of what one took before.
    pub after_of_before: f64,
}

/// One finding in both reports, or in one.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// What became of it.
    pub change: Change,
    /// Its kind of waste, call, site and program.
    pub name: String,
    /// Its count for a unit of work, before and after.
    pub per_unit: [f64; 2],
    /// The most that it may cost in percent, before and after.
    pub percent_most: [f64; 2],
}

/// Two reports, compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// What is to be known before the changes are believed.
    pub notes: Vec<String>,
    /// What has changed; what came stands first, of each kind the most costly.
    pub changed: Vec<Changed>,
    /// Findings that are the same.
    pub same: usize,
    /// What a unit of work is: `run` or `second`.
    pub unit: &'static str,
    /// What the changes cost.
    pub total: Total,
    /// What that means.
    pub verdict: Verdict,
}

/// A finding's count, the most that it may cost in percent, and what it likely costs.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: f64,
    percent: f64,
    likely_ns: f64,
    /// Of threads' time, else of CPU time.
    of_threads: bool,
}

/// A report as far as it is compared.
#[derive(Debug)]
struct Side {
    seconds: f64,
    /// All processes have ended.
    has_ended: bool,
    cpu_ns: f64,
    threads_ns: f64,
    lost: f64,
    programs: BTreeSet<String>,
    /// By kind of waste, call and site, and by program.
    findings: BTreeMap<(String, String), Sum>,
    judged: bool,
    /// For how much of their time threads waited for a processor.
    no_processor_percent: f64,
}

impl Side {
    fn read(path: &Path) -> Result<Self, DiffError> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| DiffError::Unreadable { path: name(), source })?;
        let foreign = |found: String| DiffError::Foreign { path: name(), found };
        let report: Value =
            serde_json::from_str(&text).map_err(|_| foreign("it is no JSON".into()))?;
        match report["schema"].as_str() {
            Some(SCHEMA) if report["summary"]["duration_ns"].is_number() => Ok(Self::of(&report)),
            Some(SCHEMA) => Err(foreign("it has no summary".into())),
            Some(other) => Err(foreign(format!("it says '{other}'"))),
            None => Err(foreign("it names no schema".into())),
        }
    }

    fn of(report: &Value) -> Self {
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let number = |of: &Value| of.as_f64().unwrap_or_default();
        let (summary, trust) = (&report["summary"], &report["trust"]);
        let duration_ns = number(&summary["duration_ns"]);
        let mut findings = BTreeMap::<_, Sum>::new();
        let mut programs = BTreeSet::new();
        let mut no_processor_percent = 0.0;
        for finding in report["findings"].as_array().into_iter().flatten() {
            let cost = &finding["cost"];
            let percent = number(&cost["percent_high"]);
            if finding["waste"] == NO_PROCESSOR {
                no_processor_percent += percent;
                continue;
            }
            let comm = text(&finding["comm"]);
            let site = text(&finding["site"]["function"]);
            let name = [text(&finding["waste"]), text(&finding["call"]), site];
            let sum = findings.entry((joined(&name), comm.clone())).or_default();
            sum.count += number(&finding["count"]["possible"]);
            sum.percent += percent;
            let (low, high) = (number(&cost["ns_low"]), number(&cost["ns_high"]));
            sum.likely_ns += low + (high - low) * finding["likely_share"].as_f64().unwrap_or(1.0);
            sum.of_threads = cost["kind"] == "waiting";
            programs.extend(Some(comm).filter(|comm| !comm.is_empty()));
        }
        Self {
            seconds: (duration_ns / 1e9).max(1e-9),
            has_ended: trust["processes_running"] == 0,
            cpu_ns: (number(&summary["user_ns"]) + number(&summary["system_ns"])
                - number(&summary["tracing_cpu_ns"]))
            .max(0.0),
            threads_ns: report["time"]["wall_ns"]
                .as_f64()
                .unwrap_or_else(|| duration_ns * number(&summary["threads"])),
            lost: number(&trust["lost_events"]),
            programs,
            findings,
            judged: report["judged"] == true,
            no_processor_percent,
        }
    }

    /// The same with another name for one of its programs.
    fn renamed(mut self, from: &str, to: &str) -> Self {
        let of = |(name, comm): (String, String)| {
            (name, if comm == from { to.to_owned() } else { comm })
        };
        self.findings = self.findings.into_iter().map(|(key, sum)| (of(key), sum)).collect();
        self
    }
}

/// Whether that is a tenth more, and more than a little.
fn has_grown(from: f64, to: f64) -> bool {
    to - from >= LITTLE_PERCENT && to > from * (1.0 + TOLERANCE)
}

impl Total {
    /// Of one finding, each count at the same price.
    fn new(old: Sum, new: Sum, before: &Side, after: &Side, units: [f64; 2]) -> Self {
        let price = (old.likely_ns + new.likely_ns) / (old.count + new.count).max(1.0);
        let whole =
            |of: &Side| if old.of_threads || new.of_threads { of.threads_ns } else { of.cpu_ns };
        // Of a program that took no time nothing is a share.
        let part = |count: f64, of: &Side| match whole(of) {
            0.0 => 0.0,
            whole => 100.0 * price * count / whole,
        };
        Self {
            before: part(old.count, before),
            after: part(new.count, after),
            after_of_before: part(new.count, before) * units[0] / units[1],
        }
    }

    fn add(&mut self, other: Self) {
        self.before += other.before;
        self.after += other.after;
        self.after_of_before += other.after_of_before;
    }

    /// What it means if the events that were lost before and after may cost this.
    fn verdict(self, lost: [f64; 2]) -> Verdict {
        let least = self.after.min(self.after_of_before);
        let most = self.after.max(self.after_of_before);
        match self.before {
            before if has_grown(before + lost[0], least) => Verdict::Worse,
            before if has_grown(before, least + lost[1]) => Verdict::Unknown,
            before if has_grown(most + lost[1], before) => Verdict::Better,
            _ => Verdict::Same,
        }
    }
}

/// Those that say something.
fn joined(parts: &[String]) -> String {
    let parts: Vec<_> = parts.iter().filter(|part| !part.is_empty()).cloned().collect();
    parts.join(", ")
}

/// What is in one report and not in the other does not count if it is this rare and cheap, where
/// the other has `times` as many units of work: in fewer it would have come more rarely.
fn is_small(of: Sum, times: f64) -> bool {
    of.count * times.min(1.0) < 10.0 && of.percent < 1.0
}

/// That threads waited for a processor for another share of their time, if that is more than a
/// little.
fn no_processor(before: f64, after: f64) -> Option<String> {
    let difference = (before - after).abs();
    let is_other = difference >= LITTLE_PERCENT && difference > before.min(after) * TOLERANCE;
    let [before, after] = [before, after].map(|share| percents(share, share));
    is_other.then(|| {
        format!(
            "threads waited for a processor for {before} of their time before, {after} after; \
             other programs do that, too, so it is not judged"
        )
    })
}

/// `after` with the name of a program of `before` where that is the same one. Notes it, and where
/// they have none in common.
fn with_names_of(before: &Side, after: Side, notes: &mut Vec<String>) -> Side {
    let alone = |of: &Side, other: &Side| -> Vec<String> {
        of.programs.difference(&other.programs).cloned().collect()
    };
    match (&*alone(before, &after), &*alone(&after, before)) {
        ([first], [second]) => {
            notes.push(format!("taken for one program: {first} before, {second} after"));
            return after.renamed(second, first);
        }
        ([], _) | (_, []) => {}
        (first, second) if before.programs.is_disjoint(&after.programs) => {
            let (first, second) = (joined(first), joined(second));
            notes.push(format!("different programs: {first} before, {second} after"));
        }
        _ => {}
    }
    after
}

impl Diff {
    /// Compares two files.
    ///
    /// # Errors
    ///
    /// [`DiffError`] if one cannot be read, or is no report of this version.
    pub fn of_files(before: &Path, after: &Path) -> Result<Self, DiffError> {
        Ok(Self::new(&Side::read(before)?, Side::read(after)?))
    }

    fn new(before: &Side, after: Side) -> Self {
        let mut notes = Vec::new();
        let after = &with_names_of(before, after, &mut notes);
        if before.judged != after.judged {
            notes.push("wakeups were judged in one report only".to_owned());
        }
        notes.extend(no_processor(before.no_processor_percent, after.no_processor_percent));
        let of_runs = before.has_ended && after.has_ended;
        let unit = if of_runs { "run" } else { "second" };
        let units = [before, after].map(|of| if of_runs { 1.0 } else { of.seconds });
        let names: BTreeSet<&(String, String)> =
            before.findings.keys().chain(after.findings.keys()).collect();
        let (mut changed, mut total, mut all) = (Vec::new(), Total::default(), Total::default());
        let mut counts = 0.0;
        for name in &names {
            let sums = [before, after].map(|side| side.findings.get(*name).copied());
            let [old, new] = sums.map(Option::unwrap_or_default);
            let per_unit = [old.count / units[0], new.count / units[1]];
            let cost = Total::new(old, new, before, after, units);
            all.add(cost);
            if cost.before + cost.after > 0.0 {
                counts += per_unit[0] + per_unit[1];
            }
            let Some(change) = change(sums, units) else { continue };
            total.add(cost);
            let percent_most = [old.percent, new.percent];
            let name = joined(&[name.0.clone(), name.1.clone()]);
            changed.push(Changed { change, name, per_unit, percent_most });
        }
        let most = |of: &Changed| of.percent_most[0].max(of.percent_most[1]);
        changed.sort_by(|a, b| {
            a.change.cmp(&b.change).then(most(b).total_cmp(&most(a))).then(a.name.cmp(&b.name))
        });
        let price = (all.before + all.after_of_before) / counts.max(1e-9);
        let lost = [before.lost * price / units[0], after.lost * price / units[1]];
        let mut verdict = total.verdict(lost);
        if before.judged != after.judged {
            verdict = Verdict::Unknown;
        } else if verdict == Verdict::Unknown {
            let [before, after] = [before.lost, after.lost].map(|lost| count(lost as u64));
            notes.push(format!(
                "lost events, {before} before and {after} after, could turn the verdict"
            ));
        }
        Self { notes, same: names.len() - changed.len(), changed, unit, total, verdict }
    }
}

/// What became of a finding that is in either report or both, by units of work.
fn change(sums: [Option<Sum>; 2], units: [f64; 2]) -> Option<Change> {
    match sums {
        [None, Some(new)] => (!is_small(new, units[0] / units[1])).then_some(Change::Came),
        [Some(old), None] => (!is_small(old, units[1] / units[0])).then_some(Change::Went),
        [Some(old), Some(new)] => {
            let (first, second) = (old.count / units[0], new.count / units[1]);
            let error = (old.count.sqrt() / units[0]).hypot(new.count.sqrt() / units[1]);
            let least = (CHANCE * error).max(first.min(second) * TOLERANCE);
            let change = if first < second { Change::Grew } else { Change::Shrank };
            ((first - second).abs() > least).then_some(change)
        }
        [None, None] => None,
    }
}

/// A line each.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note    {note}")?;
        }
        if self.verdict == Verdict::Unknown || !self.changed.is_empty() {
            let verdict = match self.verdict {
                Verdict::Better => "better",
                Verdict::Same => "as good",
                Verdict::Worse => "worse",
                Verdict::Unknown => "unknown",
            };
            let Total { before, after, after_of_before } = self.total;
            let share = |share: f64| match share > 100.0 {
                true => format!("{} %", digits(share)),
                false => percents(share, share),
            };
            let [before, after, of_before] = [before, after, after_of_before].map(share);
            writeln!(
                f,
                "{verdict:<7} in all: changes take {before} → {after} of CPU and threads' time, a \
                 {} {of_before} of what one took before",
                self.unit
            )?;
        }
        for of in &self.changed {
            let change = match of.change {
                Change::Came => "came",
                Change::Grew => "grew",
                Change::Shrank => "shrank",
                Change::Went => "went",
            };
            let [before, after] = of.per_unit.map(digits);
            let [cost, new_cost] = of.percent_most.map(|share| percents(share, share));
            let (name, unit) = (&of.name, self.unit);
            writeln!(f, "{change:<7} {name}: {before} → {after} a {unit}, {cost} → {new_cost}")?;
        }
        writeln!(f, "same    {} findings", self.same)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Its costs are in percent of a processor's time, which the program has.
    fn report(program: &str, seconds: f64, findings: &[(&str, u64, f64)]) -> Value {
        let finding = |(site, count, percent): &(&str, u64, f64)| {
            let ns = seconds * percent * 1e7;
            json!({
                "waste": "needless_wakeups", "comm": program, "call": "futex",
                "site": { "function": site }, "count": { "possible": count },
                "cost": { "kind": "cpu", "ns_low": ns, "ns_high": ns, "percent_high": percent },
            })
        };
        let ns = seconds * 1e9;
        json!({
            "schema": SCHEMA, "judged": true,
            "summary": { "duration_ns": ns, "user_ns": ns, "system_ns": 0 },
            "findings": findings.iter().map(finding).collect::<Vec<_>>(),
            "trust": { "lost_events": 0, "processes_running": 1 },
        })
    }

    fn diff(before: &Value, after: &Value) -> Diff {
        Diff::new(&Side::of(before), Side::of(after))
    }

    #[test]
    fn findings_come_and_go_by_rate() {
        let before =
            report("a", 10.0, &[("gone", 100, 2.0), ("pop", 1_000, 3.0), ("as_was", 500, 1.0)]);
        let after =
            report("a", 5.0, &[("new", 50, 1.0), ("pop", 1_000, 6.0), ("as_was", 260, 1.0)]);
        let there = diff(&before, &after);
        let changes: Vec<_> = there.changed.iter().map(|of| of.change).collect();
        assert_eq!(changes, [Change::Came, Change::Grew, Change::Went]);
        assert!(there.verdict == Verdict::Worse && there.same == 1, "{there}");
        assert_eq!(there.changed[1].per_unit, [100.0, 200.0]);
        let text = there.to_string();
        assert!(
            text.contains("grew    needless_wakeups, futex, pop, a: 100 → 200 a second"),
            "{text}"
        );
        let back = diff(&after, &before);
        assert!(back.changed.iter().any(|of| of.change == Change::Shrank), "{back}");
        assert_eq!(diff(&before, &before).to_string(), "same    3 findings\n");
    }

    #[test]
    fn chance_is_no_change() {
        // Twelve and twenty of a second may be the same; 1,200 and 2,000 are not.
        let of = |count| report("a", 1.0, &[("pop", count, 0.5)]);
        assert!(diff(&of(12), &of(20)).changed.is_empty());
        assert_eq!(diff(&of(1_200), &of(2_000)).changed[0].change, Change::Grew);
        let rare = report("a", 1.0, &[("pop", 3, 0.0)]);
        assert!(diff(&report("a", 1.0, &[]), &rare).changed.is_empty());
        // 20 in 100 s are none in most seconds.
        let long = report("a", 100.0, &[("pop", 20, 0.0)]);
        assert!(diff(&report("a", 1.0, &[]), &long).changed.is_empty());
        assert_eq!(diff(&report("a", 100.0, &[]), &long).changed[0].change, Change::Came);
    }

    /// As many of a small kind in a fifth of the time, and none of the large.
    #[test]
    fn faster_program_is_no_worse() {
        let mut before = report("a", 10.0, &[("herd", 100_000, 80.0), ("small", 1_000, 0.5)]);
        let mut after = report("a", 2.0, &[("herd", 500, 2.0), ("small", 1_000, 2.5)]);
        let of_seconds = diff(&before, &after);
        assert_eq!(of_seconds.verdict, Verdict::Better, "{of_seconds}");
        let text = of_seconds.to_string();
        assert!(text.starts_with("better  in all: changes take 80 % → 4.5 % of CPU"), "{text}");
        let line = "grew    needless_wakeups, futex, small, a: 100 → 500 a second, 0.5 % → 2.5 %";
        assert!(text.contains(line), "{text}");
        for of in [&mut before, &mut after] {
            of["trust"]["processes_running"] = 0.into();
        }
        let of_runs = diff(&before, &after);
        assert_eq!((of_runs.verdict, of_runs.same), (Verdict::Better, 1), "{of_runs}");
        assert!(of_runs.to_string().contains("herd, a: 100000 → 500 a run"), "{of_runs}");
        // Of the small kind alone it has as much in a run, and in a second more but no dearer.
        before["findings"].as_array_mut().unwrap().remove(0);
        after["findings"].as_array_mut().unwrap().remove(0);
        assert_eq!(diff(&before, &after).verdict, Verdict::Same);
        let far_worse = diff(
            &report("a", 1.0, &[("small", 10, 1.0)]),
            &report("a", 1.0, &[("small", 9_000, 900.0)]),
        );
        assert!(far_worse.to_string().contains("a second 900 % of what one took"), "{far_worse}");
        // Ten times the work, with ten times the waste.
        let more = report("a", 100.0, &[("small", 10_000, 0.5)]);
        assert_eq!(diff(&before, &more).verdict, Verdict::Same);
        assert_eq!(diff(&report("a", 9.0, &[("small", 900, 8.0)]), &more).verdict, Verdict::Same);
        let worse = report("a", 10.0, &[("small", 20_000, 10.0)]);
        assert_eq!(diff(&before, &worse).verdict, Verdict::Worse);
    }

    /// Only the likely part of what is possible counts.
    #[test]
    fn unlikely_waste_turns_no_verdict() {
        let mut after = report("a", 1.0, &[("pop", 9_000, 40.0)]);
        after["findings"][0]["cost"]["ns_low"] = 0.into();
        let none = report("a", 1.0, &[]);
        assert_eq!(diff(&none, &after).verdict, Verdict::Worse);
        after["findings"][0]["likely_share"] = 0.0.into();
        let useful = diff(&none, &after);
        assert_eq!((useful.verdict, useful.changed.len()), (Verdict::Same, 1), "{useful}");
    }

    #[test]
    fn losses_that_could_decide_are_told() {
        let of = |count, percent, lost: u64| {
            let mut all = report("a", 10.0, &[("pop", count, percent)]);
            all["trust"]["lost_events"] = lost.into();
            all
        };
        let few = of(1_000, 10.0, 0);
        assert_eq!(diff(&few, &of(1_000, 10.0, 50)).verdict, Verdict::Same);
        assert_eq!(diff(&few, &of(3_000, 30.0, 500)).verdict, Verdict::Worse);
        let after = diff(&few, &of(100, 1.0, 2_000));
        assert_eq!(after.verdict, Verdict::Unknown, "{after}");
        let note =
            "note    lost events, 0 before and 2,000 after, could turn the verdict\nunknown ";
        assert!(after.to_string().starts_with(note), "{after}");
        // The 2,000 may have been what is there after.
        assert_eq!(diff(&of(1_000, 10.0, 2_000), &of(3_000, 30.0, 0)).verdict, Verdict::Unknown);
        let mut unjudged = few.clone();
        unjudged["judged"] = false.into();
        assert_eq!(diff(&few, &unjudged).verdict, Verdict::Unknown);
    }

    #[test]
    fn waiting_for_a_processor_is_not_judged() {
        let of = |percent: f64, count: u64| {
            let mut all = report("a", 1.0, &[("pop", 500, 1.0)]);
            let switches = json!({
                "waste": "no_processor", "comm": "", "call": "all threads", "site": null,
                "count": { "possible": count }, "cost": { "percent_high": percent },
            });
            let findings = all["findings"].as_array_mut().unwrap();
            findings.extend((count > 0).then_some(switches));
            all
        };
        let without = of(0.0, 0);
        for (before, after) in [(&without, &of(8.1, 2_000)), (&of(0.5, 1_500), &of(8.1, 2_000))] {
            let busier = diff(before, after);
            assert!(
                busier.verdict == Verdict::Same && busier.same == 1 && busier.changed.is_empty(),
                "{busier}"
            );
            assert_eq!(busier.notes.len(), 1, "{busier}");
        }
        let text = diff(&without, &of(8.1, 2_000)).to_string();
        assert!(text.contains("for 0 % of their time before, 8.1 % after"), "{text}");
        // As four traces of one program had it.
        assert!(diff(&of(38.7, 1_029), &of(38.3, 1_027)).notes.is_empty());
        assert!(diff(&of(7.06, 2_003), &of(7.9, 1_509)).notes.is_empty());
    }

    #[test]
    fn patched_copy_is_the_same_program() {
        let of = |programs: &[&str], count| {
            let mut all = report("helper", 1.0, &[("run", 500, 1.0)]);
            let findings = all["findings"].as_array_mut().unwrap();
            for program in programs {
                let own = report(program, 1.0, &[("pop", count, 5.0)]);
                findings.extend(own["findings"].as_array().unwrap().clone());
            }
            all
        };
        let same = diff(&of(&["server"], 2_000), &of(&["server-patched"], 2_000));
        assert!(same.changed.is_empty(), "{same}");
        assert_eq!(same.notes, ["taken for one program: server before, server-patched after"]);
        let better = diff(&of(&["server"], 2_000), &of(&["server-patched"], 100));
        let changes: Vec<_> = better.changed.iter().map(|of| of.change).collect();
        assert_eq!(changes, [Change::Shrank], "{better}");
        // Of several nobody knows which is which.
        let several = diff(&of(&["server"], 2_000), &of(&["one", "other"], 2_000));
        assert_eq!(several.verdict, Verdict::Worse, "{several}");
    }

    #[test]
    fn different_programs_are_told() {
        let of = |programs: [&str; 2]| {
            let mut all = report(programs[0], 1.0, &[("pop", 100, 5.0)]);
            let other = report(programs[1], 1.0, &[("pop", 100, 5.0)]);
            let findings = all["findings"].as_array_mut().unwrap();
            findings.extend(other["findings"].as_array().unwrap().clone());
            all
        };
        let different = diff(&of(["nginx", "sh"]), &of(["redis", "bash"]));
        assert_eq!(different.notes, ["different programs: nginx, sh before, bash, redis after"]);
        assert!(diff(&of(["nginx", "sh"]), &of(["nginx", "sh"])).notes.is_empty());
    }

    #[test]
    fn other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        let refusal = |text: &str| {
            fs::write(&path, text).unwrap();
            Diff::of_files(&path, &path).unwrap_err().to_string()
        };
        assert!(refusal("no JSON").contains("it is no JSON"));
        assert!(refusal("{}").contains("it names no schema"));
        assert!(refusal(r#"{"schema": "unherd.trace/2"}"#).contains("it says 'unherd.trace/2'"));
        assert!(refusal(r#"{"schema": "unherd.trace/1"}"#).contains("it has no summary"));
        let absent = Diff::of_files(Path::new("/nonexistent"), &path).unwrap_err();
        assert!(absent.to_string().starts_with("cannot read '/nonexistent'"), "{absent}");
    }
}
