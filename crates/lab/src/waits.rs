//! The wait account (schema `unherd.waits/1`) as the lab reads it.
//!
//! The lab links nothing that it measures, so it does not know the account's type: it takes any
//! JSON in which objects carry counts by name, and keeps the order in which they were printed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::Plan;
use crate::result::Point;
use crate::round::Round;
use crate::statistics::summary;

/// One count of an implementation's wait account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitCountLine {
    /// Whose.
    #[serde(rename = "impl")]
    pub label: String,
    /// The point of the sweep.
    #[serde(flatten)]
    pub point: Point,
    /// The wait site or reason.
    pub site: String,
    /// What is counted.
    pub count: String,
    /// Its middle over the rounds.
    pub median: f64,
}

/// All counts of the wait accounts of `rounds`.
pub(crate) fn medians(plan: &Plan, rounds: &[Round]) -> Vec<WaitCountLine> {
    let mut found = Vec::new();
    for cell in 0..plan.cells.len() {
        for contender in &plan.contenders {
            let mut counts: Vec<((String, String), Vec<f64>)> = Vec::new();
            let is_of = |it: &&Round| it.cell == cell && it.label == contender.label;
            for line in rounds.iter().filter(is_of).flat_map(|round| lines(&round.waits)) {
                for (count, value) in line.counts {
                    let name = (line.name.clone(), count);
                    match counts.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, values)) => values.push(value),
                        None => counts.push((name, vec![value])),
                    }
                }
            }
            found.extend(counts.into_iter().filter_map(|((site, count), values)| {
                let (label, point) = (contender.label.clone(), Point::of(plan, cell));
                let median = summary(&values)?.median;
                Some(WaitCountLine { label, point, site, count, median })
            }));
        }
    }
    found
}

/// One line of an account: a wait site or reason and its counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WaitLine {
    /// What names the line: its text fields, or the key it stands under.
    pub(crate) name: String,
    /// Its counts by name.
    pub(crate) counts: Vec<(String, f64)>,
}

/// All lines of an account: the objects in it that hold numbers, however deep.
pub(crate) fn lines(account: &Value) -> Vec<WaitLine> {
    let mut found = Vec::new();
    collect("", account, &mut found);
    found
}

fn collect(key: &str, value: &Value, found: &mut Vec<WaitLine>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(key, item, found)),
        Value::Object(fields) => {
            let counts: Vec<(String, f64)> = fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
                .collect();
            if !counts.is_empty() {
                let texts: Vec<&str> = fields.values().filter_map(Value::as_str).collect();
                let name = if texts.is_empty() { key.to_owned() } else { texts.join(" ") };
                found.push(WaitLine { name, counts });
            }
            fields.iter().for_each(|(name, value)| collect(name, value, found));
        }
        _ => {}
    }
}

/// Whether the mechanism was used: `count`, a metric or else a count of the wait account, is not 0
/// in every round. Implementations that have no such count leave the question open, and it passes.
pub(crate) fn exercised<'a>(rounds: impl IntoIterator<Item = &'a Round>, count: &str) -> bool {
    let mut counts = rounds
        .into_iter()
        .flat_map(|round| match round.metrics.get(count) {
            Some(&value) => vec![value],
            None => counts_of(&round.waits, count),
        })
        .peekable();
    counts.peek().is_none() || counts.any(|value| value != 0.0)
}

fn counts_of(account: &Value, count: &str) -> Vec<f64> {
    let counts = lines(account).into_iter().flat_map(|line| line.counts);
    counts.filter(|(name, _)| name == count).map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::round::tests::round;

    #[test]
    fn lines_are_found_in_lists_and_under_keys() {
        let list = json!({"schema": "unherd.waits/1",
            "reasons": [{"reason": "page", "waits": 3, "wakeups": 2}]});
        let keyed = json!({"page": {"waits": 3, "wakeups": 2}});
        let counts = vec![("waits".to_owned(), 3.0), ("wakeups".to_owned(), 2.0)];
        let line = WaitLine { name: "page".to_owned(), counts };
        assert_eq!(lines(&list), std::slice::from_ref(&line));
        assert_eq!(lines(&keyed), [line]);
        assert_eq!(lines(&Value::Null), []);
    }

    #[test]
    fn missing_count_passes_as_exercised() {
        let kept = |waits: Value| Round { waits, ..round(1, "unherd", 1.0) };
        let (zero, one) = (kept(json!({"a": {"wakeups": 0}})), kept(json!({"a": {"wakeups": 1}})));
        assert!(exercised([&kept(Value::Null)], "wakeups"));
        assert!(!exercised([&zero], "wakeups"));
        assert!(exercised([&zero, &one], "wakeups"));
        let mut metric = one.clone();
        metric.metrics.insert("wakeups".to_owned(), 0.0);
        assert!(!exercised([&metric], "wakeups"), "a metric of that name comes first");
    }
}
