//! What the tracer saw of each implementation, in its own tables.

use std::fmt::Write as _;

use crate::result::{BenchResult, Point, Traced};

/// The reports of every implementation at one point of the sweep.
pub(super) fn traces(result: &BenchResult, point: &Point) -> String {
    let mut text = String::new();
    for line in result.traces.iter().filter(|line| line.point == *point) {
        match &line.traced {
            Traced::Taken { text: report, file, .. } => {
                let _ =
                    writeln!(text, "\n{}, one more round under the tracer ({file}):", line.label);
                text.push_str(report);
            }
            Traced::Refused { why } => {
                let _ = writeln!(text, "\n{}: no trace: {why}", line.label);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::result::TraceLine;

    #[test]
    fn reports_stand_at_their_point() {
        let point = |threads| Point { threads, cpus: None, params: BTreeMap::new() };
        let line = |label: &str, threads, traced| TraceLine {
            label: label.to_owned(),
            point: point(threads),
            traced,
        };
        let taken = Traced::Taken {
            file: "traces/before-0.json".to_owned(),
            verdict: Value::Null,
            summary: Value::Null,
            text: "a verdict\n".to_owned(),
        };
        let refused = Traced::Refused { why: "not permitted".to_owned() };
        let result = BenchResult {
            traces: vec![line("before", 1, taken), line("unherd", 2, refused)],
            ..crate::claims::tests::result(Vec::new())
        };
        let first = traces(&result, &point(1));
        let expected = "\nbefore, one more round under the tracer (traces/before-0.json):\n\
                        a verdict\n";
        assert_eq!(first, expected);
        assert_eq!(traces(&result, &point(2)), "\nunherd: no trace: not permitted\n");
    }
}
