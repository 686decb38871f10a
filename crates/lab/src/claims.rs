//! Claims that can be run: what we publish, the command that shows it, and the target.
//!
//! ```toml
//! [[claim]]
//! name = "filtered-wakeups-one-bucket"
//! says = "512 waiters in one bucket: CPU per event against the report's before"
//! command = "unherd bench pagewait --with before,unherd --threads 512 --buckets 1"
//! target = "low >= 100"
//!
//! [claim.select]              # which comparison; what is left out may be anything
//! metric = "cpu_us_per_event"
//! impl = "unherd"
//!
//! [claim.last]
//! ratio = 271.0
//! low = 262.1
//! high = 280.4
//! commit = "2380c5e"
//! date = "2026-11-21"
//! machine = "Fast 9, 2 CPUs, 7.8 GiB, Linux 6.18.44"   # a regression exists on the same one only
//! seconds = 31.0                                       # how long the command took
//! ```
//!
//! "Not slower" is a claim about a margin, such as `low >= 0.95`: a verdict that is not `slower`
//! may be noise that hides everything, so `verdict != slower` is no target.
//!
//! Pure: running the command is the caller's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use toml_edit::{ArrayOfTables, DocumentMut, Item};

use crate::error::in_toml;
use crate::fingerprint::fingerprint;
use crate::result::{BenchResult, ComparisonLine};
use crate::statistics::Verdict;
use crate::tables::number;

/// A file of claims.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The claims, in the file's order.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// One published figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A word to call it by.
    pub name: String,
    /// What it says, for the table of results.
    pub says: String,
    /// The command that shows it, beginning with `unherd bench`.
    pub command: String,
    /// What must hold of the comparison, such as `low >= 100` or `verdict = same`.
    pub target: Target,
    /// Which comparison of the result.
    #[serde(default)]
    pub select: Selector,
    /// What the last run found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<RecordedFigure>,
}

/// Which comparison of a result is meant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// About this metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Of this implementation.
    #[serde(default, rename = "impl", skip_serializing_if = "Option::is_none")]
    pub implementation: Option<String>,
    /// At this thread count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// At this CPU count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    /// With these options.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFigure {
    /// The estimate; infinite if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The interval's lower end; infinite if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The interval's upper end; infinite if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// At which commit.
    pub commit: String,
    /// When.
    pub date: String,
    /// On which machine, by its fingerprint; earlier runs did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// How long the command took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// What must hold of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A bound on one of its numbers.
    Bound {
        /// Which number.
        of: Figure,
        /// Whether it must be at least `value`, else at most.
        at_least: bool,
        /// The bound.
        value: f64,
    },
    /// Its verdict is this one.
    Verdict(Verdict),
}

/// A number of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// The estimate.
    Ratio,
    /// The interval's lower end.
    Low,
    /// The interval's upper end.
    High,
}

impl Figure {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Ratio, "ratio"), (Self::Low, "low"), (Self::High, "high")];
}

const VERDICTS: [Verdict; 5] =
    [Verdict::Faster, Verdict::Slower, Verdict::Same, Verdict::CannotTell, Verdict::NotExercised];

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no target; write 'low >= 100', 'high <= 1.02', 'verdict = same'; \
                 what is not slower has 'low >= 0.95', for noise is not slower either"
            )
        };
        let (subject, rest) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let (sign, object) = rest.trim().split_once(' ').ok_or_else(wrong)?;
        let object = object.trim();
        if subject == "verdict" {
            let verdict = VERDICTS.into_iter().find(|v| v.word() == object);
            return match (sign, verdict) {
                ("=" | "==", Some(verdict)) => Ok(Self::Verdict(verdict)),
                _ => Err(wrong()),
            };
        }
        let at_least = match sign {
            ">=" => true,
            "<=" => false,
            _ => return Err(wrong()),
        };
        let of = Figure::ALL.into_iter().find(|(_, word)| *word == subject).ok_or_else(wrong)?.0;
        Ok(Self::Bound { of, at_least, value: object.parse().map_err(|_| wrong())? })
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        match target {
            Target::Bound { of, at_least, value } => {
                let word = Figure::ALL.iter().find(|(figure, _)| *figure == of);
                let sign = if at_least { ">=" } else { "<=" };
                format!("{} {sign} {value}", word.map_or("ratio", |(_, word)| word))
            }
            Target::Verdict(verdict) => format!("verdict = {}", verdict.word()),
        }
    }
}

impl Target {
    /// Whether `line` meets it. Verdicts that rest on nothing meet no bound.
    pub fn is_met(&self, line: &ComparisonLine) -> bool {
        match self {
            Self::Bound { .. } if line.verdict == Verdict::NotExercised || !line.has_interval() => {
                false
            }
            Self::Bound { of, at_least, value } => {
                let figure = match of {
                    Figure::Ratio => line.ratio,
                    Figure::Low => line.low,
                    Figure::High => line.high,
                };
                let figure = figure.unwrap_or(f64::INFINITY);
                if *at_least { figure >= *value } else { figure <= *value }
            }
            Self::Verdict(verdict) => line.verdict == *verdict,
        }
    }
}

/// How a claim fared.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Whether every comparison that was meant meets the target.
    pub is_met: bool,
    /// Whether it is surely worse than what the last run found on this machine: the intervals do
    /// not meet. `None` where the last run was on another machine, or on an unknown one.
    pub is_regression: Option<bool>,
    /// The machine of this run.
    pub machine: String,
    /// The comparison that is furthest from the target, or is it by least.
    pub found: ComparisonLine,
}

impl Claims {
    /// Reads a file of claims.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let claims: Self = toml::from_str(text).map_err(|error| in_toml(&error, text))?;
        for (index, claim) in claims.claims.iter().enumerate() {
            if claims.claims[..index].iter().any(|earlier| earlier.name == claim.name) {
                return Err(format!("two claims are called '{}'", claim.name));
            }
            claim.arguments()?;
        }
        Ok(claims)
    }

    /// The indexes of claims that one run answers, in the order of the file: those with the same
    /// command. Only of claims that are called one of `names`, or of all if there are none.
    pub fn batches(&self, names: &[String]) -> Vec<Vec<usize>> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        for (index, claim) in self.claims.iter().enumerate() {
            if !names.is_empty() && !names.contains(&claim.name) {
                continue;
            }
            let same = |batch: &&mut Vec<usize>| self.claims[batch[0]].command == claim.command;
            match batches.iter_mut().find(same) {
                Some(batch) => batch.push(index),
                None => batches.push(vec![index]),
            }
        }
        batches
    }

    /// The table of results: the names, what is claimed, the last figures with their intervals, and
    /// the commands.
    pub fn markdown_table(&self) -> String {
        let mut text =
            "| name | claim | target | last | at | command |\n|---|---|---|---|---|---|\n"
                .to_owned();
        let figure = |value: Option<f64>| number(value.unwrap_or(f64::INFINITY));
        for claim in &self.claims {
            let target: String = claim.target.clone().into();
            let (last, at) = match &claim.last {
                None => ("not yet run".to_owned(), String::new()),
                Some(found) => (
                    format!(
                        "{} ({} to {})",
                        figure(found.ratio),
                        figure(found.low),
                        figure(found.high)
                    ),
                    format!("{}, {}", found.commit, found.date),
                ),
            };
            let says = claim.says.replace('|', "\\|");
            let Claim { name, command, .. } = claim;
            let _ =
                writeln!(text, "| `{name}` | {says} | {target} | {last} | {at} | `{command}` |");
        }
        text
    }
}

/// `text`, a file of claims, with `found` as the last figure of the claim called `name`. All else
/// stays as it is, comments too.
///
/// # Errors
///
/// Where `text` is no file of claims, or has no such claim.
pub fn updated(text: &str, name: &str, found: &RecordedFigure) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e| format!("{e}"))?;
    let claims = document.get_mut("claim").and_then(Item::as_array_of_tables_mut);
    let claim = claims
        .into_iter()
        .flat_map(ArrayOfTables::iter_mut)
        .find(|claim| claim.get("name").and_then(Item::as_str) == Some(name))
        .ok_or_else(|| format!("no claim is called '{name}'"))?;
    let last = claim.entry("last").or_insert_with(toml_edit::table);
    let last = last.as_table_mut().ok_or_else(|| format!("'last' of '{name}' is no table"))?;
    let RecordedFigure { ratio, low, high, commit, date, machine, seconds } = found;
    let numbers = [("ratio", ratio), ("low", low), ("high", high)];
    let seconds = seconds.map(|seconds| (10.0 * seconds).round() / 10.0);
    let numbers = numbers.into_iter().map(|(key, number)| (key, number.map(toml_edit::value)));
    let texts = [("commit", Some(commit)), ("date", Some(date)), ("machine", machine.as_ref())];
    let texts = texts.into_iter().map(|(key, text)| (key, text.map(toml_edit::value)));
    for (key, value) in numbers.chain(texts).chain([("seconds", seconds.map(toml_edit::value))]) {
        match value {
            Some(value) => last.insert(key, value),
            None => last.remove(key),
        };
    }
    Ok(document.to_string())
}

impl Claim {
    /// The same with the fewest rounds that can decide, whatever the command says of rounds.
    ///
    /// # Errors
    ///
    /// Those of [`Claim::arguments`].
    pub fn quick_arguments(&self) -> Result<Vec<String>, String> {
        let mut arguments = self.arguments()?;
        if let Some(at) = arguments.iter().position(|argument| argument == "--rounds") {
            arguments.drain(at..(at + 2).min(arguments.len()));
        }
        arguments.push("--quick".to_owned());
        Ok(arguments)
    }

    /// The command's arguments, after `unherd`.
    ///
    /// # Errors
    ///
    /// Where it is not a bench of ours, or needs a shell.
    pub fn arguments(&self) -> Result<Vec<String>, String> {
        let mut words = self.command.split_whitespace().map(str::to_owned);
        let name = &self.name;
        if words.next().as_deref() != Some("unherd") || words.next().as_deref() != Some("bench") {
            return Err(format!("claim '{name}': its command does not begin with 'unherd bench'"));
        }
        if self.command.contains(['\'', '"', '$', '`', '|', '>', '<', ';', '&', '\\']) {
            return Err(format!("claim '{name}': its command is run without a shell"));
        }
        Ok(std::iter::once("bench".to_owned()).chain(words).collect())
    }

    /// Judges a fresh result.
    ///
    /// # Errors
    ///
    /// Where the result has no such comparison.
    pub fn judge(&self, result: &BenchResult) -> Result<Outcome, String> {
        let meant: Vec<&ComparisonLine> =
            result.comparisons.iter().filter(|line| self.select.matches(line)).collect();
        let low = |line: &ComparisonLine| line.low.unwrap_or(f64::INFINITY);
        let unmet = meant.iter().filter(|line| !self.target.is_met(line));
        let found = unmet
            .min_by(|a, b| low(a).total_cmp(&low(b)))
            .or_else(|| meant.iter().min_by(|a, b| low(a).total_cmp(&low(b))))
            .ok_or_else(|| format!("claim '{}': the result has no such comparison", self.name))?;
        let high = found.high.unwrap_or(f64::INFINITY);
        let machine = fingerprint(&result.machine);
        let last = self.last.as_ref().filter(|last| last.machine.as_ref() == Some(&machine));
        Ok(Outcome {
            is_met: meant.iter().all(|line| self.target.is_met(line)),
            is_regression: last.map(|last| high < last.low.unwrap_or(f64::INFINITY)),
            machine,
            found: (*found).clone(),
        })
    }
}

impl Selector {
    fn matches(&self, line: &ComparisonLine) -> bool {
        self.metric.as_ref().is_none_or(|metric| *metric == line.metric)
            && self.implementation.as_ref().is_none_or(|label| *label == line.label)
            && self.threads.is_none_or(|threads| threads == line.point.threads)
            && self.cpus.is_none_or(|cpus| Some(cpus) == line.point.cpus)
            && self.params.iter().all(|(name, value)| line.point.params.get(name) == Some(value))
    }
}

#[cfg(test)]
pub(crate) mod tests;
