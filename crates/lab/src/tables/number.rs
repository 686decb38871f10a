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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_tell_enough() {
        let shown = [3811.76, 14.0512, 1.0, 0.0234567, 1_234_567.8, 0.0, 512.0].map(number);
        assert_eq!(shown, ["3812", "14.05", "1", "0.02346", "1234568", "0", "512"]);
        assert_eq!(number(f64::INFINITY), "infinite");
    }
}
