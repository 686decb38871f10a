//! The report's top-10 tables: count, name, and count for each byte of the function.

use std::fmt::Write as _;

use unherd_host::{Profile, ProfileRow, Side};

use crate::result::{BenchResult, Point, Profiled};

const TOP: usize = 10;

/// The tables of every implementation at one point of the sweep.
pub(super) fn profiles(result: &BenchResult, point: &Point) -> String {
    let mut text = String::new();
    for profiled in result.profiles.iter().filter(|profiled| profiled.point == *point) {
        let _ = writeln!(text, "\n{}, one more round under the sampler:", profiled.label);
        match &profiled.sampled {
            Profiled::Taken { cpu, switches } => {
                text.push_str(&tables(cpu, "cpu consumers"));
                text.push_str(&tables(switches, "callers of scheduling functions"));
            }
            Profiled::Refused { why } => {
                let _ = writeln!(text, "no profile: {why}");
            }
        }
    }
    text
}

/// One table for the kernel's functions, one for the program's.
fn tables(profile: &Profile, what: &str) -> String {
    let mut text = String::new();
    for (side, name) in [(Side::Kernel, "kernel"), (Side::User, "user")] {
        let rows: Vec<&ProfileRow> =
            profile.rows.iter().filter(|row| row.side == side).take(TOP).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "top {TOP} {name} {what}:");
        for row in rows {
            let per_byte = row.count_per_byte.map_or_else(|| "-".to_owned(), |v| format!("{v:.4}"));
            let _ = writeln!(text, "{:>6} {:<32} {per_byte:>16}", row.count, row.name);
        }
    }
    let Profile { delivered, expected, user_ticks, kernel_ticks, idle_ticks, .. } = profile;
    let _ = write!(
        text,
        "{delivered} of {expected} samples arrived: {user_ticks} user, {kernel_ticks} kernel, \
         {idle_ticks} idle"
    );
    let _ = match profile.foreign_ticks {
        0 => writeln!(text),
        foreign => writeln!(text, ", {foreign} of other programs, which are left out"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_the_reports() {
        let row = |side, count, name: &str, count_per_byte| ProfileRow {
            name: name.to_owned(),
            side,
            count,
            size_bytes: None,
            count_per_byte,
        };
        let profile = Profile {
            rows: vec![
                row(Side::Kernel, 21_733, "finish_task_switch", Some(113.192_7)),
                row(Side::User, 5, "main", None),
            ],
            delivered: 86,
            expected: 100,
            user_ticks: 6,
            kernel_ticks: 80,
            ..Profile::default()
        };
        let expected = "\
top 10 kernel cpu consumers:
 21733 finish_task_switch                       113.1927
top 10 user cpu consumers:
     5 main                                            -
86 of 100 samples arrived: 6 user, 80 kernel, 0 idle
";
        assert_eq!(tables(&profile, "cpu consumers"), expected);
        let foreign = Profile { foreign_ticks: 9, ..Profile::default() };
        let last = "0 of 0 samples arrived: 0 user, 0 kernel, 0 idle, 9 of other programs, which \
                    are left out\n";
        assert_eq!(tables(&foreign, "cpu consumers"), last);
    }
}
