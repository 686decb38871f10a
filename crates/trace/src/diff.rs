//! Two reports side by side: which findings came, went, grew or shrank.
//!
//! Reports are read as JSON (`unherd.trace/1`), so either may be of another day or machine. Counts
//! are compared per second. A finding has grown if its rate is more than a tenth higher, and that
//! by more than chance: three times the standard deviation of counts that come at random.
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
use crate::report::quantity::{digits, percents};

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

/// One finding in both reports, or in one.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// What became of it.
    pub change: Change,
    /// Its kind of waste, call, site and program.
    pub name: String,
    /// Its count per second, before and after.
    pub per_second: [f64; 2],
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
}

/// A finding's count and the most that it may cost in percent.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: f64,
    percent: f64,
}

/// A report as far as it is compared.
#[derive(Debug)]
struct Side {
    seconds: f64,
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
        let mut findings = BTreeMap::<_, Sum>::new();
        let mut programs = BTreeSet::new();
        let mut no_processor_percent = 0.0;
        for finding in report["findings"].as_array().into_iter().flatten() {
            let percent = finding["cost"]["percent_high"].as_f64().unwrap_or_default();
            if finding["waste"] == NO_PROCESSOR {
                no_processor_percent += percent;
                continue;
            }
            let comm = text(&finding["comm"]);
            let site = text(&finding["site"]["function"]);
            let name = [text(&finding["waste"]), text(&finding["call"]), site];
            let sum = findings.entry((joined(&name), comm.clone())).or_default();
            sum.count += finding["count"]["possible"].as_f64().unwrap_or_default();
            sum.percent += percent;
            programs.extend(Some(comm).filter(|comm| !comm.is_empty()));
        }
        Self {
            seconds: report["summary"]["duration_ns"].as_f64().unwrap_or_default() / 1e9,
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

    /// A finding's rate, and the standard deviation of that.
    fn rate(&self, of: Sum) -> (f64, f64) {
        let seconds = self.seconds.max(1e-9);
        (of.count / seconds, of.count.sqrt() / seconds)
    }
}

/// Those that say something.
fn joined(parts: &[String]) -> String {
    let parts: Vec<_> = parts.iter().filter(|part| !part.is_empty()).cloned().collect();
    parts.join(", ")
}

/// What is in one report and not in the other does not count if it is this rare and cheap. It is in
/// `own`; in the time of the `other` it would have come as many times.
fn is_small(of: Sum, own: &Side, other: &Side) -> bool {
    let seconds = |side: &Side| side.seconds.max(1e-9);
    of.count * (seconds(other) / seconds(own)).min(1.0) < 10.0 && of.percent < 1.0
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

impl Diff {
    /// Compares two files.
    ///
    /// # Errors
    ///
    /// [`DiffError`] if one cannot be read, or is no report of this version.
    pub fn of_files(before: &Path, after: &Path) -> Result<Self, DiffError> {
        Ok(Self::new(&Side::read(before)?, Side::read(after)?))
    }

    fn new(before: &Side, mut after: Side) -> Self {
        let mut notes = Vec::new();
        let alone = |of: &Side, other: &Side| -> Vec<String> {
            of.programs.difference(&other.programs).cloned().collect()
        };
        match (&*alone(before, &after), &*alone(&after, before)) {
            ([first], [second]) => {
                notes.push(format!("taken for one program: {first} before, {second} after"));
                after = after.renamed(second, first);
            }
            ([], _) | (_, []) => {}
            (first, second) if before.programs.is_disjoint(&after.programs) => {
                let (first, second) = (joined(first), joined(second));
                notes.push(format!("different programs: {first} before, {second} after"));
            }
            _ => {}
        }
        let after = &after;
        if before.judged != after.judged {
            notes.push("wakeups were judged in one report only".to_owned());
        }
        notes.extend(no_processor(before.no_processor_percent, after.no_processor_percent));
        let names: BTreeSet<&(String, String)> =
            before.findings.keys().chain(after.findings.keys()).collect();
        let all = names.len();
        let changed = |name: &(String, String)| {
            let (old, new) = (before.findings.get(name), after.findings.get(name));
            let (first, first_error) = before.rate(old.copied().unwrap_or_default());
            let (second, second_error) = after.rate(new.copied().unwrap_or_default());
            let chance = CHANCE * first_error.hypot(second_error);
            let differ = (first - second).abs() > chance.max(first.min(second) * TOLERANCE);
            let change = match (old, new) {
                (None, Some(new)) if !is_small(*new, after, before) => Change::Came,
                (Some(old), None) if !is_small(*old, before, after) => Change::Went,
                (Some(_), Some(_)) if differ && first < second => Change::Grew,
                (Some(_), Some(_)) if differ => Change::Shrank,
                _ => return None,
            };
            let percent = |of: Option<&Sum>| of.map_or(0.0, |of| of.percent);
            let (per_second, percent_most) = ([first, second], [percent(old), percent(new)]);
            let name = joined(&[name.0.clone(), name.1.clone()]);
            Some(Changed { change, name, per_second, percent_most })
        };
        let mut changed: Vec<Changed> = names.into_iter().filter_map(changed).collect();
        let most = |of: &Changed| of.percent_most[0].max(of.percent_most[1]);
        changed.sort_by(|a, b| {
            a.change.cmp(&b.change).then(most(b).total_cmp(&most(a))).then(a.name.cmp(&b.name))
        });
        Self { notes, same: all - changed.len(), changed }
    }

    /// Whether something came or grew.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.changed.iter().any(|of| matches!(of.change, Change::Came | Change::Grew))
    }
}

/// A line each.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note    {note}")?;
        }
        for of in &self.changed {
            let change = match of.change {
                Change::Came => "came",
                Change::Grew => "grew",
                Change::Shrank => "shrank",
                Change::Went => "went",
            };
            let [before, after] = of.per_second.map(digits);
            let [cost, new_cost] = of.percent_most.map(|share| percents(share, share));
            let name = &of.name;
            writeln!(f, "{change:<7} {name}: {before} → {after} a second, {cost} → {new_cost}")?;
        }
        writeln!(f, "same    {} findings", self.same)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(program: &str, seconds: f64, findings: &[(&str, u64, f64)]) -> Value {
        let finding = |(site, count, percent): &(&str, u64, f64)| {
            json!({
                "waste": "needless_wakeups", "comm": program, "call": "futex",
                "site": { "function": site }, "count": { "possible": count },
                "cost": { "percent_high": percent },
            })
        };
        json!({
            "schema": SCHEMA, "judged": true, "summary": { "duration_ns": seconds * 1e9 },
            "findings": findings.iter().map(finding).collect::<Vec<_>>(),
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
        assert!(there.is_worse() && there.same == 1, "{there}");
        assert_eq!(there.changed[1].per_second, [100.0, 200.0]);
        let text = there.to_string();
        assert!(
            text.contains("grew    needless_wakeups, futex, pop, a: 100 → 200 a second"),
            "{text}"
        );
        let back = diff(&after, &before);
        assert!(back.changed.iter().any(|of| of.change == Change::Shrank), "{back}");
        assert!(!diff(&before, &before).is_worse());
    }

    #[test]
    fn chance_is_no_change() {
        // Twelve and twenty of a second may be the same; 1,200 and 2,000 are not.
        let of = |count| report("a", 1.0, &[("pop", count, 0.5)]);
        assert!(diff(&of(12), &of(20)).changed.is_empty());
        assert_eq!(diff(&of(1_200), &of(2_000)).changed[0].change, Change::Grew);
        let rare = report("a", 1.0, &[("pop", 3, 0.0)]);
        assert!(!diff(&report("a", 1.0, &[]), &rare).is_worse());
        // 20 in 100 s are none in most seconds.
        let long = report("a", 100.0, &[("pop", 20, 0.0)]);
        assert!(!diff(&report("a", 1.0, &[]), &long).is_worse());
        assert!(diff(&report("a", 100.0, &[]), &long).is_worse());
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
                !busier.is_worse() && busier.same == 1 && busier.changed.is_empty(),
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
        assert!(same.changed.is_empty() && !same.is_worse(), "{same}");
        assert_eq!(same.notes, ["taken for one program: server before, server-patched after"]);
        let better = diff(&of(&["server"], 2_000), &of(&["server-patched"], 100));
        let changes: Vec<_> = better.changed.iter().map(|of| of.change).collect();
        assert_eq!(changes, [Change::Shrank], "{better}");
        // Of several nobody knows which is which.
        let several = diff(&of(&["server"], 2_000), &of(&["one", "other"], 2_000));
        assert!(several.is_worse(), "{several}");
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
