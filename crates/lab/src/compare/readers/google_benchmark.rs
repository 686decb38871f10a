//! `NAME  TIME UNIT  CPU UNIT  ITERATIONS [COUNTERS…]`, or `--benchmark_format=json`.

use serde_json::Value;

use super::{Reading, nanoseconds, time};

pub(super) fn read(output: &str) -> Vec<Reading> {
    match serde_json::from_str::<Value>(output.trim()) {
        Ok(json) => {
            let benchmarks = json["benchmarks"].as_array();
            benchmarks.into_iter().flatten().filter_map(object).flatten().collect()
        }
        Err(_) => output.lines().filter_map(line).flatten().collect(),
    }
}

fn both(name: &str, real: f64, cpu: f64) -> [Reading; 2] {
    [time(name, real), time(&format!("{name} CPU"), cpu)]
}

/// Means and medians over its own repetitions are left out: the repetitions are there.
fn object(benchmark: &Value) -> Option<[Reading; 2]> {
    if benchmark["run_type"].as_str().is_some_and(|kind| kind != "iteration") {
        return None;
    }
    let factor = nanoseconds("1", benchmark["time_unit"].as_str()?)?;
    let [real, cpu] = ["real_time", "cpu_time"].map(|field| benchmark[field].as_f64());
    Some(both(benchmark["name"].as_str()?, real? * factor, cpu? * factor))
}

fn line(line: &str) -> Option<[Reading; 2]> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, real, real_unit, cpu, cpu_unit, iterations, ..] = *words else { return None };
    iterations.parse::<u64>().ok()?;
    Some(both(name, nanoseconds(real, real_unit)?, nanoseconds(cpu, cpu_unit)?))
}
