use super::*;
use crate::catalogue::tests::registry;
use crate::plan::Request;
use crate::round::tests::round;

fn plan() -> Plan {
    let request = Request { seed: 3, delta: 0.02, ..Request::default() };
    Plan::new(&request, registry().workload("wait").unwrap()).unwrap()
}

fn rounds(times_better: f64) -> Vec<Round> {
    (1..=6)
        .flat_map(|n| {
            let drift = 1.0 + n as f64 / 10.0;
            let jitter = 1.0 + (n % 3) as f64 / 1000.0;
            [
                round(n, "before", 100.0 * drift),
                round(n, "unherd", 100.0 * drift * jitter / times_better),
            ]
        })
        .collect()
}

fn judged(rounds: &[Round]) -> BenchResult {
    BenchResult::new(&plan(), rounds, Value::Null, Vec::new())
}

#[test]
fn common_drift_leaves_ratio_alone() {
    let result = judged(&rounds(4.0));
    let [comparison] = &*result.comparisons else { panic!("one comparison") };
    assert_eq!(comparison.verdict, Verdict::Faster);
    assert!((comparison.ratio.unwrap() - 4.0).abs() < 0.01, "{comparison:?}");
    assert!(comparison.low.unwrap() > 3.98 && comparison.high.unwrap() <= 4.0 + 1e-9);
    assert_eq!((comparison.pairs, &*comparison.base, &*comparison.label), (6, "before", "unherd"));
}

#[test]
fn a_round_without_its_partner_makes_no_pair() {
    let mut some = rounds(4.0);
    some.pop();
    let result = judged(&some);
    assert_eq!(result.comparisons[0].pairs, 5);
    assert_eq!(result.comparisons[0].verdict, Verdict::CannotTell);
    assert_eq!(result.comparisons[0].low, None);
}

#[test]
fn zero_wakeups_are_not_exercised() {
    let waits =
        |wakeups: u64| serde_json::json!({"reasons": [{"reason": "page", "wakeups": wakeups}]});
    let mut some = rounds(4.0);
    for round in &mut some {
        round.waits = waits(0);
    }
    assert_eq!(judged(&some).comparisons[0].verdict, Verdict::NotExercised);
    some[1].waits = waits(3);
    assert_eq!(judged(&some).comparisons[0].verdict, Verdict::Faster);
}

#[test]
fn the_json_is_the_contract() {
    let mut some = rounds(2.0);
    for round in &mut some {
        round.params.insert("buckets".to_owned(), Value::from("16"));
    }
    some[0].params.insert("odd".to_owned(), Value::from(1));
    let json = serde_json::to_value(judged(&some)).unwrap();
    assert_eq!(json["schema"], "unherd.bench/1");
    assert_eq!(json["params"], serde_json::json!({"buckets": "16"}));
    for field in ["round", "impl", "threads", "metrics"] {
        assert!(!json["rounds"][0][field].is_null(), "rounds.{field}");
    }
    for field in ["impl", "threads", "metric", "median", "min", "max"] {
        assert!(!json["summary"][0][field].is_null(), "summary.{field}");
    }
    for field in
        ["metric", "base", "impl", "threads", "ratio", "low", "high", "level", "pairs", "verdict"]
    {
        assert!(!json["comparisons"][0][field].is_null(), "comparisons.{field}");
    }
    let back: BenchResult = serde_json::from_value(json).unwrap();
    assert_eq!(back, judged(&some));
}

#[test]
fn nothing_against_something_is_infinitely_better() {
    let some: Vec<Round> =
        (1..=6).flat_map(|n| [round(n, "before", 5.0), round(n, "unherd", 0.0)]).collect();
    let comparison = &judged(&some).comparisons[0];
    assert_eq!((comparison.verdict, comparison.ratio), (Verdict::Faster, None));
}

#[test]
fn points_are_told_apart_by_what_differs() {
    let point = |threads, buckets: &str| Point {
        threads,
        cpus: Some(2),
        params: [("buckets".to_owned(), buckets.to_owned()), ("size".to_owned(), "4".to_owned())]
            .into(),
    };
    let all = [point(1, "16"), point(4, "16"), point(4, "64")];
    let apart = all.clone().map(|point| point.apart(all.iter()).to_string());
    assert_eq!(apart, ["1 thread, buckets 16", "4 threads, buckets 16", "4 threads, buckets 64"]);
    assert_eq!(all[0].apart(all[..1].iter()).to_string(), "");
}

#[test]
fn units_stand_last_in_names() {
    let names =
        ["wall_s", "p99_us", "mb_per_cpusec", "X-2 ns/op", "peak_bytes", "preemptions", "s"];
    let units = names.map(|name| unit(name).unwrap_or("none"));
    assert_eq!(units, ["s", "us", "mb_per_cpusec", "ns/op", "bytes", "none", "none"]);
}
