//! Each machine's own estimates, where blocks of rounds were measured on several.

use super::compared::{columns, title};
use super::number::percent;
use crate::blocks::MachineLine;
use crate::result::BenchResult;

/// Empty where there was one machine.
pub(super) fn machines(result: &BenchResult) -> String {
    let mut text = String::new();
    let mut names: Vec<&str> = result.machines.iter().map(|line| &*line.machine).collect();
    names.dedup();
    for name in names {
        let mut rows =
            vec![[format!("on {name}"), String::new(), "pairs".to_owned(), String::new()]];
        for line in result.machines.iter().filter(|line| line.machine == name) {
            rows.push([
                format!("{}{}", title(&line.metric), line.point.suffix()),
                format!("{} against {}", line.label, line.base),
                line.pairs.to_string(),
                own(line),
            ]);
        }
        text.push_str(&format!("\n{}", columns("", &rows, &[0, 3])));
    }
    text
}

/// How much better, with the interval where there are pairs enough.
pub(crate) fn own(line: &MachineLine) -> String {
    let shown = |ratio: Option<f64>| ratio.map_or_else(|| "infinite".to_owned(), percent);
    match (line.low, line.high) {
        (None, None) => format!("{}, too few pairs for an interval", shown(line.ratio)),
        (low, high) => format!("{} ({} to {})", shown(line.ratio), shown(low), shown(high)),
    }
}
