//! Conversion between RFC 3339 text and milliseconds. Only arithmetic: no clock and no time zone database.

use crate::event::Millis;

const SECONDS_PER_DAY: i64 = 86_400;

/// Parses `2026-11-20T12:00:00Z`, with an optional fraction and any offset. `None` if it is not a valid time. Times
/// before 1970 become 0.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| -> Option<i64> {
        let part = bytes.get(from..to)?;
        part.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));

    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    // A leap second, `60`, counts as the first second of the next minute.
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }

    let fraction = bytes.get(19..)?;
    let length = match fraction.first() {
        Some(b'.') => 1 + fraction[1..].iter().take_while(|byte| byte.is_ascii_digit()).count(),
        _ => 0,
    };
    if length == 1 {
        return None;
    }

    let millis = (1..=3).fold(0, |number, at| {
        number * 10 + fraction.get(at).filter(|_| at < length).map_or(0, |digit| i64::from(digit - b'0'))
    });

    let zone = 19 + length;
    let offset = match (bytes.get(zone)?, bytes.len() - zone) {
        (b'Z' | b'z', 1) => 0,
        (sign @ (b'+' | b'-'), 6) if is(zone + 3, b":") => {
            let (hours, minutes) = (digits(zone + 1, zone + 3)?, digits(zone + 4, zone + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -60 } else { 60 }
        }
        _ => return None,
    };

    let seconds = days(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    Some(u64::try_from(seconds * 1000 + millis).unwrap_or(0))
}

/// Formats a time in UTC: `2026-11-20T12:00:00Z`, with milliseconds unless they are zero.
#[must_use]
pub fn format_rfc3339(time: Millis) -> String {
    let seconds = i64::try_from(time / 1000).unwrap_or(i64::MAX);
    let (days, second) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));

    // The calendar repeats every 400 years. Years start in March here, so that the leap day comes last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);

    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = time % 1000;
    let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Days since 1970-01-01.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
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
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_time_parses_to_the_same_value(at in 0..253_402_300_800_000_u64) {
            prop_assert_eq!(parse_rfc3339(&format_rfc3339(at)), Some(at));
        }

        #[test]
        fn no_text_causes_a_panic(text in "\\PC{0,40}") {
            let _ = parse_rfc3339(&text);
        }
    }
}
