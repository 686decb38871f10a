//! A result as one HTML file: no network, no script, drawings as inline SVG. Pure.
//!
//! The order is the reader's, and a screen reader's: the verdict, each comparison with its
//! drawings, the tables, then what was run. Each drawing has a text, and all figures stand in
//! tables besides.

mod accounts;
mod drawings;
mod scale;
mod sweep;

use std::fmt::Write as _;

use drawings::{Pair, course, distributions, strip};

use crate::fingerprint::fingerprint;
use crate::printable::{command_line, printable};
use crate::record::Header;
use crate::result::{BenchResult, ComparisonLine, RoundLine};
use crate::statistics::{Better, Verdict, log_ratio};
use crate::tables::{finding, own, shown, summary, title, verdicts, word};

/// The page has drawings of at most this many comparisons, those that differ first.
const DRAWN_MAX: usize = 24;

/// The whole page.
pub fn html(header: &Header, result: &BenchResult) -> String {
    let verdict = match header.sides.is_empty() {
        true => summary(result, |_| None),
        false => verdicts(result),
    };
    let lines: Vec<String> = verdict.trim_end().lines().map(|line| escaped(line.trim())).collect();
    // A bench's own begins with what it is about.
    let title = lines.iter().find(|line| !line.ends_with(':')).cloned().unwrap_or_default();
    let mut page = opened(&title, &lines.join("<br>\n"));
    page.push_str(&commands(header));
    page.push_str(&marks(result));
    page.push_str(&sweep::sweeps(&header.plan, result));
    page.push_str(&comparisons(header, result));
    page.push_str(&verdict_table(result));
    page.push_str(&machines(result));
    page.push_str(&medians(result));
    page.push_str(&accounts::waits(&header.plan, result));
    page.push_str(&accounts::profiles(result));
    page.push_str(&circumstances(header, result));
    page.push_str(CLOSED);
    page
}

/// A page that leads to others: a section for each, with its name, its file and its result.
pub fn gallery(title: &str, pages: &[(String, String, BenchResult)]) -> String {
    let title = escaped(title);
    let mut page = opened(&title, &title);
    for (name, file, result) in pages {
        let [name, file] = [name, file].map(|text| escaped(text));
        let said = summary(result, |_| None);
        let said: Vec<String> = said.lines().skip(1).map(|line| escaped(line.trim())).collect();
        let _ = writeln!(
            page,
            "<section>\n<h2><a href=\"{file}\">{name}</a></h2>\n<p>{}</p>\n</section>",
            said.join("<br>\n")
        );
    }
    page.push_str(CLOSED);
    page
}

/// The beginning of a page, up to its heading.
fn opened(title: &str, heading: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} · \
         unherd</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{heading}</h1>\n",
        include_str!("html/style.css")
    )
}

const CLOSED: &str = "</main>\n</body>\n</html>\n";

/// `text` safe to stand in HTML, also in an attribute.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            c => shown.push(c),
        }
    }
    shown
}

/// A part of the page; nothing where it would be empty.
fn section(heading: &str, body: &str) -> String {
    match body {
        "" => String::new(),
        body => format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escaped(heading)),
    }
}

/// Items in HTML.
fn list(items: impl IntoIterator<Item = String>) -> String {
    match items.into_iter().map(|item| format!("<li>{item}</li>\n")).collect::<String>() {
        items if items.is_empty() => items,
        items => format!("<ul>\n{items}</ul>\n"),
    }
}

/// Cells in HTML; the first column and those of the numbers in `left` hold words.
fn table(
    heads: &[impl AsRef<str>],
    left: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let row = |tag: &str, scope: &str, cells: Vec<String>| {
        let cells = cells.into_iter().enumerate().map(|(column, cell)| {
            let class = if left.contains(&column) { " class=\"left\"" } else { "" };
            format!("<{tag}{class}{scope}>{cell}</{tag}>")
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    match rows.into_iter().map(|cells| row("td", "", cells)).collect::<String>() {
        rows if rows.is_empty() => rows,
        rows => {
            let heads = heads.iter().map(|head| escaped(head.as_ref())).collect();
            let heads = row("th", " scope=\"col\"", heads);
            format!("<div class=\"scroll\">\n<table>\n{heads}{rows}</table>\n</div>\n")
        }
    }
}

/// What the sides are, where they are any commands.
fn commands(header: &Header) -> String {
    list(
        header.sides.iter().map(|side| {
            format!("{}: <code>{}</code>", escaped(&side.label), escaped(&side.shown()))
        }),
    )
}

fn marks(result: &BenchResult) -> String {
    let marks = list(result.marks.iter().map(|mark| escaped(mark)));
    section("Before believing these figures", &marks)
}

fn comparisons(header: &Header, result: &BenchResult) -> String {
    let mut lines: Vec<&ComparisonLine> = result.comparisons.iter().collect();
    let is_different =
        |line: &&ComparisonLine| matches!(line.verdict, Verdict::Faster | Verdict::Slower);
    if lines.len() > DRAWN_MAX {
        lines.sort_by_key(|line| !is_different(line));
    }
    let mut text = String::new();
    for line in lines.iter().take(DRAWN_MAX) {
        text.push_str(&comparison(header, result, line));
    }
    text
}

fn comparison(header: &Header, result: &BenchResult, line: &ComparisonLine) -> String {
    let pairs = pairs(header, result, line);
    let (label, base) = (&line.label, &line.base);
    let heading = format!("{}: {label} against {base}{}", title(&line.metric), line.point.suffix());
    let class = class_of(line.verdict);
    let mut text = format!(
        "<p><strong class=\"{class}\">{}</strong> {}</p>\n",
        word(line),
        escaped(&finding(line, result.delta))
    );
    if pairs.is_empty() {
        return section(&heading, &text);
    }
    let figures = [
        (
            strip(line, &pairs),
            "Each dot is a round: how much better (+) or worse (−) than the base. The band is \
            the interval, the dashed line no difference.",
        ),
        (distributions(line, &pairs), "All rounds of both sides."),
        (
            course(line, &pairs),
            "In the order of the rounds; the base is drawn through, the other \
            side dashed. What drifts moves both.",
        ),
    ];
    for (svg, caption) in figures {
        let _ = writeln!(text, "<figure>\n{svg}<figcaption>{caption}</figcaption>\n</figure>");
    }
    section(&heading, &text)
}

const fn class_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        _ => "open",
    }
}

/// The judged pairs of one comparison, in the order of the rounds.
fn pairs(header: &Header, result: &BenchResult, line: &ComparisonLine) -> Vec<Pair> {
    let judged = header.plan.judged.iter().find(|judged| judged.metric == line.metric);
    let better = judged.map_or(Better::Lower, |judged| judged.better);
    let pilot = header.plan.until.map_or(0, |until| until.pilot);
    let value = |round: &RoundLine| round.metrics.get(&line.metric).copied();
    let of_label = |label: &str| {
        let label = label.to_owned();
        result.rounds.iter().filter(move |round| {
            round.label == label && round.point == line.point && round.round > pilot
        })
    };
    let mut pairs: Vec<Pair> = of_label(&line.label)
        .filter_map(|round| {
            let partner = of_label(&line.base).find(|other| other.round == round.round)?;
            let (base, other) = (value(partner)?, value(round)?);
            let ratio = log_ratio(base, other, better).ok()?.exp();
            Some(Pair { round: round.round, base, other, ratio })
        })
        .collect();
    pairs.sort_by_key(|pair| pair.round);
    pairs
}

fn verdict_table(result: &BenchResult) -> String {
    let rows = result.comparisons.iter().map(|line| {
        vec![
            escaped(&format!("{}{}", title(&line.metric), line.point.bracketed())),
            escaped(&line.label),
            escaped(&line.base),
            line.pairs.to_string(),
            format!(
                "<span class=\"{}\">{}</span> {}",
                class_of(line.verdict),
                word(line),
                escaped(&finding(line, result.delta))
            ),
        ]
    });
    let heads = ["metric", "side", "base", "pairs", "verdict"];
    section("All comparisons", &table(&heads, &[1, 2, 4], rows))
}

/// Each machine's own estimates, where there were several.
fn machines(result: &BenchResult) -> String {
    let rows = result.machines.iter().map(|line| {
        let cells = [
            line.machine.clone(),
            format!("{}{}", title(&line.metric), line.point.suffix()),
            format!("{} against {}", line.label, line.base),
            line.pairs.to_string(),
            own(line),
        ];
        cells.map(|cell| escaped(&cell)).into()
    });
    let heads = ["machine", "metric", "sides", "pairs", "how much better"];
    section("Each machine by itself", &table(&heads, &[1, 2, 4], rows))
}

fn medians(result: &BenchResult) -> String {
    let mut lines: Vec<_> = result.summary.iter().collect();
    lines.sort_by_key(|line| (line.point.to_string(), &line.metric));
    let rows = lines.into_iter().map(|line| {
        let name = format!("{}{}", title(&line.metric), line.point.bracketed());
        let [median, min, max] =
            [line.median, line.min, line.max].map(|value| shown(&line.metric, value));
        [name, line.label.clone(), median, min, max].map(|cell| escaped(&cell)).into()
    });
    let heads = ["metric", "side", "median", "smallest", "largest"];
    section("All metrics", &table(&heads, &[1], rows))
}

fn circumstances(header: &Header, result: &BenchResult) -> String {
    let (processes, seed) = (result.rounds.len(), result.seed);
    let items = [
        format!("{processes} processes, in random order from seed {seed}"),
        escaped(&fingerprint(&result.machine)),
        format!("by <code>{}</code>", escaped(&command_line(&header.command))),
    ];
    section("What was run", &list(items))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use unherd_host::{Profile, ProfileRow, Side as Where};

    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::{Plan, Request};
    use crate::result::{ProfileLine, Profiled};
    use crate::round::Round;
    use crate::round::tests::round;

    fn page(label: &str) -> (String, BenchResult) {
        let request = Request { seed: 3, delta: 0.02, ..Request::default() };
        let mut plan = Plan::new(&request, registry().workload("wait").unwrap()).unwrap();
        plan.contenders[1].label = label.to_owned();
        let rounds: Vec<_> = (1..=12)
            .flat_map(|n| [round(n, "before", 100.0), round(n, label, 80.0 + n as f64)])
            .map(|it| Round { waits: json!({"page": {"wakeups": 3 * it.round}}), ..it })
            .collect();
        let marks = vec!["no <cgroup>".to_owned()];
        let result = BenchResult::new(&plan, &rounds, serde_json::Value::Null, marks);
        let header = Header::of(plan, vec!["unherd".to_owned(), "--x=\"1\"".to_owned()]);
        (html(&header, &result), result)
    }

    #[test]
    fn the_page_has_the_results_figures() {
        let (page, result) = page("unherd");
        let line = &result.comparisons[0];
        let said = finding(line, result.delta);
        assert_eq!(page.matches(&said).count(), 2, "drawing and table: {page}");
        for line in &result.summary {
            assert!(page.contains(&format!("<td>{}</td>", shown(&line.metric, line.median))));
        }
        assert_eq!(page.matches("<svg").count(), 3);
        // A dot for each pair, and one for each side's value.
        assert_eq!(page.matches("<circle").count(), 12 + 24);
    }

    #[test]
    fn page_has_wait_accounts_and_profiles() {
        let (page, mut result) = page("unherd");
        let row = "<tr><td>page: wakeups</td><td>19.50</td><td>19.50</td></tr>";
        assert!(
            page.contains("<h2>Waits, 4 threads, medians</h2>") && page.contains(row),
            "{page}"
        );
        let row = ProfileRow {
            name: "spin<T>".to_owned(),
            side: Where::User,
            count: 30,
            size_bytes: None,
            count_per_byte: None,
        };
        let profile = Profile {
            rows: vec![row],
            user_ticks: 30,
            kernel_ticks: 10,
            idle_ticks: 7,
            foreign_ticks: 0,
            delivered: 47,
            expected: 47,
            lost: 0,
        };
        result.profiles = vec![ProfileLine {
            label: "unherd".to_owned(),
            point: result.comparisons[0].point.clone(),
            sampled: Profiled::Taken { cpu: profile.clone(), switches: profile },
        }];
        let shown = accounts::profiles(&result);
        let row = "<tr><td>spin&lt;T&gt;</td><td>30</td><td>75.0 %</td></tr>";
        assert!(shown.contains("<h2>Where CPU time went: unherd, 4 threads</h2>"), "{shown}");
        assert!(shown.contains(row), "{shown}");
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let (page, _) = page("unherd");
        for forbidden in ["http", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.len() < 1 << 20);
    }

    #[test]
    fn gallery_leads_to_its_pages() {
        let (_, result) = page("unherd");
        let pages = [("one & two".to_owned(), "one.html".to_owned(), result)];
        let page = gallery("Report <000>", &pages);
        assert!(page.contains("<h1>Report &lt;000&gt;</h1>"), "{page}");
        assert!(page.contains("<a href=\"one.html\">one &amp; two</a>"), "{page}");
        assert!(page.contains("unherd is better in 1 of 1: "), "{page}");
    }

    #[test]
    fn names_of_others_are_escaped() {
        let (page, _) = page("<b onload='x'>&");
        assert!(!page.contains("<b ") && page.contains("&lt;b onload=&#39;x&#39;&gt;&amp;"));
        assert!(page.contains("no &lt;cgroup&gt;") && page.contains("--x=&quot;1&quot;"));
    }
}
