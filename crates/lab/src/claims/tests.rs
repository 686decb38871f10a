use super::*;
use crate::result::Point;

const FILE: &str = r#"
# Why this one is here.
[[claim]]
name = "one-bucket"
says = "512 waiters in one bucket"
command = "unherd bench pagewait --with before,unherd --buckets 1"
target = "low >= 100"

[claim.select]
metric = "cpu_us_per_event"
impl = "unherd"

[claim.last]
ratio = 271.0
low = 262.0
high = 280.0
commit = "2380c5e"
date = "2026-11-21"
machine = "unknown, 0 CPUs, 0 B, unknown"

[[claim]]
name = "rival"
says = "not slower"
command = "unherd bench pagewait --with parking_lot_core,unherd"
target = "low >= 0.95"
"#;

/// A comparison with this interval.
pub(crate) fn line(low: f64, high: f64, verdict: Verdict) -> ComparisonLine {
    ComparisonLine {
        metric: "cpu_us_per_event".to_owned(),
        base: "before".to_owned(),
        label: "unherd".to_owned(),
        point: Point { threads: 512, cpus: None, params: BTreeMap::new() },
        ratio: Some(low.midpoint(high)),
        low: Some(low),
        high: Some(high),
        level: 0.95,
        pairs: 6,
        p_value: 0.03,
        verdict,
        smallest_effect: None,
        rounds_to_find: None,
        tail: None,
        confirmed: None,
    }
}

/// A result of these comparisons.
pub(crate) fn result(comparisons: Vec<ComparisonLine>) -> BenchResult {
    BenchResult {
        schema: crate::result::RESULT_SCHEMA.to_owned(),
        machine: serde_json::Value::Null,
        workload: "pagewait".to_owned(),
        params: serde_json::Map::new(),
        seed: 1,
        delta: 0.02,
        commands: Vec::new(),
        metrics: Vec::new(),
        marks: Vec::new(),
        rounds: Vec::new(),
        summary: Vec::new(),
        comparisons,
        scaling: Vec::new(),
        waits: Vec::new(),
        machines: Vec::new(),
        profiles: Vec::new(),
        traces: Vec::new(),
    }
}

#[test]
fn a_file_is_read() {
    let claims = Claims::parse(FILE).unwrap();
    assert_eq!(claims.claims.len(), 2);
    let arguments = claims.claims[0].arguments().unwrap();
    assert_eq!(arguments[..2], ["bench", "pagewait"]);
    let table = claims.markdown_table();
    assert!(table.contains("| low >= 100 | 271 (262 to 280) | 2380c5e, 2026-11-21 |"), "{table}");
    assert!(table.contains("| low >= 0.95 | not yet run |"), "{table}");
    assert!(table.contains("\n| `one-bucket` | "), "{table}");
}

#[test]
fn target_is_met_by_lower_end() {
    let claim = &Claims::parse(FILE).unwrap().claims[0];
    let outcome = |low, high| claim.judge(&result(vec![line(low, high, Verdict::Faster)])).unwrap();
    assert!(outcome(100.0, 300.0).is_met);
    assert!(!outcome(99.0, 500.0).is_met);
    assert_eq!(outcome(250.0, 270.0).is_regression, Some(false), "the intervals meet");
    assert_eq!(outcome(150.0, 260.0).is_regression, Some(true));
    let mut infinite = line(1.0, 1.0, Verdict::Faster);
    (infinite.low, infinite.high) = (None, None);
    assert!(claim.judge(&result(vec![infinite])).unwrap().is_met);
    let unused = line(500.0, 600.0, Verdict::NotExercised);
    assert!(!claim.judge(&result(vec![unused])).unwrap().is_met);
}

#[test]
fn another_machine_has_no_regression() {
    let elsewhere = FILE.replace("0 CPUs", "64 CPUs");
    let claim = &Claims::parse(&elsewhere).unwrap().claims[0];
    let outcome = claim.judge(&result(vec![line(150.0, 160.0, Verdict::Faster)])).unwrap();
    assert_eq!((outcome.is_met, outcome.is_regression), (true, None));
}

#[test]
fn an_update_changes_one_claim_and_no_comment() {
    let found = RecordedFigure {
        ratio: Some(1.25),
        low: Some(1.5),
        high: None,
        commit: "abc".to_owned(),
        date: "2027-01-02".to_owned(),
        machine: Some("this".to_owned()),
        seconds: Some(12.345),
    };
    for name in ["one-bucket", "rival"] {
        let text = updated(FILE, name, &found).unwrap();
        assert!(text.contains("# Why this one is here.\n[[claim]]"), "{text}");
        let before = Claims::parse(FILE).unwrap();
        let after = Claims::parse(&text).unwrap();
        for (before, after) in before.claims.into_iter().zip(after.claims) {
            let is_changed = after.name == name;
            let last = RecordedFigure { seconds: Some(12.3), ..found.clone() };
            assert_eq!(after.last, if is_changed { Some(last) } else { before.last.clone() });
            assert_eq!(Claim { last: before.last.clone(), ..after }, before);
        }
    }
    assert!(updated(FILE, "none", &found).unwrap_err().contains("no claim is called 'none'"));
}

#[test]
fn one_run_answers_claims_of_one_command() {
    let mut claims = Claims::parse(FILE).unwrap();
    assert_eq!(claims.batches(&[]), [[0], [1]]);
    assert_eq!(claims.batches(&["rival".to_owned()]), [[1]]);
    claims.claims[1].command = claims.claims[0].command.clone();
    assert_eq!(claims.batches(&[]), [[0, 1]]);
    claims.claims[0].command.push_str(" --rounds 40 --seed 3");
    let quick = claims.claims[0].quick_arguments().unwrap().join(" ");
    assert!(quick.ends_with("--buckets 1 --seed 3 --quick"), "{quick}");
}

#[test]
fn noise_is_no_proof_of_not_slower() {
    let claim = &Claims::parse(FILE).unwrap().claims[1];
    let is_met = |line| claim.judge(&result(vec![line])).unwrap().is_met;
    assert!(!is_met(line(0.5, 2.0, Verdict::CannotTell)));
    assert!(is_met(line(0.96, 1.03, Verdict::CannotTell)));
    let mut few = line(0.96, 1.03, Verdict::CannotTell);
    (few.low, few.high) = (None, None);
    assert!(!is_met(few), "too few pairs have no interval");
}

#[test]
fn every_comparison_that_is_meant_must_meet_it() {
    let claims = Claims::parse(FILE).unwrap();
    let two = vec![line(200.0, 210.0, Verdict::Faster), line(0.5, 0.6, Verdict::Slower)];
    let outcome = claims.claims[1].judge(&result(two)).unwrap();
    assert!(!outcome.is_met);
    assert_eq!(outcome.found.verdict, Verdict::Slower);
    let mut other = line(200.0, 210.0, Verdict::Faster);
    other.metric = "events_per_s".to_owned();
    assert!(claims.claims[0].judge(&result(vec![other])).is_err());
}

#[test]
fn what_is_no_claim_is_said_so() {
    let wrong = |from: &str, to: &str| Claims::parse(&FILE.replace(from, to)).unwrap_err();
    assert!(wrong("low >= 100", "low > 100").contains("is no target"));
    assert!(wrong("low >= 100", "much").contains("is no target"));
    assert!(wrong("low >= 0.95", "verdict = slow").contains("is no target"));
    assert!(wrong("low >= 0.95", "verdict != slower").contains("noise is not slower either"));
    assert!(wrong("\"rival\"", "\"one-bucket\"").contains("two claims"));
    assert!(wrong("unherd bench pagewait --with before", "rm -rf x").contains("unherd bench"));
    assert!(wrong("--buckets 1", "--buckets $B").contains("without a shell"));
    assert!(wrong("impl =", "implementation =").contains("unknown field"));
}
