//! The waits of each implementation: medians over the rounds.

use std::fmt::Write as _;

use super::number;
use crate::plan::Plan;
use crate::round::Round;
use crate::statistics::summary;
use crate::waits::lines;

/// Entries by name, in the order of their first sight.
type Named<V> = Vec<(String, V)>;

/// The values of one count over the rounds, a column for each contender.
type Columns = Vec<Vec<f64>>;

/// One block a wait site, a row a count, a column an implementation that keeps an account.
pub(super) fn waits(plan: &Plan, cell: usize, rounds: &[Round]) -> String {
    let mut sites: Named<Named<Columns>> = Vec::new();
    for round in rounds.iter().filter(|round| round.cell == cell) {
        let Some(column) = plan.contenders.iter().position(|c| c.label == round.label) else {
            continue;
        };
        for line in lines(&round.waits) {
            let counts = entry(&mut sites, &line.name);
            for (name, value) in line.counts {
                let columns = entry(counts, &name);
                columns.resize(plan.contenders.len(), Vec::new());
                columns[column].push(value);
            }
        }
    }
    let width = plan.contenders.iter().map(|c| c.label.len()).max().unwrap_or(0).max(10) + 2;
    let mut text = String::new();
    for (site, counts) in &sites {
        if counts.iter().all(|(_, columns)| columns.iter().flatten().all(|&v| v == 0.0)) {
            continue;
        }
        let _ = write!(text, "\n  {:<34}", format!("waits: {site}"));
        for contender in &plan.contenders {
            let _ = write!(text, "{:>width$}", contender.label);
        }
        for (name, columns) in counts {
            let _ = write!(text, "\n    {name:<32}");
            for values in columns {
                let median = summary(values).map_or_else(|| "-".to_owned(), |s| number(s.median));
                let _ = write!(text, "{median:>width$}");
            }
        }
        text.push('\n');
    }
    text
}

/// The entry called `name`, made if need be.
fn entry<'a, V: Default>(entries: &'a mut Named<V>, name: &str) -> &'a mut V {
    let index = entries.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        entries.push((name.to_owned(), V::default()));
        entries.len() - 1
    });
    &mut entries[index].1
}
