//! The HTML report in a browser: headless Chromium, where there is one.

use std::fs;
use std::process::Command;

use crate::place::Place;

/// Opens the page at some widths in frames of one document, and tells what each holds.
const FRAMES: &str = "\
<!doctype html><meta charset=\"utf-8\"><body><pre id=\"seen\"></pre><script>
const page = PAGE, seen = [];
const widths = [360, 768, 1280];
for (const width of widths) {
  const frame = document.createElement('iframe');
  frame.width = width; frame.height = 800; frame.style.border = 0;
  frame.onload = () => {
    const inner = frame.contentDocument, root = inner.documentElement;
    seen.push({
      width, overflow: root.scrollWidth - root.clientWidth,
      headings: inner.querySelectorAll('h1').length,
      drawings: inner.querySelectorAll('svg[aria-label]').length,
      rows: inner.querySelectorAll('table tr').length,
      text: inner.body.innerText,
    });
    if (seen.length === widths.length)
      document.getElementById('seen').textContent = encodeURIComponent(JSON.stringify(seen));
  };
  frame.srcdoc = page;
  document.body.append(frame);
}
</script>";

/// `chromium` or what else it is called, if it is there.
fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

fn compared(place: &Place, sweep: &[&str], first: &str) -> serde_json::Value {
    let output = place
        .command("compare --shell --rounds 14 --keep-disturbed --out record --format json")
        .args(["--html", "page.html", "--markdown", "page.md", "--csv", "page.csv"])
        .args(["--names", "a-name-that-is-rather-long-for-a-phone,b"])
        .args(["--metric", "cost_us=cost: (.*)", "--metric", "rate_per_s=rate: (.*)"])
        .args(sweep)
        .args(["--", first, "--", "echo cost: 50; echo rate: 7"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn reports_go_into_files() {
    let place = Place::new();
    let result = compared(&place, &[], "echo cost: 100 ; echo rate: 7");
    let read = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
    let csv = read("page.csv");
    let values: usize = result["rounds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|round| round["metrics"].as_object().unwrap().len())
        .sum();
    assert_eq!(csv.lines().count(), values + 1, "each figure is there");
    let markdown = read("page.md");
    assert!(markdown.contains("| cost\\_us | b | 50 | a-name"), "{markdown}");
    assert!(markdown.ends_with("; the record is record\n"), "{markdown}");
    assert!(markdown.contains("FASTER 2.00 × faster (2.00 to 2.00)"), "{markdown}");
    let page = read("page.html");
    let again = place.run("report record --html again.html");
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(read("again.html"), page);
    for (file, why) in [("absent/page.html", "No such file"), ("record", "is a directory")] {
        let line = format!("report record --html {file}");
        let refused = place.run(&line);
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{refused:?}");
        let what = format!("cannot write {file}: ");
        assert!(refused.stderr.contains(&what) && refused.stderr.contains(why), "{refused:?}");
    }
    let piped = place.run("report record --markdown -");
    assert_eq!(piped.stdout, markdown, "nothing else");
    assert_eq!(place.run("report record --markdown - --csv -").code, Some(2));
}

#[test]
fn rows_over_time_have_the_same_columns() {
    let place = Place::new();
    compared(&place, &[], "echo cost: 100 ; echo rate: 7");
    for _ in 0..2 {
        let added = place.run("report record --otava history.csv");
        assert_eq!(added.code, Some(0), "{added:?}");
    }
    let history = fs::read_to_string(place.path().join("history.csv")).unwrap();
    let lines: Vec<Vec<&str>> = history.lines().map(|line| line.split(',').collect()).collect();
    let [heading, first] = &lines[..] else { panic!("a record has one row: {history}") };
    let value = |name: &str| {
        let column = heading.iter().position(|column| *column == name);
        first[column.unwrap_or_else(|| panic!("no {name}: {history}"))]
    };
    assert_eq!((value("b.cost_us"), value("b.rate_per_s")), ("50", "7"));
    assert_eq!(value("b/a-name-that-is-rather-long-for-a-phone.cost_us"), "2.000000");
    assert_eq!(value("time").len(), "2004-05-02T19:17:09Z".len());
    // Of another bench, and torn: refused, and nothing is lost.
    for (file, text) in
        [("other.csv", "time,build,x\n2004-05-02T19:17:09Z,,1\n"), ("torn.csv", "time")]
    {
        fs::write(place.path().join(file), text).unwrap();
        let refused = place.run(&format!("report record --otava {file}"));
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("a file of its own"), "{refused:?}");
        assert_eq!(fs::read_to_string(place.path().join(file)).unwrap(), text);
    }
    assert_eq!(place.run("report record --otava -").code, Some(2));
    assert_eq!(place.run("report record --csv history.csv --otava history.csv").code, Some(2));
    assert_eq!(fs::read_to_string(place.path().join("history.csv")).unwrap(), history);
}

#[test]
fn files_are_tried_before_the_rounds() {
    let place = Place::new();
    let line = "compare --rounds 8 --csv absent/x --prepare touch${IFS}begun -- true -- true";
    let refused = place.run(line);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("cannot write absent/x"), "{refused:?}");
    assert!(!place.path().join("begun").exists());
    // What fails at the end all the same costs only the page.
    let full = place.run("compare --rounds 8 --csv /dev/full --out record -- true -- true");
    assert_eq!(full.code, Some(125), "{full:?}");
    let advice = "the record is kept: unherd report record --csv FILE";
    assert!(full.stderr.contains(advice), "{full:?}");
}

#[test]
fn the_page_fits_phones_and_screens() {
    let Some(chromium) = chromium() else {
        println!("skipped: no Chromium (Debian: chromium)");
        return;
    };
    let place = Place::new();
    compared(&place, &["--sweep", "jobs=1,2,4,8"], "echo cost: 100; echo rate: {jobs}");
    let page = fs::read_to_string(place.path().join("page.html")).unwrap();
    let quoted = serde_json::to_string(&page).unwrap().replace("</", "<\\/");
    fs::write(place.path().join("frames.html"), FRAMES.replace("PAGE", &quoted)).unwrap();
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--virtual-time-budget=5000", "--window-size=1400,900"])
        .arg(format!("--user-data-dir={}", place.path().join("profile").display()))
        .arg(format!("file://{}", place.path().join("frames.html").display()))
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let seen = shown.split_once("id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let seen = decoded(seen.unwrap_or_else(|| panic!("{output:?}")).0);
    let seen: Vec<serde_json::Value> = serde_json::from_str(&seen).unwrap();
    assert_eq!(seen.len(), 3);
    for frame in &seen {
        assert_eq!(frame["overflow"], 0, "{frame}");
        // Two metrics with a drawing of the sweep each, and three at each of the four loads.
        assert_eq!((&frame["headings"], &frame["drawings"]), (&1.into(), &26.into()), "{frame}");
        let text = frame["text"].as_str().unwrap();
        assert!(text.contains("2.00 × faster (2.00 to 2.00)"), "{text}");
        assert!(text.contains("rate_per_s by jobs") && text.contains("contention"), "{text}");
        let (verdict, ran) = (text.find("is better than"), text.find("What was run"));
        assert!(verdict.unwrap() < ran.unwrap(), "the verdict comes first: {text}");
    }
}

/// What `encodeURIComponent` has written.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digits: Vec<u8> = if byte == b'%' { rest.by_ref().take(2).collect() } else { vec![] };
        let digits = std::str::from_utf8(&digits).unwrap();
        bytes.push(u8::from_str_radix(digits, 16).unwrap_or(byte));
    }
    String::from_utf8(bytes).unwrap()
}
