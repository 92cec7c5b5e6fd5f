//! Timestamps as text: RFC 3339 and HTTP dates, both in UTC. Only formats: no clock and no time zone database.

use jiff::Timestamp;
use jiff::fmt::{rfc2822, temporal};

use crate::event::Millis;

/// Parses `2026-11-20T12:00:00Z`, with an optional fraction and any offset. `None` if it is not a valid time. Times
/// before 1970 become 0.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    // The parser also knows forms of ISO 8601 and RFC 9557 that RFC 3339 does not have.
    let is = |at: usize, any: &[u8]| text.as_bytes().get(at).is_some_and(|byte| any.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) || text.ends_with(']') {
        return None;
    }
    text.parse().ok().map(from_timestamp)
}

/// Formats a time in UTC: `2026-11-20T12:00:00Z`, with milliseconds unless they are zero.
#[must_use]
pub fn format_rfc3339(time: Millis) -> String {
    static SECONDS: temporal::DateTimePrinter = temporal::DateTimePrinter::new().precision(Some(0));
    if time.is_multiple_of(1000) {
        SECONDS.timestamp_to_string(&to_timestamp(time))
    } else {
        format_rfc3339_millis(time)
    }
}

/// Formats a time in UTC, always with milliseconds: `2026-11-20T12:00:00.000Z`.
#[must_use]
pub fn format_rfc3339_millis(time: Millis) -> String {
    let mut text = String::new();
    push_rfc3339_millis(time, &mut text);
    text
}

/// Appends a time in the form of [`format_rfc3339_millis`].
pub fn push_rfc3339_millis(time: Millis, text: &mut String) {
    static MILLIS: temporal::DateTimePrinter = temporal::DateTimePrinter::new().precision(Some(3));
    let printed = MILLIS.print_timestamp(&to_timestamp(time), text);
    debug_assert!(printed.is_ok(), "a string takes any text");
}

/// Formats an HTTP date (RFC 9110, section 5.6.7): `Fri, 20 Nov 2026 10:00:00 GMT`.
#[must_use]
pub fn format_http_date(time: Millis) -> String {
    static PRINTER: rfc2822::DateTimePrinter = rfc2822::DateTimePrinter::new();
    PRINTER.timestamp_to_rfc9110_string(&to_timestamp(time)).unwrap_or_default()
}

/// Parses an HTTP date, with seconds. `None` if it is invalid.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<Millis> {
    static PARSER: rfc2822::DateTimeParser = rfc2822::DateTimeParser::new().relaxed_weekday(true);
    PARSER.parse_timestamp(text.trim()).ok().map(from_timestamp)
}

/// The end of the calendar for times beyond the year 9999.
fn to_timestamp(time: Millis) -> Timestamp {
    i64::try_from(time).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok()).unwrap_or(Timestamp::MAX)
}

fn from_timestamp(timestamp: Timestamp) -> Millis {
    Millis::try_from(timestamp.as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_parsed() {
        for (text, at) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-20T12:00:00Z", 1_795_176_000_000),
            ("2026-11-20T13:30:00.5+01:30", 1_795_176_000_500),
            ("2026-11-20t11:59:59.123456z", 1_795_175_999_123),
            ("2000-02-29T00:00:00-00:00", 951_782_400_000),
            ("1969-12-31T23:59:59Z", 0),
        ] {
            assert_eq!(parse_rfc3339(text), Some(at), "{text}");
        }
        assert_eq!(format_rfc3339(1_795_176_000_500), "2026-11-20T12:00:00.500Z");
        assert_eq!(format_rfc3339(1_795_176_000_000), "2026-11-20T12:00:00Z");
        assert_eq!(format_rfc3339_millis(1_795_176_000_000), "2026-11-20T12:00:00.000Z");
        assert_eq!(format_rfc3339_millis(951_782_400_000), "2000-02-29T00:00:00.000Z");
    }

    #[test]
    fn http_dates_are_formatted_and_parsed() {
        assert_eq!(format_http_date(1_795_168_800_999), "Fri, 20 Nov 2026 10:00:00 GMT");
        assert_eq!(parse_http_date("Fri, 20 Nov 2026 10:00:00 GMT"), Some(1_795_168_800_000));
        assert_eq!(parse_http_date("yesterday"), None);
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "tomorrow",
            "2026-11-20",
            "2026-11-20T12:00:00",
            "2026-13-20T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "2026-11-20T12:00:00.Z",
            "2026-11-20T12:00:00+1:30",
            "2026-11-20T12:00:00Zz",
            "2026-11-20T24:00:00Z",
            "2026-11-2éT12:00:00Z",
            "20261120T120000Z",
            "2026-11-20T12:00:00Z[Europe/Berlin]",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_time_parses_to_the_same_value(at in 0..253_402_207_200_000_u64) {
            prop_assert_eq!(parse_rfc3339(&format_rfc3339(at)), Some(at));
        }

        #[test]
        fn no_text_causes_a_panic(text in "\\PC{0,40}") {
            let _ = parse_rfc3339(&text);
        }
    }
}
