//! The published claims, run again.

use std::fs;
use std::path::Path;

use crate::place::Place;

const CLAIMS: &str = r#"
# A comment that must survive.
[[claim]]
name = "good"
says = "a quarter of the cost"
command = "unherd bench fake"
target = "low >= 3.9"

[claim.select]
metric = "cost_us"

[[claim]]
name = "bold"
says = "a tenth of the cost"
command = "unherd bench fake"
target = "low >= 10"
"#;

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path().join("claims.toml"), CLAIMS).unwrap();
    place
}

#[test]
fn a_claim_is_met_or_not() {
    let place = place();
    let good = place.run("claims good");
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.stdout.starts_with("met     good: "), "{good:?}");
    let all = place.run("claims");
    assert_eq!(all.code, Some(1), "{all:?}");
    assert!(all.stdout.contains("NOT MET bold"), "{all:?}");
    assert!(all.stderr.contains("failed, not met or worse than before: bold"), "{all:?}");
}

#[test]
fn update_keeps_figures_and_shows_regressions() {
    let place = place();
    let file = place.path().join("claims.toml");
    let updated = place.run("claims good --update --commit abc123");
    assert_eq!(updated.code, Some(0), "{updated:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("commit = \"abc123\""), "{text}");
    assert!(text.contains("# A comment that must survive.\n[[claim]]"), "{text}");
    assert!(text.contains("machine = \"") && text.contains("seconds = "), "{text}");
    let table = place.run("claims --table");
    assert!(table.stdout.contains("| abc123, "), "{table:?}");
    // A figure that no later run can reach, whatever this one was.
    let better = text.replacen("low = ", "low = 4000", 1);
    assert_ne!(better, text);
    fs::write(&file, better).unwrap();
    let worse = place.run("claims good");
    assert_eq!(worse.code, Some(1), "{worse:?}");
    assert!(worse.stdout.contains("WORSE than the last run"), "{worse:?}");
    let elsewhere =
        fs::read_to_string(&file).unwrap().replace("machine = \"", "machine = \"other ");
    fs::write(&file, elsewhere).unwrap();
    let other = place.run("claims good");
    assert_eq!(other.code, Some(0), "{other:?}");
    assert!(other.stdout.contains("the last run was on another machine"), "{other:?}");
}

#[test]
fn table_is_written_into_its_page() {
    let place = place();
    let page = place.path().join("page.md");
    fs::write(&page, "before\n<!-- claims -->\nold\n<!-- /claims -->\nafter\n").unwrap();
    for line in ["claims --table --page page.md", "claims good --update --commit a1 --page page.md"]
    {
        let ran = place.run(line);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let text = fs::read_to_string(&page).unwrap();
        let table = text.strip_prefix("before\n<!-- claims -->\n| name | claim |").unwrap();
        assert!(table.ends_with("|\n<!-- /claims -->\nafter\n"), "{text}");
        assert_eq!(table.contains("| a1, "), line.contains("a1"), "{text}");
    }
    fs::write(&page, "no marks").unwrap();
    let refused = place.run("claims --table --page page.md");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("has no lines '<!-- claims -->'"), "{refused:?}");
}

/// The page of this repository.
#[test]
fn published_table_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let place = Place::new();
    fs::copy(root.join("claims.toml"), place.path().join("claims.toml")).unwrap();
    let table = place.run("claims --table").stdout;
    let page = fs::read_to_string(root.join("docs/results.md")).unwrap();
    assert!(page.contains(&table), "docs/results.md is not what `unherd claims --table` writes");
}

/// A claim whose command fails, before the others.
const BROKEN: &str = r#"
[[claim]]
name = "broken"
says = "it crashes"
command = "unherd bench fake --with before,crash"
target = "low >= 1"
"#;

#[test]
fn failing_claim_does_not_end_others() {
    let place = place();
    fs::write(place.path().join("claims.toml"), format!("{BROKEN}{CLAIMS}")).unwrap();
    let all = place.run("claims --update --commit abc");
    assert_eq!(all.code, Some(1), "{all:?}");
    let lines: Vec<&str> = all.stdout.lines().collect();
    assert!(lines[0].starts_with("FAILED  broken: its command failed"), "{all:?}");
    assert!(lines[1].starts_with("met     good: ") && lines[2].starts_with("NOT MET bold"));
    assert!(all.stderr.contains("worse than before: broken, bold"), "{all:?}");
    let text = fs::read_to_string(place.path().join("claims.toml")).unwrap();
    assert_eq!(text.matches("commit = \"abc\"").count(), 2, "{text}");
    let out = fs::read_dir(place.path().join("out")).unwrap();
    assert_eq!(out.count(), 3, "one run for two, and a .gitignore");
}

#[test]
fn claims_are_listed_and_chosen_by_name() {
    let place = place();
    let help = place.run("--help");
    assert!(help.stdout.contains("\n  claims  "), "{help:?}");
    let list = place.run("claims --list");
    assert_eq!(list.code, Some(0), "{list:?}");
    assert!(list.stdout.contains("?  good ") && list.stdout.contains("low >= 10\n"), "{list:?}");
    let both = place.run("claims bold good --quick");
    assert_eq!(both.code, Some(1), "{both:?}");
    assert_eq!(both.stdout.lines().count(), 2, "{both:?}");
    assert!(both.stderr.contains("6 rounds are few"), "{both:?}");
    place.run("claims good --update --commit abc");
    let list = place.run("claims good --list");
    assert!(!list.stdout.contains('?') && list.stdout.contains("for 1 of 1 commands"), "{list:?}");
}

#[test]
fn what_is_no_claim_is_refused() {
    let place = place();
    for (line, what) in [
        ("claims nothing", "no claim is called 'nothing'; there are: good, bold"),
        ("claims --file absent.toml", "absent.toml: No such file"),
        ("claims --update", "--commit"),
    ] {
        let ran = place.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains(what), "{line}: {ran:?}");
    }
}

#[test]
fn broken_file_of_claims_is_told_in_a_line() {
    let place = place();
    fs::write(place.path().join("claims.toml"), "[[claim]]\nname: good\n").unwrap();
    let broken = place.run("claims");
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.stderr.starts_with("unherd: claims.toml: line 2: "), "{broken:?}");
    assert_eq!(broken.stderr.lines().count(), 1, "{broken:?}");
}
