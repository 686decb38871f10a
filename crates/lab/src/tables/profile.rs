//! The report's top-10 tables: count, name, and count per byte of the function.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A profile of one implementation: what was hit, and how much of what was asked for arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What was sampled, as the table's title says it.
    pub title: String,
    /// Samples that arrived.
    pub delivered: u64,
    /// Samples that the time and rate promised.
    pub expected: u64,
    /// The most hit first.
    pub lines: Vec<ProfileLine>,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileLine {
    /// How often it was hit.
    pub count: u64,
    /// Its name.
    pub name: String,
    /// Its size, where known.
    pub bytes: Option<u64>,
}

/// The first ten lines in the report's columns.
pub fn profile_table(profile: &Profile) -> String {
    const TOP: usize = 10;
    let mut text = format!("top {TOP} {}:\n", profile.title);
    for line in profile.lines.iter().take(TOP) {
        let per_byte = match line.bytes {
            Some(bytes) if bytes > 0 => format!("{:.4}", line.count as f64 / bytes as f64),
            _ => "-".to_owned(),
        };
        let _ = writeln!(text, "{:>6} {:<32} {per_byte:>16}", line.count, line.name);
    }
    let _ = writeln!(text, "{} of {} samples arrived", profile.delivered, profile.expected);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_the_reports() {
        // finish_task_switch of the report: 21733 hits, 113.1927 a byte, so 192 bytes.
        let line = |count, name: &str, bytes| ProfileLine { count, name: name.to_owned(), bytes };
        let profile = Profile {
            title: "kernel cpu consumers".to_owned(),
            delivered: 86,
            expected: 100,
            lines: vec![line(21_733, "finish_task_switch", Some(192)), line(5, "x", None)],
        };
        let expected = "\
top 10 kernel cpu consumers:
 21733 finish_task_switch                       113.1927
     5 x                                               -
86 of 100 samples arrived
";
        assert_eq!(profile_table(&profile), expected);
    }
}
