//! Dates for people to read, of records. Nothing is measured by them.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time now in UTC as `20040502-191709`.
#[expect(clippy::disallowed_methods, reason = "a date for people, not a time that is measured")]
pub(crate) fn stamp_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    stamp(since.as_secs())
}

/// A time in UTC as `2004-05-02T19:17:09Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let stamp = stamp(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let [year, month, day] = [&stamp[..4], &stamp[4..6], &stamp[6..8]];
    let [hour, minute, second] = [&stamp[9..11], &stamp[11..13], &stamp[13..15]];
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")
}

/// The day now in UTC as `2004-05-02`.
pub fn today() -> String {
    let stamp = stamp_now();
    format!("{}-{}-{}", &stamp[..4], &stamp[4..6], &stamp[6..8])
}

/// The time `seconds` after the beginning of 1970.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of a day counted from 1970-01-01, by Howard Hinnant's `civil_from_days`:
/// years begin in March, so that the leap day is the last.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_those_of_date() {
        // date -u -d @SECONDS +%Y%m%d-%H%M%S
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_083_550_629), "20040503-021709");
        assert_eq!(stamp(4_107_542_400), "21000301-000000");
        let time = UNIX_EPOCH + std::time::Duration::from_secs(1_083_550_629);
        assert_eq!(rfc3339(time), "2004-05-03T02:17:09Z");
    }
}
