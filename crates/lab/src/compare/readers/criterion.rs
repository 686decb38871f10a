//! `NAME  time:   [LOW ESTIMATE HIGH]`; a long name stands on the line before.

use super::{Reading, nanoseconds, time};

pub(super) fn read(output: &str) -> Vec<Reading> {
    let mut readings = Vec::new();
    let mut before = "";
    for line in output.lines() {
        if let Some(reading) = figure(line, before) {
            readings.push(reading);
        }
        before = line;
    }
    readings
}

fn figure(line: &str, before: &str) -> Option<Reading> {
    let (name, figures) = line.split_once("time:   [")?;
    let words: Vec<&str> = figures.strip_suffix(']')?.split(' ').collect();
    let [_, _, value, unit, _, _] = *words else { return None };
    let name = if name.trim().is_empty() { before } else { name };
    Some(time(name.trim(), nanoseconds(value, unit)?))
}
