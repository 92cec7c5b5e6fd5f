//! Reads single fields of a JSON object without building the rest of it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The values of these fields as written. Of a repeated field the last one. `None` if the text is no JSON object.
pub(super) fn fields<'a, const N: usize>(json: &'a str, names: [&'static str; N]) -> Option<[Option<&'a RawValue>; N]> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = reader.deserialize_map(FieldVisitor(names)).ok()?;
    reader.end().ok()?;
    Some(found)
}

/// A value as text. `None` if it is no JSON string.
pub(super) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

struct FieldVisitor<const N: usize>([&'static str; N]);

impl<'de, const N: usize> Visitor<'de> for FieldVisitor<N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match self.0.iter().position(|name| *name == key) {
                Some(place) => found[place] = Some(map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_as_written_and_other_values_have_none() {
        let found = fields(r#" {"a": [1, 2], "b":{"a":7}, "\u0063":"x", "b": 1e3} "#, ["a", "b", "c", "d"]);
        let found = found.expect("an object").map(|value| value.map(RawValue::get));
        assert_eq!(found, [Some("[1, 2]"), Some("1e3"), Some("\"x\""), None]);
        for other in ["[]", "7", "", "{", "{} {}", "{\"a\":}", "{\"b\":1"] {
            assert!(fields(other, ["a"]).is_none(), "{other}");
        }
    }
}
