//! The report as one page for a browser, which loads nothing: verdict, the threads' time, findings,
//! herds, a flame graph, waits, threads.
//!
//! The page is well-formed XML too, which is how its test reads it. So the script has neither `<`
//! nor `&`.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

use inferno::flamegraph;

use super::findings::Finding;
use super::folded::FoldedWeight;
use super::quantity::{count, counted, duration, interval, percent, percents};
use super::text::class_name;
use super::time::ClassTime;
use super::{Report, verdict};
use crate::observation::TimeClass;

/// Rows of a table: the JSON has all of them.
const ROWS: usize = 200;

/// Text as it stands in XML, in attributes as well.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.to_string().chars() {
            match letter {
                '&' => f.write_str("&amp;"),
                '<' => f.write_str("&lt;"),
                '>' => f.write_str("&gt;"),
                '"' => f.write_str("&quot;"),
                '\n' => f.write_char(letter),
                // XML has no word for the others of these.
                _ if letter.is_control() => f.write_char(' '),
                _ => f.write_char(letter),
            }?;
        }
        Ok(())
    }
}

/// One cell of a table.
enum Cell {
    /// What is read, and what is sorted by.
    Number(String, f64),
    Text(String),
    /// A name, which may be broken anywhere.
    Name(String),
    Bar(Vec<ClassTime>),
}

impl Cell {
    fn count(number: u64) -> Self {
        Self::Number(count(number), number as f64)
    }

    fn duration(ns: u64) -> Self {
        Self::Number(duration(ns), ns as f64)
    }

    fn interval(of: super::Interval) -> Self {
        Self::Number(interval(of), of.possible as f64)
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text, value) => {
                write!(f, "<td class=\"number\" data-value=\"{value}\">{}</td>", Escaped(text))
            }
            Self::Text(text) => write!(f, "<td>{}</td>", Escaped(text)),
            Self::Name(text) => write!(f, "<td class=\"name\">{}</td>", Escaped(text)),
            Self::Bar(classes) => write!(f, "<td>{}</td>", Bar(classes, " small")),
        }
    }
}

/// What was done with time, to scale.
struct Bar<'a>(&'a [ClassTime], &'static str);

impl Display for Bar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.0.iter().filter(|of| of.ns > 0).map(share);
        let said = said.collect::<Vec<_>>().join(", ");
        write!(f, "<div class=\"bar{}\" role=\"img\" aria-label=\"{}\">", self.1, Escaped(said))?;
        for of in self.0.iter().filter(|of| of.ns > 0) {
            let (class, title) = (class_id(of.class), share(of));
            let width = of.percent;
            write!(
                f,
                "<span class=\"{class}\" style=\"width:{width:.3}%\" title=\"{title}\"></span>"
            )?;
        }
        f.write_str("</div>")
    }
}

/// `asleep at a futex: 12.3 ms, 34 %`
fn share(of: &ClassTime) -> String {
    format!("{}: {}, {} %", class_name(of.class), duration(of.ns), percent(of.percent))
}

/// As the style names it, and the JSON.
fn class_id(class: TimeClass) -> &'static str {
    match class {
        TimeClass::Running => "running",
        TimeClass::Woken => "woken",
        TimeClass::Preempted => "preempted",
        TimeClass::AsleepTimer => "asleep_timer",
        TimeClass::AsleepFutex => "asleep_futex",
        TimeClass::AsleepDescriptor => "asleep_descriptor",
        TimeClass::AsleepChild => "asleep_child",
        TimeClass::AsleepOther => "asleep_other",
        TimeClass::Uninterruptible => "uninterruptible",
    }
}

/// A table that sorts by what it is clicked at. A head that begins with `#` is of numbers.
fn table(to: &mut impl Write, heads: &[&str], rows: &[Vec<Cell>]) -> io::Result<()> {
    write!(to, "<div class=\"wide\"><table><thead><tr>")?;
    for head in heads {
        let (class, name) = match head.strip_prefix('#') {
            Some(name) => (" class=\"number\"", name),
            None => ("", *head),
        };
        write!(to, "<th scope=\"col\"{class}><button type=\"button\">{name}</button></th>")?;
    }
    writeln!(to, "</tr></thead><tbody>")?;
    for row in rows.iter().take(ROWS) {
        write!(to, "<tr>")?;
        row.iter().try_for_each(|cell| write!(to, "{cell}"))?;
        writeln!(to, "</tr>")?;
    }
    writeln!(to, "</tbody></table></div>")?;
    match rows.len().saturating_sub(ROWS) {
        0 => Ok(()),
        more => writeln!(to, "<p class=\"quiet\">and {} more</p>", count(more as u64)),
    }
}

impl Report {
    /// Writes the report as one HTML page, which loads nothing from elsewhere: the verdict, the
    /// threads' time, the findings, herds, a flame graph of the waits as
    /// [`write_folded`](Self::write_folded) has them, and tables that sort.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_html(&self, to: &mut impl Write) -> io::Result<()> {
        let title = self.verdict.first().map_or("", String::as_str);
        writeln!(
            to,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>unherd trace: {}</title>\n<style>\n{}</style></head>\n<body>",
            Escaped(title),
            include_str!("html/style.css"),
        )?;
        self.html_verdict(to)?;
        self.html_time(to)?;
        self.html_findings(to)?;
        self.html_herds(to)?;
        self.html_flames(to)?;
        self.html_waits(to)?;
        self.html_threads(to)?;
        let lost = &self.trust;
        writeln!(
            to,
            "<p class=\"quiet\">Lost events: {}. Addresses without a name: {} of {}. All tables \
             are in the report's JSON.</p>\n<script>\n{}</script>\n</body></html>",
            count(lost.lost_events),
            count(lost.unknown_frames.user_unknown + lost.unknown_frames.kernel_unknown),
            count(lost.unknown_frames.user_asked + lost.unknown_frames.kernel_asked),
            include_str!("html/sort.js"),
        )
    }

    fn html_verdict(&self, to: &mut impl Write) -> io::Result<()> {
        let of = &self.summary;
        writeln!(
            to,
            "<p class=\"quiet\">unherd trace · {} on {} · {} · {} · CPU {}</p>",
            duration(of.duration_ns),
            counted(of.cpus as u64, "processor"),
            // Its plural is not made by an s.
            match of.processes {
                1 => "1 process".to_owned(),
                several => format!("{} processes", count(several as u64)),
            },
            counted(of.threads, "thread"),
            duration(of.cpu_ns()),
        )?;
        let mut lines = self.verdict.iter();
        let first = lines.next().map_or("", String::as_str);
        writeln!(to, "<section class=\"verdict\"><h1>{}</h1><dl>", Escaped(first))?;
        for line in lines {
            let (label, rest) = line.split_once(": ").unwrap_or(("", line));
            writeln!(to, "<dt>{}</dt><dd>{}</dd>", Escaped(label), Escaped(rest))?;
        }
        writeln!(to, "</dl></section>")
    }

    fn html_time(&self, to: &mut impl Write) -> io::Result<()> {
        let Some(time) = &self.time else { return Ok(()) };
        writeln!(
            to,
            "<h2>Time of the threads: {} in all</h2>\n{}\n<ul class=\"legend\">",
            duration(time.wall_ns),
            Bar(&time.classes, ""),
        )?;
        for of in time.classes.iter().filter(|of| of.ns > 0) {
            writeln!(to, "<li><i class=\"{}\"></i>{}</li>", class_id(of.class), share(of))?;
        }
        writeln!(to, "</ul>")?;
        let mut part = |what: &str, ns: Option<u64>| match ns.filter(|ns| *ns > 0) {
            Some(ns) => writeln!(to, "<p class=\"quiet\">Of that {} {what}.</p>", duration(ns)),
            None => Ok(()),
        };
        part("asleep for locks", time.lock_waits_ns)?;
        part("asleep after the file lock was free", time.over_sleep_ns)
    }

    fn html_findings(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to, "<h2>Findings</h2>")?;
        let row = |of: &Finding| {
            let share = of.cost.map_or_else(
                || Cell::Number(String::new(), -1.0),
                |cost| {
                    let about = if cost.estimated { "about " } else { "" };
                    let share = percents(cost.percent_low, cost.percent_high);
                    Cell::Number(format!("{about}{share}"), cost.percent_high)
                },
            );
            let object = [Some(&of.object), of.detail.as_ref()].into_iter().flatten();
            let object = object.filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
            let all = of.of.map_or_else(String::new, |all| format!(" of {}", count(all)));
            vec![
                Cell::Text(verdict::what(of.waste).into()),
                Cell::Number(interval(of.count) + &all, of.count.possible as f64),
                share,
                Cell::Text(of.cost.map_or("", |cost| cost.kind.whole()).into()),
                Cell::Name(verdict::site(of)),
                Cell::Name(object.join("; ")),
                Cell::Name(of.advice.map_or("", |advice| advice.text).into()),
            ]
        };
        let notable = self.findings.iter().filter(|of| of.is_notable());
        let rows: Vec<_> = notable.map(row).collect();
        if rows.is_empty() {
            let none = if self.judged { "None that costs a thousandth or more" } else { "Unknown" };
            return writeln!(to, "<p>{none}.</p>");
        }
        let heads = ["waste", "#count", "#share", "of", "site", "object", "try"];
        table(to, &heads, &rows)
    }

    fn html_herds(&self, to: &mut impl Write) -> io::Result<()> {
        let Some(herds) = self.herds.as_ref().filter(|herds| !herds.is_empty()) else {
            return Ok(());
        };
        let row = |of: &super::Herd| {
            let by = match &of.comm {
                Some(comm) => format!("{} from {}, {comm}", of.by, of.site),
                None => of.by.clone(),
            };
            vec![
                Cell::count(of.herds),
                Cell::Number(super::quantity::digits(of.woken_per_herd), of.woken_per_herd),
                Cell::count(of.largest),
                Cell::interval(of.needless),
                Cell::duration(of.needless_cpu_ns),
                Cell::Name(by),
                Cell::Name(of.object.clone()),
            ]
        };
        writeln!(to, "<h2>Herds: events that woke two or more</h2>")?;
        let heads =
            ["#herds", "#woken by each", "#most", "#needless", "#CPU, at most", "by", "for"];
        table(to, &heads, &herds.iter().map(row).collect::<Vec<_>>())
    }

    fn html_flames(&self, to: &mut impl Write) -> io::Result<()> {
        let mut folded = Vec::new();
        let weight = self.write_folded(&mut folded)?;
        let mut options = flamegraph::Options::default();
        options.title = match weight {
            FoldedWeight::NeedlessCpu => "CPU time of needless wakeups, by the stack that waits",
            FoldedWeight::Asleep => "Time asleep, by the stack that waits",
        }
        .to_owned();
        options.count_name = "µs".to_owned();
        options.font_type = "sans-serif".to_owned();
        options.deterministic = true;
        let mut picture = Vec::new();
        let text = String::from_utf8_lossy(&folded);
        // It fails only if there is no stack with a weight.
        if flamegraph::from_lines(&mut options, text.lines(), &mut picture).is_err() {
            return Ok(());
        }
        let picture = String::from_utf8_lossy(&picture);
        let svg = picture.find("<svg").map_or("", |begin| &picture[begin..]);
        let height = svg.split_once("height=\"").and_then(|(_, rest)| rest.split('"').next());
        // In a frame of its own its script meets no names but its own.
        let page = format!(
            // The address of this frame cannot be changed, as inferno's script would.
            "<!DOCTYPE html><style>{}</style><script>history.replaceState=()=>{{}}</script>{svg}",
            ":root{color-scheme:light dark}body{margin:0}body>svg{width:100%;display:block}\
             svg>rect{fill:none}#frames text{fill:#111}\
             @media(prefers-color-scheme:dark){svg>text{fill:#e7e9ee}}",
        );
        writeln!(
            to,
            "<h2>Flame graph of the waits</h2>\n<iframe title=\"flame graph\" \
             sandbox=\"allow-scripts allow-modals\" height=\"{}\" srcdoc=\"{}\"></iframe>",
            Escaped(height.unwrap_or("600")),
            Escaped(page),
        )
    }

    fn html_waits(&self, to: &mut impl Write) -> io::Result<()> {
        let row = |of: &super::WaitLine| {
            let judged = |cell: Cell| if self.judged { cell } else { Cell::Text("unknown".into()) };
            vec![
                Cell::Text(of.call.clone()),
                Cell::Name(format!("{}, {}", of.site, of.comm)),
                Cell::Name(of.object.clone()),
                Cell::count(of.sleeps.saturating_add(of.uninterruptible_sleeps)),
                Cell::duration(of.asleep_ns.saturating_add(of.uninterruptible_ns)),
                judged(Cell::interval(of.needless)),
                judged(Cell::count(of.timer_polls)),
            ]
        };
        writeln!(to, "<h2>Waits</h2>")?;
        let heads = ["call", "site", "object", "#sleeps", "#asleep", "#needless", "#timer polls"];
        table(to, &heads, &self.waits.lines.iter().map(row).collect::<Vec<_>>())
    }

    fn html_threads(&self, to: &mut impl Write) -> io::Result<()> {
        let Some(time) = &self.time else { return Ok(()) };
        let row = |of: &super::ThreadTime| {
            let running = of.classes.iter().find(|of| of.class == TimeClass::Running);
            let running_ns = running.map_or(0, |of| of.ns);
            vec![
                Cell::Name(format!("{} {}", of.comm, of.tid)),
                Cell::duration(of.wall_ns),
                Cell::duration(running_ns),
                Cell::Bar(of.classes.clone()),
            ]
        };
        writeln!(to, "<h2>Threads</h2>")?;
        let rows: Vec<_> = time.threads.iter().map(row).collect();
        table(to, &["thread", "#time", "#running", "what it did"], &rows)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::observation::{self as seen, Observation};
    use crate::report::fixture::{observation, symbols};

    pub(in crate::report) fn html(report: &Report) -> String {
        let mut bytes = Vec::new();
        report.write_html(&mut bytes).expect("memory takes it");
        String::from_utf8(bytes).expect("text")
    }

    /// The texts of a page's elements, one element after another.
    pub(in crate::report) fn page_texts(page: &str) -> Vec<String> {
        use quick_xml::events::Event;
        let mut reader = quick_xml::Reader::from_str(page);
        let (mut texts, mut depth) = (Vec::new(), 0);
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{error}:\n{page}")) {
                Event::Start(of) => {
                    depth += 1;
                    of.attributes().for_each(|of| drop(of.expect("attributes are well-formed")));
                    texts.push(String::new());
                }
                Event::End(_) => depth -= 1,
                Event::Text(of) => texts.last_mut().unwrap().push_str(&of.decode().unwrap()),
                Event::GeneralRef(of) => {
                    let name = of.decode().unwrap();
                    let text = quick_xml::escape::resolve_predefined_entity(&name);
                    texts.last_mut().unwrap().push_str(text.expect("it has no others"));
                }
                Event::Eof => break,
                _ => {}
            }
            if texts.is_empty() {
                texts.push(String::new());
            }
        }
        assert_eq!(depth, 0, "{page}");
        texts.iter().map(|text| text.trim().to_owned()).collect()
    }

    pub(in crate::report) fn assert_has(texts: &[String], told: &str) {
        assert!(texts.iter().any(|text| text == told), "{told:?} is not in the page");
    }

    #[test]
    fn page_is_well_formed_and_begins_with_verdict() {
        let mut observation = observation();
        observation.processes[0].comm = "</td><script>\"&\u{1b}".into();
        observation.threads = vec![seen::ThreadRow {
            pid: 1,
            tid: 2,
            comm: "<b>".into(),
            time: seen::TimeSpent { wall_ns: 4, by_class_ns: [1, 0, 0, 0, 3, 0, 0, 0, 0] },
        }];
        observation.time = observation.threads[0].time;
        let report = Report::new(&observation, &mut symbols());
        let page = html(&report);
        let texts = page_texts(&page);
        let verdict: Vec<_> =
            report.verdict.iter().map(|line| line.replace('\u{1b}', " ")).collect();
        assert_has(&texts, &verdict[0]);
        for line in &verdict[1..] {
            assert_has(&texts, line.split_once(": ").expect("a label").1);
        }
        for told in ["Findings", "Flame graph of the waits", "asleep at a futex: 3 ns, 75 %"] {
            assert_has(&texts, told);
        }
        assert!(page.contains("srcdoc=\"&lt;!DOCTYPE html&gt;") && page.contains("width:75.000%"));
        // A comment in the flame graph's script ends with its line.
        let flames =
            page.split("srcdoc=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert!(flames.lines().any(|line| line.trim() == "function init(evt) {"), "{flames}");
        assert!(!page.contains("<script>\"") && !page.contains("src=") && !page.contains("href="));
        let unseen = Report::of_switches_only(&observation, &mut symbols());
        let unseen = page_texts(&html(&unseen));
        assert_has(&unseen, "Unknown.");
        assert!(!unseen.iter().any(|text| text.starts_with("None that")), "it was not looked at");
        // Without stacks there is no flame graph, and no section for one.
        let bare = html(&Report::new(&Observation::default(), &mut symbols()));
        assert!(!page_texts(&bare).iter().any(|text| text.starts_with("Flame")), "{bare}");
    }
}
