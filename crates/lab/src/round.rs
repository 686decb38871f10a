//! One finished round: what the runner printed, checked, with what the kernel counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::plan::{Cell, Contender, Judged, Plan, Step};
use crate::surroundings::Surroundings;

/// What a runner prints on its last line.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Printed {
    workload: String,
    #[serde(rename = "impl")]
    implementation: String,
    threads: usize,
    params: Map<String, Value>,
    seed: u64,
    check: String,
    metrics: BTreeMap<String, f64>,
    #[serde(default)]
    waits: Value,
}

/// One round of one contender in one cell: a line of the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Which round, from 1.
    pub round: usize,
    /// Index of the cell in the plan.
    pub cell: usize,
    /// The contender's label.
    #[serde(rename = "impl")]
    pub label: String,
    /// Threads.
    pub threads: usize,
    /// CPUs that the process could use; all if `None`.
    pub cpus: Option<usize>,
    /// All of the workload's options, as the runner had them.
    pub params: Map<String, Value>,
    /// The seed of its work.
    pub seed: u64,
    /// What all implementations must agree on.
    pub check: String,
    /// What was measured.
    pub metrics: BTreeMap<String, f64>,
    /// The wait account (schema `unherd.waits/1`), as the runner printed it.
    pub waits: Value,
    /// From 1; above it where the group was run again because others used the machine.
    #[serde(default = "first")]
    pub attempt: usize,
    /// What else went on.
    #[serde(default)]
    pub surroundings: Surroundings,
}

/// The attempt of records that were written before any was repeated.
const fn first() -> usize {
    1
}

impl Printed {
    /// Reads the last line that is not empty.
    pub(crate) fn parse(stdout: &str) -> Result<Self, String> {
        let last = stdout.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.ok_or("it printed nothing")?;
        serde_json::from_str(last)
            .map_err(|error| format!("its last line is no result ({error}): {}", shortened(last)))
    }

    /// Checks that it is the round that was asked for, and that what is judged was measured.
    pub(crate) fn check(
        &self,
        plan: &Plan,
        cell: &Cell,
        contender: &Contender,
        step: Step,
    ) -> Result<(), String> {
        let differs = |what: &str, found: &dyn std::fmt::Display, asked: &dyn std::fmt::Display| {
            Err(format!("it ran {what} {found} instead of {asked}"))
        };
        if self.workload != plan.workload {
            return differs("workload", &self.workload, &plan.workload);
        }
        if self.implementation != contender.implementation {
            return differs("implementation", &self.implementation, &contender.implementation);
        }
        if self.threads != cell.threads {
            return differs("threads", &self.threads, &cell.threads);
        }
        if self.seed != step.seed {
            return differs("seed", &self.seed, &step.seed);
        }
        for Judged { metric, .. } in &plan.judged {
            match self.metrics.get(metric) {
                None if !metric.starts_with("process_") => {
                    return Err(format!("it did not measure {metric}"));
                }
                Some(value) if *value < 0.0 => {
                    return Err(format!(
                        "its {metric} is {value}; what is judged is never negative"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The record of it.
    pub(crate) fn into_round(
        mut self,
        (round, attempt): (usize, usize),
        step: Step,
        cell: &Cell,
        label: &str,
        counted: impl IntoIterator<Item = (&'static str, f64)>,
    ) -> Round {
        self.metrics.extend(counted.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Round {
            round,
            cell: step.cell,
            label: label.to_owned(),
            threads: cell.threads,
            cpus: cell.cpus,
            params: self.params,
            seed: step.seed,
            check: self.check,
            metrics: self.metrics,
            waits: self.waits,
            attempt,
            surroundings: Surroundings::default(),
        }
    }
}

fn shortened(line: &str) -> String {
    const SHOWN: usize = 120;
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// The rounds that count: of the attempts at each cell of each round that are whole, the one with
/// the quietest surroundings, or else the last.
pub(crate) fn counting(plan: &Plan, rounds: &[Round]) -> Vec<Round> {
    let mut attempts: BTreeMap<(usize, usize), BTreeMap<usize, Vec<&Round>>> = BTreeMap::new();
    for round in rounds {
        let of_cell = attempts.entry((round.round, round.cell)).or_default();
        of_cell.entry(round.attempt).or_default().push(round);
    }
    let noise = |group: &[&Round]| {
        let shares = group.iter().filter_map(|round| round.surroundings.foreign_cpu_share);
        shares.fold(0.0, f64::max)
    };
    let chosen = |round: &&Round| {
        let of_cell = &attempts[&(round.round, round.cell)];
        let whole = of_cell.iter().filter(|(_, group)| group.len() == plan.contenders.len());
        let quietest = whole.min_by(|a, b| noise(a.1).total_cmp(&noise(b.1)));
        quietest.or_else(|| of_cell.last_key_value()).is_some_and(|(n, _)| *n == round.attempt)
    };
    let mut counting: Vec<Round> = rounds.iter().filter(chosen).cloned().collect();
    // What was run again stands where it would have stood.
    counting.sort_by_key(|round| {
        let is_there = |other: &Round| (other.round, other.cell) == (round.round, round.cell);
        (round.round, rounds.iter().position(is_there))
    });
    counting
}

/// Whether all contenders of each cell did the same work in one round; else who did not.
///
/// # Errors
///
/// The labels and their checks, grouped.
pub(crate) fn agree(rounds: &[Round]) -> Result<(), String> {
    let mut cells: BTreeMap<(usize, usize), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for round in rounds {
        let checks = cells.entry((round.round, round.cell)).or_default();
        checks.entry(&round.check).or_default().push(&round.label);
    }
    let Some(checks) = cells.values().find(|checks| checks.len() > 1) else { return Ok(()) };
    let groups: Vec<String> = checks
        .iter()
        .map(|(check, labels)| format!("{} has check {check}", labels.join(" and ")))
        .collect();
    Err(format!("the implementations disagree: {}", groups.join(", ")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;

    /// A round of the test catalogue's workload.
    pub(crate) fn round(number: usize, label: &str, cost_us: f64) -> Round {
        Round {
            round: number,
            cell: 0,
            label: label.to_owned(),
            threads: 4,
            cpus: None,
            params: Map::new(),
            seed: 1,
            check: "abc".to_owned(),
            metrics: BTreeMap::from([
                ("cost_us".to_owned(), cost_us),
                ("work_per_s".to_owned(), 1e6 / cost_us),
            ]),
            waits: Value::Null,
            attempt: 1,
            surroundings: Surroundings::default(),
        }
    }

    fn plan() -> Plan {
        let request = Request { seed: 3, delta: 0.02, ..Request::default() };
        Plan::new(&request, registry().workload("wait").unwrap()).unwrap()
    }

    fn line(seed: u64) -> String {
        format!(
            r#"{{"workload":"wait","impl":"before","threads":4,"params":{{"buckets":"16"}},
            "seed":{seed},"check":"ff","metrics":{{"cost_us":2.5}},"waits":null}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn the_last_line_is_the_result() {
        let plan = plan();
        let step = plan.round(1)[0];
        let step = Step { contender: 0, ..step };
        let printed = Printed::parse(&format!("hello\n{}\n\n", line(step.seed))).unwrap();
        printed.check(&plan, &plan.cells[0], &plan.contenders[0], step).unwrap();
        let round =
            printed.into_round((1, 1), step, &plan.cells[0], "before", [("process_user_s", 0.5)]);
        assert_eq!((round.metrics["cost_us"], round.metrics["process_user_s"]), (2.5, 0.5));
    }

    #[test]
    fn malformed_results_are_refused() {
        assert_eq!(Printed::parse("\n").unwrap_err(), "it printed nothing");
        assert!(Printed::parse("42 is the answer").unwrap_err().contains("no result"));
        assert!(Printed::parse(&line(1).replace("2.5", "null")).is_err());
        let plan = plan();
        let step = Step { contender: 0, ..plan.round(1)[0] };
        let check = |from: &str, to: &str| {
            let printed = Printed::parse(&line(step.seed).replace(from, to)).unwrap();
            printed.check(&plan, &plan.cells[0], &plan.contenders[0], step).unwrap_err()
        };
        assert!(check("cost_us", "cost_ms").contains("did not measure cost_us"));
        let said = check("2.5", "-2.5");
        assert_eq!(said, "its cost_us is -2.5; what is judged is never negative");
        assert!(check("before", "after").contains("implementation after instead of before"));
        assert!(check("\"threads\":4", "\"threads\":5").contains("threads 5 instead of 4"));
        assert!(check(&step.seed.to_string(), "1").contains("seed 1 instead of"));
        assert!(check("\"wait\"", "\"other\"").contains("workload other"));
    }

    #[test]
    fn the_quietest_whole_attempt_counts() {
        let of = |label: &str, attempt, foreign| Round {
            attempt,
            surroundings: Surroundings {
                foreign_cpu_share: Some(foreign),
                ..Surroundings::default()
            },
            ..round(1, label, attempt as f64)
        };
        let attempts = |rounds: &[Round]| -> Vec<usize> {
            counting(&plan(), rounds).iter().map(|round| round.attempt).collect()
        };
        let mut rounds = vec![of("before", 1, 0.3), of("unherd", 1, 0.0)];
        assert_eq!(attempts(&rounds), [1, 1]);
        rounds.extend([of("before", 2, 0.1), of("unherd", 2, 0.2)]);
        assert_eq!(attempts(&rounds), [2, 2], "the noisier of a group decides");
        rounds.push(of("before", 3, 0.0));
        assert_eq!(attempts(&rounds), [2, 2], "an attempt that was cut short is none");
        assert_eq!(attempts(&rounds[4..]), [3], "unless there is no other");
        let late = [vec![round(2, "before", 1.0), round(2, "unherd", 1.0)], rounds].concat();
        let numbers: Vec<_> = counting(&plan(), &late).iter().map(|round| round.round).collect();
        assert_eq!(numbers, [1, 1, 2, 2], "in the order of the rounds");
    }

    #[test]
    fn who_disagrees_is_named() {
        let mut rounds =
            vec![round(1, "before", 1.0), round(1, "unherd", 1.0), round(2, "unherd", 1.0)];
        assert!(agree(&rounds).is_ok());
        rounds[2].check = "other seed".to_owned();
        assert!(agree(&rounds).is_ok(), "another round has another seed");
        rounds[1].check = "def".to_owned();
        let error = agree(&rounds).unwrap_err();
        assert!(error.contains("before has check abc, unherd has check def"), "{error}");
    }
}
