//! The drawings of one comparison, as SVG. Each has a text that says the same.

use std::fmt::Write as _;

use super::escaped;
use super::scale::{MARGIN, Scale, WIDTH};
use crate::result::ComparisonLine;
use crate::tables::{percent, shown};

/// One round of two sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) round: usize,
    pub(super) base: f64,
    pub(super) other: f64,
    /// How many times better the other side was.
    pub(super) ratio: f64,
}

pub(super) fn opened(height: f64, label: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(label)
    )
}

/// Both ends of an axis, in words.
fn ends(text: &mut String, y: f64, [low, high]: [String; 2]) {
    let right = WIDTH - MARGIN;
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"{y}\">{}</text><text x=\"{right}\" y=\"{y}\" \
         text-anchor=\"end\">{}</text>",
        escaped(&low),
        escaped(&high)
    );
}

/// The ratio of each pair, with the estimate, its interval, and where nothing differs.
pub(super) fn strip(line: &ComparisonLine, pairs: &[Pair]) -> String {
    let ends_of = [line.low, line.high, line.ratio, Some(1.0)];
    let values = pairs.iter().map(|pair| pair.ratio).chain(ends_of.into_iter().flatten());
    let scale = Scale::over(values.map(f64::ln), MARGIN, WIDTH - MARGIN);
    let at = |ratio: f64| scale.at(ratio.ln());
    let range = [line.low, line.high].map(|end| end.map_or("infinite".into(), percent));
    let label = format!(
        "{} pairs; interval from {} to {}; 0 % is no difference",
        pairs.len(),
        range[0],
        range[1]
    );
    let mut text = opened(96.0, &label);
    if line.has_interval() {
        let (low, high) = (at(line.low.unwrap_or(0.0)), at(line.high.unwrap_or(f64::INFINITY)));
        let width = (high - low).max(1.0);
        let _ = writeln!(
            text,
            "<rect class=\"band\" x=\"{low:.1}\" y=\"8\" width=\"{width:.1}\" height=\"60\"/>"
        );
    }
    for tick in ticks(scale.ends().map(f64::exp)) {
        let x = at(tick);
        let _ = writeln!(
            text,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"4\" y2=\"72\"/><text \
             x=\"{x:.1}\" y=\"90\" text-anchor=\"middle\">{}</text>",
            escaped(&percent(tick))
        );
    }
    let none = at(1.0);
    let _ = writeln!(
        text,
        "<line class=\"none\" x1=\"{none:.1}\" x2=\"{none:.1}\" y1=\"4\" y2=\"72\"/>"
    );
    if let Some(ratio) = line.ratio {
        let x = at(ratio);
        let _ = writeln!(
            text,
            "<line class=\"estimate\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"8\" y2=\"68\"/>"
        );
    }
    for pair in pairs {
        let (x, y) = (at(pair.ratio), 16.0 + 44.0 * spread(pair.round));
        let _ =
            writeln!(text, "<circle class=\"other dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
    }
    text.push_str("</svg>\n");
    text
}

/// At most five round changes between two ratios.
fn ticks([low, high]: [f64; 2]) -> Vec<f64> {
    const TICKS_MAX: f64 = 5.0;
    let widths = (-4..12).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    let spans = widths.map(|width| {
        let at = |ratio: f64| 100.0 * (ratio - 1.0) / width;
        (width, at(low).ceil(), at(high).floor())
    });
    let few = spans.into_iter().find(|(_, first, last)| last - first < TICKS_MAX);
    let Some((width, first, last)) = few else { return Vec::new() };
    let ratios = (first as i64..=last as i64).map(|tick| 1.0 + tick as f64 * width / 100.0);
    ratios.filter(|tick| *tick > 0.0).collect()
}

/// A place between 0 and 1, so that equal values do not hide each other: the golden ratio's
/// multiples are spread evenly, however many there are.
fn spread(number: usize) -> f64 {
    (number as f64 * 0.618_033_988_749_895).fract()
}

/// Both sides, round by round: what drifts moves both.
pub(super) fn course(line: &ComparisonLine, pairs: &[Pair]) -> String {
    let x = Scale::over(pairs.iter().map(|pair| pair.round as f64), MARGIN, WIDTH - MARGIN);
    let values = pairs.iter().flat_map(|pair| [pair.base, pair.other]);
    let y = Scale::over(values, 140.0, 20.0);
    let label = format!("{} round by round, of {} and {}", line.metric, line.base, line.label);
    let mut text = opened(172.0, &label);
    for (class, value) in
        [("base", (|pair| pair.base) as fn(&Pair) -> f64), ("other", |pair| pair.other)]
    {
        let mut path = String::new();
        for pair in pairs {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = (x.at(pair.round as f64), y.at(value(pair)));
            let _ = write!(path, "{command}{x:.1} {y:.1}");
        }
        let _ = writeln!(text, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    let [low, high] = y.ends().map(|value| shown(&line.metric, value.max(0.0)));
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"14\">{}</text><text x=\"{MARGIN}\" y=\"154\">{}</text>",
        escaped(&high),
        escaped(&low)
    );
    let rounds = [pairs.first(), pairs.last()];
    let rounds = rounds.map(|pair| format!("round {}", pair.map_or(0, |pair| pair.round)));
    ends(&mut text, 170.0, rounds);
    text.push_str("</svg>\n");
    text
}

/// All values of each side on one axis.
pub(super) fn distributions(line: &ComparisonLine, pairs: &[Pair]) -> String {
    let values = pairs.iter().flat_map(|pair| [pair.base, pair.other]);
    let scale = Scale::over(values, MARGIN, WIDTH - MARGIN);
    let label = format!("All values of {} for {} and {}", line.metric, line.base, line.label);
    let mut text = opened(140.0, &label);
    for (row, (class, name)) in
        [("base", &line.base), ("other", &line.label)].into_iter().enumerate()
    {
        let top = 20.0 + 54.0 * row as f64;
        let _ = writeln!(text, "<text x=\"{MARGIN}\" y=\"{}\">{}</text>", top - 4.0, escaped(name));
        for pair in pairs {
            let value = if row == 0 { pair.base } else { pair.other };
            let (x, y) = (scale.at(value), top + 6.0 + 22.0 * spread(pair.round));
            let _ = writeln!(
                text,
                "<circle class=\"{class} dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
            );
        }
    }
    ends(&mut text, 134.0, scale.ends().map(|value| shown(&line.metric, value.max(0.0))));
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        let shown = |low, high| ticks([low, high]).into_iter().map(percent).collect::<Vec<_>>();
        assert_eq!(shown(0.44, 1.04), ["−40.0 %", "−20.0 %", "0.0 %"]);
        assert_eq!(shown(0.9984, 1.0031), ["−0.1 %", "0.0 %", "+0.1 %", "+0.2 %", "+0.3 %"]);
        assert_eq!(shown(0.9, 31.0), ["0.0 %", "+1000 %", "+2000 %", "+3000 %"]);
        assert!(shown(1.0, 1.0).len() < 6, "a single value has no width");
    }
}
