//! Sizes as operators write them: `"64KiB"`, `"8MiB"`, `"1GiB"`, or plain bytes. Used by adapter options and by the
//! gateway's own settings.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Units in bytes, largest first.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Upper limit. Everything measured in this unit is held in memory, so a larger value is a mistake.
const MAX_BYTES: u64 = 1 << 40;

/// A number of bytes, parsed from a text with a unit or from a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// A size of `number` MiB.
    #[must_use]
    pub const fn mebibytes(number: u64) -> Self {
        Self(number << 20)
    }

    /// The size as a length in memory.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Parses a size such as `8MiB`.
    ///
    /// # Errors
    /// The problem, and in a second line how to fix it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();

        if number.is_empty() {
            return Err("this is not a size\nwrite it like \"64KiB\", \"8MiB\" or \"1GiB\"".into());
        }

        let found = if unit.is_empty() {
            Some(1)
        } else {
            UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes)
        };
        let Some(bytes) = found else {
            // Operators also write `64KB`, `64k` or `64kib`. Suggest the unit they mean.
            let meant = match unit.to_ascii_lowercase().as_str() {
                "k" | "kb" | "kib" => Some("KiB"),
                "m" | "mb" | "mib" => Some("MiB"),
                "g" | "gb" | "gib" => Some("GiB"),
                _ => None,
            };
            return Err(match meant {
                Some(meant) => {
                    format!("a size has an unknown unit\ndid you mean \"{number}{meant}\"?")
                }
                None => "a size has an unknown unit\nunits are B, KiB, MiB and GiB".to_owned(),
            });
        };

        number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(bytes))
            .filter(|size| *size <= MAX_BYTES)
            .map(Self)
            .ok_or_else(|| "a size is too large\nat most \"1024GiB\" is possible".to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, bytes) =
            UNITS.into_iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes)).unwrap_or(("B", 1));
        write!(formatter, "{}{unit}", self.0 / bytes)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a size such as \"8MiB\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Size, E> {
                match u64::try_from(number) {
                    Ok(bytes) => self.visit_u64(bytes),
                    Err(_) => Err(E::custom("a size cannot be negative")),
                }
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                if bytes <= MAX_BYTES {
                    Ok(Size(bytes))
                } else {
                    Err(E::custom("a size is too large\nat most 1024 GiB is possible"))
                }
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_parsed_with_their_unit() {
        assert_eq!(Size::parse("64KiB"), Ok(Size(65_536)));
        assert_eq!(Size::parse("8 MiB"), Ok(Size(8 << 20)));
        assert_eq!(Size::parse("1GiB"), Ok(Size(1 << 30)));
        assert_eq!(Size::parse("512"), Ok(Size(512)));
        for text in ["", "MiB", "-1", "1.5MiB", "8MB", "8TiB", "99999999999999GiB"] {
            assert!(Size::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn plain_numbers_are_bytes() {
        let parse = |json: &str| serde_json::from_str::<Size>(json).ok();
        assert_eq!((parse("512"), parse("\"512\""), parse("0")), (Some(Size(512)), Some(Size(512)), Some(Size(0))));
        assert_eq!((parse("-1"), parse("1.5"), parse("18446744073709551615"), parse("true")), (None, None, None, None));
    }

    proptest! {
        #[test]
        fn a_formatted_size_parses_to_the_same_value(bytes in 0..=MAX_BYTES) {
            prop_assert_eq!(Size::parse(&Size(bytes).to_string()), Ok(Size(bytes)));
        }
    }
}
