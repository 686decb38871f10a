//! Two kept records: whether they can be compared, and how they differ.
//!
//! Their rounds did not alternate, so they are no pairs: what the machine did between the two
//! records stands in every ratio, and no statistics can take it out. The text says so.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::fingerprint::fingerprint;
use crate::plan::Judged;
use crate::printable::printable;
use crate::record::StoredRecord;
use crate::result::Point;
use crate::round::{Round, counting};
use crate::statistics::{ALPHA, Better, SAMPLE_MAX, Shift, shift};
use crate::tables::{columns, shown, times, title};

/// The schema of what two records say together.
const RECORDS_SCHEMA: &str = "unherd.records/1";

/// What two records say together.
#[derive(Debug, Serialize)]
pub struct ComparedRecords {
    schema: &'static str,
    /// Their directories.
    records: [String; 2],
    left_out: Vec<String>,
    comparisons: Vec<Line>,
    /// The same for people.
    #[serde(skip)]
    pub text: String,
}

/// Compares the rounds of two records, side by side.
///
/// # Errors
///
/// [`Error::Record`] where one cannot be read, [`Error::Usage`] with the reason where one is no
/// record or they cannot be compared.
pub fn compare_records(first: &Path, second: &Path) -> Result<ComparedRecords, Error> {
    let names = [first, second].map(|path| path.display().to_string());
    for path in [first, second] {
        if !path.is_dir() {
            let advice = "commands stand behind --: unherd compare -- A… -- B…";
            return Err(Error::no_record(path, advice));
        }
    }
    if first.canonicalize().ok() == second.canonicalize().ok() {
        let what = format!("{} and {} are the same record", names[0], names[1]);
        return Err(Error::usage(what, "name two; `unherd report` judges one again"));
    }
    let records = [StoredRecord::load(first)?, StoredRecord::load(second)?];
    let refused = |(what, advice): (String, &str)| {
        let what = format!("{} and {} cannot be compared: {what}", names[0], names[1]);
        Error::usage(what, advice)
    };
    let common = Common::of(&records).map_err(refused)?;
    let lines = common.lines(&records).map_err(refused)?;
    let text = printable(&text(&names, &common, &lines));
    let left_out = common.left_out;
    let schema = RECORDS_SCHEMA;
    Ok(ComparedRecords { schema, records: names, left_out, comparisons: lines, text })
}

/// Why not, and what to do.
type Reason = (String, &'static str);

/// What two records have in common.
#[derive(Debug)]
struct Common {
    labels: Vec<String>,
    judged: Vec<Judged>,
    /// What only one of them has.
    left_out: Vec<String>,
}

/// One metric of one side in one cell.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(rename = "impl")]
    label: String,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    judged: Judged,
    /// Of the first and of the second.
    medians: [f64; 2],
    rounds: [usize; 2],
    /// The second by the first, whichever way is better.
    second_by_first: f64,
    low: Option<f64>,
    high: Option<f64>,
    verdict: &'static str,
    #[serde(skip)]
    what: String,
}

impl Common {
    fn of(records: &[StoredRecord; 2]) -> Result<Self, Reason> {
        const AGAIN: &str = "run both sides in one comparison: unherd compare -- A… -- B…";
        let [first, second] = [&records[0].header, &records[1].header];
        let differ = |what: &str, a: &str, b: &str, advice| {
            if a == b { Ok(()) } else { Err((format!("{what}: {a}; {b}"), advice)) }
        };
        let machines = [&first.machine, &second.machine].map(fingerprint);
        differ("the machines differ", &machines[0], &machines[1], AGAIN)?;
        let (a, b) = (&first.plan, &second.plan);
        differ("the workloads differ", &a.workload, &b.workload, "name two of one workload")?;
        if a.cells != b.cells {
            let what = "their sweeps or options differ".to_owned();
            return Err((what, "run the second with the options of the first"));
        }
        let mut left_out = Vec::new();
        let mut labels = Vec::new();
        for side in &a.contenders {
            match b.contenders.iter().find(|other| other.label == side.label) {
                Some(other) if other.implementation == side.implementation => {
                    labels.push(side.label.clone());
                }
                Some(other) => left_out.push(format!(
                    "{}: it was '{}' and is '{}'",
                    side.label, side.implementation, other.implementation
                )),
                None => left_out.push(format!("{}: only the first has it", side.label)),
            }
        }
        let only = |side: &str| format!("{side}: only the second has it");
        let is_new = |label: &str| a.contenders.iter().all(|other| other.label != label);
        let labels_of_b = b.contenders.iter().map(|side| &*side.label);
        left_out.extend(labels_of_b.filter(|label| is_new(label)).map(only));
        if labels.is_empty() {
            let what = format!("no side is in both ({})", left_out.join("; "));
            return Err((what, "name records of the same commands"));
        }
        let judged: Vec<Judged> =
            a.judged.iter().filter(|judged| b.judged.contains(judged)).cloned().collect();
        if judged.is_empty() {
            let names =
                |all: &[Judged]| all.iter().map(|it| &*it.metric).collect::<Vec<_>>().join(", ");
            let what =
                format!("they judge other metrics ({}; {})", names(&a.judged), names(&b.judged));
            return Err((what, "name records that judge the same metrics"));
        }
        Ok(Self { labels, judged, left_out })
    }

    fn lines(&self, records: &[StoredRecord; 2]) -> Result<Vec<Line>, Reason> {
        let rounds = records.each_ref().map(|record| counting(&record.header.plan, &record.rounds));
        let plan = &records[0].header.plan;
        let cells = plan.cells.len();
        let alpha = ALPHA / (self.labels.len() * self.judged.len() * cells) as f64;
        let all: Vec<Point> = (0..cells).map(|cell| Point::of(plan, cell)).collect();
        let mut lines = Vec::new();
        for cell in 0..cells {
            for (label, judged) in
                self.labels.iter().flat_map(|label| self.judged.iter().map(move |it| (label, it)))
            {
                let point = Point::of(plan, cell).apart(all.iter());
                let what = format!("{label}, {}{}", title(&judged.metric), point.suffix());
                let values = rounds.each_ref().map(|all| values(all, cell, label, &judged.metric));
                if let Some(many) = values.iter().find(|values| values.len() > SAMPLE_MAX) {
                    let what = format!("one has {} rounds", many.len());
                    return Err((what, "at most 200 are compared; shorten it by --rounds"));
                }
                let logs = values
                    .each_ref()
                    .map(|all| all.iter().map(|value| value.ln()).collect::<Vec<f64>>());
                let shift = shift(&logs[0], &logs[1], alpha).ok_or_else(|| {
                    let what = format!("{what} is missing or zero in some round");
                    (what, "see what their rounds hold")
                })?;
                lines.push(Line {
                    label: label.clone(),
                    point: all[cell].clone(),
                    judged: judged.clone(),
                    medians: values.each_ref().map(|all| median(all)),
                    rounds: values.each_ref().map(Vec::len),
                    second_by_first: shift.estimate.exp(),
                    low: shift.interval.map(|interval| interval.low.exp()),
                    high: shift.interval.map(|interval| interval.high.exp()),
                    verdict: verdict(&shift, judged.better),
                    what,
                });
            }
        }
        Ok(lines)
    }
}

fn values(rounds: &[Round], cell: usize, label: &str, metric: &str) -> Vec<f64> {
    let of = rounds.iter().filter(|round| round.cell == cell && round.label == label);
    // What is missing makes the sample unusable.
    of.map(|round| round.metrics.get(metric).copied().unwrap_or(f64::NAN)).collect()
}

fn median(values: &[f64]) -> f64 {
    crate::statistics::summary(values).map_or(f64::NAN, |found| found.median)
}

fn verdict(shift: &Shift, better: Better) -> &'static str {
    let Some(interval) = shift.interval else { return "too few rounds for an interval" };
    match (interval.low > 0.0, interval.high < 0.0, better) {
        (false, false, _) | (_, _, Better::Neither) => "cannot tell",
        (true, _, Better::Lower) | (_, true, Better::Higher) => "worse",
        _ => "better",
    }
}

impl Line {
    /// What came of it: the ratio of the second to the first.
    fn found(&self) -> String {
        let ratio = times(self.second_by_first);
        match (self.low, self.high) {
            (Some(low), Some(high)) => {
                let word = self.verdict.replace("better", "BETTER").replace("worse", "WORSE");
                format!("{ratio} × ({} to {})  {word}", times(low), times(high))
            }
            _ => format!("{ratio} ×; {}", self.verdict),
        }
    }
}

fn text(names: &[String; 2], common: &Common, lines: &[Line]) -> String {
    let [first, second] = names;
    let mut text = format!(
        "{first} and {second} can be compared, but not in pairs: their rounds did not alternate.\n\
         What the machine did between them is in every ratio, and cannot be told from a change of \
         the\ncommands. To know, run both in one comparison: unherd compare -- A… -- B…\n\n"
    );
    let mut rows = vec![["", "first", "second", "second / first"].map(str::to_owned)];
    for line in lines {
        let [a, b] = line.medians.map(|value| shown(&line.judged.metric, value));
        rows.push([line.what.clone(), a, b, line.found()]);
    }
    text.push_str(&columns("", &rows, &[0, 3]));
    let rounds = lines.first().map_or([0, 0], |line| line.rounds);
    let _ = writeln!(
        text,
        "\n{} and {} rounds; medians; 95 % sure that all intervals hold, if nothing else changed \
         (rank sums)",
        rounds[0], rounds[1]
    );
    if !common.left_out.is_empty() {
        text.push_str("\nNot compared:\n");
        for what in &common.left_out {
            let _ = writeln!(text, "  * {what}");
        }
    }
    text
}
