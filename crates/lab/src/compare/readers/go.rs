//! `BenchmarkNAME-PROCS  ITERATIONS  VALUE UNIT [VALUE UNIT …]`
//! (<https://go.googlesource.com/proposal/+/master/design/14313-benchmark-format.md>).

use super::Reading;
use crate::statistics::Better;

pub(super) fn read(output: &str) -> Vec<Reading> {
    output.lines().filter_map(line).flatten().collect()
}

fn line(line: &str) -> Option<Vec<Reading>> {
    let mut words = line.strip_prefix("Benchmark")?.split_whitespace();
    let name = words.next()?;
    words.next()?.parse::<u64>().ok()?;
    let words: Vec<&str> = words.collect();
    let reading = |pair: &[&str]| {
        let [value, unit] = *pair else { return None };
        let better = if unit.ends_with("/s") { Better::Higher } else { Better::Lower };
        Some(Reading { name: format!("{name} {unit}"), value: value.parse().ok()?, better })
    };
    words.chunks(2).map(reading).collect()
}
