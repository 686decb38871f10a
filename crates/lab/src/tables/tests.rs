use serde_json::{Value, json};

use super::*;
use crate::catalogue::tests::registry;
use crate::plan::Request;
use crate::record::Header;
use crate::round::tests::round;

fn shown(progress: Progress, rounds: &[Round]) -> String {
    let registry = registry();
    let known = registry.workload("wait").unwrap();
    let request = Request { seed: 3, delta: 0.02, ..Request::default() };
    let plan = Plan::new(&request, known).unwrap();
    let marks = vec!["no cgroup".to_owned()];
    let result = BenchResult::new(&plan, rounds, Value::Null, marks);
    let header =
        Header { description: Some(known.workload.clone()), ..Header::of(plan, Vec::new()) };
    header.tables(&result, rounds, progress)
}

fn rounds() -> Vec<Round> {
    (1..=12)
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
        "12 rounds, each a fresh process, in random order from seed 3\n",
        "wait, 4 threads\n",
        "cost_us (less is better)",
        "    unherd                                           25.06       25.01       25.12\n",
        "  work_per_s                               10000       39896\n",
        "  compared with before (12 pairs, 95 % sure)\n",
        "    cost_us  unherd  FASTER           3.99 × faster (3.99 to 3.99)\n",
        "  waits: page                             before      unherd\n",
        "    waits                                      -          65\n",
        "  * no cgroup\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn rounds_so_far_are_not_judged() {
    for done in [1, 8] {
        let text = shown(Progress::SoFar, &rounds()[..2 * done]);
        assert!(text.contains(&format!("{done} of 12 rounds, not judged yet")), "{text}");
        assert!(!text.contains("compared with"), "{text}");
    }
}

#[test]
fn cannot_tell_prints_remaining_range() {
    let mut some = rounds();
    for (index, round) in some.iter_mut().enumerate() {
        let wide = if index % 4 < 2 { 50.0 } else { 200.0 };
        let cost = if round.label == "before" { 100.0 } else { wide };
        round.metrics.insert("cost_us".to_owned(), cost);
    }
    let text = shown(Progress::Done, &some);
    let expected = "cost_us  unherd  CANNOT TELL    −50.0 % to +100 %; to find 2 % takes more than \
                    500 rounds\n";
    assert!(text.contains(expected), "{text}");
    let worst = "the worst round of unherd was 2.00 × its median";
    assert!(text.contains(worst), "{text}");
}

#[test]
fn short_bench_names_finished_rounds() {
    let text = shown(Progress::Done, &rounds()[..13]);
    assert!(text.contains("6 of 12 rounds, each a fresh process"), "{text}");
}

#[test]
fn incomplete_rounds_are_told_so() {
    let text = shown(Progress::Done, &rounds()[..1]);
    let heading = "no complete round of 12, each a fresh process, in random order from seed 3\n";
    assert!(text.contains(heading), "{text}");
}
