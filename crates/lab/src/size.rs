//! Sizes and shares as people write them.

/// Bytes of `text`: a whole number, or one followed by K, M, G or T (powers of 1024; `KiB` and `KB`
/// mean the same). `None` for anything else, and for what does not fit.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().ok()?;
    let power = match &*text[digits.len()..].to_ascii_lowercase() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => return None,
    };
    count.checked_mul(1024_u64.checked_pow(power)?)
}

/// A share of `text`: `5%` or `0.05`.
pub fn parse_share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (share.is_finite() && share >= 0.0).then_some(share)
}

/// Bytes in the largest unit that leaves a short number.
pub(crate) fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(value.fract() != 0.0);
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("256M"), Some(256 << 20));
        assert_eq!(parse_size("1G"), Some(1 << 30));
        assert_eq!(parse_size("4kib"), Some(4096));
        assert_eq!(parse_size("0"), Some(0));
        for wrong in ["", "M", "-1", "1.5G", "1Q", "99999999999T", "1 G"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
        assert_eq!(format_size(256 << 20), "256 MiB");
        assert_eq!(format_size(1536), "1.5 KiB");
    }

    #[test]
    fn shares_are_per_cent_or_plain() {
        assert_eq!(parse_share("5%"), Some(0.05));
        assert_eq!(parse_share("0.02"), Some(0.02));
        for wrong in ["", "%", "-1", "nan", "inf", "five"] {
            assert_eq!(parse_share(wrong), None, "{wrong}");
        }
    }
}
