//! Durations as operators write them: `"250ms"`, `"5s"`, `"1h30m"`, `"30d"`. The one grammar, used by adapter options
//! and by the gateway's own settings.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// The units, largest first, in milliseconds. A day has 24 hours.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest duration accepted. More is certainly a typing error, and could overflow an `Instant`.
const MAX_DAYS: u64 = 3650;

/// The texts that [`Period::parse`] accepts, for JSON Schema.
const PATTERN: &str = r"^\s*(?=\d)(\d+\s*d\s*)?(\d+\s*h\s*)?(\d+\s*m\s*)?(\d+\s*s\s*)?(\d+\s*ms\s*)?$";

/// A duration in whole seconds, rounded up, so that a retry after this time is never too early.
#[must_use]
pub const fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs() + if duration.subsec_nanos() > 0 { 1 } else { 0 }
}

/// A duration with millisecond precision, parsed from a text with units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

impl Period {
    /// A duration of `seconds` seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A duration of `milliseconds` milliseconds.
    #[must_use]
    pub const fn milliseconds(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    /// Parses `1h30m`: integers with units, larger units first, each unit at most once.
    ///
    /// # Errors
    /// The problem, and in a second line how to fix it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "write it like \"250ms\", \"5s\", \"1h30m\" or \"30d\"";
        let mut rest = text.trim();
        let mut total: u64 = 0;
        let mut units = UNITS.as_slice();
        if rest.is_empty() {
            return Err(format!("a duration is missing\n{example}"));
        }

        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(digits);
            // `90 s` is accepted, as `8 MiB` is for sizes.
            let after = after.trim_start();
            let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, after) = after.split_at(letters);
            if number.is_empty() {
                return Err(format!("this is not a duration\n{example}"));
            }

            if unit.is_empty() {
                return Err(if after.is_empty() {
                    format!("a duration needs a unit\ndid you mean \"{}s\"?", text.trim())
                } else {
                    format!("this is not a duration\n{example}")
                });
            }
            let Some(index) = units.iter().position(|(name, _)| *name == unit) else {
                return Err(if UNITS.iter().any(|(name, _)| *name == unit) {
                    format!("units must go from large to small, each at most once\n{example}")
                } else {
                    "a duration has an unknown unit\nunits are d, h, m, s and ms".to_owned()
                });
            };
            let milliseconds = number.parse::<u64>().ok();
            total = milliseconds
                .and_then(|number| number.checked_mul(units[index].1))
                .and_then(|part| total.checked_add(part))
                .filter(|total| *total <= MAX_DAYS * UNITS[0].1)
                .ok_or_else(|| format!("a duration is too long\nthe maximum is \"{MAX_DAYS}d\""))?;
            units = &units[index + 1..];
            rest = after.trim_start();
        }
        Ok(Self(Duration::from_millis(total)))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return formatter.write_str("0s");
        }

        for (unit, milliseconds) in UNITS {
            if rest >= milliseconds {
                write!(formatter, "{}{unit}", rest / milliseconds)?;
                rest %= milliseconds;
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PeriodVisitor;
        impl Visitor<'_> for PeriodVisitor {
            type Value = Period;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a duration such as \"30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Period, E> {
                Period::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Period, E> {
                let seconds = number.unsigned_abs();
                let suggestion = format!("did you mean \"{seconds}s\"?");
                Err(E::custom(format!("a duration needs a unit\n{suggestion}")))
            }
        }
        deserializer.deserialize_str(PeriodVisitor)
    }
}

/// A duration in the options of an adapter: a [`Period`], or a plain number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(pub Duration);

impl Ttl {
    /// A duration of `seconds` seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TtlVisitor;
        impl Visitor<'_> for TtlVisitor {
            type Value = Ttl;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a duration such as \"90s\", or a number of seconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ttl, E> {
                Period::parse(text).map(|period| Ttl(period.0)).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ttl, E> {
                match u64::try_from(number) {
                    Ok(seconds) => self.visit_u64(seconds),
                    Err(_) => Err(E::custom("a duration cannot be negative")),
                }
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Ttl, E> {
                if seconds <= MAX_DAYS * (UNITS[0].1 / 1000) {
                    Ok(Ttl::seconds(seconds))
                } else {
                    Err(E::custom(format!("a duration is too long\nthe maximum is \"{MAX_DAYS}d\"")))
                }
            }
        }
        deserializer.deserialize_any(TtlVisitor)
    }
}

impl Serialize for Ttl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Period(self.0).serialize(serializer)
    }
}

impl JsonSchema for Ttl {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ttl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string", "pattern": PATTERN }, { "type": "integer", "minimum": 0 }],
            "examples": ["90s", "15m", "24h", 90],
        })
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": PATTERN,
            "examples": ["250ms", "5s", "1h30m", "30d"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_with_one_or_several_units_are_parsed() {
        for (text, milliseconds) in [("250ms", 250), ("5s", 5_000), ("2m", 120_000), ("1h30m", 5_400_000), ("0s", 0)] {
            assert_eq!(Period::parse(text), Ok(Period(Duration::from_millis(milliseconds))));
        }
        assert_eq!(Period::parse("30d"), Ok(Period::seconds(30 * 86_400)));
        assert_eq!(Period::parse("1h 30m"), Period::parse("90m"));
        assert_eq!(Period::parse("5 s"), Period::parse("5s"));
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in ["", "5", "s", "-5s", "1.5s", "30m1h", "1s1s", "5y", "4000d", "五s"] {
            assert!(Period::parse(text).is_err(), "{text:?}");
        }
        assert!(Period::parse("99999999999999999999999s").is_err());
    }

    #[test]
    fn options_accept_plain_seconds() {
        let parse = |text: &str| serde_json::from_str::<Ttl>(text).map(|ttl| ttl.0.as_secs()).ok();
        assert_eq!(
            [parse("90"), parse("\"90s\""), parse("\"15m\""), parse("\"1 d\"")],
            [90, 90, 900, 86_400].map(Some)
        );
        assert_eq!(serde_json::from_str::<Ttl>("\"500ms\"").map(|ttl| ttl.0).ok(), Some(Duration::from_millis(500)));
        for wrong in ["\"\"", "\"m\"", "\"1w\"", "\"1.5h\"", "-1", "999999999999", "\"99999999999999999999d\""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_duration_parses_back(milliseconds in 0..MAX_DAYS * 86_400_000) {
            let period = Period(Duration::from_millis(milliseconds));
            prop_assert_eq!(Period::parse(&period.to_string()), Ok(period));
        }

        #[test]
        fn no_input_makes_the_parser_panic(text in any::<String>()) {
            let _ = Period::parse(&text);
        }
    }
}
