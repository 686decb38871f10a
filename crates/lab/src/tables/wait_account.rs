//! The waits of each implementation: medians over the rounds.

use std::fmt::Write as _;

use super::number;
use crate::plan::Plan;
use crate::result::{BenchResult, Point};
use crate::waits::WaitCountLine;

/// One wait site: its name, and for each count that with a value for each implementation that
/// keeps an account.
pub(crate) type Site<'a> = (&'a str, Vec<(&'a str, Vec<Option<f64>>)>);

/// The wait sites at one point of the sweep at which anything was counted.
pub(crate) fn sites<'a>(plan: &Plan, result: &'a BenchResult, point: &Point) -> Vec<Site<'a>> {
    let here: Vec<&WaitCountLine> =
        result.waits.iter().filter(|line| line.point == *point).collect();
    let mut sites: Vec<Site<'a>> = Vec::new();
    for line in &here {
        let at = sites.iter().position(|(name, _)| *name == line.site).unwrap_or_else(|| {
            sites.push((&line.site, Vec::new()));
            sites.len() - 1
        });
        if sites[at].1.iter().any(|(name, _)| *name == line.count) {
            continue;
        }
        let value = |label: &str| {
            let is_it = |it: &&&WaitCountLine| {
                (&*it.label, &it.site, &it.count) == (label, &line.site, &line.count)
            };
            here.iter().find(is_it).map(|it| it.median)
        };
        let values = plan.contenders.iter().map(|it| value(&it.label)).collect();
        sites[at].1.push((&line.count, values));
    }
    let is_zero = |(_, counts): &Site<'_>| {
        counts.iter().flat_map(|(_, values)| values).flatten().all(|value| *value == 0.0)
    };
    sites.retain(|site| !is_zero(site));
    sites
}

/// One block a wait site, a row a count, a column an implementation that keeps an account.
pub(super) fn waits(plan: &Plan, result: &BenchResult, point: &Point) -> String {
    let width = plan.contenders.iter().map(|c| c.label.len()).max().unwrap_or(0).max(10) + 2;
    let mut text = String::new();
    for (site, counts) in sites(plan, result, point) {
        let _ = write!(text, "\n  {:<34}", format!("waits: {site}"));
        for contender in &plan.contenders {
            let _ = write!(text, "{:>width$}", contender.label);
        }
        for (name, values) in counts {
            let _ = write!(text, "\n    {name:<32}");
            for value in values {
                let _ = write!(text, "{:>width$}", value.map_or_else(|| "-".to_owned(), number));
            }
        }
        text.push('\n');
    }
    text
}
