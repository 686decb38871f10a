//! `Benchmark N: COMMAND`, then `Time (mean ± σ): …`; or the JSON of `--export-json -`.

use serde_json::Value;

use super::{Reading, nanoseconds, time};

pub(super) fn read(output: &str) -> Vec<Reading> {
    if let Ok(json) = serde_json::from_str::<Value>(output.trim()) {
        return json["results"].as_array().into_iter().flatten().filter_map(object).collect();
    }
    let mut readings = Vec::new();
    let mut name = None;
    for line in output.lines() {
        if let Some(heading) = line.strip_prefix("Benchmark ") {
            name = heading.split_once(": ").map(|(_, command)| command);
        } else if let Some(figures) = line.trim_start().strip_prefix("Time (") {
            let figures = figures.split_once(':').map(|(_, figures)| figures);
            let words: Vec<&str> = figures.unwrap_or_default().split_whitespace().collect();
            let value = words.get(..2).and_then(|words| nanoseconds(words[0], words[1]));
            readings.extend(name.take().zip(value).map(|(name, value)| time(name, value)));
        }
    }
    readings
}

fn object(result: &Value) -> Option<Reading> {
    let seconds = result["median"].as_f64().or_else(|| result["mean"].as_f64())?;
    Some(time(result["command"].as_str()?, seconds * 1e9))
}
