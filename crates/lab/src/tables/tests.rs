use serde_json::{Value, json};

use super::*;
use crate::catalogue::tests::registry;
use crate::plan::Request;
use crate::round::tests::round;

fn shown(progress: Progress, rounds: &[Round]) -> String {
    let registry = registry();
    let known = registry.workload("wait").unwrap();
    let request = Request { seed: 3, delta: 0.02, ..Request::default() };
    let plan = Plan::new(&request, known).unwrap();
    let marks = vec!["no cgroup".to_owned()];
    let result = BenchResult::new(&plan, rounds, Value::Null, marks).unwrap();
    tables(&plan, &known.workload, &result, rounds, progress)
}

fn rounds() -> Vec<Round> {
    (1..=6)
        .flat_map(|n| {
            let mut after = round(n, "unherd", 25.0 + n as f64 / 100.0);
            after.waits = json!({"reasons": [{"reason": "page", "waits": 10 * n, "wakeups": 7}]});
            [round(n, "before", 100.0), after]
        })
        .collect()
}

#[test]
fn the_tables_say_what_was_found() {
    let text = shown(Progress::Done, &rounds());
    for expected in [
        "wait: before, unherd\n",
        "6 rounds, each a fresh process, in random order from seed 3\n",
        "wait, 4 threads\n",
        "cost_us (less is better)",
        "    unherd                                           25.04       25.01       25.06\n",
        "  work_per_s                               10000       39944\n",
        "cost_us  FASTER: unherd is 3.994 times as good as before (3.990 to 3.998; 95 %, 6 pairs)",
        "  waits: page                             before      unherd\n",
        "    waits                                      -          35\n",
        "  * no cgroup\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn the_first_round_is_not_judged() {
    let text = shown(Progress::First { of: 6 }, &rounds()[..2]);
    assert!(text.contains("round 1 of 6, not judged yet"), "{text}");
    assert!(!text.contains("compared with"), "{text}");
}

#[test]
fn what_cannot_be_told_says_what_could_have_been() {
    let mut some = rounds();
    for (index, round) in some.iter_mut().enumerate() {
        let wide = if index % 4 < 2 { 50.0 } else { 200.0 };
        let cost = if round.label == "before" { 100.0 } else { wide };
        round.metrics.insert("cost_us".to_owned(), cost);
    }
    let text = shown(Progress::Done, &some);
    assert!(text.contains("CANNOT TELL: unherd may be 1.000 times as good (0.5000 to 2"), "{text}");
    assert!(text.contains("could have shown is 100 %"), "{text}");
}
