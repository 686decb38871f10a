//! Sweeps as lines: one drawing for each judged metric, a line for each side, and the law where a
//! load was swept. Each drawing has a text, and its figures stand in a table beside it.

use std::fmt::Write as _;

use super::drawings::opened;
use super::scale::{MARGIN, Scale, WIDTH};
use super::{escaped, list, section, table};
use crate::plan::Plan;
use crate::result::{BenchResult, Point, SummaryLine};
use crate::scaling::{Load, ScalingLine};
use crate::statistics::Usl;
use crate::tables::{estimate, load_rows, rate, shown, title, worst};

/// What marks the sides, beside their colours; further ones begin again.
const MARKERS: [char; 6] = ['●', '▲', '■', '◆', '▼', '✚'];

const HEIGHT: f64 = 300.0;

/// Empty where nothing was swept.
pub(super) fn sweeps(plan: &Plan, result: &BenchResult) -> String {
    if plan.cells.len() < 2 {
        return String::new();
    }
    let load = Load::of(plan);
    let mut rests: Vec<Point> = Vec::new();
    for cell in 0..plan.cells.len() {
        let rest = load.as_ref().map(|load| load.rest(&Point::of(plan, cell)));
        rests.extend(rest.filter(|rest| !rests.contains(rest)));
    }
    let mut text = String::new();
    for judged in &plan.judged {
        match &load {
            Some(load) => {
                for rest in &rests {
                    text.push_str(&figure(plan, result, &judged.metric, Some((load, rest))));
                }
            }
            None => text.push_str(&figure(plan, result, &judged.metric, None)),
        }
    }
    for line in &result.scaling {
        text.push_str(&scaling(line, &line.apart(result)));
    }
    section("The sweep", &text)
}

/// One metric of all sides, over the load and at what is swept besides, or over all points.
fn figure(
    plan: &Plan,
    result: &BenchResult,
    metric: &str,
    along: Option<(&Load, &Point)>,
) -> String {
    let all: Vec<Point> = (0..plan.cells.len()).map(|cell| Point::of(plan, cell)).collect();
    let at = along.map_or_else(String::new, |(load, rest)| {
        let rests: Vec<Point> = all.iter().map(|point| load.rest(point)).collect();
        rest.apart(rests.iter()).suffix()
    });
    let points: Vec<(f64, String, Point)> = (0..plan.cells.len())
        .filter_map(|cell| {
            let point = Point::of(plan, cell);
            let Some((load, rest)) = along else {
                return Some((cell as f64, point.apart(all.iter()).to_string(), point));
            };
            let count = load.at(&point).filter(|_| load.rest(&point) == *rest)?;
            // A load is swept in multiples.
            Some(((count as f64).log2(), count.to_string(), point))
        })
        .collect();
    let by = along.map_or("point", |(load, _)| load.name());
    let heading = format!("{} by {by}{at}", title(metric));
    let mut text = format!("<h3>{}</h3>\n<figure>\n<p class=\"legend\">", escaped(&heading));
    for (index, contender) in plan.contenders.iter().enumerate() {
        let (marker, label) = (MARKERS[index % MARKERS.len()], escaped(&contender.label));
        let _ = write!(text, "<span class=\"side{}\">{marker} {label}</span> ", index % 6);
    }
    text.push_str("</p>\n");
    text.push_str(&drawing(plan, result, metric, &heading, &points));
    text.push_str(
        "<figcaption>Medians, with the smallest and the largest round; a ring marks a knee, \
         beyond which throughput falls by 5 % or more.</figcaption>\n</figure>\n",
    );
    text
}

fn drawing(
    plan: &Plan,
    result: &BenchResult,
    metric: &str,
    heading: &str,
    points: &[(f64, String, Point)],
) -> String {
    let found = |label: &str, point: &Point| result.summary_of(point, label, metric);
    let labels = || plan.contenders.iter().map(|contender| &*contender.label);
    let all = labels().flat_map(|label| points.iter().filter_map(move |it| found(label, &it.2)));
    let all: Vec<&SummaryLine> = all.collect();
    let x = Scale::over(points.iter().map(|point| point.0), MARGIN, WIDTH - MARGIN);
    let values = all.iter().flat_map(|line| [line.min, line.max]).chain([0.0]);
    let y = Scale::over(values, HEIGHT - 40.0, 20.0);
    let mut text = opened(HEIGHT, &format!("{heading}; the figures stand in the tables below"));
    for line in [0.0, y.ends()[1]] {
        let at = y.at(line);
        let (right, shown) = (WIDTH - MARGIN, escaped(&shown(metric, line)));
        let _ = writeln!(
            text,
            "<line class=\"axis\" x1=\"{MARGIN}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{MARGIN}\" y=\"{:.1}\">{shown}</text>",
            at - 4.0
        );
    }
    for (place, name, _) in points {
        let x = x.at(*place);
        let y = HEIGHT - 20.0;
        let name = escaped(name);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{name}</text>");
    }
    for (index, label) in labels().enumerate() {
        let (side, marker) = (index % 6, MARKERS[index % MARKERS.len()]);
        let places: Vec<(f64, &SummaryLine, &Point)> = points
            .iter()
            .filter_map(|(place, _, point)| Some((x.at(*place), found(label, point)?, point)))
            .collect();
        let mut path = String::new();
        for (x, line, _) in &places {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{x:.1} {:.1}", y.at(line.median));
        }
        let _ = writeln!(text, "<path class=\"side{side} line\" d=\"{path}\"/>");
        for (x, line, point) in &places {
            let [low, middle, high] = [line.min, line.median, line.max].map(|value| y.at(value));
            let _ = writeln!(
                text,
                "<line class=\"side{side} range\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" \
                 y2=\"{high:.1}\"/><text class=\"side{side}\" x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{marker}</text>",
                middle + 4.5
            );
            if is_knee(plan, result, label, metric, point) {
                let _ = writeln!(
                    text,
                    "<circle class=\"side{side} knee\" cx=\"{x:.1}\" cy=\"{middle:.1}\" r=\"10\"/>"
                );
            }
        }
    }
    text.push_str("</svg>\n");
    text
}

fn is_knee(plan: &Plan, result: &BenchResult, label: &str, metric: &str, point: &Point) -> bool {
    let Some(load) = Load::of(plan) else { return false };
    let (at, rest) = (load.at(point), load.rest(point));
    let is_meant = |line: &&ScalingLine| {
        (&*line.label, &*line.metric) == (label, metric) && line.point == rest
    };
    result.scaling.iter().find(is_meant).is_some_and(|line| line.knee.is_some() && line.knee == at)
}

/// What a unit of work takes at each load, and the law.
fn scaling(line: &ScalingLine, point: &Point) -> String {
    let heading = format!("{}: {} by {}{}", line.label, rate(line), line.load, point.suffix());
    let mut text = format!("<h3>{}</h3>\n", escaped(&heading));
    let mut rows = load_rows(line);
    let heads = rows.remove(0);
    for (row, load) in rows.iter_mut().zip(&line.loads) {
        if line.knee == Some(load.load) {
            row[0].push_str(" (knee)");
        }
    }
    text.push_str(&table(&heads, &[], rows));
    if heads.len() > 2 {
        text.push_str("<p>Right of the throughput: what each one takes of a thread's time.</p>\n");
    }
    if let Some(law) = &line.law {
        text.push_str(&law_list(law));
        let worst = worst(line).unwrap_or_default();
        let _ = writeln!(text, "<p>{}</p>", escaped(&worst));
    }
    text
}

fn law_list(law: &Usl) -> String {
    let rows = [
        ("alone, a second (λ)", law.lambda),
        ("contention, the share of the work that goes one at a time (σ)", law.sigma),
        ("crosstalk, for each pair (κ)", law.kappa),
        ("peak by this law", law.peak),
    ];
    list(rows.map(|(name, found)| format!("{name}: {}", escaped(&estimate(found)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::round::tests::round;

    #[test]
    fn knees_are_marked_in_their_own_sweep() {
        let request = Request {
            seed: 3,
            delta: 0.02,
            threads: vec![1, 2, 4],
            params: vec![("buckets".to_owned(), vec!["1".to_owned(), "16".to_owned()])],
            metrics: vec!["work_per_s".to_owned()],
            ..Request::default()
        };
        let plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        let mut rounds = Vec::new();
        for (cell, at) in plan.cells.iter().enumerate() {
            // With one bucket two threads are the most that help; with sixteen all do.
            let cost = if at.params["buckets"] == "1" && at.threads == 4 { 8.0 } else { 4.0 };
            for label in ["before", "unherd"] {
                let cost = cost / at.threads as f64 * if cost == 8.0 { 4.0 } else { 1.0 };
                rounds.extend(
                    (1..=10)
                        .map(|number| crate::round::Round { cell, ..round(number, label, cost) }),
                );
            }
        }
        let result = BenchResult::new(&plan, &rounds, serde_json::Value::Null, Vec::new());
        let text = sweeps(&plan, &result);
        assert_eq!(text.matches("<figure>").count(), 2, "one for each number of buckets");
        assert_eq!(text.matches(" knee\"").count(), 2, "one for each side, and in one figure");
        assert!(text.contains("<h3>work_per_s by threads, buckets 16</h3>"), "{text}");
        assert!(!text.contains("alone, a second"), "three loads are too few for the law");
    }
}
