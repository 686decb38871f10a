//! The published claims, run again.

use std::fs;

use crate::place::Place;

const CLAIMS: &str = r#"
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
    assert!(all.stderr.contains("not met or worse than before: bold"), "{all:?}");
}

#[test]
fn what_was_found_is_kept_and_a_regression_shows() {
    let place = place();
    let file = place.path().join("claims.toml");
    let updated = place.run("claims good --update --commit abc123");
    assert_eq!(updated.code, Some(0), "{updated:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("commit = \"abc123\""), "{text}");
    let table = place.run("claims --table");
    assert!(table.stdout.contains("| abc123, "), "{table:?}");
    // A figure that no later run can reach, whatever this one was.
    let better = text.replacen("low = ", "low = 4000", 1);
    assert_ne!(better, text);
    fs::write(&file, better).unwrap();
    let worse = place.run("claims good");
    assert_eq!(worse.code, Some(1), "{worse:?}");
    assert!(worse.stdout.contains("WORSE than the last run"), "{worse:?}");
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
