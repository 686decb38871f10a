//! Numbers as people read them: three digits that mean something, and no more.

use super::share::Interval;

/// `1,234,567`
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 thread`, `1,234 threads`
pub(crate) fn counted(number: u64, of: &str) -> String {
    match number {
        1 => format!("1 {of}"),
        _ if of.ends_with("ch") => format!("{} {of}es", count(number)),
        _ => format!("{} {of}s", count(number)),
    }
}

/// `12`, or `12 to 15`
pub(crate) fn interval(of: Interval) -> String {
    if of.proven == of.possible {
        return count(of.possible);
    }
    format!("{} to {}", count(of.proven), count(of.possible))
}

/// `1.23 s`, `45.6 ms`, `789 µs`, `12 ns`
pub(crate) fn duration(ns: u64) -> String {
    let scaled = |unit: f64| digits(ns as f64 / unit);
    match ns {
        0 => "0".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", scaled(1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", scaled(1e6)),
        _ => format!("{} s", scaled(1e9)),
    }
}

/// `1.2 to 3.4 s`, with one unit if both have the same.
pub(crate) fn durations(of: Interval) -> String {
    let (low, high) = (duration(of.proven), duration(of.possible));
    if low == high {
        return high;
    }
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// Three digits: `1.23`, `12.3`, `123`, `1234`.
pub(crate) fn digits(number: f64) -> String {
    match number.abs() {
        0.0..9.995 => format!("{number:.2}"),
        9.995..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// A share in percent: `<0.1`, `3.4`, `38`.
pub(crate) fn percent(share: f64) -> String {
    match share {
        0.0 => "0".into(),
        _ if share < 0.1 => "<0.1".into(),
        _ if share < 9.95 => format!("{share:.1}"),
        // What is not all of it must not look like all of it.
        _ if share < 100.0 => format!("{:.0}", share.min(99.0)),
        _ => "100".into(),
    }
}

/// `31 to 38 %`
pub(crate) fn percents(low: f64, high: f64) -> String {
    let (low, high) = (percent(low), percent(high));
    if low == high { format!("{high} %") } else { format!("{low} to {high} %") }
}

/// `2.5 MiB`
pub(crate) fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{} KiB", digits(number as f64 / 1024.0)),
        _ => format!("{} MiB", digits(number as f64 / 1_048_576.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let texts: Vec<String> = [0, 12, 999, 1_000, 1_234_567].map(count).into();
        assert_eq!(texts, ["0", "12", "999", "1,000", "1,234,567"]);
        assert_eq!(duration(999), "999 ns");
        assert_eq!(
            [counted(1, "thread"), counted(2_000, "switch")],
            ["1 thread", "2,000 switches"]
        );
        assert_eq!(duration(45_600_000), "45.6 ms");
        assert_eq!(
            durations(Interval { proven: 1_200_000_000, possible: 3_400_000_000 }),
            "1.20 to 3.40 s"
        );
        assert_eq!(
            durations(Interval { proven: 12_000, possible: 3_400_000 }),
            "12.0 µs to 3.40 ms"
        );
        assert_eq!(interval(Interval { proven: 3, possible: 3 }), "3");
        assert_eq!(bytes(3 << 20), "3.00 MiB");
    }

    #[test]
    fn shares_round_to_no_false_extreme() {
        assert_eq!(percent(0.0), "0");
        assert_eq!(percent(0.01), "<0.1");
        assert_eq!(percent(9.94), "9.9");
        assert_eq!(percent(37.6), "38");
        assert_eq!(percent(99.99), "99");
        assert_eq!(percents(31.2, 37.6), "31 to 38 %");
        assert_eq!(percents(0.0, 0.0), "0 %");
    }
}
