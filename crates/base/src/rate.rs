//! Rates as operators write them: `"50/s"`, `"600/m"`, `"1000/h"`, `"2000000/d"`. Not here: counting.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// The units, in seconds. A day has 24 hours.
const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];

/// The texts that [`Rate::parse`] accepts, for JSON Schema.
const PATTERN: &str = r"^\s*\d+\s*/\s*[smhd]\s*$";

/// A rate: a number per second, minute, hour or day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number in one unit.
    pub count: NonZeroU32,
    /// The unit.
    pub per: Duration,
}

impl Rate {
    /// So many in a minute.
    #[must_use]
    pub const fn per_minute(count: NonZeroU32) -> Self {
        Self { count, per: Duration::from_secs(60) }
    }

    /// The time between two at an even pace. At least a nanosecond.
    #[must_use]
    pub fn interval(&self) -> Duration {
        (self.per / self.count.get()).max(Duration::from_nanos(1))
    }

    /// The number that fits into one second, at least one: the smallest sensible burst.
    #[must_use]
    pub fn per_second(&self) -> NonZeroU32 {
        let seconds = u32::try_from(self.per.as_secs()).unwrap_or(u32::MAX).max(1);
        NonZeroU32::new(self.count.get() / seconds).unwrap_or(NonZeroU32::MIN)
    }

    /// Parses `50/s`: a number greater than zero and a unit.
    ///
    /// # Errors
    /// The problem, and in a second line how to fix it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "write it like \"50/s\", \"600/m\", \"1000/h\" or \"2000000/d\"";
        let Some((count, unit)) = text.split_once('/') else {
            return Err(format!("this is not a rate\n{example}"));
        };
        let (count, unit) = (count.trim(), unit.trim());
        if count.is_empty() || !count.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(format!("this is not a rate\n{example}"));
        }

        let count: u32 = count.parse().map_err(|_| format!("a rate is too high\nthe maximum is {}", u32::MAX))?;
        let count = NonZeroU32::new(count).ok_or_else(|| format!("a rate cannot be 0\n{example}"))?;
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, seconds) = unit.ok_or_else(|| "a rate has an unknown unit\nunits are s, m, h and d".to_owned())?;
        Ok(Self { count, per: Duration::from_secs(*seconds) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.per.as_secs();
        match UNITS.iter().find(|(_, unit)| *unit == seconds) {
            Some((unit, _)) => write!(formatter, "{}/{unit}", self.count),
            None => write!(formatter, "{} in {seconds} s", self.count),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RateVisitor;
        impl Visitor<'_> for RateVisitor {
            type Value = Rate;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a rate such as \"50/s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
                Rate::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Rate, E> {
                Err(E::custom(format!("a rate needs a unit\ndid you mean \"{number}/s\"?")))
            }
        }
        deserializer.deserialize_any(RateVisitor)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Rate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN, "examples": ["50/s", "600/m"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        for (text, count, seconds) in [("50/s", 50, 1), (" 600 / m ", 600, 60), ("1/h", 1, 3600), ("7/d", 7, 86_400)] {
            let rate = Rate::parse(text).expect("a rate");
            assert_eq!((rate.count.get(), rate.per.as_secs()), (count, seconds), "{text}");
            assert_eq!(Rate::parse(&rate.to_string()), Ok(rate));
        }
        for text in ["", "50", "50/", "/s", "0/s", "-1/s", "1.5/s", "50/w", "50/s/s", "99999999999/s"] {
            assert!(Rate::parse(text).is_err_and(|error| error.contains('\n')), "{text}");
        }
    }

    #[test]
    fn a_slow_rate_still_allows_one_at_once() {
        assert_eq!(Rate::parse("600/m").map(|rate| (rate.per_second().get(), rate.interval())), {
            Ok((10, Duration::from_millis(100)))
        });
        assert_eq!(Rate::parse("1/d").map(|rate| rate.per_second().get()), Ok(1));
    }
}
