//! What each implementation waited for, and where its time went, as tables.

use std::iter;

use unherd_host::{Profile, Side};

use super::{escaped, section, table};
use crate::plan::Plan;
use crate::result::{BenchResult, Point, Profiled};
use crate::tables::{number, sites};

/// The page has this many functions of each profile.
const TOP: usize = 10;

/// The wait accounts, a table for each point of the sweep.
pub(super) fn waits(plan: &Plan, result: &BenchResult) -> String {
    let labels = plan.contenders.iter().map(|it| &*it.label);
    let heads: Vec<&str> = iter::once("count").chain(labels).collect();
    let mut text = String::new();
    for cell in 0..plan.cells.len() {
        let point = Point::of(plan, cell);
        let mut rows = Vec::new();
        for (site, counts) in sites(plan, result, &point) {
            for (count, values) in counts {
                let values = values.into_iter().map(|it| it.map_or_else(|| "-".to_owned(), number));
                let cells = iter::once(format!("{site}: {count}")).chain(values);
                rows.push(cells.map(|cell| escaped(&cell)).collect());
            }
        }
        let title = format!("Waits{}, medians", point.suffix());
        text.push_str(&section(&title, &table(&heads, &[], rows)));
    }
    text
}

/// The functions that used most CPU time, of each implementation that was sampled.
pub(super) fn profiles(result: &BenchResult) -> String {
    let mut text = String::new();
    for line in &result.profiles {
        let Profiled::Taken { cpu, .. } = &line.sampled else { continue };
        let title = format!("Where CPU time went: {}{}", line.label, line.point.suffix());
        let rows = [Side::Kernel, Side::User].map(|side| functions(cpu, side)).concat();
        text.push_str(&section(&title, &table(&["function", "samples", "share"], &[], rows)));
    }
    text
}

fn functions(profile: &Profile, side: Side) -> Vec<Vec<String>> {
    let all = (profile.user_ticks + profile.kernel_ticks).max(1);
    let place = if side == Side::Kernel { " (kernel)" } else { "" };
    let rows = profile.rows.iter().filter(|row| row.side == side).take(TOP);
    rows.map(|it| {
        let share = format!("{:.1} %", 100.0 * it.count as f64 / all as f64);
        vec![escaped(&format!("{}{place}", it.name)), it.count.to_string(), share]
    })
    .collect()
}
