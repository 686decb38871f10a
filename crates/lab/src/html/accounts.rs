//! What each implementation waited for, and where its time went, as tables.

use std::fmt::Write as _;

use unherd_host::{Profile, Side};

use super::escaped;
use crate::plan::Plan;
use crate::result::{BenchResult, Point, Profiled};
use crate::tables::{number, sites};

/// The page has this many functions of each profile.
const TOP: usize = 10;

/// The wait accounts, a table for each point of the sweep.
pub(super) fn waits(plan: &Plan, result: &BenchResult) -> String {
    let mut text = String::new();
    for cell in 0..plan.cells.len() {
        let point = Point::of(plan, cell);
        let sites = sites(plan, result, &point);
        if sites.is_empty() {
            continue;
        }
        let labels: Vec<&str> = plan.contenders.iter().map(|it| &*it.label).collect();
        opened(&mut text, &format!("Waits{}, medians", point.suffix()), "count", &labels);
        for (site, counts) in sites {
            for (count, values) in counts {
                let values = values.into_iter().map(|it| it.map_or_else(|| "-".to_owned(), number));
                row(&mut text, &format!("{site}: {count}"), values);
            }
        }
        text.push_str(CLOSED);
    }
    text
}

/// The functions that used most CPU time, of each implementation that was sampled.
pub(super) fn profiles(result: &BenchResult) -> String {
    let mut text = String::new();
    for line in &result.profiles {
        let Profiled::Taken { cpu, .. } = &line.sampled else { continue };
        let title = format!("Where CPU time went: {}{}", line.label, line.point.suffix());
        opened(&mut text, &title, "function", &["samples", "share"]);
        for side in [Side::Kernel, Side::User] {
            profile(&mut text, cpu, side);
        }
        text.push_str(CLOSED);
    }
    text
}

fn profile(text: &mut String, profile: &Profile, side: Side) {
    let all = (profile.user_ticks + profile.kernel_ticks).max(1);
    for it in profile.rows.iter().filter(|row| row.side == side).take(TOP) {
        let place = if side == Side::Kernel { " (kernel)" } else { "" };
        let share = format!("{:.1} %", 100.0 * it.count as f64 / all as f64);
        row(text, &format!("{}{place}", it.name), [it.count.to_string(), share].into_iter());
    }
}

const CLOSED: &str = "</table>\n</div>\n</section>\n";

fn opened(text: &mut String, title: &str, first: &str, columns: &[&str]) {
    let columns = columns.iter().map(|it| format!("<th scope=\"col\">{}</th>", escaped(it)));
    let _ = writeln!(
        text,
        "<section>\n<h2>{}</h2>\n<div class=\"scroll\">\n<table>\n<tr><th \
         scope=\"col\">{first}</th>{}</tr>",
        escaped(title),
        columns.collect::<String>()
    );
}

fn row(text: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let cells: String = cells.map(|cell| format!("<td>{}</td>", escaped(&cell))).collect();
    let _ = writeln!(text, "<tr><td>{}</td>{cells}</tr>", escaped(name));
}
