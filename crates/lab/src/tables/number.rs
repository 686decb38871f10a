//! Numbers short enough to compare by eye.

/// Four significant digits, at most six decimals; whole numbers whole, and large ones in full.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "infinite".to_owned() } else { "-".to_owned() };
    }
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let magnitude = value.abs().log10().floor();
    let decimals = (3.0 - magnitude).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

/// A ratio in three significant digits.
pub(crate) fn times(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "infinitely many".to_owned();
    }
    let decimals = if ratio < 9.995 {
        2
    } else if ratio < 99.95 {
        1
    } else {
        0
    };
    format!("{ratio:.decimals$}")
}

/// The end of an interval that excludes 1: with as many digits more as it takes to see that.
pub(crate) fn times_apart(ratio: f64) -> String {
    let shown = (2..=5).map(|decimals| format!("{ratio:.decimals$}"));
    let is_apart = |text: &String| text.parse() != Ok(1.0);
    match times(ratio) {
        text if text == "1.00" => shown.into_iter().find(is_apart).unwrap_or(text),
        text => text,
    }
}

/// How much better (+) or worse (−) a ratio is, in percent.
pub(crate) fn percent(ratio: f64) -> String {
    let change = 100.0 * (ratio - 1.0);
    let decimals = usize::from(change.abs() < 99.95);
    let digits = format!("{:.decimals$}", change.abs());
    match digits.parse() {
        Ok(0.0) => format!("{digits} %"),
        _ if change < 0.0 => format!("−{digits} %"),
        _ => format!("+{digits} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_three_digits_and_changes_a_sign() {
        let shown = [1.0, 3.006, 9.999, 12.84, 247.44, f64::INFINITY].map(times);
        assert_eq!(shown, ["1.00", "3.01", "10.0", "12.8", "247", "infinitely many"]);
        let shown = [1.0, 0.984, 1.036, 2.5, 1.000_04].map(percent);
        assert_eq!(shown, ["0.0 %", "−1.6 %", "+3.6 %", "+150 %", "0.0 %"]);
    }

    #[test]
    fn ends_that_exclude_one_look_so() {
        let shown = [1.0034, 0.99998, 1.25, 1.0].map(times_apart);
        assert_eq!(shown, ["1.003", "0.99998", "1.25", "1.00"]);
    }

    #[test]
    fn four_digits_tell_enough() {
        let shown = [3811.76, 14.0512, 1.0, 0.0234567, 1_234_567.8, 0.0, 512.0].map(number);
        assert_eq!(shown, ["3812", "14.05", "1", "0.02346", "1234568", "0", "512"]);
        assert_eq!(number(f64::INFINITY), "infinite");
    }
}
