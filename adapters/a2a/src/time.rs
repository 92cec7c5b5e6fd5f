//! Timestamps as A2A and HTTP write them: arithmetic only, no clock. The core parses RFC 3339
//! ([`interlingua_core::pending::time`]).

use std::fmt;

use interlingua_core::event::Millis;
use serde::{Serialize, Serializer};

/// UTC, always with milliseconds: `2026-11-20T10:00:00.000Z` (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp(pub(crate) Millis);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second, .. } = Civil::from_millis(self.0);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", self.0 % 1000)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Formats an HTTP date: `Fri, 20 Nov 2026 10:00:00 GMT`.
pub(crate) fn http_date(at: Millis) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let Civil { days, year, month, day, hour, minute, second } = Civil::from_millis(at);
    let weekday = DAYS[(days % 7) as usize];
    let month = MONTHS[(month - 1) as usize];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Parses an HTTP date. `None` if it is invalid: the conditional header is then ignored.
pub(crate) fn parse_http_date(text: &str) -> Option<Millis> {
    let (_, rest) = text.trim().split_once(", ")?;
    let mut words = rest.split(' ');
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let time = words.next()?;
    interlingua_core::pending::time::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z"))
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Calendar fields of a timestamp.
struct Civil {
    days: u64,
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Civil {
    fn from_millis(at: Millis) -> Self {
        let seconds = at / 1000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);

        // The calendar repeats every 400 years. Years start in March, so the leap day comes last.
        let shifted = days + 719_468;
        let (era, day) = (shifted / 146_097, shifted % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);

        let march = (5 * day + 2) / 153;
        let month = if march < 10 { march + 3 } else { march - 9 };

        Self {
            days,
            year: year + era * 400 + u64::from(month <= 2),
            month,
            day: day - (153 * march + 2) / 5 + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_and_read_back() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_168_800_123, "2026-11-20T10:00:00.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(at).to_string(), text);
            assert_eq!(interlingua_core::pending::time::parse_rfc3339(text), Some(at));
        }
        assert_eq!(http_date(1_795_168_800_999), "Fri, 20 Nov 2026 10:00:00 GMT");
        assert_eq!(parse_http_date("Fri, 20 Nov 2026 10:00:00 GMT"), Some(1_795_168_800_000));
        assert_eq!(parse_http_date("yesterday"), None);
    }
}
