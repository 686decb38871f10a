//! `unherd reproduce`.

use crate::place::Place;

#[test]
fn benches_of_all_reports_can_be_planned() {
    let place = Place::new();
    for (report, benches, quick) in [
        ("000", 3, ""),
        ("000", 3, "--quick"),
        ("001", 3, ""),
        ("002", 4, "--quick"),
        ("003", 2, "--quick"),
        ("004", 5, "--quick"),
    ] {
        let listed = place.run(&format!("reproduce {report} --dir . --list {quick}"));
        assert_eq!(listed.code, Some(0), "{listed:?}");
        if quick == "--quick" {
            let told = listed.stderr.contains(" on a quiet machine of two processors");
            assert!(told, "{listed:?}");
        }
        let lines: Vec<&str> = listed.stdout.lines().collect();
        assert_eq!(lines.len(), benches, "{listed:?}");
        for (index, line) in lines.iter().enumerate() {
            let line = line.strip_prefix("unherd ").unwrap();
            assert!(line.contains("--out out/reproduce-") && line.contains(".html"), "{line}");
            // A plan has neither a record nor a page.
            let line = line.split(" --out ").next().unwrap();
            let plan = format!("{report}{quick}-{index}.json");
            let planned = place.run(&format!("{line} --plan {plan} --blocks 2"));
            assert_eq!(planned.code, Some(0), "{line}: {planned:?}");
        }
    }
}

#[test]
fn what_cannot_be_reproduced_is_refused() {
    let place = Place::new();
    for (line, what) in [
        ("reproduce 005", "'005'"),
        (
            "reproduce 002 --out catalogue.json",
            "catalogue.json: cannot make the record's directory",
        ),
    ] {
        let refused = place.run(line);
        assert_eq!(refused.code, Some(2), "{line}: {refused:?}");
        assert!(refused.stderr.contains(what) && refused.stdout.is_empty(), "{line}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{line}: {refused:?}");
    }
}
