//! `unherd reproduce`.

use crate::place::Place;

#[test]
fn benches_of_all_reports_can_be_planned() {
    let place = Place::new();
    for (report, benches) in [("000", 3), ("002", 2), ("003", 2)] {
        let listed = place.run(&format!("reproduce {report} --dir . --list"));
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let lines: Vec<&str> = listed.stdout.lines().collect();
        assert_eq!(lines.len(), benches, "{listed:?}");
        for (index, line) in lines.iter().enumerate() {
            let line = line.strip_prefix("unherd ").unwrap();
            assert!(line.contains("--out out/reproduce-") && line.contains(".html"), "{line}");
            // A plan has neither a record nor a page.
            let line = line.split(" --out ").next().unwrap();
            let planned = place.run(&format!("{line} --plan {report}-{index}.json --blocks 2"));
            assert_eq!(planned.code, Some(0), "{line}: {planned:?}");
        }
    }
}

#[test]
fn report_without_workloads_is_refused() {
    let place = Place::new();
    for (line, what) in [
        (
            "reproduce 001",
            "report 001 (poll without a lock) cannot be run yet; there is no workload",
        ),
        ("reproduce 004", "there is no workload yet for memory pressure"),
        ("reproduce 005", "'005'"),
        ("reproduce 002 --out catalogue.json", "cannot make catalogue.json"),
    ] {
        let refused = place.run(line);
        assert_eq!(refused.code, Some(2), "{line}: {refused:?}");
        assert!(refused.stderr.contains(what) && refused.stdout.is_empty(), "{line}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{line}: {refused:?}");
    }
}
